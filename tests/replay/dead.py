"""Verbs of dead letters and their promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fsmq.spool import FsmqError, NoSuchMessage, Queue, Spool

HOME, GRAVE = "home", "grave"  # a queue and its dead-letter queue
WHY = "it cannot be read"
# Dead letters at the start: one that was not claimed since, and one that was released.
LETTERS = {"fallen": b"fallen at first", "tried": b"tried once more at first"}
# A claimed message in their queue.
CLAIMED = {"held": b"held at home"}
# A message whose id has a priority, and its new id.
EARLY = "01890a5d-ac96-774b-bcce-b302099a8057"
LATE = f"p05.{EARLY}"


@dataclass
class DeadPromise:
    """The promises of a crash now. is_dead: whether a message is a dead letter; None: unknown."""

    is_dead: dict[str, bool | None] = field(
        default_factory=lambda: {"fallen": True, "tried": True, "held": False}
    )
    is_late: bool | None = False  # whether the message EARLY has its new id
    knows: dict[str, str] = field(default_factory=lambda: dict.fromkeys(LETTERS, WHY))


def fill_dead(spool: Spool, hold_s: float) -> None:
    """Put the messages at the start of scenarios."""
    home = spool.queue(HOME, create=True)
    home.configure(max_deliveries=9, dead_letter_queue=GRAVE)
    for name in ("tried", "fallen"):
        home.put(LETTERS[name], id=name)
        home.claim()[0].bury(WHY)
        if name == "tried":
            spool.queue(GRAVE).claim()[0].release()
    home.put(CLAIMED["held"], id="held")
    home.claim(visibility=hold_s)
    home.put(b"early", id=EARLY)
    home.claim()[0].release()


class DeadVerbs:
    """The verbs of dead letters of an actor."""

    spool: Spool

    def begin(self, effect: Callable[[Any], None]) -> None:
        raise NotImplementedError

    def end(self, effect: Callable[[Any], None]) -> None:
        raise NotImplementedError

    def dead_bury(self) -> None:
        def begin(p: Any) -> None:
            p.dead.is_dead["held"] = None
            p.dead.knows.pop("held", None)

        def end(p: Any) -> None:
            p.dead.is_dead["held"] = True
            p.dead.knows["held"] = WHY

        self.begin(begin)
        try:
            Queue(self.spool, HOME).bury("held", WHY)
        except NoSuchMessage:
            return
        self.end(end)

    def dead_redrive(self) -> None:
        """Redrive all, which continues after a crash."""

        def begin(p: Any) -> None:
            p.dead.is_dead.update(dict.fromkeys(LETTERS))

        self.begin(begin)
        done = Queue(self.spool, GRAVE).redrive()
        if done.moved == len(LETTERS):
            self.end(lambda p: p.dead.is_dead.update(dict.fromkeys(LETTERS, False)))

    def dead_order(self) -> None:
        """Order a redrive, which is done after a crash."""
        self.begin(lambda p: p.dead.is_dead.update(dict.fromkeys(LETTERS)))
        self.spool.begin_redrive(GRAVE)
        self.end(lambda p: p.dead.is_dead.update(dict.fromkeys(LETTERS, False)))

    def dead_redrive_some(self) -> None:
        self.begin(lambda p: p.dead.is_dead.update(tried=None))
        done = Queue(self.spool, GRAVE).redrive(only=["tried"])
        if done.moved:
            self.end(lambda p: p.dead.is_dead.update(tried=False))

    def set_priority(self) -> None:
        self.begin(lambda p: setattr(p.dead, "is_late", None))
        try:
            Queue(self.spool, HOME).set_priority(EARLY, 5)
        except NoSuchMessage:
            return
        self.end(lambda p: setattr(p.dead, "is_late", True))

    def dead_stop(self) -> None:
        """Stop a redrive before it has begun."""
        self.begin(lambda p: p.dead.is_dead.update(dict.fromkeys(LETTERS)))
        order = self.spool.begin_redrive(GRAVE)
        stopped = self.spool.stop_move(order.ref)
        if stopped is not None and stopped.status == "stopped":
            self.end(lambda p: p.dead.is_dead.update(dict.fromkeys(LETTERS, True)))


DEAD_VERBS = ("dead_bury", "dead_redrive", "dead_order", "dead_redrive_some", "dead_stop")
DEAD_VERBS += ("set_priority",)


def problem(spool: Spool, promised: DeadPromise) -> str | None:
    """A broken promise of dead letters after a crash; None if all hold."""
    try:
        spool.make_moves()
    except FsmqError as error:
        return f"no move continues: {error}"
    found: dict[str, list[tuple[str, bytes, str | None, int | None]]] = {}
    for queue in (HOME, GRAVE):
        for state in ("ready", "in_flight"):
            for m in Queue(spool, queue).peek(9, state=state):
                reason = None if m.dead_letter is None else m.dead_letter.reason
                found.setdefault(m.id, []).append((queue, m.body, reason, m.deliveries))
    early = [name for name in (EARLY, LATE) for _ in found.get(name, ())]
    wanted = {True: [[LATE]], False: [[EARLY]], None: [[EARLY], [LATE]]}[promised.is_late]
    if early not in wanted:
        return f"{early} are stored, not {wanted}"
    return _of_letters(found, promised)


def _of_letters(
    found: dict[str, list[tuple[str, bytes, str | None, int | None]]], promised: DeadPromise
) -> str | None:
    bodies = {**LETTERS, **CLAIMED}
    for name, is_dead in promised.is_dead.items():
        if len(found.get(name, ())) != 1:
            return f"{name} is stored as {found.get(name)}"
        [(queue, body, reason, deliveries)] = found[name]
        if body != bodies[name]:
            return f"{name} has the body {body!r}"
        if is_dead is not None and (queue == GRAVE) != is_dead:
            return f"{name} is in {queue}"
        if name in promised.knows and reason != promised.knows[name]:
            return f"{name} has a wrong reason: {reason}"
        if name in LETTERS and is_dead is False and deliveries != 0:
            return f"{name} was redriven with {deliveries} deliveries"
    return None
