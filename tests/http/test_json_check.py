"""Checking large JSON in portions gives the same result as checking all of it."""

from __future__ import annotations

import json
import re
import sys
from itertools import count
from json import JSONDecoder

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fsmq.http.emodb import payloads
from fsmq.http.emodb.errors import NotJson
from fsmq.http.emodb.stored import plain_decoder
from fsmq.http.routing.json_check import _LONGEST_NUMBER, is_json

# Shorter than most strings here; four of them are longer than any number.
portions = st.integers(8, 40)
space = st.sampled_from(["", "", "", " ", "\n\t\r", " " * 50])
strings = st.text(max_size=100).flatmap(
    lambda text: st.sampled_from([True, False]).map(lambda a: json.dumps(text, ensure_ascii=a))
)
scalars = st.sampled_from(
    [
        "0",
        "-0",
        "12345678901234567890",
        "-1.5e+7",
        "1E400",
        "null",
        "true",
        "false",
        '""',
        r'"\""',
        r'"\\"',
        r'"\\\""',
        '"],[{\\""',
        '"{:,"',
        r'"\ud83d"',
        r'"\u12aF"',
        *(f'"{inside}"' for inside in (r"\n" * 30, r"\\" * 30, "\U0001f600" * 20)),
    ]
)
# Insertions that make valid JSON invalid or invalid JSON valid.
breaks = st.sampled_from(
    ["", *'"\\,:[]{} 0e-', "\x01", "\x0b", "\ufeff", ".5", "NaN", "-Infinity", "null"]
) | st.sampled_from(['""', "[]", ",0", " 5", '"",', '"":0,'])


def joined(parts: st.SearchStrategy[str], kind: str) -> st.SearchStrategy[str]:
    """Lists or objects of such parts."""
    spaced = st.tuples(space, parts, space).map("".join)
    some = st.lists(spaced, min_size=1, max_size=4).map(",".join) | space
    return some.map(lambda inside: kind[0] + inside + kind[1])


def members(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(strings, space, st.just(":"), space, values).map("".join)


# JSON with white space between all tokens.
texts = st.recursive(
    scalars | strings,
    lambda inner: joined(inner, "[]") | joined(members(inner), "{}"),
    max_leaves=12,
)


def is_json_at_once(raw: bytes) -> bool:
    try:
        plain_decoder.decode(raw.decode())
    except (ValueError, NotJson):
        return False
    return True


def is_json_in_portions(raw: bytes, portion: int) -> bool:
    try:
        return is_json(raw, plain_decoder, portion)
    except NotJson:
        return False


@given(space, texts, space, portions)
@example("", '["' + "\u00e9" * 60 + '", 1]', "", 9)  # a character is split
@example("", "[1" + " " * 99 + "]", "", 8)
@example("", "[[], {}" + ", 0" * 99 + "]", "", 8)
def test_json_is_accepted(before: str, text: str, behind: str, portion: int) -> None:
    raw = f"{before}{text}{behind}".encode()
    assert is_json_at_once(raw)
    assert is_json_in_portions(raw, portion)


def judge_in_both_ways(raw: bytes, portion: int) -> None:
    # Adjacent numbers can form a number that is too long.
    longest = max(map(len, re.findall(rb"[-+.eE0-9]+", raw)), default=0)
    assume(longest < _LONGEST_NUMBER * portion)
    assert is_json_in_portions(raw, portion) is is_json_at_once(raw)


@given(texts, portions, breaks, st.data())
@example("[[]]", 8, ".5", None)
def test_edited_json_is_judged_like_a_whole_text(
    text: str, portion: int, put_in: str, data: st.DataObject | None
) -> None:
    place = data.draw(st.integers(0, len(text))) if data else 3
    cut = data.draw(st.integers(0, 2)) if data else 0
    judge_in_both_ways(f"{text[:place]}{put_in}{text[place + cut :]}".encode(), portion)


@given(st.lists(scalars | breaks, max_size=14).map("".join), portions)
@example("[1 " + " " * 50 + "2]", 8)
@example('["' + "a" * 50 + '" "b"]', 8)
@example('["' + "a" * 50 + '\x01"]', 8)
@example('["' + "a" * 50 + r"\x" + '"]', 8)
@example('["a"' + " " * 50 + "5]", 8)
@example('{"a":1' + " " * 50 + '"b":2}', 8)
@example("[[].5]", 8)
@example("[]0" + " " * 50, 8)
@example("]" + " " * 50 + "[", 8)
@example("[}", 8)
@example("[1:2]", 8)
@example("", 8)
def test_random_tokens_are_judged_like_a_whole_text(text: str, portion: int) -> None:
    judge_in_both_ways(text.encode(), portion)


@given(texts, portions, st.data())
def test_invalid_utf8_is_refused(text: str, portion: int, data: st.DataObject) -> None:
    raw = text.encode()
    place = data.draw(st.integers(0, len(raw)))
    assert not is_json_in_portions(raw[:place] + b"\xff" + raw[place:], portion)


class _Watching(JSONDecoder):
    """Counts its calls and the longest text."""

    def __init__(self) -> None:
        super().__init__()
        self.times = count()
        self.longest = 0

    def decode(self, s: str, *of: object) -> object:  # type: ignore[override]
        next(self.times)
        self.longest = max(self.longest, len(s))
        return super().decode(s)


@pytest.mark.parametrize(
    "text",
    [
        "[" + "0," * 100_000 + "0]",
        "[" * 90 + "[{}]," * 40_000 + "0" + "]" * 90,
        '["' + "a" * 200_000 + '"]',
        '["' + r"\n" * 100_000 + '"]',
        '{"a":{"' + "a" * 100_000 + '":' + " " * 100_000 + "1}" + " " * 100_000 + "}",
    ],
    ids=["values", "brackets", "string", "escapes", "spaces"],
)
def test_the_decoder_gets_one_portion_at_a_time(text: str) -> None:
    decoder = _Watching()
    assert is_json(text.encode(), decoder, 4096)
    assert decoder.longest < 3 * 4096
    # Each portion is decoded at most once.
    assert next(decoder.times) <= len(text) / 4096 + 2


def test_numbers_longer_than_some_portions_are_refused() -> None:
    assert is_json(b"[0." + b"1" * 20 + b"]", plain_decoder, 8)
    assert not is_json(b"[0." + b"1" * 99 + b"]", plain_decoder, 8)


def test_deep_nesting_is_refused() -> None:
    deep = sys.getrecursionlimit()
    assert not is_json(b"[" * deep + b"0," * 99 + b"0" + b"]" * deep, plain_decoder, 64)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"[1, 2]", True),
        (b"[1, NaN]", False),
        (b"[1, -Infinity]", False),
        (b"\xef\xbb\xbf[1]", False),
        (b'["' + b"a" * 300_000 + b'", NaN]', False),
        (b"[" + b"1, " * 100_000 + b"2]", True),
    ],
)
def test_emodb_needs_strict_json(body: bytes, expected: bool) -> None:
    assert payloads.is_json(body) is expected
