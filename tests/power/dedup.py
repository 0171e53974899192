"""The history of a dedup queue in a load, and the results that it allows.

Equal messages that wait together are one, but a message that was polled can be stored again. So a
key can have several copies; each gets its id from its first poll.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fsmq.spool.verbs.dedup import read_side, write_side
from tests.power import bodies
from tests.power.ops import ACCURACY_S, DONE, Op

DUPS = "dups"  # the dedup queue that all clients share
READ, WRITE = read_side(DUPS), write_side(DUPS)
_LARGEST = 2000
SENDS, POLLS, ACKS = "dedup_send", "dedup_poll", "dedup_ack"


def make(key: str) -> str:
    """The message of a key, always the same, as text for JSON."""
    return base64.b64encode(bodies.make(key, zlib.crc32(key.encode()) % _LARGEST)).decode()


def key_of(stored: bytes) -> str:
    """The key of a stored body. Raises BrokenBody."""
    try:
        return payload_key(json.loads(stored))
    except ValueError as error:
        raise bodies.BrokenBody(f"{len(stored)} bytes, {error}") from None


def payload_key(payload: object) -> str:
    """The key of a polled payload. Raises BrokenBody."""
    try:
        return bodies.key_of(base64.b64decode(payload, validate=True))  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        raise bodies.BrokenBody(f"{str(payload)[:100]}: {error}") from None


class Copy(NamedTuple):
    """A stored or polled message; on the write side it has no id."""

    id: str | None
    key: str | None
    deadline: float = 0.0
    fault: str = ""


@dataclass
class _Shown:
    """The operations on a copy since its first poll."""

    key: str
    polls: list[tuple[Op, float]] = field(default_factory=list)  # with the end of the claim
    acks: list[Op] = field(default_factory=list)


class DedupHistory:
    """The operations of one round on the dedup queue.

    certain: whether an operation was done for certain.
    find: reports the kind and the story of a broken promise.
    gone: keys of earlier rounds, all of which were deleted.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        certain: Callable[[Op], bool],
        find: Callable[[str, str], None],
        gone: set[str],
    ) -> None:
        self._certain = certain
        self._find = find
        self._gone = gone
        self._shown: dict[str, _Shown] = {}
        self._sends: dict[str, list[Op]] = defaultdict(list)
        for op in ops:
            if op.verb == SENDS:
                for key in op.keys:
                    self._sends[key].append(op)
        polls = [op for op in ops if op.verb == POLLS]
        for op in polls:
            for message_id, key, deadline, fault, *_ in op.got:
                if self._identify(Copy(message_id, key, deadline, fault)):
                    self._shown.setdefault(message_id, _Shown(key)).polls.append((op, deadline))
        for op in ops:
            if op.verb == ACKS:
                for message_id in op.ids:
                    self._shown[message_id].acks.append(op)

    @property
    def keys(self) -> set[str]:
        return set(self._sends)

    def check_load(self) -> None:
        """Check the polls of the load."""
        for message_id, shown in self._shown.items():
            for op, _ in shown.polls:
                self._check_poll(message_id, shown, op)

    def check_poll(self, op: Op) -> None:
        """Check a poll after the crash."""
        for message_id, key, deadline, fault, *_ in op.got:
            if self._identify(Copy(message_id, key, deadline, fault)):
                self._check_poll(message_id, self._shown.get(message_id, _Shown(key)), op)

    def check_stored(self, read: Iterable[Copy], write: Iterable[Copy]) -> None:
        """Check all messages that are stored after the crash, on both sides."""
        found: Counter[str] = Counter()
        there: set[str | None] = set()
        for copy in read:
            there.add(copy.id)
            if self._identify(copy):
                assert copy.key is not None
                found[copy.key] += 1
                self._check_hidden(copy)
        for copy in write:
            if self._identify(copy):
                assert copy.key is not None
                found[copy.key] += 1
        for key, sends in self._sends.items():
            if found[key] > len(sends):
                self._find("duplicated", f"{found[key]} copies of {self._story(key)}")
            if not found[key] and any(self._must_be_stored(key, send) for send in sends):
                self._find("lost", self._story(key))
        for message_id, shown in self._shown.items():
            if message_id not in there and found[shown.key] and self._must_stay(shown):
                self._find("undone", f"{DUPS}:{message_id} was shown: {self._story(shown.key)}")

    def _identify(self, copy: Copy) -> bool:
        if copy.key is None:
            self._find("torn", f"{DUPS}:{copy.id}: {copy.fault}")
        elif copy.key in self._gone:
            self._find("resurrected", f"{DUPS}:{copy.id} is {copy.key} of an earlier round")
        elif copy.key not in self._sends:
            self._find("foreign", f"{DUPS}:{copy.id} is {copy.key}, which no one has sent")
        elif copy.id in self._shown and self._shown[copy.id].key != copy.key:
            self._find("mixed", f"{DUPS}:{copy.id} was {self._shown[copy.id].key}, is {copy.key}")
        else:
            return True
        return False

    def _check_poll(self, message_id: str, shown: _Shown, op: Op) -> None:
        if any(self._certain(ack) and ack.answered < op.called for ack in shown.acks):
            self._find("resurrected", f"{DUPS}:{message_id}: {self._story(shown.key)}")
        for other, until in shown.polls:
            if other.status in DONE and other.answered < op.called and op.answered_wall < until:
                story = f"{until - op.answered_wall:.3f} s before its deadline"
                if self._certain(other):
                    self._find("held twice", f"{DUPS}:{message_id}, {story}: {other}, {op}")

    def _check_hidden(self, copy: Copy) -> None:
        shown = self._shown.get(copy.id or "")
        if shown is None:
            return
        if any(self._certain(ack) for ack in shown.acks):
            self._find("resurrected", f"{DUPS}:{copy.id} is stored: {self._story(shown.key)}")
        held = max((until for op, until in shown.polls if self._certain(op)), default=0.0)
        if copy.deadline < held - ACCURACY_S:
            early = f"{held - copy.deadline:.3f} s too early"
            self._find("held twice", f"{DUPS}:{copy.id} {early}: {self._story(shown.key)}")

    def _must_be_stored(self, key: str, send: Op) -> bool:
        """Whether a copy must be stored: its send is certain, and no ack can have removed it."""
        acks = [ack for shown in self._shown.values() if shown.key == key for ack in shown.acks]
        return self._certain(send) and not any(ack.answered > send.called for ack in acks)

    def _must_stay(self, shown: _Shown) -> bool:
        """Whether a copy must be stored with its id, which its consumer holds, as it has no ack.

        The content alone is not enough: it can be that of another copy.
        """
        return any(self._certain(op) for op, _ in shown.polls) and not shown.acks

    def _story(self, key: str) -> str:
        copies = [(i, shown) for i, shown in self._shown.items() if shown.key == key]
        ops = [*self._sends[key], *(op for _, s in copies for op, _ in s.polls)]
        ops += [ack for _, shown in copies for ack in shown.acks]
        operations = ", ".join(
            f"{op.verb} by {op.client} {op.called:.4f}..{op.answered:.4f} ({op.status})"
            for op in sorted(ops, key=lambda op: op.called)
        )
        return f"{key} ({', '.join(i for i, _ in copies)}): {operations}"
