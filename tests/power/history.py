"""The history of a load as its clients recorded it, and the results that it allows.

An operation is certain if its answer came before the horizon, which is the moment of a power cut.
Without an answer, or with a later one, it may have happened or not. But an operation that was
requested after the cut and succeeded counts as certain: no sync can have succeeded then. Own ids,
which are reused, are checked in `tests.power.reuse`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.power.ops import ACCURACY_S, DONE, ENDED, NEVER, Finding, Op
from tests.power.reuse import Reuse, is_reused


class Hold(NamedTuple):
    """A time before which a message must not be delivered, and the operation that set it."""

    until: float  # Unix seconds
    op: Op


class Message:
    """The operations on a message; a publish makes one message for each queue."""

    def __init__(self, key: str, queue: str, id: str | None, post: Op) -> None:
        self.key = key
        self.queue = queue
        self.id = id
        self.post = post
        self.deletes: list[Op] = []
        self.fetches: list[tuple[Op, float]] = []  # with the deadline
        self.claims: list[tuple[str, Op, float]] = []  # the same, by the names of the claims
        self.others: list[Op] = []  # renewals and releases

    def story(self) -> str:
        ops = [self.post, *self.deletes, *(f for f, _ in self.fetches), *self.others]
        ops.sort(key=lambda op: op.called)
        operations = ", ".join(
            f"{op.verb} by {op.client} {op.called:.4f}..{op.answered:.4f} ({op.status})"
            for op in ops
        )
        return f"{self.key} ({self.queue}:{self.id}): {operations}"


class History:
    """Operations of one round by message.

    horizon: monotonic time from which on answers do not count.
    over: monotonic time from which on they count again, for operations that began after it.
    gone: keys of earlier rounds, all of which were deleted with an acknowledgement.
    restarts: monotonic start and end of the restarts of an NFS server. It forgets the calls that it
        has done, and a repeated call fails with ENOENT: a request that was under way during a
        restart and got 404 may have removed the message. After a lost connection alone, the server
        recognises repeated calls.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        horizon: float,
        gone: set[str],
        over: float = NEVER,
        *,
        restarts: Sequence[tuple[float, float]] = (),
    ) -> None:
        self.ops = ops
        self.horizon = horizon
        self._over = over
        self._restarts = restarts
        self.excused: list[Message] = []  # got a 404 that only a restart explains
        self.gone = gone
        self.messages: dict[tuple[str, str], Message] = {}  # by key and queue
        self.findings: list[Finding] = []
        self._keys: set[str] = set()
        self._by_id: dict[tuple[str, str], Message] = {}
        self._ends: dict[str, list[Op]] = defaultdict(list)  # purges and deletions by queue
        self._moves: dict[str, list[Op]] = defaultdict(list)  # by target
        self.reuse = Reuse(ops, self.answer_counts, self.find, gone, self._may_be_done)
        for op in ops:
            if op.verb == "move":
                self._moves[op.to[0]].append(op)
            self._add_posts(op)
        for op in ops:
            self._add(op)

    @property
    def keys(self) -> set[str]:
        """The keys of all messages that were or may have been posted."""
        return self._keys | self.reuse.contents

    def answer_counts(self, op: Op) -> bool:
        """Whether the answer of an operation counts."""
        return op.answered < self.horizon or self._over < op.called < op.answered < NEVER

    def certain(self, op: Op) -> bool:
        return op.status in DONE and self.answer_counts(op)

    def find(self, problem: str, text: str) -> None:
        self.findings.append(Finding(problem, text))

    def _add_posts(self, op: Op) -> None:
        if op.verb == "post" and not op.own:
            ids = [*op.ids, *([None] * len(op.keys))]
            copies = [(key, op.queue, ids[n] or None) for n, key in enumerate(op.keys)]
        elif op.verb == "publish":
            copies = [(op.keys[0], queue, op.copies.get(queue)) for queue in op.to]
        else:
            return
        for key, queue, message_id in copies:
            message = self.messages[key, queue] = Message(key, queue, message_id, op)
            self._keys.add(key)
            if message_id is not None:
                self._by_id[queue, message_id] = message

    def _add(self, op: Op) -> None:
        if op.verb == "fetch":
            for message_id, key, deadline, fault, *claim in op.got:
                if not is_reused(message_id):
                    message = self.add_delivery(op, message_id, key, deadline, fault)
                    if message is not None and claim:
                        message.claims.append((claim[0], op, deadline))
        elif op.verb in ("purge", "delete_queue"):
            self._ends[op.queue].append(op)
        elif op.verb in ("delete", "renew", "release") and not is_reused(op.ids[0]):
            message = self._by_id.get((op.queue, op.ids[0]))
            if message is None:
                self.find("foreign", f"{op.verb} of {op.ids[0]}, which no one has posted")
            elif op.verb == "delete":
                message.deletes.append(op)
            else:
                message.others.append(op)

    def add_delivery(
        self, op: Op, message_id: str, key: str | None, deadline: float, fault: str
    ) -> Message | None:
        """Record that a message was delivered."""
        message = self.identify(op.queue, message_id, key, fault)
        if message is not None:
            message.fetches.append((op, deadline))
        return message

    def identify(
        self, queue: str, message_id: str, key: str | None, fault: str = ""
    ) -> Message | None:
        """The message with an id and key; an unknown one is a finding."""
        posted_to = self._posted_to(key, queue)
        if key is None:
            self.find("torn", f"{queue}:{message_id}: {fault}")
        elif key in self.gone:
            self.find("resurrected", f"{queue}:{message_id} is {key} of an earlier round")
        elif key not in self._keys:
            self.find("foreign", f"{queue}:{message_id} is {key}, which no one has posted")
        elif posted_to is None:
            self.find("mixed", f"{key} was delivered from {queue}, where no one has posted it")
        else:
            message = self.messages[key, posted_to]
            if message.id not in (None, message_id):
                self.find("mixed", f"{message.story()} was delivered as {queue}:{message_id}")
            message.id = message_id
            self._by_id[queue, message_id] = message
            return message
        return None

    def _posted_to(self, key: str | None, queue: str) -> str | None:
        """The queue to which a message was posted, which may have been moved to ``queue``."""
        for posted_to in (queue, *(move.queue for move in self._moves[queue])):
            if (key, posted_to) in self.messages:
                return posted_to
        return None

    def removals(self, message: Message) -> Iterator[Op]:
        """Operations that may have removed it: deletes, and purges and deletions of its queue."""
        for op in message.deletes:
            if op.status != ENDED and (op.status != 404 or self._may_be_done(op)):
                yield op
        for op in self._ends[message.queue]:
            if op.status != 404 and op.answered > message.post.called:
                yield op

    def _may_be_done(self, op: Op) -> bool:
        """Whether a restart can be the cause of a 404."""
        return any(op.called < end and op.answered > begin for begin, end in self._restarts)

    def is_stored(self, message: Message) -> bool:
        """Whether it must be stored: its post is certain, and no operation can have removed it."""
        return self.certain(message.post) and not any(self.removals(message))

    def places(self, message: Message) -> set[str]:
        """The queues in which a message may be."""
        moved = {to for to, moves in self._moves.items() for m in moves if m.queue == message.queue}
        return {message.queue, *moved}

    def is_moved(self, message: Message) -> bool:
        """Whether it must have left its queue by a move that began after it had been stored."""
        moves = (move for moves in self._moves.values() for move in moves)
        return self.certain(message.post) and any(
            move.called > message.post.answered and self.certain(move)
            for move in moves
            if move.queue == message.queue
        )

    def removed_by(self, message: Message) -> list[Op]:
        """Operations that have certainly removed a message."""
        certain = [op for op in self.removals(message) if self.certain(op)]
        if message.post.answered == NEVER:
            # It may have been stored after a purge of its queue.
            return [op for op in certain if op in message.deletes]
        return [op for op in certain if op in message.deletes or op.called > message.post.answered]

    def hold(self, message: Message, before: float) -> Hold | None:
        """Until when a message must be hidden, by the operations called before a time."""
        ops: list[tuple[Op, float]] = [(op, d) for op, d in message.fetches if op.called < before]
        ops += [(op, op.deadline) for op in message.others if op.called < before]
        if message.post.delay and not ops:
            ops.append((message.post, message.post.called_wall + message.post.delay))
        if not ops or any(op.answered >= min(before, self.horizon) for op, _ in ops):
            return None  # one of them is not finished, or uncertain
        ops = [(op, deadline) for op, deadline in ops if op.status in DONE]
        if not ops:
            return None
        last = max((op for op, _ in ops), key=lambda op: op.answered)
        # Any of several concurrent operations may have been the last.
        near = [(op, d) for op, d in ops if op.answered >= last.called]
        if any(op.verb == "release" for op, _ in near):
            return None
        return Hold(min(d for _, d in near), last)

    def is_undone_release(self, message: Message, deadline: float, claim: str) -> bool:
        """Whether its last operation was a release, but it is in a claim from before that.

        claim: the name of the claim that it is in. A later, unanswered claim may have the deadline
        of a renewal by chance, but not its name.
        """
        holds = [*((op, op.deadline) for op in message.others), *message.fetches]
        if not holds or any(op.answered >= self.horizon for op, _ in holds):
            return False
        last = max((op for op, _ in holds), key=lambda op: op.answered)
        if last.verb != "release" or last.status not in DONE:
            return False
        if message.claims and claim not in {name for name, _, _ in message.claims}:
            return False
        before = [d for op, d in holds if op.answered < last.called]
        return any(abs(deadline - d) < ACCURACY_S for d in before)

    def check_load(self) -> None:
        """Check the load: a message has one holder at a time, and none is missing."""
        for message in self.messages.values():
            for op, _ in message.fetches:
                self.check_fetch(message, op)
            self._check_claims(message)
            for op in message.deletes:
                if op.status != 404 or not self._must_be_there(message, op):
                    continue
                if self._may_be_done(op):
                    self.excused.append(message)
                else:
                    self.find("lost", f"404 for a message that is there: {message.story()}")

    def check_fetch(self, message: Message, op: Op) -> None:
        """Check that a delivered message was neither held nor removed."""
        hold = self.hold(message, op.called)
        overlapping = [
            other
            for other in message.others
            if other.called < op.answered and other.answered > op.called
        ]
        if hold is not None and not overlapping and op.answered_wall < hold.until:
            early = hold.until - op.answered_wall
            self.find("held twice", f"{early:.3f} s before its deadline: {message.story()}")
        if any(removal.answered < op.called for removal in self.removed_by(message)):
            self.find("resurrected", message.story())

    def _check_claims(self, message: Message) -> None:
        """An operation in a claim succeeds while the claim holds, and fails after its end."""
        changes = [*message.others, *message.deletes]
        for op in changes:
            given = [(f, until) for name, f, until in message.claims if name == op.claim]
            if not op.claim or len(given) != 1 or not self.answer_counts(op):
                continue
            [(fetch, until)] = given
            ends = [f for _, f, _ in message.claims if f is not fetch]
            ends += [o for o in message.others if o.verb == "release" and o.status in DONE]
            if op.status in DONE and any(
                fetch.answered < end.called and end.answered < op.called for end in ends
            ):
                self.find("done in an ended claim", f"{op.verb} in {op.claim}: {message.story()}")
            acts = [o for o in (*changes, *ends, *self._ends[message.queue]) if o is not op]
            is_alone = all(o.answered < fetch.called or o.called > op.answered for o in acts)
            if op.status == ENDED and is_alone and op.answered_wall < until:
                self.find("claim lost", f"{op.verb} in {op.claim}: {message.story()}")

    def _must_be_there(self, message: Message, op: Op) -> bool:
        if not (message.post.status in DONE and message.post.answered < op.called):
            return False
        others = (o for o in self.removals(message) if o is not op)
        return not any(o.called < op.answered for o in others)

    def queues(self, before: Mapping[str, bool | None] | None = None) -> dict[str, bool | None]:
        """Whether each queue exists; None: unknown. before: the same, before this history."""
        known = dict(before or {})
        for op in self.ops:  # a queue is created and deleted by one client only
            if op.verb in ("create", "delete_queue"):
                exists = op.verb == "create"
                if self.certain(op):
                    known[op.queue] = exists
                elif known.get(op.queue) is not exists:
                    known[op.queue] = None  # else the operation cannot have changed it
        return known

    def last_of(self, queue: str) -> str:
        """The last operations on a queue, for the story of a finding."""
        last = [op for op in self.ops if op.queue == queue][-3:]
        operations = ", ".join(f"{op.verb} {op.called:.4f}..{op.answered:.4f}" for op in last)
        return f"{operations}; counted until {self.horizon:.4f}"

    def visibilities(self, known: dict[str, set[float]]) -> None:
        """Update the visibility timeouts that each queue may have."""
        for op in self.ops:
            if op.verb == "configure":
                if self.certain(op):
                    known[op.queue] = {op.visibility}
                else:
                    known.setdefault(op.queue, {30.0}).add(op.visibility)
