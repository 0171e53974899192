"""The job ``report``: the journal's tables as one HTML file with charts, for people."""

from __future__ import annotations

import jinja2

from fsmq import words
from fsmq.pipeline.report.charts import draw
from fsmq.pipeline.report.figures import Figures as Figures
from fsmq.pipeline.report.figures import collect as collect


def page(figures: Figures) -> str:
    """The whole HTML document, which needs nothing else."""
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("fsmq.pipeline.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    for filter in (words.duration, words.head, words.many, words.moment, words.number, words.share):
        templates.filters[filter.__name__] = filter
    return templates.get_template("report.html").render(figures=figures, charts=draw(figures))
