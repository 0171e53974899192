"""Stamps: a deadline and a count in an mtime, which other times are not mistaken for."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from fsmq.spool.layout.stamps import MAX_COUNT, Stamp, Stamps

MS = 1_000_000
S = 1_000_000_000
ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
deadlines = st.integers(0, 9_000_000_000_000)  # to the year 2255; signed nanoseconds end in 2262
exact = Stamps()
coarse = Stamps(coarse=True)


@given(ids, deadlines, st.integers(0, 1000))
def test_a_stamp_survives_a_round_trip(message_id: str, deadline_ms: int, count: int) -> None:
    mtime = exact.encode(message_id, deadline_ms, count)
    assert exact.decode(message_id, mtime) == Stamp(deadline_ms, min(count, MAX_COUNT))
    assert exact.deliveries(message_id, mtime) == min(count, MAX_COUNT)
    assert 0 <= mtime < 2**63


@given(ids, deadlines, st.integers(1, MAX_COUNT))
def test_a_stamp_of_a_backoff_survives_a_round_trip(
    message_id: str, deadline_ms: int, count: int
) -> None:
    waits = Stamp(deadline_ms, count, backs_off=True)
    mtime = exact.encoded(message_id, waits)
    assert exact.decode(message_id, mtime) == waits
    assert mtime != exact.encode(message_id, deadline_ms, count)
    assert exact.hidden_state(message_id, mtime, deadline_ms - 1) == "delayed"
    assert exact.hidden_state(message_id, mtime, deadline_ms) == "in_flight"


@given(ids, deadlines)
def test_a_backoff_without_a_delivery_is_not_a_stamp(message_id: str, deadline_ms: int) -> None:
    mtime = exact.encode(message_id, deadline_ms, 0, backs_off=True)
    assert exact.decode(message_id, mtime) is None


@given(ids, st.integers(0, 2**62))
def test_a_time_in_whole_milliseconds_or_seconds_never_verifies(
    message_id: str, mtime: int
) -> None:
    assert exact.decode(message_id, mtime // MS * MS) is None
    assert exact.decode(message_id, mtime // S * S) is None


def test_a_foreign_time_verifies_about_twice_in_ten_thousand() -> None:
    dice = random.Random(7)
    times = [dice.randrange(1_600_000_000 * S, 1_900_000_000 * S) for _ in range(200_000)]
    verified = sum(exact.decode("some-id", time) is not None for time in times)
    assert 20 <= verified <= 60  # 40 are expected; the seed is fixed


@given(deadlines, st.integers(0, MAX_COUNT))
def test_a_stamp_belongs_to_one_id(deadline_ms: int, count: int) -> None:
    mtime = exact.encode("one", deadline_ms, count)
    others = [f"other-{n}" for n in range(20)]
    # Three of twenty by chance: less than once in 10 million.
    assert sum(exact.decode(other, mtime) is not None for other in others) <= 2


@given(ids, deadlines, st.integers(0, MAX_COUNT))
def test_coarse_times_round_deadlines_up_and_have_no_count(
    message_id: str, deadline_ms: int, count: int
) -> None:
    mtime = coarse.encode(message_id, deadline_ms, count)
    assert mtime % S == 0
    stamp = coarse.decode(message_id, mtime)
    assert stamp is not None
    assert 0 <= stamp.deadline_ms - deadline_ms < 1000
    assert stamp.deliveries is None
    assert coarse.deliveries(message_id, mtime) == 0


def test_a_foreign_time_has_no_deliveries() -> None:
    assert exact.deliveries("an-id", 1_700_000_000 * S) == 0
