"""The action of a dialog as commands for a shell, with `fsmq` and with curl."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from urllib.parse import quote, urlencode

from aiohttp import hdrs

from fsmq.wire import quote_id

from .page_request import PageRequest

# How many ids are written out.
_WRITTEN = 3


def fsmq(*words: str, ids: Sequence[str] = ()) -> str:
    """A command with the first few of ``ids``."""
    shown = [*words, *ids[:_WRITTEN]]
    return " ".join(["fsmq", *map(_word, shown)]) + (" …" if len(ids) > _WRITTEN else "")


def curl(
    request: PageRequest, method: str, *segments: str, body: object = None, **query: object
) -> str:
    """A request to the API at the visitor's address; ``query`` without values that are None."""
    headers = request.call.request.headers
    origin = headers.get(hdrs.ORIGIN) or f"http://{headers.get(hdrs.HOST, 'localhost')}"
    path = "/".join(quote(one, safe="", errors="surrogateescape") for one in segments)
    given = {name: value for name, value in query.items() if value is not None}
    words = ["curl", "-X", method, f"{origin}/{path}" + (f"?{urlencode(given)}" if given else "")]
    if body is not None:
        text = json.dumps(body, ensure_ascii=False)
        words += ["-H", "Content-Type: application/json", "-d", text]
    key = ' -H "Authorization: Bearer $FSMQ_KEY"' if request.call.needs_keys else ""
    return " ".join(map(_word, words)) + key


def curl_each(
    request: PageRequest, method: str, queue: str, ids: Sequence[str], **query: object
) -> str:
    """A request for the first of some messages."""
    rest = f" …and {len(ids) - 1} more" if len(ids) > 1 else ""
    return curl(request, method, queue, "messages", ids[0], **query) + rest


def body_with_ids(ids: Sequence[str]) -> dict[str, list[str]] | None:
    """The body of a request for some messages; None for all."""
    shown = [quote_id(one) for one in ids[:_WRITTEN]]
    return {"ids": [*shown, "…"] if len(ids) > _WRITTEN else shown} if ids else None


def _word(text: str) -> str:
    return shlex.quote(text.encode("utf-8", "replace").decode())
