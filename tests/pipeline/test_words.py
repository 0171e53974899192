"""Numbers as the report says them."""

from __future__ import annotations

import pytest

from fsmq.pipeline.report.words import share, span


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (None, "–"),
        (0, "under 1 ms"),
        (0.0042, "4.2 ms"),
        (0.25, "250 ms"),
        (1, "1 s"),
        (9.96, "10 s"),
        (59.99, "1 min"),
        (90, "1.5 min"),
        (3600, "1 h"),
        (5.5 * 3600, "5.5 h"),
        (86_400 * 3, "3 d"),
    ],
)
def test_a_span(seconds: float | None, told: str) -> None:
    assert span(seconds) == told


@pytest.mark.parametrize(
    ("part", "told"), [(0, "0 %"), (0.0004, "under 0.1 %"), (0.018, "1.8 %"), (0.5, "50 %")]
)
def test_a_share(part: float, told: str) -> None:
    assert share(part) == told
