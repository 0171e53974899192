"""SIGKILL between any two system calls of what works on several queues at once.

That is a dedup queue's send, poll and peek, a move in the background, and a publish: each may die
in the middle of its renames, and what is left then has to be told from what was asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fsmq.spool import Queue, Spool, prepare
from fsmq.spool.fsck import check
from fsmq.spool.verbs import dedup
from fsmq.spool.verbs.dedup import read_side, write_side
from fsmq.spool.views.browse import peek_all
from tests.spool.crashing import run_and_die
from tests.spool.helpers import Clock

LATER_S = 200.0  # longer than any claim here, and than a dot-name is waited for
SHOWN, CLAIMED, WAITING = b'"shown"', b'"claimed"', [b'"a"', b'"b"', b'"c"']
BEFORE = Counter([SHOWN, CLAIMED, *WAITING])


def send(spool: Spool, name: str, *bodies: bytes) -> None:
    spool.complete(prepare.dedup_send(spool.context, name, bodies))


def poll(spool: Spool, name: str, count: int = 9) -> list[bytes]:
    prepared = dedup.poll(spool.context, name, count, 50)
    return [message.body for message in spool.complete(prepared)]


def peek(spool: Spool, name: str) -> list[bytes]:
    return [m.body for m in spool.complete(dedup.peek(spool.context, name, 9))]


def make_ready(root: Path, clock: Clock) -> None:
    """A dedup queue ``d`` with messages in all states; ``e`` has one that ``d`` has, too."""
    with Spool(root, sync="none", clock=clock) as spool:
        for name in "de":
            for side in (read_side(name), write_side(name)):
                spool.create_queue(side)
        send(spool, "d", CLAIMED)
        spool.deliver()
        assert poll(spool, "d") == [CLAIMED]
        send(spool, "d", SHOWN)
        assert peek(spool, "d") == [CLAIMED, SHOWN]
        send(spool, "d", *WAITING[:2])
        spool.deliver()
        send(spool, "d", WAITING[2])  # stands in new/
        send(spool, "e", WAITING[1])
        spool.deliver()


def crashes(
    root: Path, clock: Clock, verb: Callable[[Spool], object]
) -> Iterator[tuple[bool, Spool]]:
    """Every crash of a verb: whether it was acknowledged, and the spool after the next start."""
    for at in range(1000):
        tree = root / str(at)
        make_ready(tree, clock)
        acknowledged = run_and_die(tree, verb, at, clock)
        if acknowledged is None:
            assert at > 1, "a verb changes something"
            return
        later = Clock()
        later.now = clock.now + LATER_S
        with Spool(tree, sync="none", clock=later) as spool:
            spool.deliver()
            spool.make_moves()
            report = check(tree, offline=True, clock=later)
            assert [f for f in report.findings if f.severity.value == "error"] == []
            yield acknowledged, spool
    raise AssertionError("the verb did not end")


def bodies(spool: Spool, *queues: str) -> Counter[bytes]:
    return Counter(m.body for queue in queues for m in peek_all(spool.context, queue, 99))


def of_dedup(spool: Spool, name: str) -> Counter[bytes]:
    return bodies(spool, read_side(name), write_side(name))


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(poll, id="poll"),
        pytest.param(peek, id="peek"),
        pytest.param(lambda spool, name: poll(spool, name, 2), id="poll-some"),
    ],
)
def test_to_show_messages_loses_and_doubles_none(
    root: Path, clock: Clock, verb: Callable[[Spool, str], object]
) -> None:
    for _, spool in crashes(root, clock, lambda spool: verb(spool, "d")):
        assert of_dedup(spool, "d") == BEFORE
        assert Counter(poll(spool, "d")) == BEFORE  # and each of them can be had


def test_a_dedup_send_is_stored_once(root: Path, clock: Clock) -> None:
    for acknowledged, spool in crashes(
        root, clock, lambda spool: send(spool, "d", b'"b"', b'"new"', SHOWN, b'"new"')
    ):
        more = of_dedup(spool, "d") - BEFORE
        assert more <= Counter([b'"new"', SHOWN])
        assert more.total() == 2 or not acknowledged
        send(spool, "d", b'"b"', b'"new"', SHOWN)  # as a client does that was told nothing
        assert of_dedup(spool, "d") == BEFORE + Counter([b'"new"', SHOWN])


def test_a_dedup_move_loses_nothing_and_goes_on(root: Path, clock: Clock) -> None:
    def move(spool: Spool) -> None:
        spool.begin_move("d", "e", dedup=True)
        spool.make_moves()

    for acknowledged, spool in crashes(root, clock, move):
        source, target = of_dedup(spool, "d"), of_dedup(spool, "e")
        # The order is there, or it is not; after the next start nothing stands in between.
        assert (source, target) in ((BEFORE, Counter([WAITING[1]])), (Counter(), BEFORE))
        assert target == BEFORE or not acknowledged
        assert not list((spool.tree.root / "moves").glob("*.json"))


def test_a_move_loses_nothing_and_goes_on(root: Path, clock: Clock) -> None:
    one, other = read_side("d"), read_side("e")

    def move(spool: Spool) -> None:
        spool.begin_move(one, other)
        spool.make_moves()

    for acknowledged, spool in crashes(root, clock, move):
        shown = Counter([SHOWN, CLAIMED])
        assert (bodies(spool, one), bodies(spool, other)) in (
            (shown, Counter()),
            (Counter(), shown),
        )
        assert bodies(spool, other) or not acknowledged


def test_a_publish_that_was_acknowledged_is_in_every_queue(root: Path, clock: Clock) -> None:
    queues = ["one", "two", "three"]

    def subscribe(tree: Path) -> None:
        with Spool(tree, sync="none", clock=clock) as spool:
            topic = spool.topic("news", create=True)
            for queue in queues:
                spool.create_queue(queue)
                topic.subscribe(queue)

    def publish(spool: Spool) -> None:
        spool.topic("news").publish(b"a copy")

    for at in range(1000):
        tree = root / str(at)
        subscribe(tree)
        acknowledged = run_and_die(tree, publish, at, clock)
        if acknowledged is None:
            assert at > len(queues)
            return
        later = Clock()
        later.now = clock.now + LATER_S
        with Spool(tree, sync="none", clock=later) as spool:
            spool.deliver()
            found = [[m.body for m in Queue(spool, queue).claim(9)] for queue in queues]
            assert all(got in ([], [b"a copy"]) for got in found)
            assert found == [[b"a copy"]] * 3 or not acknowledged
    raise AssertionError("the publish did not end")
