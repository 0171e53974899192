"""Every verb over HTTP, once for all transports: what is asked, and what the answers mean.

What may be asked twice is the point here. An answer can be lost after the server did what it was
asked for, so each verb says what its second try will find then.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from fsmq.spool.errors import DuplicateMessage, FsmqError, InvalidValue, NoSuchMessage, NoSuchQueue
from fsmq.spool.layout.dead_letter import check_reason
from fsmq.spool.layout.message import Message, NewMessage
from fsmq.spool.layout.names import check_id, check_queue
from fsmq.spool.layout.settings import MAX_DELAY_S, QueueSettings, check_number, check_seconds
from fsmq.spool.views.counts import Counts
from fsmq.spool.worker.patience import backoff
from fsmq.wire import MAX_WAIT_S, from_json, quote_id, seconds, unquote_id

from . import incoming as answers
from . import outgoing
from .errors import UnexpectedAnswer, error_of
from .exchange import Answer, Outcome, Pause, Request, Verb
from .options import Options
from .retry import persist

MAX_COUNT = 1000
# As in the embedded library: one sync, and so many open files of the server, for each part.
_PART = 250
_MAX_WAIT_S = 86_400.0
# A page of a peek that has so many bytes may have ended for that.
_FULL_PAGE_BYTES = 64 * 1024 * 1024


class Verbs:
    """Generators that a transport drives; see :mod:`fsmq.client.exchange`.

    ``retry_for`` of a verb replaces the client's own.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    # -- queues ----------------------------------------------------------------------------------

    def queues(self) -> Verb[list[str]]:
        answer = yield from self._done(self._request("GET", "/"))
        return list(answers.member(answer, "queues"))

    def create_queue(self, name: str, index: bool = False) -> Verb[bool]:
        """A second try after a lost answer finds the queue there: False, though it was ours."""
        parameters = {"index": "true"} if index else None
        answer = yield from self._done(self._request("PUT", _queue(name), parameters))
        return bool(answers.member(answer, "created"))

    def delete_queue(self, name: str) -> Verb[None]:
        outcome = yield from self._ask(self._request("DELETE", _queue(name)))
        if outcome.answer.status != 200:
            error = error_of(outcome.answer)
            # A second try after a lost answer finds none.
            if not (outcome.again and isinstance(error, NoSuchQueue)):
                raise error

    def has_queue(self, name: str) -> Verb[bool]:
        outcome = yield from self._ask(self._request("GET", _queue(name)))
        if outcome.answer.status == 200:
            return True
        error = error_of(outcome.answer)
        if isinstance(error, NoSuchQueue):
            return False
        raise error

    def counts(self, queue: str) -> Verb[Counts]:
        answer = yield from self._done(self._request("GET", _queue(queue)))
        counted = answers.member(answer, "messages")
        return Counts(**{state: counted[state] for state in Counts._fields})

    def settings(self, queue: str) -> Verb[QueueSettings]:
        answer = yield from self._done(self._request("GET", _queue(queue)))
        return answers.settings(answer)

    def configure(self, queue: str, changes: Mapping[str, Any]) -> Verb[QueueSettings]:
        body = json.dumps(dict(changes)).encode()
        answer = yield from self._done(self._request("PATCH", _queue(queue), body=body))
        return answers.settings(answer)

    def purge(self, queue: str) -> Verb[None]:
        """A second try removes what came meanwhile too."""
        yield from self._done(self._request("DELETE", f"{_queue(queue)}/messages"))

    # -- put -------------------------------------------------------------------------------------

    def put(self, queue: str, message: NewMessage, *, again: bool = False) -> Verb[str]:
        """All tries carry one id, so a second one finds the first: then the message is there.

        again: an earlier try may have been carried out already.
        """
        named = outgoing.named(message)
        if not outgoing.fits_headers(named):
            content = b"[" + outgoing.as_json(named) + b"]"
            request = self._request("POST", f"{_queue(queue)}/batch", body=content)
        else:
            request = self._request(
                "POST",
                f"{_queue(queue)}/messages",
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
        while part := list(islice(waiting, _PART)):
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
            content = b"[" + b",".join(written for _, written in batch) + b"]"
            outcome = yield from self._ask(
                self._request("POST", f"{_queue(queue)}/batch", body=content)
            )
            if outcome.answer.status == 201:
                return [unquote_id(i) for i in answers.member(outcome.answer, "ids")]
            error = error_of(outcome.answer)
            if not (outcome.again and isinstance(error, DuplicateMessage)):
                raise error
            # The server may have died in the middle of an earlier try: some stand, some do not.
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
        self,
        queue: str,
        count: int,
        visibility: float | None,
        wait: float,
        retry_for: float | None = None,
    ) -> Verb[list[Message]]:
        """What a lost answer claimed comes back at its deadline; a second try claims others."""
        check_number("count", count, 1, MAX_COUNT)
        check_seconds("wait", wait, _MAX_WAIT_S)
        end = time.monotonic() + wait
        early = 0
        while True:
            left = min(max(0.0, end - time.monotonic()), MAX_WAIT_S)
            parameters = {"count": count, "visibility": visibility, "wait": left or None}
            request = self._request("GET", f"{_queue(queue)}/messages", parameters, wait=left)
            asked_at = time.monotonic()
            answer = yield from self._done(request, retry_for)
            if answer.status == 200:
                return answers.messages(queue, answer)
            now = time.monotonic()
            if now >= end:
                return []
            # A server that stops lets nobody wait: not to ask it as fast as it can answer.
            early = early + 1 if now - asked_at < left / 2 else 0
            if early:
                yield Pause(min(backoff(early), end - now))

    def renew(
        self,
        queue: str,
        message_id: str,
        visibility: float | None,
        retry_for: float | None = None,
    ) -> Verb[float]:
        if visibility == 0:
            visibility = 0.001  # 0 would be a release
        request = self._change(queue, message_id, {"visibility": visibility})
        answer = yield from self._done(request, retry_for)
        deadline = answer.headers.get("x-message-deadline")
        if deadline is None:
            raise UnexpectedAnswer(answer.status, "no deadline; is this a server of fsmq?")
        return seconds(deadline)

    def release(
        self, queue: str, message_id: str, delay: float, retry_for: float | None = None
    ) -> Verb[None]:
        check_seconds("delay", delay, MAX_DELAY_S)
        request = self._change(queue, message_id, {"release": delay})
        yield from self._once(request, retry_for)

    def bury(
        self,
        queue: str,
        message_id: str,
        reason: str | None = None,
        retry_for: float | None = None,
    ) -> Verb[None]:
        told = {"bury": "true", "reason": check_reason(reason)}
        request = self._change(queue, message_id, told)
        yield from self._once(request, retry_for)

    def remove(
        self, queue: str, message_ids: Iterable[str], retry_for: float | None = None
    ) -> Verb[int]:
        """How many were there; at most too many are counted, see :meth:`remove_each`."""
        return sum((yield from self.remove_each(queue, message_ids, retry_for)))

    def remove_each(
        self, queue: str, message_ids: Iterable[str], retry_for: float | None = None
    ) -> Verb[list[bool]]:
        """For each whether it was there.

        Those that a second try after a lost answer does not find count as removed by the first.
        """
        path = f"{_queue(queue)}/ack"
        waiting = iter([check_id(queue, message_id) for message_id in message_ids])
        found: list[bool] = []
        while part := list(islice(waiting, MAX_COUNT)):
            if len(part) == 1 and (yield from self._remove_one(queue, part[0], retry_for)):
                found.append(True)
                continue
            body = json.dumps({"ids": [quote_id(message_id) for message_id in part]}).encode()
            request = self._request("POST", path, body=body)
            outcome = yield from self._ask(request, retry_for)
            if outcome.answer.status != 200:
                raise error_of(outcome.answer)
            # Of an id that is given twice the first was there, and the second was not.
            removed = Counter(unquote_id(i) for i in answers.member(outcome.answer, "removed"))
            for message_id in part:
                found.append(outcome.again or removed[message_id] > 0)
                removed[message_id] -= 1
        return found

    def _remove_one(self, queue: str, message_id: str, retry_for: float | None) -> Verb[bool]:
        """In the way that takes a server least. False: it is not there, or its queue is not."""
        request = self._request("DELETE", _message(queue, message_id))
        outcome = yield from self._ask(request, retry_for)
        if outcome.answer.status == 202:
            return True
        error = error_of(outcome.answer)
        if isinstance(error, NoSuchMessage):
            return outcome.again
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
                self._request("GET", f"{_queue(queue)}/peek", parameters)
            )
            page = answers.messages(queue, answer)
            result += page
            full = sum(len(message.body) for message in page) >= _FULL_PAGE_BYTES
            if len(result) >= count or (len(page) < asked and not full):
                return result

    def find(self, queue: str, message_id: str) -> Verb[Message | None]:
        outcome = yield from self._ask(
            self._request("GET", _message(queue, message_id), {"json": "true"})
        )
        if outcome.answer.status == 200:
            return from_json(queue, answers.parsed(outcome.answer))
        error = error_of(outcome.answer)
        if isinstance(error, NoSuchMessage):
            return None
        raise error

    # -- requests --------------------------------------------------------------------------------

    def _request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Any] | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        wait: float = 0.0,
    ) -> Request:
        given = {n: v for n, v in (parameters or {}).items() if v is not None}
        query = "?" + urlencode(given, errors="surrogateescape") if given else ""
        return Request(
            method,
            self._options.prefix + path + query,
            self._options.timeout + wait,
            body,
            headers or {},
        )

    def done(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Any] | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        wait: float = 0.0,
        retry_for: float | None = None,
    ) -> Verb[Answer]:
        """The answer to what can be asked again without harm; raises what it tells."""
        request = self._request(method, path, parameters, body, headers, wait)
        return self._done(request, retry_for)

    def outcome(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Any] | None = None,
        body: bytes = b"",
        retry_for: float | None = None,
    ) -> Verb[Outcome]:
        """The final answer, whatever it tells."""
        return self._ask(self._request(method, path, parameters, body), retry_for)

    def _change(self, queue: str, message_id: str, parameters: Mapping[str, Any]) -> Request:
        return self._request("PATCH", _message(queue, message_id), parameters)

    def _ask(self, request: Request, retry_for: float | None = None) -> Verb[Outcome]:
        patience = self._options.retry_for if retry_for is None else retry_for
        return (yield from persist(request, patience))

    def _done(self, request: Request, retry_for: float | None = None) -> Verb[Answer]:
        """The answer to what can be asked again without harm; raises what it tells."""
        outcome = yield from self._ask(request, retry_for)
        if not 200 <= outcome.answer.status < 300:
            raise error_of(outcome.answer)
        return outcome.answer

    def _once(self, request: Request, retry_for: float | None) -> Verb[None]:
        """What can be done once: a second try after a lost answer finds the message gone."""
        outcome = yield from self._ask(request, retry_for)
        if outcome.answer.status != 204:
            error = error_of(outcome.answer)
            if not (outcome.again and isinstance(error, NoSuchMessage)):
                raise error


def _queue(name: str) -> str:
    return "/" + check_queue(name)


def _message(queue: str, message_id: str) -> str:
    return f"{_queue(queue)}/messages/{quote_id(check_id(queue, message_id))}"
