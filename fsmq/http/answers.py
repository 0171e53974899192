"""Answers that several dialects give in the same form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aiohttp.web import Response


def json_answer(status: int, content: Mapping[str, Any]) -> Response:
    body = json.dumps(content) + "\n"
    return Response(status=status, body=body.encode(), content_type="application/json")
