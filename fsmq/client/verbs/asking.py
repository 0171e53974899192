"""What verbs over HTTP share: making requests, and sending them until an answer is final."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self
from urllib.parse import urlencode

from fsmq.spool.errors import CLAIM_OVER
from fsmq.spool.layout.claim_names import check_claim
from fsmq.spool.layout.names import check_id, check_queue
from fsmq.wire import quote_id

from ..errors import error_of
from ..exchange import Answer, Outcome, Request, Verb
from ..options import Options
from ..retry import persist


class Asking:
    """Makes and sends requests, with the options of a client."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def trying(self, seconds: float) -> Self:
        """The same with another ``retry_for`` than the client's."""
        return type(self)(replace(self._options, retry_for=seconds))

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
    ) -> Verb[Answer]:
        """The answer to a request that is safe to repeat; raises the error in it."""
        request = self._request(method, path, parameters, body, headers, wait)
        return self._done(request)

    def outcome(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Any] | None = None,
        body: bytes = b"",
    ) -> Verb[Outcome]:
        """The final answer, even if it is an error."""
        return self._ask(self._request(method, path, parameters, body))

    def _change(
        self, queue: str, message_id: str, parameters: Mapping[str, Any], claim: str | None
    ) -> Request:
        """queue: or LOG/CHANNEL, whose names are checked already, with an offset as the id."""
        log, slash, channel = queue.partition("/")
        if slash:
            path = f"/_logs/{log}/channels/{channel}/messages/{message_id}"
            return self._request("PATCH", path, {**parameters, **of_channel(claim)})
        path = path_of_message(queue, message_id)
        return self._request("PATCH", path, parameters, headers=about(claim))

    def _ask(self, request: Request) -> Verb[Outcome]:
        return (yield from persist(request, self._options.retry_for))

    def _done(self, request: Request) -> Verb[Answer]:
        """The answer to a request that is safe to repeat; raises the error in it."""
        outcome = yield from self._ask(request)
        if not 200 <= outcome.answer.status < 300:
            raise error_of(outcome.answer)
        return outcome.answer

    def _once(self, request: Request) -> Verb[None]:
        """Send a request that can succeed only once: a retry after a lost answer finds the message,
        or its claim, gone, which counts as success."""
        outcome = yield from self._ask(request)
        if outcome.answer.status != 204:
            error = error_of(outcome.answer)
            if not (outcome.again and isinstance(error, CLAIM_OVER)):
                raise error


def about(claim: str | None) -> Mapping[str, str]:
    return {} if claim is None else {"X-Message-Claim": check_claim(claim)}


def of_channel(claim: str | None) -> Mapping[str, str | None]:
    """The parameters that name a claim of a channel; a 0 is left out, which matches any claim."""
    generation, _, deliveries = (claim or "0-0").partition("-")
    given = {"generation": generation, "deliveries": deliveries}
    return {name: value for name, value in given.items() if value != "0"}


def path_of_queue(name: str) -> str:
    return "/" + check_queue(name)


def path_of_message(queue: str, message_id: str) -> str:
    return f"{path_of_queue(queue)}/messages/{quote_id(check_id(queue, message_id))}"
