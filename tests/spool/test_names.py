"""Names of queues, messages and files; no name leads out of the tree."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uuid6 import uuid7

from fsmq.spool import InvalidValue
from fsmq.spool.layout import names

LATEST_MS = 4_000_000_000_000  # the year 2096


def uuid_at(created_ms: int, rest: int) -> str:
    """A UUIDv7 of a given millisecond."""
    digits = f"{created_ms:012x}7{rest % 0x1000:03x}8{rest % 2**60:015x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


queue_names = st.from_regex(r"(?!\.)(?!_(?!_))[A-Za-z0-9._:@-]{1,180}", fullmatch=True)
uuids = st.builds(uuid_at, st.integers(0, LATEST_MS), st.integers(0, 2**60 - 1))
priorities = st.integers(0, names.MAX_PRIORITY)
times_to_live = st.none() | st.floats(1, 1e9)
file_names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=60
)


@given(uuids, priorities, times_to_live, st.booleans())
def test_an_id_carries_its_priority_expiry_and_flags(
    uuid: str, priority: int, ttl: float | None, headed: bool
) -> None:
    message_id = names.new_id(own=uuid, priority=priority, ttl=ttl, headed=headed)
    known = names.facts(message_id)
    assert (known.priority, known.headed, known.packed) == (priority, headed, False)
    assert known.created_ms == int(uuid.replace("-", "")[:12], 16)
    if ttl is None:
        assert known.expires_s is None
    else:
        assert known.expires_s is not None
        assert 0 <= known.expires_s - (known.created_ms / 1000 + ttl) < 1.001


@given(uuids, priorities, times_to_live, st.booleans(), queue_names)
def test_every_id_survives_a_round_trip_through_its_file_names(
    uuid: str, priority: int, ttl: float | None, headed: bool, queue: str
) -> None:
    message_id = names.new_id(own=uuid, priority=priority, ttl=ttl, headed=headed)
    entry = names.entry(queue, message_id)
    assert names.split_entry(entry) == (queue, message_id)
    staged = names.staged_entry(queue, message_id, 0xC459294F)
    assert names.split_staged(staged) == (entry, 0xC459294F)
    assert len(os.fsencode(staged)) <= names.MAX_FILE_NAME_BYTES
    assert names.check_id(queue, message_id) == message_id


@given(st.tuples(priorities, uuids, st.booleans()), st.tuples(priorities, uuids, st.booleans()))
def test_name_order_is_priority_then_age(
    one: tuple[int, str, bool], other: tuple[int, str, bool]
) -> None:
    first, second = (names.new_id(own=u, priority=p, headed=h) for p, u, h in (one, other))
    # The default priority has no prefix, and "p" sorts after every hex digit.
    if one[:2] != other[:2]:
        assert (first < second) == (one[:2] < other[:2])


@given(file_names)
def test_other_names_are_plain(name: str) -> None:
    # A random text is never an id, whatever prefix and flags it has.
    for other in (name, f"p05.{name}", f"{name}.h", f"{name}.x1", f"p05.{name}.x1.h.z"):
        assert names.facts(other) == names.PLAIN


@pytest.mark.parametrize(
    "wrong",
    ["p00.{}", "p5.{}", "p100.{}", "P05.{}", "{}.x", "{}.xG", "{}.h.x1", "{}.z.h", "{}.h.h", "{} "],
)
def test_a_misspelt_id_is_plain(wrong: str) -> None:
    assert names.facts(wrong.format(uuid7())) == names.PLAIN


def test_an_upper_case_uuid_or_another_version_is_plain() -> None:
    uuid = uuid_at(1_700_000_000_000, 0xABC)
    assert names.facts(uuid).created_ms == 1_700_000_000_000
    assert names.facts(uuid.upper()) == names.PLAIN
    assert names.facts(uuid[:14] + "4" + uuid[15:]) == names.PLAIN


@given(st.text(max_size=200))
def test_no_queue_name_leads_out_of_its_folder(name: str) -> None:
    try:
        names.check_queue(name)
    except InvalidValue:
        assert not names.is_queue(name)
        return
    assert names.is_queue(name)
    assert "/" not in name
    assert "\0" not in name
    assert name not in (".", "..")
    assert os.path.normpath(f"queues/{name}") == f"queues/{name}"


@given(queue_names, st.text(max_size=300))
def test_no_id_leads_out_of_its_folder(queue: str, message_id: str) -> None:
    try:
        names.check_id(queue, message_id)
    except InvalidValue:
        return
    for path in (f"queues/{queue}/{message_id}", f"new/{queue}:{message_id}"):
        assert os.path.normpath(path) == path
        assert len(os.fsencode(path.rpartition("/")[2])) <= names.MAX_FILE_NAME_BYTES
    assert names.split_entry(names.entry(queue, message_id)) == (queue, message_id)


@given(st.text(max_size=200))
def test_an_own_id_is_refused_or_kept_unchanged(own: str) -> None:
    try:
        message_id = names.new_id(own=own)
    except InvalidValue:
        return
    assert message_id == own
    assert names.check_id("q", message_id) == own


@pytest.mark.parametrize("name", ["", ".", ".a", "_a", "_", "a/b", "a b", "ä", "a" * 181, "a\n"])
def test_queue_names_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="queue"):
        names.check_queue(name)


@pytest.mark.parametrize("name", ["a", "__a", "a:b", "a@b", "A-1_2.x", "0", ":", "a" * 180, "-rf"])
def test_queue_names_that_are_accepted(name: str) -> None:
    assert names.check_queue(name) == name


@pytest.mark.parametrize("own", ["", ".a", "a:b", "a/b", "a b", "ü", "a" * 65, "..", "a\0", "a\n"])
def test_own_ids_that_are_refused(own: str) -> None:
    with pytest.raises(InvalidValue, match="id"):
        names.new_id(own=own)


UUID = "01a1fe35-0b3c-7abc-8def-0123456789ab"


@pytest.mark.parametrize(
    "own",
    [form.format(UUID) for form in ("p05.{}", "{}.h", "{}.x1", "{}.z")]
    + ["@order@", "p05.@order@", "@order@.h", "@order@.x1-1", "@@order@@.h.z"],
)
def test_an_own_id_must_not_contain_a_prefix_flags_or_marks(own: str) -> None:
    with pytest.raises(InvalidValue, match="bare id"):
        names.new_id(own=own)


def test_a_marked_name_with_the_length_of_a_uuid_is_recognized() -> None:
    name = names.new_id(own="o" * 32, headed=True)
    assert (len(name), names.facts(name).headed) == (36, True)


def test_an_own_id_is_marked_only_when_it_carries_something() -> None:
    assert names.new_id(own="order-17") == "order-17"
    assert names.new_id(own="order-17", headed=True) == "@order-17@.h"
    assert names.new_id(own="order-17", priority=5, packed=True) == "p05.@order-17@.z"


own_ids = st.from_regex(r"(?!\.)[A-Za-z0-9._@+=~-]{1,64}", fullmatch=True).filter(
    lambda own: names.facts(own) == names.PLAIN and not own.startswith(("@", "p"))
)


@given(own_ids, priorities, times_to_live, st.booleans(), st.booleans())
def test_an_own_id_carries_its_priority_expiry_and_flags(
    own: str, priority: int, ttl: float | None, headed: bool, packed: bool
) -> None:
    before = time.time()
    name = names.new_id(own=own, priority=priority, ttl=ttl, headed=headed, packed=packed)
    known = names.facts(name)
    assert (known.priority, known.headed, known.packed) == (priority, headed, packed)
    assert known.created_ms is None
    if ttl is None:
        assert known.expires_s is None
    else:
        assert known.expires_s is not None
        late = known.expires_s - (before + ttl)
        assert -0.001 < late < max(1, ttl / 16) + 2
    assert names.siblings(name)[0] == own
    assert name in names.siblings(name)
    changed = names.with_priority(name, 7)
    assert changed is not None
    assert names.facts(changed) == known._replace(priority=7)
    assert names.with_priority(changed, priority) == name
    fresh = names.renewed(name)
    assert names.facts(fresh)._replace(created_ms=None) == known


@given(own_ids, priorities, st.floats(0.1, 1e9), st.floats(0, 1), *[st.booleans()] * 4)
def test_a_retry_before_the_expiry_finds_the_name_of_the_first_try(
    own: str, priority: int, ttl: float, part: float, a: bool, b: bool, c: bool, d: bool
) -> None:
    began = time.time()
    try:
        first = names.new_id(own=own, priority=priority, ttl=ttl, headed=a, packed=b)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(names.time, "time", lambda: began - 5 + part * (ttl + 5))
            again = names.new_id(own=own, priority=priority, ttl=ttl, headed=c, packed=d)
            known = names.siblings(again)
            assert names.siblings(first)[0] == known[0] == own
            assert again in names.siblings(first)
    except InvalidValue:
        return  # it expires after the year 9999
    assert first in known
    assert len(known) < 100


def test_a_time_to_live_beyond_the_calendar_is_refused() -> None:
    with pytest.raises(InvalidValue, match="9999"):
        names.new_id(ttl=1e12)


@pytest.mark.parametrize("message_id", ["", ".a", "..", "a/b", "a:b", "a\0b", "x" * 254, "\ud800"])
def test_ids_that_cannot_be_looked_up(message_id: str) -> None:
    with pytest.raises(InvalidValue, match="id"):
        names.check_id("q", message_id)


@given(st.text(max_size=80))
def test_only_entries_are_split(name: str) -> None:
    parts = names.split_entry(name)
    if parts is not None:
        assert names.is_queue(parts[0])
        assert parts[1][0] != "."
        assert ":" not in parts[1]
        assert names.entry(*parts) == name


@pytest.mark.parametrize("name", ["", "a", "a:", ":a", ".a:b", "a:.b", "a b:c", ".a:b:1", "a/b:c"])
def test_other_names_are_not_split(name: str) -> None:
    assert names.split_entry(name) is None


def test_an_entry_splits_at_its_last_colon() -> None:
    assert names.split_entry("a:b:c") == ("a:b", "c")


_OTHERS = "a:b:c459294f .a:b .a:b: .a:b:x .a:b:1 .a:b:own .b:c459294f .a::c459294f"


@pytest.mark.parametrize("name", _OTHERS.split())
def test_names_that_are_not_staged_are_not_split(name: str) -> None:
    assert names.split_staged(name) is None


def test_siblings_are_the_names_with_and_without_a_header_block() -> None:
    uuid = str(uuid7())
    assert names.siblings(f"{uuid}.h") == [uuid, f"{uuid}.h", f"{uuid}.z", f"{uuid}.h.z"]
    marked = [f"@notes.h@{form}" for form in ("", ".h", ".z", ".h.z")]
    assert names.siblings("notes.h") == ["notes.h", *marked]
    assert names.siblings("by hand") == ["by hand"]


@pytest.mark.parametrize(
    ("message_id", "own"),
    [
        ("notes.h", "notes.h"),
        ("@order@17@", "order@17"),
        ("p07.@order-17@.x65e1f2a0-3c.h", "order-17"),
        (f"p03.{UUID}.x65e1f2a0.h.z", UUID),
        (UUID, UUID),
    ],
)
def test_the_own_id_is_found_in_a_name(message_id: str, own: str) -> None:
    assert names.own_id(message_id) == own
