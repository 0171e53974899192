"""UUIDv7s: the requirements of the RFC and of the spool."""

from __future__ import annotations

import os
import time
from functools import partial
from uuid import UUID

import pytest
import uuid6

from fsmq.spool.layout.uuids import uuid7
from tests.spool.running import in_threads


def test_an_id_is_a_uuid_of_version_7() -> None:
    text = uuid7()
    parsed = UUID(text)
    assert str(parsed) == text
    assert parsed.variant == "specified in RFC 4122"
    assert uuid6.UUID(text).version == 7


def test_the_time_of_an_id_is_the_time_of_its_creation() -> None:
    made = []
    for _ in range(20_000):
        before = time.time_ns() // 1_000_000
        made.append((before, uuid7(), time.time_ns() // 1_000_000))
    assert all(before <= UUID(text).int >> 80 <= after for before, text, after in made)


def test_ids_of_one_thread_are_increasing() -> None:
    made = [uuid7() for _ in range(20_000)]
    assert made == sorted(set(made))


def test_ids_of_many_threads_are_unique_and_increasing() -> None:
    made: list[list[str]] = [[] for _ in range(4)]

    def draw(into: list[str]) -> None:
        into.extend(uuid7() for _ in range(5_000))

    in_threads(partial(draw, into) for into in made)
    assert len({text for into in made for text in into}) == 20_000
    assert all(into == sorted(into) for into in made)


def test_a_forked_child_draws_other_random_bits() -> None:
    uuid7()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, "".join(uuid7()[19:] for _ in range(20)).encode())
        os._exit(0)
    mine = {uuid7()[19:] for _ in range(20)}
    os.waitpid(pid, 0)
    text = os.read(read, 4096).decode()
    os.close(read)
    os.close(write)
    assert mine.isdisjoint(text[i : i + 17] for i in range(0, len(text), 17))


class WrongClock:
    """The time of day with an adjustable error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0.0
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + int(self.ahead_s * 1e9))


def time_of(text: str) -> float:
    """The time in an id."""
    return (UUID(text).int >> 80) / 1000


def test_ids_follow_a_clock_that_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = WrongClock(monkeypatch)
    clock.ahead_s = 3600
    begun = time.time()
    assert time_of(uuid7()) > begun + 3599
    clock.ahead_s = 0
    begun = time.time()
    made = [uuid7() for _ in range(1000)]
    assert begun - 1 < min(map(time_of, made)) <= max(map(time_of, made)) < time.time() + 1
    assert made == sorted(set(made))


def test_a_small_step_back_does_not_change_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = WrongClock(monkeypatch)
    made = []
    for step in (0.0, -1.0, -1.9):
        clock.ahead_s = step
        made += [uuid7() for _ in range(1000)]
    assert made == sorted(set(made))
