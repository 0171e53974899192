"""The order and the size of the runs of the ready index."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from fsmq.spool.index import runs as runs_module
from fsmq.spool.index.ready_index import ReadyIndex
from fsmq.spool.index.runs import Runs
from fsmq.spool.index.share import WHOLE

_IDS = st.text("abc", min_size=1, max_size=3)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("fill"), st.lists(_IDS, unique=True)),
        st.tuples(st.just("add"), _IDS),
        st.tuples(st.just("go"), _IDS),
        st.tuples(st.just("pop"), st.just("")),
        st.tuples(st.just("first"), st.integers(0, 9)),
        st.tuples(st.just("thin"), st.just("")),
    )
)


@given(_STEPS)
def test_present_ids_are_popped_in_order(steps: list[tuple[str, object]]) -> None:
    runs, present = Runs(), set[str]()
    with mock.patch.object(runs_module, "_MOST_ARRIVED", 4):
        for step, of in steps:
            if step == "fill":
                assert isinstance(of, list)
                runs.fill(of)
                present.update(of)
            elif step == "add":
                present.add(str(of))
                runs.add(str(of), present)
            elif step == "go":
                present.discard(str(of))
            elif step == "first":
                assert isinstance(of, int)
                assert runs.first(of, present) == sorted(present)[:of]
            elif step == "thin":
                runs.thin(present)
            elif present:
                least = min(present)
                while (peeked := runs.peek()) != least:
                    assert peeked == runs.pop()
                    assert peeked not in present
                assert runs.pop() == least
                present.remove(least)
            assert len(runs) >= len(present)
    while (message_id := runs.pop()) is not None:
        present.discard(message_id)
    assert not present
    assert len(runs) == 0


def test_ids_that_others_claimed_take_no_room() -> None:
    index = ReadyIndex(WHOLE)
    index.load(f"{number:07}" for number in range(50_000))
    for number in range(50_000, 150_000):
        index.add(f"{number:07}")
        index.discard(f"{number - 50_000:07}")
        assert len(index._own) <= 3 * len(index)
    assert index.first(2) == ["0100000", "0100001"]
    assert index.pop_some(3) == ["0100000", "0100001", "0100002"]


def test_ids_that_are_added_and_discarded_often_take_little_room() -> None:
    index = ReadyIndex(WHOLE)
    index.load(f"{number:05}" for number in range(12_000))
    for _ in range(20):
        for number in range(12_000):
            index.discard(f"{number:05}")
            index.add(f"{number:05}")
        assert len(index._own) < 5 * len(index) + 6000
    assert index.pop_some(12_001) == [f"{number:05}" for number in range(12_000)]


def test_reading_the_first_drops_discarded_ids() -> None:
    index = ReadyIndex(WHOLE)
    index.load(f"{number:05}" for number in range(900))
    for number in range(400):
        index.discard(f"{number:05}")
    assert index.first(1) == ["00400"]
    assert len(index._own) == 500


def test_a_failed_id_is_in_the_result_of_a_concurrent_listing() -> None:
    before = ReadyIndex(WHOLE)
    before.load(["a", "b"])
    assert before.pop() == "a"
    before.quarantine("a")
    after = before.successor(["a", "b"])
    assert before.pop_failed(early=True) == "a"
    before.postpone("a")
    after.take_place(WHOLE)
    assert after.pop_some(9) == ["a", "b"]
