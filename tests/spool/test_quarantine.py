"""What failed waits apart: for a time of its own, and the longer the more often it fails."""

from __future__ import annotations

from itertools import pairwise

from fsmq.spool.index.quarantine import FIRST_S, LONGEST_S, Quarantine

BAD = OSError("bad")


def tries(quarantined: Quarantine, name: str, until: float, step: float = 0.5) -> list[float]:
    """When a name that always fails is tried."""
    quarantined.add(name, 0.0)
    found = []
    for now in (step * n for n in range(round(until / step))):
        while (due := quarantined.pop_due(now)) is not None:
            assert due == name
            quarantined.add(due, now)
            found.append(now)
    return found


def test_pauses_grow_and_have_an_end() -> None:
    found = tries(Quarantine(), "x", 200.0)
    assert found[:5] == [1, 3, 7, 15, 31]
    assert {b - a for a, b in pairwise(found[4:])} == {LONGEST_S}


def test_nothing_waits_longer_than_its_fault_has_lasted() -> None:
    for lasted, due in pairwise(tries(Quarantine(), "x", 30.0)):
        assert due <= 2 * lasted + FIRST_S


def test_a_clock_that_is_set_back_shuts_nothing_out() -> None:
    quarantined = Quarantine()
    quarantined.add("x", 3600.0)
    assert quarantined.pop_due(0.0) == "x"
    quarantined.add("x", 0.0)
    assert [quarantined.pop_due(1.0), quarantined.pop_due(LONGEST_S)] == [None, "x"]


def test_each_has_a_time_of_its_own() -> None:
    quarantined = Quarantine()
    quarantined.add("old", 0.0)
    quarantined.add("new", 0.9)
    assert [quarantined.pop_due(1.0), quarantined.pop_due(1.0)] == ["old", None]
    quarantined.add("old", 1.0)
    assert [quarantined.pop_due(2.0), quarantined.pop_due(2.0)] == ["new", None]
    assert list(quarantined) == ["old"]


def test_what_went_well_begins_anew() -> None:
    quarantined = Quarantine()
    for now in (0.0, 1.0):
        quarantined.add("x", now)
        quarantined.pop_due(now + 10)
    quarantined.forget("x")
    quarantined.add("x", 20.0)
    assert quarantined.next_s() == 20.0 + FIRST_S
    quarantined.forget("x")
    assert (len(quarantined), quarantined.next_s(), quarantined.pop_first()) == (0, None, None)


def test_a_try_before_its_time_makes_no_pause_longer() -> None:
    quarantined = Quarantine()
    quarantined.add("x", 0.0)
    for n in range(9):
        assert quarantined.pop_first() == "x"
        quarantined.add("x", n / 10)
    assert quarantined.next_s() == FIRST_S


def test_it_does_not_grow_without_end() -> None:
    quarantined = Quarantine(limit=10)
    for n in range(100):
        quarantined.add(f"x{n}", 0.0, BAD)
    assert len(quarantined) == 10
    assert quarantined.news(0.0) == ("x0 and 9 others", BAD)
    while quarantined.pop_due(2.0) is not None:
        pass
    # Of these nobody says what came of them: they make room.
    for n in range(10):
        quarantined.add(f"y{n}", 3.0)
    assert sorted(quarantined) == [f"y{n}" for n in range(10)]


def test_a_failure_is_news_once_and_many_are_not_told_one_by_one() -> None:
    quarantined = Quarantine()
    told = []
    for n in range(100):
        for name in ("same", f"other-{n}"):
            quarantined.add(name, n / 10, BAD)
            told.append(quarantined.news(n / 10))
    told.append(quarantined.news(11.0))
    assert [news for news in told if news is not None] == [
        ("same", BAD),
        ("other-0 and 99 others", BAD),
    ]
