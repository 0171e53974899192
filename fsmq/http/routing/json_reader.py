"""Reads large JSON part by part.

``json.loads`` parses a whole text, and nothing else can run in the process until it is done: half a
second for 60 MiB. Here a text is read in portions of a few milliseconds each, so that a thread
which reads it does not block others. The values of a large array or object are returned one by one,
and need not all be in memory at a time.

It accepts what a :class:`json.JSONDecoder` accepts, and refuses all else with ValueError.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import math
import re
from collections.abc import Iterator, Sequence
from json import JSONDecodeError, JSONDecoder
from typing import Any, NoReturn

_PORTION_BYTES = 256 * 1024
_LONGEST_ESCAPE = 6
# A number can continue after its digits, with "e-" and more digits.
_LONGEST_EXPONENT_START = 3
# How many values one value can be made of, beyond those of one portion: freeing one with more would
# take as long as reading it, and nothing that can be stored has more.
_MAX_VALUES = 250_000
# After decoding this many portions' worth of text in vain, brackets are followed one by one.
_TRIES = 4
# When less than this share of a portion is left, the next one is added before a value is read. Most
# values are shorter, and detecting that one is cut off costs as much as reading many.
_RESERVE = 16

_MANY = (list, dict)
_decoder = JSONDecoder()
_BOM = b"\xef\xbb\xbf"
_SPACES = " \t\n\r"
_space = re.compile(f"[{_SPACES}]*")
_run = re.compile(r'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')


def _refuse_constant(name: str) -> NoReturn:
    raise JSONDecodeError(f"{name} is not JSON", name, 0)


def _double(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise JSONDecodeError("Expecting a number that fits a double", digits, 0)
    return value


# Accepts only what is JSON when it is written again: no NaN, and no infinity.
strict_decoder = JSONDecoder(parse_float=_double, parse_constant=_refuse_constant)


def strictly(raw: bytes) -> Any:
    """Parse a whole text as ``strict_decoder`` does, in any encoding of JSON. Raises ValueError."""
    return json.loads(raw, parse_float=_double, parse_constant=_refuse_constant)


class LongText:
    """A string that is too long to be handled in one step, in parts."""

    def __init__(self, parts: Sequence[str]) -> None:
        self.parts = parts

    def __str__(self) -> str:
        return "".join(self.parts)

    def encode(self) -> bytes:
        """The text in UTF-8. Raises UnicodeEncodeError."""
        return b"".join([part.encode() for part in self.parts])

    def from_base64(self) -> bytes:
        """The bytes that the text encodes. Raises ValueError."""
        decoded = []
        kept = ""
        for part in self.parts:
            kept += part
            cut = max(0, len(kept) - 1) // 4 * 4  # what may be the padded end is kept for later
            if "=" in kept[:cut]:
                raise binascii.Error("Excess data after padding")
            decoded.append(base64.b64decode(kept[:cut], validate=True))
            kept = kept[cut:]
        decoded.append(base64.b64decode(kept, validate=True))
        return b"".join(decoded)


class Reader:
    """Reads one text from its start.

    Methods raise ValueError if it is not JSON, and RecursionError if it is nested too deeply.
    """

    def __init__(
        self,
        raw: bytes,
        decoder: JSONDecoder,
        portion_bytes: int = _PORTION_BYTES,
        errors: str = "strict",
    ) -> None:
        self._portions = _portions(raw, portion_bytes)
        self._next = next(self._portions, None)  # what becomes text next
        self._decoder = decoder
        self._portion_bytes = portion_bytes
        self._reserve = portion_bytes // _RESERVE
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors)
        self._text = ""
        self._at = 0
        self._before = 0  # the number of characters before the text
        self._broken: UnicodeDecodeError | None = None
        self._values = 0
        self._in_vain = 0  # characters that were decoded in vain since the last portion came

    def first(self) -> str:
        """The next character that is not white space; empty at the end."""
        # Most often it is the next one.
        if self._at < len(self._text) and (sign := self._text[self._at]) not in _SPACES:
            return sign
        while True:
            space = _space.match(self._text, self._at)
            assert space is not None
            self._at = space.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._take_in():
                return ""

    def value(self) -> Any:
        """The next value; a long string is a :class:`LongText`."""
        self._values = 0
        return self._value()

    def end(self) -> None:
        """Check that nothing follows but white space."""
        if self.first() or self._broken is not None:
            self._fail("Extra data")

    def elements(self) -> Iterator[Any]:
        """The values of the array that comes next, each as :meth:`value` returns it."""
        for _ in self._places("[", "]"):
            yield self.value()

    def members(self) -> Iterator[Any]:
        """The names in the object that comes next; after each, the caller has to read its value."""
        for _ in self._places("{", "}"):
            yield self._name()

    def _value(self) -> Any:
        first, problem = self.first(), "Expecting a number that is shorter"
        if len(self._text) - self._at < self._reserve:
            self._take_in()
        while True:
            try:
                value, end = self._decode(first)
            except JSONDecodeError as error:
                problem = error.msg
                self._in_vain += len(self._text) - self._at
            else:
                if end + _LONGEST_EXPONENT_START <= len(self._text) or self._is_last:
                    self._count(value)
                    self._at = end
                    return value
            # Even a small value can be cut off near the end of a portion.
            is_large = len(self._text) - self._at >= self._portion_bytes
            if is_large or not self._take_in():
                break
        if first == '"':
            return self._string()
        if first == "[":
            return [self._value() for _ in self._places("[", "]")]
        if first == "{":
            # A name that is too long is refused, and so shown, as any other text.
            return {str(self._name()): self._value() for _ in self._places("{", "}")}
        return self._fail(problem)

    def _decode(self, first: str) -> tuple[Any, int]:
        """The next value, if the text has all of it, and where it ends. Raises JSONDecodeError.

        Limits the tries: for a text that ends within many open brackets, each bracket would be
        tried, and each try would go to the end of the text.
        """
        if first in ("[", "{") and self._in_vain > _TRIES * self._portion_bytes:
            raise JSONDecodeError("Expecting a value that is shorter", self._text, self._at)
        return self._decoder.raw_decode(self._text, self._at)

    def _count(self, value: object) -> None:
        self._values += _number_of(value)
        if self._values > _MAX_VALUES:
            self._fail("one value is made of too many")

    def _places(self, opening: str, closing: str) -> Iterator[None]:
        """Yield before each element of an array, or member of an object."""
        if self.first() != opening:
            self._fail(f"Expecting {opening!r}")
        self._at += 1
        if self.first() == closing:
            self._at += 1
            return
        signs = f",{closing}"
        while True:
            yield
            if self._sign(signs) == closing:
                return

    def _name(self) -> Any:
        if self.first() != '"':
            self._fail("Expecting property name enclosed in double quotes")
        name = self._value()
        self._sign(":")
        return name

    def _sign(self, expected: str) -> str:
        sign = self.first()
        if not sign or sign not in expected:
            self._fail(f"Expecting {' or '.join(map(repr, expected))}")
        self._at += 1
        return sign

    def _string(self) -> LongText | str:
        parts: list[str] = []
        self._at += 1
        while True:
            run = _run.match(self._text, self._at)
            assert run is not None
            end = run.end()
            part = json.loads(f'"{self._text[self._at : end]}"')
            is_over = self._text[end : end + 1] == '"'
            if not is_over and len(self._text) - end >= _LONGEST_ESCAPE:
                self._fail("Invalid character, or escape, in a string")
            if not is_over and "\ud800" <= part[-1:] <= "\udbff":
                part, end = part[:-1], end - _LONGEST_ESCAPE  # the rest of the pair follows
            parts.append(part)
            self._at = end + is_over
            if is_over:
                return LongText(parts)
            if not self._take_in():
                self._fail("Unterminated string")

    @property
    def _is_last(self) -> bool:
        return self._next is None or self._broken is not None

    def _take_in(self) -> bool:
        """Turn another portion into text; False if there is none."""
        portion = self._next
        if portion is None or self._broken is not None:
            return False
        self._next = next(self._portions, None)
        try:
            text = self._utf8.decode(portion, final=self._next is None)
        except UnicodeDecodeError as error:
            self._broken = error  # does not matter if nothing after it is read
            text = error.object[: error.start].decode()
        self._before += self._at
        self._text = self._text[self._at :] + text
        self._at = 0
        self._in_vain = 0
        return True

    def _fail(self, problem: str) -> NoReturn:
        if self._broken is not None:
            raise ValueError(f"invalid UTF-8 after char {self._before + len(self._text)}")
        raise ValueError(f"{problem}: char {self._before + self._at}")


class _Whole(Reader):
    """Returns strings as ``str``, however long."""

    def _string(self) -> str:
        return str(super()._string())


def read_all(raw: bytes, errors: str = "strict") -> Any:
    """Parse a whole text, as ``json.loads`` does.

    errors: how bytes that are not UTF-8 are handled. Raises ValueError, RecursionError.
    """
    if len(raw) <= _PORTION_BYTES:
        return _decoder.decode(raw.decode("utf-8", errors))
    reader = _Whole(raw, _decoder, errors=errors)
    value = reader.value()
    reader.end()
    return value


def _number_of(value: Any) -> int:
    """How many values one is made of."""
    number, left = 1, [value]
    while left:
        one = left.pop()
        if isinstance(one, _MANY):
            number += len(one)
            members = one.values() if isinstance(one, dict) else one
            left += [member for member in members if isinstance(member, _MANY)]
    return number


def _portions(raw: bytes, portion_bytes: int) -> Iterator[memoryview]:
    """A text without its byte order mark, in portions of at most ``portion_bytes``."""
    view = memoryview(raw)
    start = len(_BOM) if raw.startswith(_BOM) else 0
    return (view[at : at + portion_bytes] for at in range(start, len(raw), portion_bytes))
