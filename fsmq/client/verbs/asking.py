"""What verbs over HTTP share: how requests are made, and asked until an answer is final."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from fsmq.spool.errors import ClaimEnded, NoSuchMessage
from fsmq.spool.layout.claim_names import check_claim
from fsmq.spool.layout.names import check_id, check_queue
from fsmq.wire import quote_id

from ..errors import error_of
from ..exchange import Answer, Outcome, Request, Verb
from ..options import Options
from ..retry import persist


class Asking:
    """Makes requests and asks them, by the options of a client."""

    def __init__(self, options: Options) -> None:
        self._options = options

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

    def _change(
        self, queue: str, message_id: str, parameters: Mapping[str, Any], claim: str | None
    ) -> Request:
        path = path_of_message(queue, message_id)
        return self._request("PATCH", path, parameters, headers=about(claim))

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
        """What can be done once: after a lost answer it finds the message gone, or its claim."""
        outcome = yield from self._ask(request, retry_for)
        if outcome.answer.status != 204:
            error = error_of(outcome.answer)
            if not (outcome.again and isinstance(error, NoSuchMessage | ClaimEnded)):
                raise error


def about(claim: str | None) -> Mapping[str, str]:
    return {} if claim is None else {"X-Message-Claim": check_claim(claim)}


def path_of_queue(name: str) -> str:
    return "/" + check_queue(name)


def path_of_message(queue: str, message_id: str) -> str:
    return f"{path_of_queue(queue)}/messages/{quote_id(check_id(queue, message_id))}"
