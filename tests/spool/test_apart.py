"""What failed waits apart: for a time of its own, and the longer the more often it fails."""

from __future__ import annotations

from itertools import pairwise

from fsmq.spool.index.apart import FIRST_S, LONGEST_S, Apart

BAD = OSError("bad")


def tries(apart: Apart, name: str, until: float, step: float = 0.5) -> list[float]:
    """When a name that always fails is tried."""
    apart.add(name, 0.0)
    found = []
    for now in (step * n for n in range(round(until / step))):
        while (due := apart.pop_due(now)) is not None:
            assert due == name
            apart.add(due, now)
            found.append(now)
    return found


def test_pauses_grow_and_have_an_end() -> None:
    found = tries(Apart(), "x", 200.0)
    assert found[:5] == [1, 3, 7, 15, 31]
    assert {b - a for a, b in pairwise(found[4:])} == {LONGEST_S}


def test_nothing_waits_longer_than_its_fault_has_lasted() -> None:
    for lasted, due in pairwise(tries(Apart(), "x", 30.0)):
        assert due <= 2 * lasted + FIRST_S


def test_each_has_a_time_of_its_own() -> None:
    apart = Apart()
    apart.add("old", 0.0)
    apart.add("new", 0.9)
    assert [apart.pop_due(1.0), apart.pop_due(1.0)] == ["old", None]
    apart.add("old", 1.0)
    assert [apart.pop_due(2.0), apart.pop_due(2.0)] == ["new", None]
    assert list(apart) == ["old"]


def test_what_went_well_begins_anew() -> None:
    apart = Apart()
    for now in (0.0, 1.0):
        apart.add("x", now)
        apart.pop_due(now + 10)
    apart.forget("x")
    apart.add("x", 20.0)
    assert apart.next_s() == 20.0 + FIRST_S
    apart.forget("x")
    assert (len(apart), apart.next_s(), apart.pop_first()) == (0, None, None)


def test_a_try_before_its_time_makes_no_pause_longer() -> None:
    apart = Apart()
    apart.add("x", 0.0)
    for n in range(9):
        assert apart.pop_first() == "x"
        apart.add("x", n / 10)
    assert apart.next_s() == FIRST_S


def test_it_does_not_grow_without_end() -> None:
    apart = Apart(limit=10)
    for n in range(100):
        apart.add(f"x{n}", 0.0, BAD)
    assert len(apart) == 10
    assert apart.news(0.0) == ("x0 and 9 others", BAD)
    while apart.pop_due(2.0) is not None:
        pass
    # Of these nobody says what came of them: they make room.
    for n in range(10):
        apart.add(f"y{n}", 3.0)
    assert sorted(apart) == [f"y{n}" for n in range(10)]


def test_a_failure_is_news_once_and_many_are_not_told_one_by_one() -> None:
    apart = Apart()
    told = []
    for n in range(100):
        for name in ("same", f"other-{n}"):
            apart.add(name, n / 10, BAD)
            told.append(apart.news(n / 10))
    told.append(apart.news(11.0))
    assert [news for news in told if news is not None] == [
        ("same", BAD),
        ("other-0 and 99 others", BAD),
    ]
