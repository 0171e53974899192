"""SIGKILL between any two system calls of verbs that change several queues.

These are the send, poll and peek of dedup queues, moves in the background, and publishes.
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
from tests.spool.crashing import Verb, crashes_of
from tests.spool.helpers import Clock

LATER_S = 200.0  # longer than any claim here, and than a mover leaves dot-names alone
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
        send(spool, "d", WAITING[2])  # it stays in new/
        send(spool, "e", WAITING[1])
        spool.deliver()


def crashes(root: Path, clock: Clock, verb: Verb) -> Iterator[tuple[bool, Spool]]:
    """Every crash of a verb: whether it was acknowledged, and the spool after the next start."""
    later = Clock(clock.now + LATER_S)
    for acknowledged, tree in crashes_of(root, verb, clock, lambda tree: make_ready(tree, clock)):
        with Spool(tree, sync="none", clock=later) as spool:
            spool.deliver()
            spool.make_moves()
            report = check(tree, offline=True, clock=later)
            assert [f for f in report.findings if f.severity.value == "error"] == []
            yield acknowledged, spool


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
def test_a_killed_poll_or_peek_neither_loses_nor_doubles_a_message(
    root: Path, clock: Clock, verb: Callable[[Spool, str], object]
) -> None:
    for _, spool in crashes(root, clock, lambda spool: verb(spool, "d")):
        assert of_dedup(spool, "d") == BEFORE
        assert Counter(poll(spool, "d")) == BEFORE


def test_a_killed_dedup_send_can_be_retried(root: Path, clock: Clock) -> None:
    for acknowledged, spool in crashes(
        root, clock, lambda spool: send(spool, "d", b'"b"', b'"new"', SHOWN, b'"new"')
    ):
        more = of_dedup(spool, "d") - BEFORE
        assert more <= Counter([b'"new"', SHOWN])
        assert more.total() == 2 or not acknowledged
        send(spool, "d", b'"b"', b'"new"', SHOWN)  # as a client does that got no answer
        assert of_dedup(spool, "d") == BEFORE + Counter([b'"new"', SHOWN])


def test_a_killed_dedup_move_continues(root: Path, clock: Clock) -> None:
    def move(spool: Spool) -> None:
        spool.begin_move("d", "e", dedup=True)
        spool.make_moves()

    for acknowledged, spool in crashes(root, clock, move):
        source, target = of_dedup(spool, "d"), of_dedup(spool, "e")
        # The next start makes the whole move, or its order was not written yet.
        assert (source, target) in ((BEFORE, Counter([WAITING[1]])), (Counter(), BEFORE))
        assert target == BEFORE or not acknowledged
        assert not list((spool.tree.root / "moves").glob("*.json"))


def test_a_killed_move_continues(root: Path, clock: Clock) -> None:
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


def test_an_acknowledged_publish_is_in_every_queue(root: Path, clock: Clock) -> None:
    queues = ["one", "two", "three"]

    def subscribe(tree: Path) -> None:
        with Spool(tree, sync="none", clock=clock) as spool:
            topic = spool.topic("news", create=True)
            for queue in queues:
                spool.create_queue(queue)
                topic.subscribe(queue)

    def publish(spool: Spool) -> None:
        spool.topic("news").publish(b"a copy")

    later = Clock(clock.now + LATER_S)
    for acknowledged, tree in crashes_of(root, publish, clock, subscribe, len(queues) + 1):
        with Spool(tree, sync="none", clock=later) as spool:
            spool.deliver()
            found = [[m.body for m in Queue(spool, queue).claim(9)] for queue in queues]
            assert all(copies in ([], [b"a copy"]) for copies in found)
            assert found == [[b"a copy"]] * 3 or not acknowledged
