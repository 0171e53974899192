"""Checks whether a text of any size is JSON, without keeping its values.

The text is decoded in portions, each as a JSON text of its own. A portion ends after a bracket, a
comma or a colon. At such a place only the open brackets and the last character matter, so a few
characters can replace everything before it: if the first portion of ``{"a": [1, {}, 2]}`` is
``{"a": [1,``, it is completed with ``0]}``, and the second, ``{}, 2]}``, is put after ``{"": [0,``.
So the fast decoder of the standard library does the work, in steps of a few milliseconds.
"""

from __future__ import annotations

import codecs
import re
from json import JSONDecoder

_PORTION_BYTES = 64 * 1024
_LIST, _OBJECT = b"[{"
# The texts before and after a portion, by the innermost open bracket and the last character. The
# space keeps digits of the portion from continuing our number.
_STAND_INS = {
    (_LIST, b"["): ("[", "]"),
    (_LIST, b","): ("[0,", "0]"),
    (_LIST, b"]"): ("[0 ", "]"),
    (_LIST, b"}"): ("[0 ", "]"),
    (_OBJECT, b"{"): ("{", "}"),
    (_OBJECT, b","): ('{"":0,', '"":0}'),
    (_OBJECT, b":"): ('{"":', "0}"),
    (_OBJECT, b"]"): ('{"":0 ', "}"),
    (_OBJECT, b"}"): ('{"":0 ', "}"),
}
_OUTER = {_LIST: ("[", "]"), _OBJECT: ('{"":', "}")}
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
# How many times all innermost pairs are removed at once, which is faster than one by one.
_INNER = 8
_up_to_sign = re.compile(rb".*[][{},:]", re.DOTALL)
_long = re.compile(
    rb"[ \t\n\r]*+"
    rb'(?:(")(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+(?:(")[ \t\n\r]*+)?'
    rb'|([^ \t\n\r"]++)[ \t\n\r]++)?'
)
# How many portions long a number can be.
_LONGEST_NUMBER = 4


def is_json(body: bytes, decoder: JSONDecoder, portion_bytes: int = _PORTION_BYTES) -> bool:
    """Whether a body is UTF-8 that the decoder accepts.

    False for brackets that are nested too deeply for the decoder, and for a number that is longer
    than a few portions.
    """
    try:
        _check(body, decoder, portion_bytes)
    except (ValueError, RecursionError):
        return False
    return True


def _check(body: bytes, decoder: JSONDecoder, portion_bytes: int) -> None:
    """Raises ValueError or RecursionError."""
    utf8 = codecs.getincrementaldecoder("utf-8")()
    opened = bytearray()
    before, rest = "", b""
    for at in range(0, len(body), portion_bytes):
        portion = body[at : at + portion_bytes]
        utf8.decode(portion, final=at + portion_bytes >= len(body))
        text = rest + portion
        # Without escapes, every quote begins or ends a string. Positions stay the same.
        plain = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
        end = _behind_last_sign(plain)
        if end:
            _follow(b"".join(plain[:end].split(b'"')[::2]), opened)
            next_before, behind = _stand_ins(opened, text[end - 1 : end])
            decoder.decode(before + _decoded(text[:end]) + behind)
            before = next_before
        rest = _shortened(text[end:]) if len(text) - end >= portion_bytes else text[end:]
        if len(rest) >= _LONGEST_NUMBER * portion_bytes:
            raise ValueError("Expecting a number that is shorter")
    decoder.decode(before + _decoded(rest))


def _behind_last_sign(plain: bytes) -> int:
    """Where a text can be split; 0 if nowhere."""
    end = len(plain)
    if plain.count(b'"') % 2:
        end = plain.rindex(b'"')
    while True:
        start = plain.rfind(b'"', 0, end) + 1
        found = _up_to_sign.match(plain, start, end)
        if found is not None:
            return found.end()
        if not start:
            return 0
        end = plain.rindex(b'"', 0, start - 1)


def _follow(signs: bytes, opened: bytearray) -> None:
    """Update the open brackets with those of a text."""
    signs = signs.translate(None, _NO_BRACKETS)
    for _ in range(_INNER):
        signs = signs.replace(b"[]", b"").replace(b"{}", b"")
    for bracket in signs:
        if bracket in _OUTER:
            opened.append(bracket)
        elif opened:
            opened.pop()  # the decoder checks whether it is of the right kind
        else:
            raise ValueError("Extra data")


def _stand_ins(opened: bytearray, sign: bytes) -> tuple[str, str]:
    """What replaces all text up to a sign, and what completes the text that ends with it."""
    if not opened:
        return "0 ", ""
    if (opened[-1], sign) not in _STAND_INS:
        raise ValueError("Expecting value")
    first, last = _STAND_INS[opened[-1], sign]
    before = "".join(_OUTER[bracket][0] for bracket in opened[:-1])
    behind = "".join(_OUTER[bracket][1] for bracket in reversed(opened[:-1]))
    return before + first, last + behind


def _decoded(text: bytes) -> str:
    # All of it is UTF-8, but shortening a long string can split a character.
    return text.decode(errors="replace")


def _shortened(rest: bytes) -> bytes:
    """The same without white space, and without the content of a long string."""
    found = _long.match(rest)
    assert found is not None
    opening, closing, scalar = found.groups(b"")
    # A number ends where white space begins.
    return opening + closing + (scalar and scalar + b" ") + rest[found.end() :]
