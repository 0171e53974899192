"""Messages that failed are retried after pauses that grow with each failure."""

from __future__ import annotations

from itertools import pairwise

from fsmq.spool.index.quarantine import FIRST_S, LONGEST_S, Quarantine

BAD = OSError("bad")


def tries(quarantined: Quarantine, name: str, until: float, step: float = 0.5) -> list[float]:
    """The times at which a name that always fails is tried."""
    quarantined.add(name, 0.0)
    found = []
    for now in (step * n for n in range(round(until / step))):
        while (due := quarantined.pop_due(now)) is not None:
            assert due == name
            quarantined.add(due, now)
            found.append(now)
    return found


def test_pauses_grow_up_to_a_limit() -> None:
    found = tries(Quarantine(), "x", 200.0)
    assert found[:5] == [1, 3, 7, 15, 31]
    assert {b - a for a, b in pairwise(found[4:])} == {LONGEST_S}


def test_a_pause_is_at_most_as_long_as_the_fault_has_lasted() -> None:
    for lasted, due in pairwise(tries(Quarantine(), "x", 30.0)):
        assert due <= 2 * lasted + FIRST_S


def test_a_name_is_tried_after_the_clock_is_set_back() -> None:
    quarantined = Quarantine()
    quarantined.add("x", 3600.0)
    assert quarantined.pop_due(0.0) == "x"
    quarantined.add("x", 0.0)
    assert [quarantined.pop_due(1.0), quarantined.pop_due(LONGEST_S)] == [None, "x"]


def test_each_name_has_its_own_pause() -> None:
    quarantined = Quarantine()
    quarantined.add("old", 0.0)
    quarantined.add("new", 0.9)
    assert [quarantined.pop_due(1.0), quarantined.pop_due(1.0)] == ["old", None]
    quarantined.add("old", 1.0)
    assert [quarantined.pop_due(2.0), quarantined.pop_due(2.0)] == ["new", None]
    assert list(quarantined) == ["old"]


def test_a_success_resets_the_pause() -> None:
    quarantined = Quarantine()
    for now in (0.0, 1.0):
        quarantined.add("x", now)
        quarantined.pop_due(now + 10)
    quarantined.forget("x")
    quarantined.add("x", 20.0)
    assert quarantined.next_s() == 20.0 + FIRST_S
    quarantined.forget("x")
    assert (len(quarantined), quarantined.next_s(), quarantined.pop_first()) == (0, None, None)


def test_an_early_try_does_not_lengthen_the_pause() -> None:
    quarantined = Quarantine()
    quarantined.add("x", 0.0)
    for n in range(9):
        assert quarantined.pop_first() == "x"
        quarantined.add("x", n / 10)
    assert quarantined.next_s() == FIRST_S


def test_the_quarantine_has_a_limit() -> None:
    quarantined = Quarantine(limit=10)
    for n in range(100):
        quarantined.add(f"x{n}", 0.0, BAD)
    assert len(quarantined) == 10
    assert quarantined.news(0.0) == ("x0 and 9 others", BAD)
    while quarantined.pop_due(2.0) is not None:
        pass
    # Names without a result make room.
    for n in range(10):
        quarantined.add(f"y{n}", 3.0)
    assert sorted(quarantined) == [f"y{n}" for n in range(10)]


def test_a_failure_is_reported_once_and_many_are_reported_together() -> None:
    quarantined = Quarantine()
    reports = []
    for n in range(100):
        for name in ("same", f"other-{n}"):
            quarantined.add(name, n / 10, BAD)
            reports.append(quarantined.news(n / 10))
    reports.append(quarantined.news(11.0))
    found = [report for report in reports if report is not None]
    assert found == [("same", BAD), ("other-0 and 99 others", BAD)]
