"""The job ``report``: the journal's tables as one HTML file with charts, for people."""

from __future__ import annotations

from fsmq.pipeline.report.figures import DAYS as DAYS
from fsmq.pipeline.report.figures import Figures as Figures
from fsmq.pipeline.report.figures import collect as collect
from fsmq.pipeline.report.page import page as page

__all__ = ["DAYS", "Figures", "collect", "page"]
