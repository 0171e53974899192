"""One claim from several queues: names, patterns, order and weights."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from fsmq.spool import InvalidValue, NewMessage, NoSuchQueue, Queue, Spool
from fsmq.spool.verbs.choice import Choice
from fsmq.spool.views import reading
from tests.spool.helpers import Clock
from tests.spool.running import in_threads


def fill(spool: Spool, **queues: int) -> None:
    """Create queues with this many messages each."""
    for name, number in queues.items():
        queue = spool.queue(name, create=True)
        if number:
            queue.put_many([f"{name}{n}".encode() for n in range(number)])
    spool.deliver()


def claimed_from(spool: Spool, queues: str | Iterable[str], *counts: int) -> list[str]:
    """The queues of the messages of successive claims with these counts."""
    selection = spool.select(queues)
    return [message.queue for count in counts for message in selection.claim(count)]


# -- names and patterns ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("jobs", [("jobs", 1)]),
        ("high:3,low", [("high", 3), ("low", 1)]),
        ("a:b,tenant-*:1000", [("a:b", 1), ("tenant-*", 1000)]),
        ("a:3:,b", [("a:3", 1), ("b", 1)]),
        ("a:3:2,b::", [("a:3", 2), ("b:", 1)]),
    ],
)
def test_a_text_is_parsed_into_queues_and_weights(text: str, parts: list[tuple[str, int]]) -> None:
    for choice in (Choice(text), Choice(text.split(",")), Choice(str(Choice(text)))):
        assert [(part.name, part.weight) for part in choice.parts] == parts
        assert choice.is_weighted == Choice(text).is_weighted


@pytest.mark.parametrize(
    ("queues", "because"),
    [
        ("", "'' is not a queue name"),
        ([], "0 parts; expected 1 to 100"),
        (["x"] * 101, "101 parts; expected 1 to 100"),
        ("a,,b", "'' is not a queue name"),
        ("a,b,a:2", "names 'a' twice"),
        ("a:0", "'a:0': a weight is a whole number from 1 to 1000"),
        ("a:1001", "a weight is a whole number from 1 to 1000"),
        ("a:99999999999999999999", "a weight is a whole number from 1 to 1000"),
        ("_a", "'_a' is not a queue name"),
        ("topics/*", "'topics/\\*' is no pattern"),
        ("a b*", "is no pattern"),
        ([b"a"], "is not NAME, PATTERN"),
    ],
)
def test_invalid_selections_are_refused(spool: Spool, queues: str, because: str) -> None:
    with pytest.raises(InvalidValue, match=because) as refused:
        spool.select(queues)
    assert refused.value.field == "queues"


def test_a_named_queue_must_exist(spool: Spool) -> None:
    fill(spool, jobs=1)
    with pytest.raises(NoSuchQueue) as refused:
        spool.select("jobs,none").claim()
    assert refused.value.queue == "none"
    assert spool.queue("jobs").counts().ready == 1
    assert spool.select("jobs,none*").claim()


def test_a_pattern_without_a_queue_is_no_error(spool: Spool) -> None:
    assert spool.select("none-*").claim() == []


def test_a_pattern_that_matches_too_many_queues_is_refused(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsmq.spool.verbs.choice.MAX_QUEUES", 3)
    fill(spool, a=1, b=0, c=0)
    assert spool.select("*").claim()
    fill(spool, d=0)
    for queues in ("*", "a,?", "d,c,*"):
        with pytest.raises(InvalidValue, match="stands for 4 queues; at most 3 in one claim"):
            spool.select(queues).claim()


def test_a_queue_belongs_to_its_name_or_to_the_first_pattern(spool: Spool) -> None:
    fill(spool, ab=2, abc=2, b=2)
    assert claimed_from(spool, "a*,?b,ab", 9) == ["abc"] * 2 + ["ab"] * 2
    fill(spool, ab=2)
    assert claimed_from(spool, "?b*,*b", 9) == ["ab"] * 2 + ["b"] * 2


# -- order ----------------------------------------------------------------------------------------


def test_without_weights_the_first_queue_with_messages_comes_first(spool: Spool) -> None:
    fill(spool, low=3, high=3)
    assert claimed_from(spool, "high,low", 1, 1, 3, 5) == ["high"] * 3 + ["low"] * 3


def test_the_order_includes_messages_that_were_just_put(spool: Spool) -> None:
    """Without a mover, ready messages of another queue do not hide them."""
    selection = spool.select("high,low")
    fill(spool, low=3, high=0)
    spool.queue("high").put(b"now")
    assert [m.queue for m in selection.claim(2)] == ["high", "low"]


def test_messages_of_one_queue_keep_their_order(spool: Spool) -> None:
    fill(spool, a=4, b=4)
    bodies = [message.body for message in spool.select("a:2,b:1").claim(8)]
    for name in (b"a", b"b"):
        assert [body for body in bodies if body[:1] == name] == [name + b"%d" % n for n in range(4)]


# -- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_queues_share_by_weight_for_any_size_of_claims(spool: Spool, count: int) -> None:
    fill(spool, a=150, b=150, c=150)
    selection = spool.select("a:5,b:2,c")
    got: Counter[str] = Counter()
    while got.total() < 160:
        got.update(message.queue for message in selection.claim(count))
        for queue, weight in (("a", 5), ("b", 2), ("c", 1)):
            assert abs(got[queue] - got.total() * weight / 8) <= 2, got


def test_claims_of_one_message_are_spread(spool: Spool) -> None:
    fill(spool, a=30, b=30)
    got = claimed_from(spool, "a:3,b:1", *[1] * 24)
    at = [place for place, queue in enumerate(got) if queue == "b"]
    assert len(at) == 6
    assert {after - before for before, after in pairwise(at)} == {4}


def test_an_empty_queue_gives_its_share_to_the_others(spool: Spool) -> None:
    fill(spool, a=0, b=4, c=8)
    assert Counter(claimed_from(spool, "a:100,b:1,c:2", *[1] * 6)) == {"b": 2, "c": 4}


def test_an_empty_queue_does_not_get_its_share_later(spool: Spool) -> None:
    fill(spool, a=0, b=60)
    selection = spool.select("a:1,b:1")
    assert len(selection.claim(40)) == 40
    fill(spool, a=20)
    got = Counter(message.queue for message in selection.claim(20))
    assert 10 <= got["a"] <= 11, got


@pytest.mark.parametrize("count", [10, 20])
def test_other_queues_share_by_weight_when_one_gives_no_messages(spool: Spool, count: int) -> None:
    spool.create_queue("f", fifo=True)
    fill(spool, a=300, b=300)
    spool.queue("f").put_many([NewMessage(b"%d" % n, group="one") for n in range(50)])
    assert spool.queue("f").claim(visibility=600)
    selection = spool.select("f:100,a:3,b:1")
    got: Counter[str] = Counter()
    while got.total() < 160:
        got.update(message.queue for message in selection.claim(count))
        assert abs(got["a"] - got.total() * 3 / 4) <= 2, got


def test_queues_share_by_weight_when_answers_are_limited_in_size(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer has messages of one queue only."""
    monkeypatch.setattr(reading, "MAX_ANSWER_BYTES", 10_000)
    for name in ("a", "b"):
        spool.queue(name, create=True).put_many([b"x" * 1000] * 300)
    spool.deliver()
    selection = spool.select("a:3,b:1")
    got: Counter[str] = Counter()
    while got.total() < 160:
        got.update(message.queue for message in selection.claim(100))
        assert abs(got["a"] - got.total() * 3 / 4) <= 15, got  # one and a half answers


