"""Reads URL-encoded form fields in pieces, so that others have their turn.

``urllib`` decodes a value in a few calls, however long it is, during which nothing else can run in
the process: a second for some megabytes of percent signs.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote, unquote_to_bytes

_PIECE_CHARACTERS = 32 * 1024
_ESCAPE = len("%41")
# Each "&" or "%" takes as long as this many other bytes.
_BYTES_A_SIGN = 64


def work_of(form: bytes) -> int:
    """How long it takes to read a form, as the number of plain bytes that take as long."""
    return len(form) + _BYTES_A_SIGN * (form.count(b"&") + form.count(b"%"))


def pairs(text: str, most: int, errors: str = "replace") -> Iterator[tuple[str, str]]:
    """The fields of a form, empty ones too, as ``urllib.parse.parse_qsl`` reads them.

    Raises:
        ValueError: there are more than ``most``, or, with strict errors, it is not UTF-8.
    """
    if text.count("&") >= most:
        raise ValueError(f"there are more than {most} fields")
    for field in text.split("&"):
        if field:
            name, _, value = field.partition("=")
            yield _unquoted(name, errors), _unquoted(value, errors)


def _unquoted(text: str, errors: str) -> str:
    text = text.replace("+", " ")
    if len(text) <= _PIECE_CHARACTERS:
        return unquote(text, errors=errors)
    if "%" not in text:
        return text
    return b"".join(map(unquote_to_bytes, _pieces(text))).decode("utf-8", errors)


def _pieces(text: str) -> Iterator[str]:
    """A long text in pieces, none of which ends within an escape."""
    at = 0
    while at < len(text):
        end = at + _PIECE_CHARACTERS
        sign = text.rfind("%", max(at + 1, end - _ESCAPE + 1), end)
        end = end if sign < 0 else sign
        yield text[at:end]
        at = end
