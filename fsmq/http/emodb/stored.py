"""The JSON round trip: converts a message to the bytes that are stored, and compared.

They are the bytes that EmoDB stores: parsed by the rules of Jackson (a Java library) in its default
strictness, and written again without white space. Keys keep their order, and for equal keys the
last value counts; integers keep all digits; every other number becomes a double in Java's notation;
characters above U+FFFF become escaped surrogate pairs, all others stay UTF-8.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any

from ..routing.json_writer import write
from .errors import EmptyBody, IllegalArgument, NotJson

MAX_STORED_BYTES = 30_720

_space = re.compile(r"[ \t\n\r]*")
# What can follow a number or a word at the top level; after other values anything is ignored.
_scalar_end = re.compile(r"[ \t\n\r]|\Z")
_scalar_start = frozenset("-0123456789tfn")
# Only a number with this many digits can be too big for a double.
_endless_number = re.compile(r"[0-9]{309}")
_escape = re.compile(r"\\(?:u00[01][0-9a-f]|.)")
_astral = re.compile("[\U00010000-\U0010ffff]")
BOM = b"\xef\xbb\xbf"
# The powers of ten between which Java writes a number without an exponent.
_PLAIN_FROM, _PLAIN_BELOW = -3, 7


class Double:
    """A number with a fraction or an exponent, as Java writes it."""

    __slots__ = ("text",)

    def __init__(self, digits: str) -> None:
        value = float(digits)
        if math.isinf(value):
            raise IllegalArgument("a number does not fit a double")
        self.text = java_double(value)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__  # so that errors show it in a list, too


def java_double(value: float) -> str:
    """A finite double as Java's ``Double.toString`` writes it."""
    shortest = Decimal(repr(value))
    if len(shortest.as_tuple().digits) == 1:
        # Java writes at least two digits, and chooses those that are nearest to the value.
        shortest = Decimal(f"{value:.1e}")
    sign, digits, exponent = shortest.as_tuple()
    assert isinstance(exponent, int)
    figures = "".join(map(str, digits)).rstrip("0")
    if not figures:
        return "-0.0" if sign else "0.0"
    power = len(digits) + exponent - 1
    if not _PLAIN_FROM <= power < _PLAIN_BELOW:
        text = f"{figures[0]}.{figures[1:] or '0'}E{power}"
    elif power < 0:
        text = f"0.{'0' * (-power - 1)}{figures}"
    else:
        whole = figures[: power + 1].ljust(power + 1, "0")
        text = f"{whole}.{figures[power + 1 :] or '0'}"
    return "-" + text if sign else text


def parse(raw: bytes) -> Any:
    """The first JSON value of a body, with a :class:`Double` for each number except integers.

    Raises:
        EmptyBody: there is nothing but white space.
        NotJson
        IllegalArgument: a number does not fit a double.
    """
    raw = raw.removeprefix(BOM)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        # What follows the value is ignored, whatever it is.
        text = raw[: error.start].decode()
        if not text.strip():
            raise NotJson(f"invalid UTF-8 at byte {error.start}") from None
    start = _space.match(text).end()  # type: ignore[union-attr]
    if start == len(text):
        raise EmptyBody
    chosen = careful_decoder if _endless_number.search(text) else quick_decoder
    try:
        value, end = chosen.raw_decode(text, start)
    except RecursionError:
        raise NotJson("the brackets are nested too deep") from None
    except json.JSONDecodeError as error:
        raise NotJson(str(error)) from None
    if text[start] in _scalar_start and not _scalar_end.match(text, end):
        raise NotJson(f"unexpected character after the value: char {end}")
    return value


def store(value: Any) -> bytes:
    """A parsed value as it is stored.

    Raises:
        IllegalArgument: it is too large, or has half of a surrogate pair.
    """
    try:
        text = _fast(value)
    except _HasDoubles:
        parts: list[str] = []
        write(value, _text_of, parts)
        text = "".join(parts)
    if "\\u00" in text:
        text = _escape.sub(_upper, text)
    if not text.isascii():
        text = _astral.sub(_pair, text)
    try:
        stored = text.encode()
    except UnicodeEncodeError:
        raise IllegalArgument("a string has half of a surrogate pair") from None
    if len(stored) > MAX_STORED_BYTES:
        raise IllegalArgument(
            f"a message has {len(stored)} bytes, more than the {MAX_STORED_BYTES} that are allowed"
        )
    return stored


class _HasDoubles(Exception):
    """The quick encoder cannot write doubles."""


def _has_doubles(value: object) -> None:
    raise _HasDoubles


def _refuse_constant(name: str) -> None:
    raise NotJson(f"{name} is not JSON")


def _whole(digits: str) -> int:
    if len(digits.removeprefix("-")) > 309 or math.isinf(float(digits)):
        raise IllegalArgument("a number does not fit a double")
    return int(digits)


quick_decoder = json.JSONDecoder(parse_float=Double, parse_constant=_refuse_constant)
plain_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
careful_decoder = json.JSONDecoder(
    parse_float=Double, parse_int=_whole, parse_constant=_refuse_constant
)
_encoder = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, separators=(",", ":"), default=_has_doubles
)
_fast = _encoder.encode


def _text_of(value: Any) -> str:
    return value.text if isinstance(value, Double) else _fast(value)


def _upper(match: re.Match[str]) -> str:
    escape = match[0]
    return "\\u" + escape[2:].upper() if len(escape) > 2 else escape


def _pair(match: re.Match[str]) -> str:
    code = ord(match[0]) - 0x10000
    return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"
