"""What a change depends on: ``If-Match`` with the ``ETag`` of settings (RFC 9110, section 13)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aiohttp import hdrs
from aiohttp.web import StreamResponse

from fsmq.spool.context import Context
from fsmq.spool.verbs.settled import settings_held

from ..describe import Header, Parameter, text
from ..problems import PreconditionFailed
from ..routing.call import Call

IF_MATCH = Parameter(
    hdrs.IF_MATCH,
    "the `ETag` of the settings that are to be changed, several of them, or `*`",
    text(),
    "header",
)
ETAG: Mapping[str, Header] = {hdrs.ETAG: Header("of the settings, for `If-Match`", text())}
_DIGITS = 20
T = TypeVar("T")


def etag(settings: Mapping[str, Any] | None) -> str:
    """The entity tag of settings: of equal ones the same, on any host."""
    written = json.dumps(settings, sort_keys=True).encode()
    return f'"{hashlib.sha256(written).hexdigest()[:_DIGITS]}"'


def changed_if(
    call: Call,
    context: Context,
    name: str,
    seen: Callable[[], Mapping[str, Any] | None],
    change: Callable[[], T],
) -> T:
    """Make a change; if it depends on the settings, only while they are as the sender has seen.

    name: what other changes of the same lock, a queue's or with a prefix. seen: the settings as a
    GET shows them. Raises PreconditionFailed, and what the two raise.
    """
    if hdrs.IF_MATCH not in call.request.headers:
        return change()
    seen()  # what is not there needs no lock
    with settings_held(context, name):
        _check(call, seen())
        return change()


def _check(call: Call, settings: Mapping[str, Any] | None) -> None:
    current = etag(settings)
    wanted = ",".join(call.request.headers.getall(hdrs.IF_MATCH, ())).split(",")
    if not {"*", current} & {one.strip() for one in wanted}:
        raise PreconditionFailed(current)


def with_etag(answer: StreamResponse, settings: Mapping[str, Any] | None) -> StreamResponse:
    """An answer that tells the entity tag of settings."""
    answer.headers[hdrs.ETAG] = etag(settings)
    return answer


def lock_of_log(log: str) -> str:
    """What changes of the settings of a log, or of one of its channels, lock."""
    return f"logs:{log}"
