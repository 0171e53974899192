"""JSON that is read in parts equals the result of ``json.loads``."""

from __future__ import annotations

import base64
import json
from json import JSONDecoder
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fsmq.http.routing.json_reader import LongText, Reader
from fsmq.http.routing.json_writer import write

# Longer than any number here, as numbers have to fit in a part.
portions = st.integers(32, 80)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=300)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=90), inner),
    max_leaves=20,
)


def plain(found: Any) -> Any:
    """A value with its long strings joined."""
    if isinstance(found, LongText):
        return "".join(found.parts)  # encode() refuses half a surrogate pair
    if isinstance(found, list):
        return [plain(one) for one in found]
    if isinstance(found, dict):
        return {plain(name): plain(one) for name, one in found.items()}
    return found


def read(raw: bytes, portion: int) -> Any:
    """The value of a text, or the type of the error."""
    reader = Reader(raw, JSONDecoder(), portion)
    try:
        found = reader.value()
        reader.end()
        return plain(found)
    except ValueError:
        return ValueError


def read_at_once(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode())
    except ValueError:
        return ValueError


@given(values, st.booleans(), st.sampled_from([None, 2]), portions)
@example("\U0001f600" * 40, True, None, 32)
def test_json_is_read(value: Any, only_ascii: bool, indent: int | None, portion: int) -> None:
    raw = json.dumps(value, ensure_ascii=only_ascii, indent=indent).encode()
    assert read(raw, portion) == value


@given(values, st.booleans(), st.sampled_from([(",", ":"), (", ", ": ")]), portions)
@example(list(range(100)), True, (",", ":"), 32)
@example({"n" * 99: {"m" * 99: 1}, **{str(n): n for n in range(40)}}, True, (",", ":"), 32)
def test_writing_in_parts_equals_writing_at_once(
    value: Any, only_ascii: bool, signs: tuple[str, str], portion: int
) -> None:
    """With the long strings that the reader returns."""
    encoder = json.JSONEncoder(ensure_ascii=only_ascii, separators=signs)
    read = Reader(json.dumps(value).encode(), JSONDecoder(), portion).value()
    parts: list[str] = []
    write(read, encoder.encode, parts, signs)
    assert "".join(parts) == encoder.encode(value)


@given(values, portions, st.data())
def test_broken_json_is_refused_like_a_whole_text(
    value: Any, portion: int, data: st.DataObject
) -> None:
    raw = json.dumps(value, ensure_ascii=data.draw(st.booleans())).encode()
    place = data.draw(st.integers(0, len(raw)))
    cut = data.draw(st.integers(0, 3))
    raw = raw[:place] + data.draw(st.sampled_from([b"", b'"', b"\\", b",", b"}", b"\xff", b"\n"]))
    raw += data.draw(st.just(b"") | st.just(json.dumps(value).encode()[place + cut :]))
    assert read(raw, portion) == read_at_once(raw)


@pytest.mark.parametrize("portion", [32, 33, 64])
def test_surrogate_pairs_across_portions(portion: int) -> None:
    raw = rb'["0\u001f\u0007\\ud800\udc00\u001f\u001f\ud800\udc00\ud800\udc00 and more"]'
    assert read_at_once(raw) is not ValueError
    assert read(raw, portion) == read_at_once(raw)


@given(st.lists(scalars, max_size=50), portions)
@example([1.5e-7] * 20, 32)
@example([1.5e-7] * 20, 33)
@example([1.5e-7] * 20, 34)
@example([1.5e-7] * 20, 35)
def test_elements_are_read_one_by_one(given: list[Any], portion: int) -> None:
    reader = Reader(json.dumps(given).encode(), JSONDecoder(), portion)
    assert [plain(one) for one in reader.elements()] == given
    reader.end()


@given(st.binary(max_size=500), portions)
def test_long_base64_is_decoded(content: bytes, portion: int) -> None:
    raw = json.dumps(base64.b64encode(content).decode()).encode()
    found = Reader(raw, JSONDecoder(), portion).value()
    decoded = found.from_base64() if isinstance(found, LongText) else base64.b64decode(found)
    assert decoded == content


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("QUJD" * 20 + "QQ==" + "QUJD" * 20, "padding"),
        ("QUJD" * 20 + "Q", "base64"),
        ("\u00e9" * 90, "ASCII"),
    ],
)
def test_invalid_base64_is_refused(text: str, why: str) -> None:
    found = Reader(json.dumps(text).encode(), JSONDecoder(), 32).value()
    assert isinstance(found, LongText)
    with pytest.raises(ValueError, match=why):
        found.from_base64()


def test_half_a_surrogate_pair_is_refused() -> None:
    found = Reader(b'"' + b"\\ud83d" * 20 + b'"', JSONDecoder(), 32).value()
    with pytest.raises(UnicodeEncodeError):
        found.encode()


class _Counting(JSONDecoder):
    """Counts the characters that are scanned again."""

    in_vain = 0

    def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
        try:
            return super().raw_decode(s, idx)
        except ValueError:
            self.in_vain += len(s) - idx
            raise


@pytest.mark.parametrize("opening", ["[", '[0, {"a":'])
def test_deep_nesting_is_read_in_linear_time(opening: str) -> None:
    closing = "]" if opening == "[" else "}]"
    raw = f"{opening * 100}[{', '.join(['1.5'] * 20_000)}]{closing * 100}".encode()
    decoder = _Counting()
    reader = Reader(raw, decoder, 16 * 1024)
    assert plain(reader.value()) == json.loads(raw)
    reader.end()
    assert decoder.in_vain < 10 * len(raw)
