"""Answers that several dialects give in the same form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aiohttp.web import Response

# What a client has stored may be a page with a script, which must not run as if it were ours.
INERT: Mapping[str, str] = {
    "Content-Security-Policy": "sandbox",
    "X-Content-Type-Options": "nosniff",
}


def json_answer(status: int, content: Mapping[str, Any]) -> Response:
    body = json.dumps(content) + "\n"
    return Response(status=status, body=body.encode(), content_type="application/json")


def inert(answer: Response) -> Response:
    """The same, said to carry what clients have stored."""
    answer.headers.update(INERT)
    return answer
