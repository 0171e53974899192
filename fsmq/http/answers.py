"""Answers that several dialects give in the same form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aiohttp.web import Response


def json_answer(status: int, content: Mapping[str, Any]) -> Response:
    body = json.dumps(content) + "\n"
    return Response(status=status, body=body.encode(), content_type="application/json")


def made(is_new: bool, content: Mapping[str, Any], name: str) -> Response:
    """The answer to a PUT: 201 with the path of what it created, or 200 if it was there already.

    name: the last segment of that path.
    """
    answer = json_answer(201 if is_new else 200, content)
    if is_new:
        # Relative, as all our addresses are: a proxy can serve us below a path of its own. Without
        # the ``./``, a name with a colon would be read as one with a scheme.
        answer.headers["Location"] = f"./{name}" if ":" in name else name
    return answer