# -- patterns -------------------------------------------------------------------------------------


def test_the_queues_of_a_pattern_take_turns(spool: Spool) -> None:
    fill(spool, **{"t-a": 3, "t-b": 1, "t-c": 9})
    assert claimed_from(spool, "t-*", *[1] * 7) == ["t-a", "t-b", "t-c", "t-a", "t-c", "t-a", "t-c"]


def test_the_queues_of_a_pattern_take_turns_within_claims(spool: Spool) -> None:
    fill(spool, **{f"t-{n}": 20 for n in range(5)})
    selection = spool.select("t-*")
    for _ in range(3):
        got = Counter(message.queue for size in (3, 1, 6) for message in selection.claim(size))
        assert set(got.values()) == {2}


def test_a_new_queue_joins_its_pattern(spool: Spool) -> None:
    fill(spool, **{"t-a": 9})
    selection = spool.select("t-*")
    assert [m.queue for m in selection.claim(2)] == ["t-a"] * 2
    fill(spool, **{"t-b": 9})
    assert sorted(m.queue for m in selection.claim(4)) == ["t-a"] * 2 + ["t-b"] * 2
    spool.delete_queue("t-a")
    assert {m.queue for m in selection.claim(9)} == {"t-b"}


def test_a_pattern_has_one_share_however_many_queues_it_matches(spool: Spool) -> None:
    fill(spool, **{"t-a": 9, "t-b": 9, "t-c": 9, "own": 9})
    got = Counter(claimed_from(spool, "own:1,t-*:1", *[1] * 12))
    assert got == {"own": 6, "t-a": 2, "t-b": 2, "t-c": 2}


