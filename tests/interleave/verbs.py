"""The verbs that are stopped, and the scenarios of others meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from fsmq.spool import NoSuchQueue
from fsmq.spool.consumers.manifest import DONE, path_of
from fsmq.spool.durability.dotnames import recover
from fsmq.spool.layout.names import seal_of, staged_entry
from tests.interleave import model
from tests.interleave.client import (
    CONSUMER,
    DEAD,
    DUPS,
    LONG_S,
    OTHER,
    READ,
    SHORT_S,
    TOPIC,
    WAIT_S,
    WRITE,
    Q,
)
from tests.interleave.scene import FIRST, Scene
from tests.spool.helpers import back_to_new

P = "01890a5d-ac96-774b-bcce-b302099a8057"  # an own id that carries a priority
X, Y = "x", "y"  # own ids; all clients act on x
Step = Callable[[Scene], object]


def steps(*all_steps: Step) -> Step:
    def run(s: Scene) -> None:
        for step in all_steps:
            step(s)

    return run


def nothing(s: Scene) -> None:
    pass


def new(s: Scene) -> None:
    """A message in new/, where a shell user puts it."""
    s.other.put(X)
    back_to_new(s.root, Q, X)


def new_and_delayed(s: Scene) -> None:
    s.other.put(X, delay=LONG_S)
    back_to_new(s.root, Q, X)


def ready(s: Scene) -> None:
    new(s)
    s.deliver()


def two_ready(s: Scene) -> None:
    s.other.put(X)
    s.other.put(Y)
    s.deliver()


def known(s: Scene) -> None:
    """x is ready, and in the index of the first client."""
    ready(s)
    s.one.claim()
    s.one.release(X)


def held(s: Scene) -> None:
    """The first client has claimed x for the second time."""
    known(s)
    s.one.claim(seconds=SHORT_S)


def held_by_other(s: Scene) -> None:
    known(s)
    s.other.claim(seconds=SHORT_S)


def lapsed(s: Scene) -> None:
    """The claim has ended, but the mover has not noticed it yet."""
    held(s)
    s.pass_time(SHORT_S + 1)


def held_and_to_wait(s: Scene) -> None:
    """The first client holds x, in a queue with a retry backoff."""
    held(s)
    s.other.let_wait()


def waiting(s: Scene) -> None:
    """The first client has released x, which waits for its backoff."""
    held_and_to_wait(s)
    s.one.release(X)


def let_pass(s: Scene) -> None:
    """Short claims have ended, but the mover has not noticed it yet."""
    s.pass_time(SHORT_S + 1)


def delayed(s: Scene) -> None:
    s.other.put(X, delay=LONG_S)
    s.deliver()


def everywhere(s: Scene) -> None:
    """x is held by the other client, y is ready, one message is new and one is delayed."""
    held_by_other(s)
    s.other.put(Y)
    s.deliver()
    s.other.put("new")


def subscribed(s: Scene) -> None:
    s.one.spool.create_topic(TOPIC)
    for queue in sorted(FIRST.queues):
        s.one.subscribe(queue)


def dedup(s: Scene) -> None:
    for queue in (READ, WRITE):
        s.other.create_queue(queue)
    s.other.dedup_send(b"equal")
    s.deliver()


def dedup_shown(s: Scene) -> None:
    dedup(s)
    s.other.dedup_peek()


def dedup_polled(s: Scene) -> None:
    dedup(s)
    s.one.dedup_poll(seconds=SHORT_S)


def consuming(s: Scene) -> None:
    known(s)
    s.one.open_consumer()


def batch(s: Scene) -> None:
    consuming(s)
    s.one.take_batch()


def batch_of_two(s: Scene) -> None:
    two_ready(s)
    s.one.open_consumer()
    s.one.take_batch(2)


def committed(s: Scene) -> None:
    """The consumer has died in its commit, between the rename and the removals."""
    batch(s)
    consumer, taken = s.one.consumer, s.one.taken
    assert consumer is not None
    assert taken is not None
    name = taken.batch.name
    tree = s.one.spool.tree
    tree.rename(path_of(tree, CONSUMER, name), path_of(tree, CONSUMER, name, DONE))
    consumer.close()
    s.one.consumer = None


def written(s: Scene) -> None:
    """A writer of x has died without an answer."""
    body = s.other.body()
    name = staged_entry(Q, X, seal_of(body))
    with s.other.asking(f"put {body.decode()} as x, and die") as op:
        (s.root / "new" / name).write_bytes(body)
        op.once = [model.stores(op, Q, X, body)]
        op.lingers = True


def move_ordered(s: Scene) -> None:
    held(s)
    s.other.put(Y)
    back_to_new(s.root, Q, Y)
    s.other.put(None)
    s.other.order_move()


def dying(s: Scene) -> None:
    ready(s)
    s.other.bury_used_up()


def urgent(s: Scene) -> None:
    """A message with a priority is ready for the second time."""
    s.other.put(P)
    s.deliver()
    s.other.claim()
    s.other.release(P)


def buried(s: Scene) -> None:
    """x is a dead letter that has been claimed and released."""
    held(s)
    s.other.bury_used_up(9)
    s.one.bury(X)
    s.other.claim(queue=DEAD)
    s.pass_time(SHORT_S + 1)
    s.deliver()


@dataclass(frozen=True)
class Verb:
    """A verb of the first client, and the state before it."""

    work: Step
    first: Step = nothing
    others: str = "queue"  # the SCENARIOS of the others
    delivers: bool = False  # whether the first client is a mover


def _deliver(s: Scene) -> None:
    s.one.deliver()


def dedup_acknowledge(s: Scene) -> None:
    s.one.remove(*s.one.claims, queue=READ)


VERBS: dict[str, Verb] = {
    "put": Verb(lambda s: s.one.put(None)),
    "put own": Verb(lambda s: s.one.put(X)),
    "put own that stands": Verb(lambda s: s.one.put(X), ready),
    "put own that is held": Verb(lambda s: s.one.put(X), held_by_other),
    "put own that was written": Verb(lambda s: s.one.put(X), written),
    "put delayed": Verb(lambda s: s.one.put(None, delay=LONG_S)),
    "put own delayed": Verb(lambda s: s.one.put(X, delay=LONG_S)),
    "put own batch": Verb(lambda s: s.one.put(X, Y)),
    "claim": Verb(lambda s: s.one.claim(), ready),
    "claim known": Verb(lambda s: s.one.claim(), known),
    "claim two": Verb(lambda s: s.one.claim(2), two_ready),
    "claim several": Verb(lambda s: s.one.claim_several(2, OTHER, Q), two_ready),
    "claim and hang up": Verb(lambda s: s.one.hang_up(), known),
    "claim and fail to sync": Verb(lambda s: s.one.fail_to_sync(), known),
    "renew": Verb(lambda s: s.one.renew(X), held),
    "renew late": Verb(lambda s: s.one.renew(X), lapsed),
    "renew ready": Verb(lambda s: s.one.renew(X), known),
    "extend": Verb(lambda s: s.one.extend(X), held),
    "extend ready": Verb(lambda s: s.one.extend(X), known),
    "extend new": Verb(lambda s: s.one.extend(X), new),
    "release": Verb(lambda s: s.one.release(X), held),
    "release late": Verb(lambda s: s.one.release(X), lapsed),
    "back off": Verb(lambda s: s.one.release(X, LONG_S), held),
    "release all": Verb(lambda s: s.one.release_all(), held),
    "release some": Verb(lambda s: s.one.release_all(X, Y), held),
    "release to wait": Verb(lambda s: s.one.release(X), held_and_to_wait),
    "release to wait late": Verb(lambda s: s.one.release(X), steps(held_and_to_wait, let_pass)),
    "release to wait if": Verb(lambda s: s.one.release_if(X), held_and_to_wait),
    "back off to wait": Verb(lambda s: s.one.release(X, LONG_S), held_and_to_wait),
    "release what waits": Verb(lambda s: s.one.release(X), waiting),
    "renew what waits": Verb(lambda s: s.one.renew(X), waiting),
    "remove what waits": Verb(lambda s: s.one.remove(X), waiting),
    "bury": Verb(lambda s: s.one.bury(X), steps(held, lambda s: s.other.bury_used_up(9))),
    "release used up": Verb(
        lambda s: s.one.release(X), steps(held, lambda s: s.other.bury_used_up())
    ),
    "remove new": Verb(lambda s: s.one.remove(X), new),
    "remove ready": Verb(lambda s: s.one.remove(X), ready),
    "remove held": Verb(lambda s: s.one.remove(X), held),
    "renew if": Verb(lambda s: s.one.renew_if(X), held),
    "renew late if": Verb(lambda s: s.one.renew_if(X), lapsed),
    "renew though over": Verb(lambda s: s.one.renew_though_over(X), steps(lapsed, _deliver)),
    "release if": Verb(lambda s: s.one.release_if(X), held),
    "back off if": Verb(lambda s: s.one.release_if(X, LONG_S), held),
    "bury if": Verb(lambda s: s.one.bury_if(X), steps(held, lambda s: s.other.bury_used_up(9))),
    "remove if": Verb(lambda s: s.one.remove_if(X), held),
    "remove late if": Verb(lambda s: s.one.remove_if(X), lapsed),
    "purge": Verb(lambda s: s.one.purge(), everywhere),
    "delete queue": Verb(lambda s: s.one.delete_queue(), everywhere),
    "create queue": Verb(lambda s: s.one.create_queue()),
    "configure": Verb(lambda s: s.one.configure(max_depth=100)),
    "move": Verb(lambda s: s.one.move(), everywhere),
    "move what is not hidden": Verb(lambda s: s.one.move(hidden=False), everywhere),
    "make moves": Verb(lambda s: s.one.make_moves(), move_ordered),
    "redrive": Verb(lambda s: s.one.redrive(), buried),
    "set priority": Verb(lambda s: s.one.set_priority(P, 7), urgent),
    "redrive some": Verb(lambda s: s.one.redrive(X), buried),
    "subscribe": Verb(
        lambda s: s.one.subscribe(), lambda s: s.one.spool.create_topic(TOPIC), "topic"
    ),
    "publish": Verb(lambda s: s.one.publish(), subscribed, "topic"),
    "deliver": Verb(_deliver, new, delivers=True),
    "defer": Verb(_deliver, new_and_delayed, delivers=True),
    "redeliver": Verb(_deliver, lapsed, delivers=True),
    "bury used up": Verb(_deliver, steps(lapsed, lambda s: s.other.bury_used_up()), delivers=True),
    "let wait": Verb(_deliver, steps(held_and_to_wait, let_pass), delivers=True),
    "end a wait": Verb(_deliver, steps(waiting, lambda s: s.pass_time(WAIT_S + 1)), delivers=True),
    "restart mover": Verb(lambda s: s.restart_mover(), steps(new, lambda s: s.pass_time(2))),
    "recover": Verb(lambda s: recover(s.one.spool.tree, s.clock(), at_start=True), written),
    "reap": Verb(lambda s: s.one.spool.reap(), steps(ready, lambda s: s.other.remove(X))),
    "census": Verb(lambda s: s.one.count(), held),
    "take batch": Verb(lambda s: s.one.take_batch(), consuming),
    "keep batch": Verb(lambda s: s.one.keep_batch(), batch),
    "fail to store batch": Verb(lambda s: s.one.fail_to_store(), consuming),
    "divide batch": Verb(
        steps(lambda s: s.one.divide_batch(), lambda s: s.one.commit_batch()), batch_of_two
    ),
    "retry batch": Verb(lambda s: s.one.divide_batch(), batch),
    "bury batch": Verb(
        lambda s: s.one.divide_batch(), steps(batch, lambda s: s.other.bury_used_up())
    ),
    "commit batch": Verb(lambda s: s.one.commit_batch(), batch),
    "finish abandoned": Verb(lambda s: s.one.finish_abandoned(), committed),
    "dedup send": Verb(lambda s: s.one.dedup_send(b"equal"), dedup, "dedup"),
    "dedup poll": Verb(lambda s: s.one.dedup_poll(), dedup, "dedup"),
    "dedup poll shown": Verb(lambda s: s.one.dedup_poll(), dedup_shown, "dedup"),
    "dedup acknowledge": Verb(dedup_acknowledge, dedup_polled, "dedup"),
    "dedup peek": Verb(lambda s: s.one.dedup_peek(), dedup, "dedup"),
}


def remove(s: Scene) -> None:
    s.other.remove(X)


def put_again(s: Scene) -> None:
    s.other.put(X)
    s.deliver()


def claim(s: Scene) -> None:
    s.other.claim(9)


def release(s: Scene) -> None:
    s.other.release(X)


def lapse(s: Scene) -> None:
    """Short claims end, and the mover notices it."""
    s.pass_time(SHORT_S + 1)
    s.deliver()


def delete_queue(s: Scene) -> None:
    s.other.delete_queue()


def create_queue(s: Scene) -> None:
    s.other.create_queue()


def acknowledge(s: Scene) -> None:
    for message in s.other.claim(9):
        s.other.remove(message.id)


def restart_mover(s: Scene) -> None:
    """Start a mover when new messages are old enough for its listing."""
    s.pass_time(2)
    s.restart_mover()


def move_away(s: Scene) -> None:
    s.other.move()


def move_back(s: Scene) -> None:
    s.other.move(OTHER, Q)


def claim_dead_letters(s: Scene) -> None:
    s.other.claim(9, queue=DEAD)
    s.pass_time(SHORT_S + 1)
    s.deliver()


def delete_other(s: Scene) -> None:
    s.other.delete_queue(OTHER)


def reap(s: Scene) -> None:
    s.mover.spool.reap()


def take_batch(s: Scene) -> None:
    if s.other.consumer is None:
        s.other.open_consumer("another")
    s.other.take_batch()


def dedup_change(s: Scene) -> None:
    """Poll and acknowledge all messages, and send an equal one."""
    with suppress(NoSuchQueue):
        for message in s.other.dedup_poll(9):
            s.other.remove(message.id, queue=READ)
        s.other.dedup_send(b"equal")
        s.deliver()


_QUEUE: dict[str, Step] = {
    "deliver": lambda s: s.deliver(),
    "claim": claim,
    "claim and give back": lambda s: s.other.hang_up(),
    "acknowledge": acknowledge,
    "remove": steps(remove, reap),
    "reap": reap,
    "put": lambda s: s.other.put(X),
    "put and deliver": put_again,
    "put, deliver, claim": steps(put_again, claim),
    "remove, put": steps(remove, reap, lambda s: s.other.put(X)),
    "remove, put delayed": steps(remove, lambda s: s.other.put(X, delay=LONG_S)),
    "remove, put, deliver": steps(remove, reap, put_again),
    "remove, put, deliver, claim": steps(remove, put_again, claim),
    "remove, put, deliver, acknowledge": steps(remove, put_again, acknowledge),
    "lapse": lapse,
    "lapse, claim": steps(lapse, claim),
    "lapse, claim, remove, put": steps(lapse, claim, remove, put_again),
    "lapse, claim, remove, put, claim": steps(lapse, claim, remove, put_again, claim),
    "put batch": lambda s: s.other.put(X, Y),
    "extend": lambda s: s.other.extend(X),
    "back off": lambda s: s.other.release(X, LONG_S),
    "bury": lambda s: s.other.bury(X),
    "take batch": take_batch,
    "take batch, commit": steps(take_batch, lambda s: s.other.commit_batch()),
    "time passes": lambda s: s.pass_time(SHORT_S + 1),
    "renew": lambda s: s.other.renew(X),
    "release": release,
    "release, claim": steps(release, claim),
    "release all": lambda s: s.other.release_all(),
    "purge": lambda s: s.other.purge(),
    "purge, put, deliver": steps(lambda s: s.other.purge(), put_again),
    "delete queue": delete_queue,
    "create queue": create_queue,
    "create queue, put": steps(create_queue, put_again),
    "delete and create queue": steps(delete_queue, create_queue),
    "delete and create queue, put": steps(delete_queue, create_queue, put_again),
    "delete and create queue, put, claim": steps(delete_queue, create_queue, put_again, claim),
    "move away": move_away,
    "move back": move_back,
    "move away and back": steps(move_away, move_back),
    "move away, put, deliver": steps(move_away, put_again),
    "make moves": steps(lambda s: s.other.order_move(), lambda s: s.other.make_moves()),
    "delete the other queue": delete_other,
    "redrive": lambda s: s.other.redrive(),
    "set priority": lambda s: s.other.set_priority(P, 9),
    "claim dead letters": lambda s: s.other.claim(9, queue=DEAD),
    "claim, release dead letters": claim_dead_letters,
    "configure": lambda s: s.other.configure(max_depth=50),
    "bury used up": lambda s: s.other.bury_used_up(),
    "bury used up, lapse": steps(lambda s: s.other.bury_used_up(), lapse),
    "start mover": lambda s: s.restart_mover(),
    "start mover, claim": steps(lambda s: s.restart_mover(), claim),
    "restart mover": restart_mover,
    "restart mover, claim": steps(restart_mover, claim),
    "restart mover, acknowledge": steps(restart_mover, acknowledge),
    "drop events": lambda s: s.drop_events(),
}
_DEDUP: dict[str, Step] = {
    "dedup send": lambda s: s.other.dedup_send(b"equal"),
    "dedup send another": lambda s: s.other.dedup_send(b"another"),
    "dedup peek": lambda s: s.other.dedup_peek(),
    "dedup poll": lambda s: s.other.dedup_poll(9),
    "dedup change": dedup_change,
    "dedup purge": lambda s: [s.other.purge(side) for side in (READ, WRITE)],
    **{name: _QUEUE[name] for name in ("deliver", "lapse", "restart mover", "drop events")},
}
_TOPIC: dict[str, Step] = {
    "unsubscribe": lambda s: s.other.unsubscribe(),
    "unsubscribe and subscribe": steps(
        lambda s: s.other.unsubscribe(), lambda s: s.other.subscribe()
    ),
    "delete topic": lambda s: s.other.delete_topic(),
    "delete queue, publish": steps(delete_queue, lambda s: s.other.publish()),
    **_QUEUE,
}
SCENARIOS = {"queue": _QUEUE, "dedup": _DEDUP, "topic": _TOPIC}
__all__ = ["DEAD", "DUPS", "SCENARIOS", "VERBS", "Step", "Verb"]
