"""Bodies of messages as files that browsers save, and never run."""

from __future__ import annotations

from aiohttp import hdrs
from aiohttp.web import Response

from ...connection.pieces import Pieces
from ...routing.bodies import split
from ..rendering import HEADERS

# How much of a body a page shows; the rest is in the file.
BODY_BYTES = 64 * 1024


def as_file(body: bytes) -> Response:
    """A body to be saved."""
    # Never with its own type, or a stored HTML page would run as one of ours.
    headers = {
        **HEADERS,
        "Content-Security-Policy": "sandbox; default-src 'none'",
        hdrs.CONTENT_TYPE: "application/octet-stream",
        hdrs.CONTENT_DISPOSITION: "attachment; filename=body",
    }
    return Response(body=Pieces(split(body), len(body)), headers=headers)