# -- pauses, limits and faults --------------------------------------------------------------------


def test_a_paused_queue_is_skipped(spool: Spool) -> None:
    fill(spool, a=3, b=3)
    spool.queue("a").configure(paused=True)
    assert claimed_from(spool, "a,b", 1, 5) == ["b"] * 3
    assert claimed_from(spool, "a:9,b:1,*", 5) == []
    spool.queue("a").configure(paused=None)
    assert claimed_from(spool, "a,b", 5) == ["a"] * 3


@pytest.mark.parametrize("watch", ["events", "poll"])
def test_a_queue_that_another_process_reopens_is_used_again(root: Path, watch: str) -> None:
    with (
        Spool(root, sync="none", watch=watch, delivers=False) as spool,  # type: ignore[arg-type]
        Spool(root, sync="none") as other,
    ):
        fill(other, a=3, b=3)
        selection = spool.select("a,b")
        for settings in ({"paused": True}, {"max_rate": 0.01, "max_burst": 1}):
            other.queue("a").configure(**settings)
            assert "b" in [m.queue for m in selection.claim(2)]
            other.queue("a").configure(**dict.fromkeys(settings))
            assert [m.queue for m in selection.claim(1)] == ["a"]


def test_only_a_queue_at_its_limit_is_skipped(spool: Spool) -> None:
    fill(spool, a=5, b=5, c=5)
    spool.queue("a").configure(max_in_flight=2)
    spool.queue("b").configure(max_rate=0.01, max_burst=1)
    assert claimed_from(spool, "a,b,c", 10) == ["a"] * 2 + ["b"] + ["c"] * 5
    assert claimed_from(spool, "a:5,b:5", 10) == []


def test_groups_of_a_fifo_queue_are_respected(spool: Spool) -> None:
    spool.create_queue("f", fifo=True)
    fill(spool, a=3)
    spool.queue("f").put_many([NewMessage(b"%d" % n, group="one") for n in range(3)])
    selection = spool.select("f,a")
    [first] = selection.claim(1)
    assert (first.queue, first.body) == ("f", b"0")
    assert [m.queue for m in selection.claim(2)] == ["a"] * 2
    assert first.ack()
    [second, other] = selection.claim(5)
    assert [(m.queue, m.body[:1]) for m in (second, other)] == [("f", b"1"), ("a", b"a")]


def test_many_paused_queues_hide_no_other(spool: Spool) -> None:
    names = {f"p-{n:03}": 1 for n in range(150)}
    fill(spool, **names, zz=1)
    for name in names:
        spool.queue(name).configure(paused=True)
    assert claimed_from(spool, "p-*,zz", 1) == ["zz"]


def test_a_message_that_cannot_be_read_hides_no_other_queue(spool: Spool) -> None:
    fill(spool, a=1, b=1)
    [name] = (Path(spool.tree.root) / "queues/a").iterdir()
    name.unlink()
    name.mkdir()
    assert claimed_from(spool, "a,b", 5) == ["b"]


