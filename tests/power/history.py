"""What a load has done, as its clients wrote it down, and what may and may not come out of it.

An operation is certain if its answer came before the horizon: the moment of a power cut. What was
asked before it and not answered, or answered later, may have happened or not. But what was asked
when the power was gone already, and was answered with a promise, is held to it: no sync can have
succeeded any more. Own ids, which are used again, have a judge of their own: `tests.power.reuse`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.power.ops import ACCURACY_S, DONE, ENDED, NEVER, Finding, Op
from tests.power.reuse import Reuse, is_reused


class Hold(NamedTuple):
    """A time before which a message must not be handed out, and the operation that said so."""

    until: float  # Unix seconds
    op: Op


class Message:
    """All that happened to one message; a publish makes one for each queue."""

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
        told = ", ".join(
            f"{op.verb} by {op.client} {op.called:.4f}..{op.answered:.4f} ({op.status})"
            for op in ops
        )
        return f"{self.key} ({self.queue}:{self.id}): {told}"


class History:
    """Operations of one round, sorted out by message.

    horizon: monotonic time from which on answers do not count.
    over: monotonic time from which on they do again, for what was asked after it.
    gone: keys of earlier rounds, all of which were deleted with an acknowledgement.
    restarts: monotonic times, from and to, of an NFS server's restarts. It forgets in them what it
        has done, and says that nothing is there when it is asked once more: who was told 404 by a
        request that was under way then may have removed the message. At no other time: what was
        not answered for another reason, such as a cable, the server knows when it is asked again.
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
        self.told_gone: list[Message] = []  # with a 404 that only a restart explains
        self.gone = gone
        self.messages: dict[tuple[str, str], Message] = {}  # by key and queue
        self.findings: list[Finding] = []
        self._keys: set[str] = set()
        self._by_id: dict[tuple[str, str], Message] = {}
        self._ends: dict[str, list[Op]] = defaultdict(list)  # purges and deletions by queue
        self._moves: dict[str, list[Op]] = defaultdict(list)  # by target
        self.reuse = Reuse(ops, self.is_told, self.find, gone, self._may_be_done)
        for op in ops:
            if op.verb == "move":
                self._moves[op.to[0]].append(op)
            self._add_posts(op)
        for op in ops:
            self._add(op)

    @property
    def keys(self) -> set[str]:
        """All that was posted, or may have been."""
        return self._keys | self.reuse.contents

    def is_told(self, op: Op) -> bool:
        """Whether the answer to an operation counts."""
        return op.answered < self.horizon or self._over < op.called < op.answered < NEVER

    def certain(self, op: Op) -> bool:
        return op.status in DONE and self.is_told(op)

    def find(self, problem: str, text: str) -> None:
        self.findings.append(Finding(problem, text))

    # -- sorting out -----------------------------------------------------------------------------

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
                    message = self.came_out(op, message_id, key, deadline, fault)
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

    def came_out(
        self, op: Op, message_id: str, key: str | None, deadline: float, fault: str
    ) -> Message | None:
        """Note that a message was handed out."""
        message = self.identify(op.queue, message_id, key, fault)
        if message is not None:
            message.fetches.append((op, deadline))
        return message

    def identify(
        self, queue: str, message_id: str, key: str | None, fault: str = ""
    ) -> Message | None:
        """Whose message stands or came out; what is no one's is a finding."""
        posted_to = self._posted_to(key, queue)
        if key is None:
            self.find("torn", f"{queue}:{message_id}: {fault}")
        elif key in self.gone:
            self.find("resurrected", f"{queue}:{message_id} is {key} of an earlier round")
        elif key not in self._keys:
            self.find("foreign", f"{queue}:{message_id} is {key}, which no one has posted")
        elif posted_to is None:
            self.find("mixed", f"{key} came out of {queue}, where no one has posted it")
        else:
            message = self.messages[key, posted_to]
            if message.id not in (None, message_id):
                self.find("mixed", f"{message.story()} came out as {queue}:{message_id}")
            message.id = message_id
            self._by_id[queue, message_id] = message
            return message
        return None

    def _posted_to(self, key: str | None, queue: str) -> str | None:
        """The queue to which a message was posted that is found in one; it may have been moved."""
        for posted_to in (queue, *(move.queue for move in self._moves[queue])):
            if (key, posted_to) in self.messages:
                return posted_to
        return None

    # -- what must be ----------------------------------------------------------------------------

    def removals(self, message: Message) -> Iterator[Op]:
        """What may have removed a message: its deletes, and purges and deletions of its queue."""
        for op in message.deletes:
            if op.status != ENDED and (op.status != 404 or self._may_be_done(op)):
                yield op
        for op in self._ends[message.queue]:
            if op.status != 404 and op.answered > message.post.called:
                yield op

    def _may_be_done(self, op: Op) -> bool:
        """Whether a restart can be why an operation was told that nothing is there."""
        return any(op.called < end and op.answered > begin for begin, end in self._restarts)

    def is_stored(self, message: Message) -> bool:
        """Whether it must be there: its post is certain, and no one has tried to remove it."""
        return self.certain(message.post) and not any(self.removals(message))

    def places(self, message: Message) -> set[str]:
        """The queues in which a message may be found."""
        moved = {to for to, moves in self._moves.items() for m in moves if m.queue == message.queue}
        return {message.queue, *moved}

    def is_moved(self, message: Message) -> bool:
        """Whether it must have left its queue: a move was ordered after it had been stored."""
        moves = (move for moves in self._moves.values() for move in moves)
        return self.certain(message.post) and any(
            move.called > message.post.answered and self.certain(move)
            for move in moves
            if move.queue == message.queue
        )

    def removed_by(self, message: Message) -> list[Op]:
        """What has certainly removed a message."""
        certain = [op for op in self.removals(message) if self.certain(op)]
        if message.post.answered == NEVER:
            # It may have been stored after its queue was purged; only its own delete tells.
            return [op for op in certain if op in message.deletes]
        return [op for op in certain if op in message.deletes or op.called > message.post.answered]

    def hold(self, message: Message, before: float) -> Hold | None:
        """Until when a message must be hidden, as far as operations called by ``before`` tell."""
        ops: list[tuple[Op, float]] = [(op, d) for op, d in message.fetches if op.called < before]
        ops += [(op, op.deadline) for op in message.others if op.called < before]
        if message.post.delay and not ops:
            ops.append((message.post, message.post.called_wall + message.post.delay))
        if not ops or any(op.answered >= min(before, self.horizon) for op, _ in ops):
            return None  # one of them is under way, or uncertain
        ops = [(op, deadline) for op, deadline in ops if op.status in DONE]
        if not ops:
            return None
        last = max((op for op, _ in ops), key=lambda op: op.answered)
        # Of several at the same time any may have been the last.
        near = [(op, d) for op, d in ops if op.answered >= last.called]
        if any(op.verb == "release" for op, _ in near):
            return None
        return Hold(min(d for _, d in near), last)

    def is_undone_release(self, message: Message, deadline: float, claim: str) -> bool:
        """Whether it was released at last, and yet stands in a claim before that.

        claim: the name of that in which it stands. A later claim, which nobody was told of, may
        have the deadline of a renewal by chance, but not its name.
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
        """What must hold while the daemons run: one holder at a time, no live message missing."""
        for message in self.messages.values():
            for op, _ in message.fetches:
                self.check_fetch(message, op)
            self._check_claims(message)
            for op in message.deletes:
                if op.status != 404 or not self._must_be_there(message, op):
                    continue
                if self._may_be_done(op):
                    self.told_gone.append(message)
                else:
                    self.find("lost", f"404 for a message that is there: {message.story()}")

    def check_fetch(self, message: Message, op: Op) -> None:
        """A message that was handed out must not have been held, or removed."""
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
        """What was done in a claim was done while it held; what was not, since it had ended."""
        changes = [*message.others, *message.deletes]
        for op in changes:
            given = [(f, until) for name, f, until in message.claims if name == op.claim]
            if not op.claim or len(given) != 1 or not self.is_told(op):
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

    # -- queues ----------------------------------------------------------------------------------

    def queues(self, before: Mapping[str, bool | None] | None = None) -> dict[str, bool | None]:
        """Whether each queue exists; None: it may. before: the same, before this history."""
        told = dict(before or {})
        for op in self.ops:  # a queue is created and deleted by one client only
            if op.verb in ("create", "delete_queue"):
                exists = op.verb == "create"
                if self.certain(op):
                    told[op.queue] = exists
                elif told.get(op.queue) is not exists:
                    told[op.queue] = None  # otherwise it was so already, and still is
        return told

    def last_of(self, queue: str) -> str:
        """What was done to a queue at last, for the story of a finding."""
        last = [op for op in self.ops if op.queue == queue][-3:]
        told = ", ".join(f"{op.verb} {op.called:.4f}..{op.answered:.4f}" for op in last)
        return f"{told}; counted until {self.horizon:.4f}"

    def visibilities(self, told: dict[str, set[float]]) -> None:
        """Bring up to date which visibility timeouts each queue may have."""
        for op in self.ops:
            if op.verb == "configure":
                if self.certain(op):
                    told[op.queue] = {op.visibility}
                else:
                    told.setdefault(op.queue, {30.0}).add(op.visibility)
