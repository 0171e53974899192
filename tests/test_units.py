"""Units of spans and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmq import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30), ("1.5", 1.5), ("500ms", 0.5), ("5m", 300), ("5 min", 300), ("2d", 172_800),
        ("1h 30m", 5400), ("2 hours 5 minutes", 7500), ("1 Week", 604_800), (" 7 days ", 604_800),
    ],
)  # fmt: skip
def test_a_span_is_read(text: str, seconds: float) -> None:
    assert units.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "5x", "1 2", "1h30", "5 m of", "-5", "1e9", "64 KiB"])
def test_an_invalid_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        units.seconds(text)


@pytest.mark.parametrize(
    ("text", "size"), [("5", 5), ("64 KiB", 65_536), ("1.5 MB", 1_500_000), ("1 byte", 1)]
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert units.size(text) == size


@pytest.mark.parametrize("text", ["", "64 k", "1 KiB 2", "0.3 bytes", "5m"])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        units.size(text)


def test_spans_and_sizes_are_shown_with_units() -> None:
    assert units.span(432_000) == "5 days"
    assert units.span(5400) == "1 hour 30 minutes"
    assert units.span(0.2) == "200 milliseconds"
    assert units.bytes_of(65_536) == "64 KiB"
    assert units.bytes_of(1) == "1 byte"


@given(st.integers(0, 10**10).map(lambda ms: ms / 1000))
def test_a_shown_span_is_read_back(seconds: float) -> None:
    assert units.seconds(units.span(seconds)) == pytest.approx(seconds, abs=1e-9)


@given(st.integers(0, 2**50))
def test_a_shown_size_is_read_back(size: int) -> None:
    assert units.size(units.bytes_of(size)) == size