def test_an_answer_has_the_size_limit_of_a_claim_from_one_queue(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_ANSWER_BYTES", 10_000)
    for name in ("a", "b", "c"):
        spool.queue(name, create=True).put_many([b"x" * 2000] * 2)
    spool.deliver()
    selection = spool.select("a,b,c")
    sizes: list[int] = []
    while sum(sizes) < 6:
        sizes.append(len(selection.claim(100, wait=20)))
    assert max(sizes) <= 4, sizes


# -- claims ---------------------------------------------------------------------------------------


def test_messages_are_settled_in_their_own_queues(spool: Spool) -> None:
    for name in ("a", "b"):
        spool.queue(name, create=True).put(name.encode(), id="same")
    spool.queue("a").configure(visibility_timeout=100)
    spool.queue("b").configure(visibility_timeout=200)
    [of_a, of_b] = spool.select("a,b").claim(2)
    now = spool.context.clock()
    assert [round((m.deadline or 0) - now) for m in (of_a, of_b)] == [100, 200]
    assert of_a.ack()
    of_b.release()
    assert spool.queue("a").counts().total == 0
    assert spool.queue("b").counts().ready == 1
    with spool.select("a,b").claim_one() as message:
        assert message is not None
        assert message.queue == "b"
    assert spool.queue("b").counts().total == 0
    with spool.select("a,b").claim_one() as message:
        assert message is None


@pytest.mark.parametrize("watch", ["events", "poll"])
@pytest.mark.parametrize("queues", ["a,b", "t-*,a", "b:2,?:1"])
def test_a_waiter_is_woken_by_any_queue(root: Path, watch: str, queues: str) -> None:
    one = Spool(root, sync="none", watch=watch, poll_interval=0.01)
    with one as spool, Spool(root, sync="none") as other:
        fill(other, a=0, b=0)
        for name in ("a", "t-new") if "*" in queues else ("a", "b"):
            got: list[str] = []

            def wait(got: list[str] = got) -> None:
                got.extend(m.queue for m in spool.select(queues).claim(5, wait=30))

            waiting = threading.Thread(target=wait)
            waiting.start()
            if name == "t-new":
                other.create_queue(name)
            other.queue(name).put(b"x")
            began = time.monotonic()
            waiting.join(30)
            assert got == [name]
            assert time.monotonic() - began < 10


def test_many_threads_get_each_message_once(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        fill(spool, a=200, b=100, **{"t-1": 50, "t-2": 50})
        selection = spool.select("a:2,b:1,t-*:1")
        got: list[list[str]] = [[] for _ in range(6)]

        def claim(into: list[str], size: int) -> None:
            while messages := selection.claim(size):
                into += [f"{m.queue}/{m.id}" for m in messages]

        in_threads(partial(claim, into, size) for size, into in enumerate(got, start=1))
        everything = [one for into in got for one in into]
        assert len(everything) == len(set(everything)) == 400


def test_a_worker_handles_messages_of_all_queues(root: Path) -> None:
    with Spool(root, sync="none") as spool:
        for name in ("a", "b", "t-1"):
            spool.queue(name, create=True).put_many([name.encode()] * 5)
        done: Counter[bytes] = Counter()
        lock = threading.Lock()

        def handle(message: object, claim: object) -> None:
            with lock:
                done[message.body] += 1  # type: ignore[attr-defined]
                if done.total() == 15:
                    worker.stop()

        worker = spool.select(["a:2", "b", "t-*"]).worker(handle, concurrency=3)
        worker.run(signals=False)
        assert done == {b"a": 5, b"b": 5, b"t-1": 5}
        assert sum(spool.queue(name).counts().total for name in ("a", "b", "t-1")) == 0


def test_one_of_a_thousand_queues_is_found(root: Path, clock: Clock) -> None:
    with Spool(root, sync="none", clock=clock) as spool:
        fill(spool, **{f"t-{n:04}": 0 for n in range(1000)})
        selection = spool.select("t-*")
        assert selection.claim() == []
        fill(spool, **{"t-0777": 1})
        [message] = selection.claim()
        assert message.queue == "t-0777"


def test_a_queue_name_may_end_like_a_weight(jobs: Queue) -> None:
    fill(jobs.spool, **{"a:3": 1, "a": 1})
    assert claimed_from(jobs.spool, "a:3:", 5) == ["a:3"]
    assert claimed_from(jobs.spool, "a:3", 5) == ["a"]
