"""The dialect: which requests belong to it, and how each becomes an action and an answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import hdrs
from aiohttp.web import BaseRequest, Response, StreamResponse

from fsmq.spool.errors import FsmqError

from ..connection.connection import Connection
from ..describe import Operation
from ..dialect import Dialect
from ..fast_path.fast_path import Reader
from ..guard.access import Identity
from ..guard.origin import Origins
from ..problems import NotFound
from ..routing import needs
from ..routing.call import Call
from ..routing.form_reader import work_of
from ..routing.router import Endpoint
from ..service.service import Service
from .actions.claims import Claims
from .actions.move_tasks import MoveTasks
from .actions.queues import Queues
from .actions.receiving import Receiving
from .actions.sending import Sending
from .actions.tags import Tags
from .ask import TRACE_HEADER, Action, Ask, Result
from .errors import translated
from .fast_routes import SqsRoutes
from .heads import SqsHeads
from .names import SqsOptions
from .protocol import protocol
from .protocol.signatures import Proof, Signatures
from .queue_attributes import MAX_MESSAGE_BYTES
from .sns import wire
from .sns.faults import as_sns
from .sns.publishing import Publishing
from .sns.subscriptions import Subscriptions
from .sns.topics import Topics

# Enough for a batch of 1 MiB with each character escaped.
MAX_BODY_BYTES = 8 * 1024 * 1024
# The same in a form: a byte takes at most three characters in text, and four in binary values,
# which are in base64. The rest is for the names, ids and receipts of ten entries.
MAX_FORM_BYTES = 4 * MAX_MESSAGE_BYTES + 64 * 1024
_ACCOUNT_PATH = re.compile(r"/[0-9]{12}/([^/]+)/?")
# The long form, with a region; paths that begin with /queue/1 belong to EmoDB.
_REGION_PATH = re.compile(r"/queue/[a-z][a-z0-9-]+/[0-9]{12}/([^/]+)/?")
# What follows the queue in paths of the native dialect, where a queue's name can have 12 digits.
NATIVE = frozenset(("ack", "batch", "by-id", "ids", "messages", "move", "peek", "redrive"))
_METHODS = ("GET", "POST")
_ACTION = re.compile(r"(?:^|&)Action=")


@dataclass(slots=True)
class _Current:
    """How the current request is answered."""

    is_json: bool
    request_id: str
    is_sns: bool = False
    proof: Proof | None = None


_current: ContextVar[_Current] = ContextVar("sqs_current")


class Sqs(Dialect):
    """POST ``/``, and requests to the URLs of queues, ``/<12 digits>/<queue>``."""

    name = "sqs"
    in_document = False  # there is one path, and Amazon publishes a model of the actions

    def __init__(self, service: Service, options: SqsOptions | None = None) -> None:
        super().__init__(service)
        self._service = service
        self._options = options or SqsOptions()
        self._signatures = Signatures(service.access, self._options.auth)
        self._actions: dict[str, Action] = {protocol.WHO: self._who}
        self._sending = Sending(service, self._options)
        self._receiving = Receiving(service, self._options)
        self._claims = Claims(service, self._options)
        for part in (self._sending, self._receiving, self._claims):
            self._actions |= part.actions()
        for of_queues in (Queues, Tags, MoveTasks):
            self._actions |= of_queues(service, self._options).actions()
        self._sns: dict[str, Action] = {}
        for of_sns in (Topics, Subscriptions, Publishing):
            self._sns |= of_sns(service, self._options).actions()
        self._operations = {
            (is_sns, name): Operation(f"{'sns' if is_sns else 'sqs'}_{name}", "SQS", name, {})
            for is_sns, actions in ((False, self._actions), (True, self._sns))
            for name in actions
        }
        # The queue is named in the body, so its rights are checked later.
        self._endpoint = Endpoint(self._handle, Operation("sqs", "SQS", "", {}), needs.anybody)

    @classmethod
    def problem_of(cls, settings: Mapping[str, Any], *, has_keys: bool) -> str | None:
        if settings["sqs_auth"] == "signature" and not has_keys:
            return "--sqs-auth=signature needs --keys FILE, with the secrets of keys"
        return None

    @classmethod
    def make(cls, service: Service, settings: Mapping[str, Any]) -> Self:
        return cls(service, SqsOptions.of(settings))

    def reader(self, origins: Origins) -> Reader:
        operations = {name: of for (is_sns, name), of in self._operations.items() if not is_sns}
        fast = SqsRoutes(
            self._service,
            self._options,
            operations,
            self._sending,
            self._receiving,
            self._claims,
        )
        return SqsHeads(fast.routes, self._signatures, origins)

    def claims(self, method: str, path: str, query: str, headers: Mapping[str, str]) -> bool:
        if method not in _METHODS:
            return False
        if path == "/":
            return method == hdrs.METH_POST or _ACTION.search(query) is not None
        found = _ACCOUNT_PATH.fullmatch(path)
        if found is not None:
            return found[1] not in NATIVE or protocol.TARGET in headers
        return _REGION_PATH.fullmatch(path) is not None

    def find(self, method: str, path: str) -> tuple[Endpoint, Mapping[str, str]]:
        if path == "/":
            return self._endpoint, {}
        found = _ACCOUNT_PATH.fullmatch(path) or _REGION_PATH.fullmatch(path)
        if found is None:
            raise NotFound(path)
        return self._endpoint, {"queue": found[1]}

    def admit(self, origins: Origins, request: BaseRequest) -> None:
        # First, so that all errors are answered in the protocol of the request.
        is_json = protocol.TARGET in request.headers
        _current.set(_Current(is_json, protocol.new_request_id()))
        super().admit(origins, request)

    def problem(self, error: FsmqError) -> Response:
        now = _current.get()
        if now.is_sns:
            return wire.refuse(as_sns(error), now.request_id)
        refuse = protocol.refuse_json if now.is_json else protocol.refuse_query
        return refuse(translated(error), now.request_id)

    async def identify(self, call: Call) -> Identity:
        identity, _current.get().proof = self._signatures.identify(call)
        return identity

    async def _handle(self, call: Call) -> StreamResponse:
        now = _current.get()
        ask = await self._read(call, now)
        result = await (self._sns if now.is_sns else self._actions)[ask.action](ask)
        if now.is_sns:
            return wire.answer(ask.action, result, now.request_id)
        if now.is_json:
            return protocol.answer_json(result, now.request_id)
        return protocol.answer_query(ask.action, result, now.request_id)

    async def _read(self, call: Call, now: _Current) -> Ask:
        request, proof = call.request, now.proof
        service, path_queue = self._service, call.names.get("queue")
        if now.is_json:
            body = await call.json_body(MAX_BODY_BYTES, service.read_timeout)
        else:
            body = await call.body(MAX_FORM_BYTES, service.read_timeout)
            call.hold_made(len(body))
        if proof is not None:
            await service.beside(len(body), proof.check, body)
        if now.is_json:
            target = request.headers[protocol.TARGET]
            asked = await service.beside(len(body), protocol.read_json, target, body, path_queue)
        else:
            asked = await service.beside(
                work_of(body), _read_form, now, call.raw_query, body, path_queue, request.method
            )
        call.operation = self._operations[now.is_sns, asked.action]
        origin = self._options.url or _origin(request)
        trace = request.headers.get(TRACE_HEADER)
        return Ask(
            call, call.sender, asked.action, asked.members, self._options, origin, trace=trace
        )

    async def _who(self, ask: Ask) -> Result:
        account = self._options.account
        return {
            "Arn": f"arn:aws:iam::{account}:user/{ask.identity.name}",
            "UserId": ask.identity.name,
            "Account": account,
        }


def _read_form(
    now: _Current, query: str, body: bytes, path_queue: str | None, method: str
) -> protocol.Asked:
    form = protocol.read_form(query, body)
    if wire.is_asked(form):
        now.is_sns = True  # first, so that errors are answered in the form of SNS
        return wire.read(form)
    return protocol.read_query(form, path_queue, method)


def _origin(request: BaseRequest) -> str:
    """The origin of the URL by which the sender reached us, from its Host header."""
    connection = request.protocol
    transport = connection.transport if isinstance(connection, Connection) else request.transport
    is_secure = transport is not None and transport.get_extra_info("sslcontext") is not None
    return f"{'https' if is_secure else 'http'}://{request.headers.get(hdrs.HOST, 'localhost')}"
