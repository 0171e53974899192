"""What a change depends on: ``If-Match`` with the ``ETag`` of settings (RFC 9110, section 13)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from aiohttp import hdrs

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


def etag(settings: Mapping[str, Any]) -> str:
    """The entity tag of settings: of equal ones the same, on any host."""
    written = json.dumps(settings, sort_keys=True).encode()
    return f'"{hashlib.sha256(written).hexdigest()[:_DIGITS]}"'


def is_conditional(call: Call) -> bool:
    """Whether a change depends on what is changed."""
    return hdrs.IF_MATCH in call.request.headers


def check(call: Call, settings: Mapping[str, Any]) -> None:
    """Make sure that the settings are those that the sender has seen. Raises PreconditionFailed."""
    current = etag(settings)
    wanted = ",".join(call.request.headers.getall(hdrs.IF_MATCH, ())).split(",")
    if not {"*", current} & {one.strip() for one in wanted}:
        raise PreconditionFailed(current)
