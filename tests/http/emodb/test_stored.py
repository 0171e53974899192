"""The JSON round trip (1.6 of EmoDB's contract): what is stored for what was sent."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fsmq.http.emodb.errors import EmptyBody, IllegalArgument, NotJson
from fsmq.http.emodb.stored import MAX_STORED_BYTES, java_double, parse, store
from tests.http.emodb.helpers import SUCCESS, Emo

# Sent, stored: observed on EmoDB.
OBSERVED = [
    ("1.10", "1.1"),
    ("1e2", "100.0"),
    ("1e-7", "1.0E-7"),
    ("1e22", "1.0E22"),
    ("-0", "0"),
    ("-0.0", "-0.0"),
    ('"\\/"', '"/"'),
    ('"\\u001f\\u0001\\u007f"', '"\\u001F\\u0001\x7f"'),
    ('"\\b\\f\\n\\r\\t"', '"\\b\\f\\n\\r\\t"'),
    ('"😀"', '"\\uD83D\\uDE00"'),
    ('"\\ud83d\\ude00"', '"\\uD83D\\uDE00"'),
    ('"é\\u00e9"', '"éé"'),
    ('"\\\\u001f"', '"\\\\u001f"'),
    (' { "b" : [ ] , "a" : { } } ', '{"b":[],"a":{}}'),
    ('{"a":1,"b":2,"a":3}', '{"a":3,"b":2}'),
    ('{"a":1} x', '{"a":1}'),
    ("1 2", "1"),
    ("[1]]", "[1]"),
    ("null", "null"),
    ("123456789012345678901234567890", "123456789012345678901234567890"),
    ("0.001", "0.001"),
    ("0.0001", "1.0E-4"),
    ("9999999.0", "9999999.0"),
    ("10000000.0", "1.0E7"),
    ("123.456e3", "123456.0"),
    ('[1.5,{"a":2.50}]', '[1.5,{"a":2.5}]'),
    ("4.9e-324", "4.9E-324"),
    ("1.7976931348623157e308", "1.7976931348623157E308"),
]


@pytest.mark.parametrize(("sent", "stored"), OBSERVED)
def test_json_is_stored_as_emodb_stores_it(sent: str, stored: str) -> None:
    assert store(parse(sent.encode())).decode() == stored


NO_JSON = """
{   [1,]  {'a':1}  'a'  NaN  -Infinity  [NaN]  01  1.  .5  +1  tru  truex  1x  1,  nul  /*c*/1  -  ]
"""


@pytest.mark.parametrize(
    "text", [*re.findall(r"\S+", NO_JSON), '"\x01"', '"\\x"', '{"a":}', "[1 2]"]
)
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(NotJson):
        parse(text.encode())


def test_invalid_utf8_is_refused() -> None:
    for raw in (b'"\xff"', b"\xff", b'{"a":"\xc3"}', '"é"'.encode("latin-1"), b'"\xed\xa0\x80"'):
        with pytest.raises(NotJson):
            parse(raw)
    assert parse(b'"a" \xff') == "a"  # anything behind the value is ignored


def test_an_empty_body_is_refused() -> None:
    for raw in (b"", b" \n\t\r"):
        with pytest.raises(EmptyBody):
            parse(raw)


@pytest.mark.parametrize(
    "text", ["1e400", "-1e309", "[1e999]", "9" * 310, "[" + "-" + "9" * 5000 + "]"]
)
def test_numbers_beyond_the_range_of_a_double_are_refused(text: str) -> None:
    with pytest.raises(IllegalArgument):
        store(parse(text.encode()))


def test_an_integer_that_fits_a_double_keeps_all_its_digits() -> None:
    digits = "1" * 308
    assert store(parse(digits.encode())).decode() == digits


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(IllegalArgument):
        store(parse(b'"\\ud83d"'))


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(NotJson):
        parse(b"[" * 100_000)


def test_the_size_limit_is_of_the_stored_form() -> None:
    most = '"' + "😀" * ((MAX_STORED_BYTES - 2) // 12) + '"'
    assert len(store(parse(most.encode()))) <= MAX_STORED_BYTES
    with pytest.raises(IllegalArgument, match="30720"):
        store(parse(most.replace("😀", "😀😀", 1).encode()))
    padded = b" " * 100_000 + b"1"
    assert store(parse(padded)) == b"1"


floats = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same kinds: 1 is neither 1.0 nor true; -0.0 is not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


@given(values, st.booleans())
@example({"": [1.0, -0.0, 1, True]}, True)
@example("\x00\x1f\x7f\\u001f\u2028\U0001f600", False)
def test_any_value_comes_back_equal(value: Any, ascii_only: bool) -> None:
    stored = store(parse(json.dumps(value, ensure_ascii=ascii_only).encode()))
    assert same(json.loads(stored), value)
    assert store(parse(stored)) == stored  # it does not change any more
    assert max(stored.decode(), default="") < "\U00010000"


@given(floats)
@example(0.0)
@example(1e21)
@example(123456.7)
def test_a_double_is_written_as_java_writes_it(value: float) -> None:
    text = java_double(value)
    assert float(text) == value
    plain = value == 0 or 1e-3 <= abs(value) < 1e7
    pattern = r"-?\d+\.\d+" if plain else r"-?[1-9]\.\d+E-?\d+"
    assert re.fullmatch(pattern, text), text
    digits = re.split("[.E]", text)[1]
    assert digits == "0" or not digits.endswith("0")


async def test_values_come_back_over_http_as_they_are_stored(emo: Emo) -> None:
    for sent, stored in OBSERVED:
        assert (await emo.post("send", sent.encode())).body == SUCCESS, sent
        answer = await emo.get("poll")
        assert answer.body.partition(b'"payload":')[2] == stored.encode() + b"}]"
        await emo.ack(*answer.json)
