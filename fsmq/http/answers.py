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
    """The answer to a PUT that makes something where it is missing: 201 with its path, or 200.

    name: of it, which is the last segment of the path.
    """
    answer = json_answer(201 if is_new else 200, content)
    if is_new:
        # Relative, as all our addresses are: a proxy may serve us below a path of its own. With a
        # colon in it, it would be taken for one with a scheme.
        answer.headers["Location"] = f"./{name}" if ":" in name else name
    return answer
