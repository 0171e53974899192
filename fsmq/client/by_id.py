"""Messages of queues with an index, by the ids that producers give, over HTTP; and zones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fsmq.spool.layout.messages.message import Message, NewMessage
from fsmq.spool.layout.names import check_queue
from fsmq.spool.verbs.put import MAX_BATCH
from fsmq.wire import MAX_BY_ID_BYTES, from_json, quote_id

from .errors import UnexpectedAnswer
from .exchange import Answer, Verb
from .verbs import outgoing
from .verbs.incoming import member
from .verbs.queue_verbs import Verbs

if TYPE_CHECKING:
    from .session._sync.session import Session

# Leaves room for the other members of the request, which are small.
_PORTION_BYTES = MAX_BY_ID_BYTES - 1024


class ByIdVerbs:
    """Generators that a transport drives; see :mod:`fsmq.client.exchange`."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def put(
        self,
        queue: str,
        messages: Sequence[NewMessage],
        ensure: bool = False,
        among: Sequence[str] = (),
    ) -> Verb[list[bool]]:
        """Of each message whether it was put. A retried upsert replaces what the first try put; a
        retried ensure finds the first try's message, and returns False."""
        put: list[bool] = []
        parameters = {"ensure": "true", "among": ",".join(among) or None} if ensure else None
        for batch in outgoing.batches(list(messages)):
            content = b"[" + b",".join(written for _, written in batch) + b"]"
            path = f"/{check_queue(queue)}/ids"
            answer = yield from self._verbs.done("POST", path, parameters, content)
            put += member(answer, "put")
        return put

    def find(self, queue: str, given_id: str) -> Verb[Message | None]:
        answer = yield from self._ask(queue, "find", [given_id])
        return _message(queue, answer)

    def claim(self, queue: str, given_id: str, visibility: float | None) -> Verb[Message | None]:
        """If the answer is lost, the claim ends at its deadline."""
        answer = yield from self._ask(queue, "claim", [given_id], visibility=visibility)
        return _message(queue, answer)

    def ack(
        self, queue: str, given_ids: Sequence[str], names: Mapping[str, str] | None
    ) -> Verb[list[bool]]:
        """A retry after a lost answer finds nothing in flight, and returns False."""
        quoted = {one: quote_id(name) for one, name in (names or {}).items()}
        done: list[bool] = []
        for portion in _portions(given_ids, quoted):
            named = {one: quoted[one] for one in portion if one in quoted}
            answer = yield from self._ask(queue, "ack", portion, names=named or None)
            done += member(answer, "results")
        return done

    def remove(self, queue: str, given_ids: Sequence[str]) -> Verb[list[bool]]:
        done: list[bool] = []
        for portion in _portions(given_ids, {}):
            answer = yield from self._ask(queue, "remove", portion)
            done += member(answer, "results")
        return done

    def renew(self, queue: str, given_id: str, visibility: float) -> Verb[bool]:
        answer = yield from self._ask(queue, "renew", [given_id], visibility=visibility)
        return bool(member(answer, "results")[0])

    def postpone(
        self, queue: str, given_id: str, delay: float, attributes: Mapping[str, str] | None
    ) -> Verb[bool]:
        answer = yield from self._ask(
            queue, "postpone", [given_id], delay=delay, attributes=dict(attributes or {})
        )
        return bool(member(answer, "results")[0])

    def zones(self) -> Verb[tuple[list[str], str]]:
        """The zones that are alive, and the name of the server's node."""
        answer = yield from self._verbs.done("GET", "/_zones")
        return list(member(answer, "zones")), str(member(answer, "node"))

    def beat(self, zone: str) -> Verb[None]:
        yield from self._verbs.done("PUT", f"/_zones/{zone}")

    def _ask(self, queue: str, do: str, ids: Sequence[str], **more: Any) -> Verb[Answer]:
        given = {name: value for name, value in more.items() if value is not None}
        body = json.dumps({"do": do, "ids": list(ids), **given}).encode()
        return self._verbs.done("POST", f"/{check_queue(queue)}/by-id", None, body)


def _portions(given_ids: Sequence[str], names: Mapping[str, str]) -> Iterator[list[str]]:
    """Ids in portions that fit, with their names, in one request."""
    portion: list[str] = []
    size = 0
    for one in given_ids:
        named = json.dumps(one)
        more = len(named) + (len(named) + len(names[one]) + 8 if one in names else 2)
        if portion and (size + more > _PORTION_BYTES or len(portion) == MAX_BATCH):
            yield portion
            portion, size = [], 0
        portion.append(one)
        size += more
    yield portion


def _message(queue: str, answer: Answer) -> Message | None:
    found = member(answer, "results")
    try:
        return None if found[0] is None else from_json(queue, found[0])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise UnexpectedAnswer(answer.status, f"no message of fsmq: {error!r}") from error


class ClientIndexed:
    """The messages of one queue of a server that has an index, by the ids that producers give.

    Its methods are those of :class:`~fsmq.spool.indexed.Indexed`.
    """

    def __init__(self, client: Session, name: str) -> None:
        self.client = client
        self.name = name
        self._run: Callable[[Verb[Any]], Any] = client.run
        self._verbs = ByIdVerbs(client.verbs)

    def __repr__(self) -> str:
        return f"<ClientIndexed {self.name!r} of {self.client.options.origin}>"

    def upsert(self, messages: Sequence[NewMessage]) -> None:
        """Put messages; each replaces the one that has its ``id``."""
        self._run(self._verbs.put(self.name, messages))

    def ensure(self, message: NewMessage, *, among: Sequence[str] = ()) -> bool:
        """Put a message unless one has its ``id``, here or ``among`` other queues."""
        return bool(self._run(self._verbs.put(self.name, [message], True, among))[0])

    def find(self, given_id: str) -> Message | None:
        """Look at the message of an id, in any state; None if there is none."""
        found: Message | None = self._run(self._verbs.find(self.name, given_id))
        return found

    def claim(self, given_id: str, visibility: float | None = None) -> Message | None:
        """Claim the message of an id, also if it is delayed; None if none, or if it is claimed."""
        found: Message | None = self._run(self._verbs.claim(self.name, given_id, visibility))
        return found

    def ack(self, *given_ids: str, names: Mapping[str, str] | None = None) -> list[bool]:
        """Acknowledge messages that are in flight; for each id whether its message was."""
        return list(self._run(self._verbs.ack(self.name, given_ids, names)))

    def remove(self, *given_ids: str) -> list[bool]:
        """Remove messages in any state; for each id whether there was one."""
        return list(self._run(self._verbs.remove(self.name, given_ids)))

    def renew(self, given_id: str, visibility: float) -> bool:
        """Let a claim end ``visibility`` seconds from now, 0: at once; False if there is none."""
        return bool(self._run(self._verbs.renew(self.name, given_id, visibility)))

    def postpone(
        self, given_id: str, delay: float, attributes: Mapping[str, str] | None = None
    ) -> bool:
        """Make an unclaimed message ready ``delay`` seconds from now."""
        return bool(self._run(self._verbs.postpone(self.name, given_id, delay, attributes)))
