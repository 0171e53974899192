"""The verbs of queues over HTTP, for all transports: the requests, and what the answers mean.

An answer can be lost after the server has carried out a request. So verbs must survive a retry,
and say what it finds then.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from fsmq.spool.arguments import PART
from fsmq.spool.errors import (
    ClaimEnded,
    DuplicateMessage,
    FsmqError,
    InvalidValue,
    NoSuchMessage,
    NoSuchQueue,
)
from fsmq.spool.index.counting import Counts
from fsmq.spool.layout.messages.dead_letter import check_reason
from fsmq.spool.layout.messages.message import Message, NewMessage
from fsmq.spool.layout.names import MAX_PRIORITY, check_id, with_priority
from fsmq.spool.layout.settings import (
    LONGEST_WAIT_S,
    MAX_DELAY_S,
    QueueSettings,
    check_number,
    check_seconds,
)
from fsmq.spool.verbs.choice import Choice
from fsmq.spool.verbs.receive import MAX_CLAIMS
from fsmq.spool.verbs.remove_if import Acked
from fsmq.spool.worker.patience import backoff
from fsmq.wire import MAX_WAIT_S, from_json, quote_id, seconds, unquote_id

from ..errors import UnexpectedAnswer, error_of
from ..exchange import Answer, Pause, Verb
from . import incoming as answers
from . import outgoing
from .asking import Asking, about, path_of_message, path_of_queue

# The most messages that one request claims, acknowledges or looks at.
MAX_COUNT = MAX_CLAIMS
# A page of a peek with this many bytes may have ended because of its size.
_FULL_PAGE_BYTES = 64 * 1024 * 1024


class Verbs(Asking):
    """Generators that a transport drives; see :mod:`fsmq.client.exchange`.

    `renew`, `release` and `bury` also take LOG/CHANNEL as the queue, with an offset as the id.
    """

    # -- queues ----------------------------------------------------------------------------------

    def queues(self) -> Verb[list[str]]:
        answer = yield from self._done(self._request("GET", "/"))
        return list(answers.member(answer, "queues"))

    def create_queue(self, name: str, index: bool = False, fifo: bool = False) -> Verb[bool]:
        """A retry after a lost answer finds the queue, and returns False."""
        asked = {"index": index, "fifo": fifo}
        parameters = {name: "true" for name, is_wanted in asked.items() if is_wanted} or None
        answer = yield from self._done(self._request("PUT", path_of_queue(name), parameters))
        return bool(answers.member(answer, "created"))

    def delete_queue(self, name: str) -> Verb[None]:
        outcome = yield from self._ask(self._request("DELETE", path_of_queue(name)))
        if outcome.answer.status != 200:
            error = error_of(outcome.answer)
            # A retry after a lost answer finds no queue.
            if not (outcome.again and isinstance(error, NoSuchQueue)):
                raise error

    def has_queue(self, name: str) -> Verb[bool]:
        outcome = yield from self._ask(self._request("GET", path_of_queue(name)))
        if outcome.answer.status == 200:
            return True
        error = error_of(outcome.answer)
        if isinstance(error, NoSuchQueue):
            return False
        raise error

    def counts(self, queue: str) -> Verb[Counts]:
        answer = yield from self._done(self._request("GET", path_of_queue(queue)))
        counted = answers.member(answer, "messages")
        return Counts(**{state: counted[state] for state in Counts._fields})

    def settings(self, queue: str) -> Verb[QueueSettings]:
        answer = yield from self._done(self._request("GET", path_of_queue(queue)))
        return answers.settings(answer)

    def configure(self, queue: str, changes: Mapping[str, Any]) -> Verb[QueueSettings]:
        body = json.dumps(dict(changes)).encode()
        answer = yield from self._done(self._request("PATCH", path_of_queue(queue), body=body))
        return answers.settings(answer)

    def purge(self, queue: str) -> Verb[None]:
        """A retry also removes messages that came after the first try."""
        yield from self._done(self._request("DELETE", f"{path_of_queue(queue)}/messages"))

    # -- put -------------------------------------------------------------------------------------

    def put(self, queue: str, message: NewMessage, *, again: bool = False) -> Verb[str]:
        """All tries send the same id: if a retry finds it there, the message has been stored.

        again: an earlier try may have been carried out already.
        """
        named = outgoing.named(message)
        if not outgoing.fits_headers(named):
            content = outgoing.in_list([outgoing.as_json(named)])
            request = self._request("POST", f"{path_of_queue(queue)}/batch", body=content)
        else:
            request = self._request(
                "POST",
                f"{path_of_queue(queue)}/messages",
                outgoing.parameters_of(named),
                named.body,
                outgoing.headers_of(named),
            )
        outcome = yield from self._ask(request)
        if outcome.answer.status == 201:
            message_id = outcome.answer.headers.get("x-message-id")
            if message_id is None:
                message_id = answers.member(outcome.answer, "ids")[0]
            return unquote_id(message_id)
        error = error_of(outcome.answer)
        if isinstance(error, DuplicateMessage) and (again or outcome.again):
            return error.message_id
        error.index = None
        raise error

    def put_many(self, queue: str, messages: Iterable[bytes | NewMessage]) -> Verb[list[str]]:
        waiting = (m if isinstance(m, NewMessage) else NewMessage(m) for m in messages)
        ids: list[str] = []
        while part := list(islice(waiting, PART)):
            try:
                for batch in outgoing.batches([outgoing.named(message) for message in part]):
                    ids += yield from self._put_batch(queue, batch)
            except FsmqError as error:
                if error.index is not None:
                    error.index += len(ids)
                raise
        return ids

    def _put_batch(self, queue: str, batch: list[tuple[NewMessage, bytes]]) -> Verb[list[str]]:
        messages = [message for message, _ in batch]
        if len(batch) > 1:
            content = outgoing.in_list(written for _, written in batch)
            outcome = yield from self._ask(
                self._request("POST", f"{path_of_queue(queue)}/batch", body=content)
            )
            if outcome.answer.status == 201:
                return [unquote_id(i) for i in answers.member(outcome.answer, "ids")]
            error = error_of(outcome.answer)
            if not (outcome.again and isinstance(error, DuplicateMessage)):
                raise error
            # The server may have died in the middle of an earlier try, with some of them stored.
        again = len(batch) > 1
        ids: list[str] = []
        for index, message in enumerate(messages):
            try:
                ids.append((yield from self.put(queue, message, again=again)))
            except FsmqError as error:
                error.index = index
                raise
        return ids

    # -- claim and what follows ------------------------------------------------------------------

    def claim(
        self, queue: str, count: int, visibility: float | None, wait: float
    ) -> Verb[list[Message]]:
        """After a lost answer the claims end at their deadlines; a retry claims other messages."""
        path = f"{path_of_queue(queue)}/messages"
        answer = yield from self.claimed(path, {}, count, visibility, wait)
        return [] if answer is None else answers.messages(queue, answer)

    def claim_several(
        self, choice: Choice, count: int, visibility: float | None, wait: float
    ) -> Verb[list[Message]]:
        """The same, from several queues."""
        asked = {"queues": str(choice)}
        answer = yield from self.claimed("/_claim", asked, count, visibility, wait)
        return [] if answer is None else answers.messages(None, answer)

    def claimed(
        self,
        path: str,
        asked: Mapping[str, str],
        count: int,
        visibility: float | None,
        wait: float,
    ) -> Verb[Answer | None]:
        """The answer with claimed messages; None if there were none."""
        check_number("count", count, 1, MAX_COUNT)
        check_seconds("wait", wait, LONGEST_WAIT_S)
        end = time.monotonic() + wait
        early = 0
        while True:
            left = min(max(0.0, end - time.monotonic()), MAX_WAIT_S)
            limits = {"count": count, "visibility": visibility, "wait": left or None}
            request = self._request("GET", path, {**asked, **limits}, wait=left)
            asked_at = time.monotonic()
            answer = yield from self._done(request)
            if answer.status == 200:
                return answer
            now = time.monotonic()
            if now >= end:
                return None
            # A server that is stopping answers before the wait is over: pause between requests.
            early = early + 1 if now - asked_at < left / 2 else 0
            if early:
                yield Pause(min(backoff(early), end - now))

    def renew(
        self,
        queue: str,
        message_id: str,
        visibility: float | None,
        claim: str | None = None,
    ) -> Verb[float]:
        if visibility == 0:
            visibility = 0.001  # 0 would be a release
        request = self._change(queue, message_id, {"visibility": visibility}, claim)
        answer = yield from self._done(request)
        deadline = answer.headers.get("x-message-deadline")
        if deadline is None:
            raise UnexpectedAnswer(answer.status, "no deadline; is this a server of fsmq?")
        return seconds(deadline)

    def release(
        self,
        queue: str,
        message_id: str,
        delay: float,
        claim: str | None = None,
        reason: str | None = None,
    ) -> Verb[None]:
        check_seconds("delay", delay, MAX_DELAY_S)
        parameters = {"release": delay, "reason": check_reason(reason)}
        request = self._change(queue, message_id, parameters, claim)
        yield from self._once(request)

    def bury(
        self,
        queue: str,
        message_id: str,
        reason: str | None = None,
        claim: str | None = None,
    ) -> Verb[None]:
        parameters = {"bury": "true", "reason": check_reason(reason)}
        request = self._change(queue, message_id, parameters, claim)
        yield from self._once(request)

    def set_priority(self, queue: str, message_id: str, priority: int) -> Verb[str]:
        """A retry after a lost answer finds the message under its new id."""
        check_number("priority", priority, 0, MAX_PRIORITY)
        request = self._change(queue, message_id, {"priority": priority}, None)
        outcome = yield from self._ask(request)
        if outcome.answer.status == 200:
            return unquote_id(answers.member(outcome.answer, "id"))
        error = error_of(outcome.answer)
        new_id = with_priority(message_id, priority)
        is_done = outcome.again and isinstance(error, NoSuchMessage) and new_id is not None
        if not is_done or (yield from self.find(queue, new_id or "")) is None:
            raise error
        return new_id or ""

    def remove(self, queue: str, message_ids: Iterable[str]) -> Verb[int]:
        """How many were there; after a lost answer too many can be counted, never too few."""
        return sum((yield from self.remove_each(queue, message_ids)))

    def remove_each(self, queue: str, message_ids: Iterable[str]) -> Verb[list[bool]]:
        """For each whether it was there; see :meth:`remove_if`."""
        ids = list(message_ids)
        outcomes = yield from self.remove_if(queue, ids, [None] * len(ids))
        return [outcome == "removed" for outcome in outcomes]

    def remove_if(
        self,
        queue: str,
        message_ids: Sequence[str],
        claims: Sequence[str | None],
    ) -> Verb[list[Acked]]:
        """The outcome for each.

        Those that a retry after a lost answer does not find count as removed by the first try.
        """
        path = f"{path_of_queue(queue)}/ack"
        ids = [check_id(queue, message_id) for message_id in message_ids]
        waiting = zip(ids, claims, strict=True)
        outcomes: list[Acked] = []
        while part := list(islice(waiting, MAX_COUNT)):
            if len(part) == 1:
                alone = yield from self._remove_one(queue, *part[0])
                if alone != "missing":
                    outcomes.append(alone)
                    continue
            given = [
                quote_id(i) if claim is None else {"id": quote_id(i), "claim": claim}
                for i, claim in part
            ]
            request = self._request("POST", path, body=json.dumps({"ids": given}).encode())
            outcome = yield from self._ask(request)
            if outcome.answer.status != 200:
                raise error_of(outcome.answer)
            # If an id is given twice, it is removed the first time and missing the second.
            found = answers.parsed(outcome.answer)
            removed = Counter(unquote_id(i) for i in answers.member(outcome.answer, "removed"))
            ended = Counter(unquote_id(i) for i in found.get("ended", ()))
            for message_id, _ in part:
                if removed[message_id] > 0:
                    removed[message_id] -= 1
                    outcomes.append("removed")
                elif ended[message_id] > 0:
                    ended[message_id] -= 1
                    outcomes.append("ended")
                else:
                    outcomes.append("removed" if outcome.again else "missing")
        return outcomes

    def _remove_one(self, queue: str, message_id: str, claim: str | None) -> Verb[Acked]:
        """Remove one message by the request that is cheapest for a server."""
        request = self._request("DELETE", path_of_message(queue, message_id), headers=about(claim))
        outcome = yield from self._ask(request)
        if outcome.answer.status == 202:
            return "removed"
        error = error_of(outcome.answer)
        if isinstance(error, ClaimEnded):
            return "ended"
        if isinstance(error, NoSuchMessage):
            return "removed" if outcome.again else "missing"
        raise error

    # -- looking ---------------------------------------------------------------------------------

    def peek(self, queue: str, count: int, state: str, after: str) -> Verb[list[Message]]:
        if count < 1:
            raise InvalidValue("count", "must be at least 1")
        result: list[Message] = []
        while True:
            asked = min(count - len(result), MAX_COUNT)
            parameters = {
                "state": state,
                "count": asked,
                "after": quote_id(result[-1].id if result else after) or None,
            }
            answer = yield from self._done(
                self._request("GET", f"{path_of_queue(queue)}/peek", parameters)
            )
            page = answers.messages(queue, answer)
            result += page
            full = sum(len(message.body) for message in page) >= _FULL_PAGE_BYTES
            if len(result) >= count or (len(page) < asked and not full):
                return result

    def find(self, queue: str, message_id: str) -> Verb[Message | None]:
        outcome = yield from self._ask(
            self._request("GET", path_of_message(queue, message_id), {"json": "true"})
        )
        if outcome.answer.status == 200:
            return from_json(queue, answers.parsed(outcome.answer))
        error = error_of(outcome.answer)
        if isinstance(error, NoSuchMessage):
            return None
        raise error
