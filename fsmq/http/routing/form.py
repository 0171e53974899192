"""Forms as browsers and older clients of Amazon send them: names and values, percent-encoded."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

# What is unquoted at once: of each escape there is an object for a moment, and nothing can
# interrupt what makes them.
_PIECE_BYTES = 32 * 1024
# An escape takes about as long as so many other bytes.
_WORK_OF_ESCAPE = 8


def work_of(form: bytes) -> int:
    """As how many bytes a form counts when it is asked whether it is to be read beside the loop."""
    return len(form) + _WORK_OF_ESCAPE * form.count(b"%")


def pairs(text: str, most: int, errors: str = "strict") -> list[tuple[str, str]]:
    """The names and the values of a form, in their order; a value may be empty.

    errors: what becomes of bytes that are no UTF-8, as of ``bytes.decode``.

    Raises ValueError: they are more than ``most``, or they are no UTF-8.
    """
    if text.count("&") >= most:
        raise ValueError(f"there are more than {most} fields")
    found = []
    for part in text.split("&"):
        if part:
            name, _, value = part.partition("=")
            found.append((_unquoted(name, errors), _unquoted(value, errors)))
    return found


def _unquoted(text: str, errors: str) -> str:
    text = text.replace("+", " ")
    if "%" not in text:
        return text
    raw = text.encode("utf-8", "surrogatepass")
    return b"".join(map(unquote_to_bytes, _pieces(raw))).decode("utf-8", errors)


def _pieces(raw: bytes) -> Iterator[bytes]:
    """Parts of a text that end behind an escape, and not within."""
    start = 0
    while start < len(raw):
        end = start + _PIECE_BYTES
        if (cut := raw.find(b"%", end - 2, end)) > start:
            end = cut
        yield raw[start:end]
        start = end
