"""A short part of the fuzzing of ``make soak-fuzz``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fsmq.http.guard.keys import KeysError, parse
from fsmq.http.routing.call import split_target
from fsmq.http.routing.router import Router
from fsmq.spool.errors import FsmqError, InvalidValue
from fsmq.spool.layout.messages.message import pack_header, unpack
from fsmq.spool.layout.names import Facts, check_id, check_queue, new_id
from fsmq.spool.layout.stamps import Stamps
from fsmq.wire import quote_id, unquote_id
from tests.harness.certificates import HAS_OPENSSL
from tests.soak.fuzz import NAMES, fuzz


@pytest.mark.parametrize(("requests", "tls"), [(1200, False), (150, True)])
def test_malformed_requests_break_nothing(tmp_path: Path, requests: int, tls: bool) -> None:
    """The same requests in each run; ``make soak-fuzz`` sends others each time."""
    if tls and not HAS_OPENSSL:
        pytest.skip("there is no openssl")
    lines: list[str] = []
    assert fuzz(tmp_path, requests, 7, lines.append, tls=tls) == [], lines


# -- names -----------------------------------------------------------------------------------------

hostile = st.one_of(
    st.text(max_size=300),
    st.binary(max_size=300).map(lambda data: data.decode("utf-8", "surrogateescape")),
    st.text("./:\0%p0123456789abcdef-xhz", max_size=80),
    st.sampled_from(NAMES),
)


@given(hostile)
@settings(max_examples=500, deadline=None)
@example("..")
@example("a\n")
@example("a" * 181)
@example("\udc80")
def test_no_name_of_a_queue_leads_out_of_its_folder(name: str) -> None:
    try:
        check_queue(name)
    except InvalidValue:
        return
    assert re.fullmatch(r"[A-Za-z0-9._:@-]{1,180}", name)
    assert "/" not in name
    assert not name.startswith(".")


@given(hostile)
@settings(max_examples=500, deadline=None)
@example("../x")
@example("a:b")
@example("\0")
@example("\ud800")
def test_no_id_leads_out_of_its_folder(name: str) -> None:
    try:
        check_id("jobs", name)
    except InvalidValue:
        return
    assert not set(name) & set("/:\0")
    assert not name.startswith(".")
    assert len(f"jobs:{name}".encode("utf-8", "surrogateescape")) <= 255
    assert unquote_id(quote_id(name)) == name
    assert quote_id(name).isascii()


@given(hostile, st.integers(-5, 105), st.none() | st.floats(), st.booleans())
@settings(max_examples=500, deadline=None)
def test_an_own_id_is_accepted_or_refused(
    name: str, priority: int, ttl: float | None, headed: bool
) -> None:
    try:
        made = new_id(own=name, priority=priority, ttl=ttl, headed=headed)
    except (InvalidValue, OverflowError, ValueError):
        return
    assert not set(made) & set("/:\0")
    assert not made.startswith(".")


@given(st.text(max_size=200), st.dictionaries(hostile, hostile, max_size=4))
@settings(max_examples=300, deadline=None)
def test_a_header_block_has_one_line_for_each_attribute(
    content_type: str, attributes: dict[str, str]
) -> None:
    try:
        block = pack_header(content_type, attributes)
    except FsmqError:
        return
    lines = block.decode().split("\n")
    assert len(lines) == 1 + len(attributes) + 2
    body, read_type, read = unpack(block + b"body\n\n", Facts(headed=True))
    assert body == b"body\n\n"
    assert (read_type, read) == (content_type, attributes)


@given(st.binary(max_size=400) | st.text(": \nab\r-", max_size=80).map(str.encode), st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_file_content_is_read(raw: bytes, packed: bool) -> None:
    body, _, attributes = unpack(raw, Facts(headed=True, packed=packed))
    assert not attributes or len(body) < len(raw)
    if not packed:
        assert raw.endswith(body)


@given(hostile, st.integers(-(2**63), 2**63 - 1), st.booleans())
@settings(max_examples=500, deadline=None)
def test_an_arbitrary_mtime_is_no_stamp_by_accident(name: str, mtime_ns: int, coarse: bool) -> None:
    stamp = Stamps(coarse).decode(name, mtime_ns)
    if stamp is not None and not coarse:
        assert stamp.deliveries is not None
        assert 0 <= stamp.deliveries <= 99
        assert Stamps().encoded(name, stamp) == mtime_ns


@given(hostile)
@settings(max_examples=300, deadline=None)
def test_every_target_is_routed_or_refused(target: str) -> None:
    path, _ = split_target(target)
    try:
        Router().find("GET", path)
    except FsmqError:
        pass


@given(st.text(max_size=300) | st.text("[]keys.anonymous='\" \nsend=*", max_size=100))
@settings(max_examples=300, deadline=None)
def test_every_key_file_is_read_or_refused(text: str) -> None:
    try:
        parse(text)
    except (KeysError, ValueError):
        pass


@pytest.mark.parametrize("pattern", ["*" * 50 + "b", "*a" * 20 + "b", "?" * 170])
def test_no_pattern_takes_long(pattern: str) -> None:
    holds = parse(f"[anonymous]\nsend = ['{pattern}']").anonymous.hold
    assert not holds("send", "a" * 179 + "c")
