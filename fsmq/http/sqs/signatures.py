"""Who asks: the access key id of a request, and in one mode its signature."""

from __future__ import annotations

import re
from urllib.parse import parse_qs

from aiohttp import hdrs

from ..guard.access import Access, Identity
from ..routing.call import Call

_CREDENTIAL = re.compile(r"Credential=([^/,\s]{1,1024})/")
_IN_QUERY = ("X-Amz-Credential", "AWSAccessKeyId")


class Signatures:
    """Tells who sends a request.

    mode: ``none``, nothing is looked at; ``key``, the access key id is a key of the file of keys.
    """

    def __init__(self, access: Access, mode: str | None) -> None:
        self._access = access
        self._mode = mode

    def identify(self, call: Call) -> Identity:
        """Whoever sends this. Raises Unauthorized, TooManyRequests."""
        mode = self._mode or ("key" if self._access.needs_keys else "none")
        return call.identify(None if mode == "none" else _access_key(call))


def _access_key(call: Call) -> str | None:
    """The access key id of a request, wherever it stands; None if there is none."""
    header = call.request.headers.get(hdrs.AUTHORIZATION)
    if header is not None:
        found = _CREDENTIAL.search(header)
        if found is not None:
            return found[1]
        scheme, _, token = header.partition(" ")
        return token.strip() if scheme.lower() == "bearer" else None
    given = parse_qs(call.raw_query)
    for name in _IN_QUERY:
        if name in given:
            return given[name][0].partition("/")[0]
    return None
