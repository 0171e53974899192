"""Preconditions of changes: ``If-Match`` with the ``ETag`` of settings (RFC 9110, section 13)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import hdrs
from aiohttp.web import StreamResponse

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


def etag(settings: Mapping[str, Any] | None) -> str:
    """The entity tag of settings: the same for equal settings, on any host."""
    written = json.dumps(settings, sort_keys=True).encode()
    return f'"{hashlib.sha256(written).hexdigest()[:_DIGITS]}"'


def if_match(
    call: Call, changes: Mapping[str, Any], shown: Callable[[Any], Mapping[str, Any] | None]
) -> Callable[..., Mapping[str, Any]]:
    """A function for the changes, which raises PreconditionFailed if ``If-Match`` does not match.

    shown: settings as a GET shows them.
    """

    def change(now: Any, *_: Any) -> Mapping[str, Any]:
        given = call.request.headers.getall(hdrs.IF_MATCH, ())
        wanted = {one.strip() for one in ",".join(given).split(",")}
        if given and not {"*", current := etag(shown(now))} & wanted:
            raise PreconditionFailed(current)
        return changes

    return change


def with_etag(answer: StreamResponse, settings: Mapping[str, Any] | None) -> StreamResponse:
    """An answer with the entity tag of settings."""
    answer.headers[hdrs.ETAG] = etag(settings)
    return answer
