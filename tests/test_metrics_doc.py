"""docs/metrics.md has every metric; tests/test_pages.py runs its examples."""

from __future__ import annotations

import re

from fsmq.spool.records.metrics import METRICS
from tests.harness.suite import HOME

TEXT = (HOME / "docs" / "metrics.md").read_text()
ALERTS = (HOME / "docs" / "howto" / "monitoring.md").read_text()


def test_every_metric_is_documented() -> None:
    for metric in METRICS.values():
        end = "_total" if metric.kind == "counter" else ""
        assert f"`fsmq_{metric.name}{end}`" in TEXT


def test_metrics_and_labels_of_alerts_exist() -> None:
    documented = dict(re.findall(r"^\| `(fsmq_\w+)` \|([^|]*)\|", TEXT, re.MULTILINE))
    expressions = re.findall(r"expr: (.*)", ALERTS)
    assert len(expressions) > 5
    for expression in expressions:
        asked = re.findall(r"(fsmq_\w+?)(?:_count)?\b(?:\{(\w+)=)?", expression)
        assert asked, expression
        for metric, label in asked:
            assert metric in documented, expression
            assert label in (*documented[metric].strip().split(", "), "process", ""), expression
