"""Stored bodies in answers, always as JSON.

A body that was put through another dialect need not be JSON: text becomes a string, and anything
else an object with ``body_base64``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from ..routing import bodies, json_check
from .errors import NotJson
from .stored import BOM, plain_decoder


def is_json(body: bytes) -> bool:
    """Whether a body of any size is JSON, without keeping its values in memory."""
    try:
        return not body.startswith(BOM) and json_check.is_json(body, plain_decoder)
    except NotJson:
        return False


def payload(body: bytes, is_large_json: bool | None = None) -> Iterator[bytes]:
    """The pieces of a payload. is_large_json: whether a large body is JSON; None for small ones."""
    if is_large_json is None:
        yield _small(body)
    elif is_large_json:
        yield from bodies.split(body)
    elif (yield from bodies.find_out_if_text(body)):
        yield b'"'
        yield from bodies.text_pieces(body, ensure_ascii=False)
        yield b'"'
    else:
        yield b'{"body_base64": "'
        yield from bodies.base64_pieces(body)
        yield b'"}'


def _small(body: bytes) -> bytes:
    try:
        text = body.decode()
        plain_decoder.decode(text)
    except UnicodeDecodeError:
        return json.dumps({"body_base64": base64.b64encode(body).decode()}).encode()
    except (ValueError, NotJson, RecursionError):
        return json.dumps(text, ensure_ascii=False).encode()
    return body
