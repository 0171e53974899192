"""No promise is broken if a program starts, fails, is stopped or meets another at any of its calls.

This part takes a minute; ``python -m tests.soak.stories`` runs all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.rounds import part_of
from tests.power.disk import ext4_if_possible
from tests.replay.place import scratch
from tests.stories.every import STORIES
from tests.stories.plays import KINDS, Play, explore, run

# One in _ONE_OF plays is run, at one of the first _CALLS calls.
_ONE_OF, _CALLS = 7, 16


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    with ext4_if_possible("fsmq-stories-") as folder:
        yield folder


def test_the_disk_reuses_inode_numbers(disk: Path) -> None:
    if not os.path.ismount(disk):
        pytest.skip("no ext4 can be mounted here")
    within = disk / "within"
    within.mkdir()
    one = within / "one"
    for make, remove in ((one.touch, one.unlink), (one.mkdir, one.rmdir)):
        numbers = []
        for _ in range(2):
            make()
            numbers.append(one.stat().st_ino)
            remove()
        assert numbers[0] == numbers[1]
    within.rmdir()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STORIES)
def test_no_play_breaks_a_promise(disk: Path, name: str, kind: str) -> None:
    story = STORIES[name]
    plays = list(KINDS[kind](story))
    first = (list(STORIES).index(name) + list(KINDS).index(kind)) % _ONE_OF
    for number, play in list(enumerate(plays))[:: part_of(_ONE_OF, 1)]:
        at = (first + 5 * number) % _CALLS, number % _CALLS
        finding, *_ = run(story, play, at, disk)
        assert finding is None, f"\n{finding}"


# Plays that found faults run at every call.
IN_FULL = [
    ("given ids", Play("upsert", "stop", crosses="a mover starts", crosses_at="unlink")),
    ("given ids", Play("postpone", "fail", then=("postpone",))),
    ("given ids", Play("ensure", "fail", then=("a mover starts", "ensure"))),
    ("given ids", Play("remove", "stop", ("upsert",))),
    ("given ids", Play("bury", "stop", ("upsert",), ("bury",))),
    ("fifo queues", Play("publish", "fail", then=("publish",))),
    ("fifo queues", Play("put", "interrupt", then=("put", "= put"))),
    ("fifo queues", Play("put", "stop", ("create anew", "put"))),
    (
        "logs of one host",
        Play("publish once", "stop and fail", ("publish another",), ("publish once",)),
    ),
    ("logs of one host", Play("publish", "stop", ("! publish much", "publish much"), ("publish",))),
    ("settings", Play("max_depth of jobs", "stop", ("paused of jobs",))),
    ("settings", Play("max_deliveries of mailer", "stop", ("paused of mailer",))),
    ("settings", Play("create fifo", "stop", ("delete, create",))),
    ("consumers and jobs", Play("live on", "fail", then=("live on",))),
    ("consumers and jobs", Play("live on", "fail", then=("live on",), which=3)),
    ("consumers and jobs", Play("do batch", "fail", then=("do batch",), which=3)),
    ("consumers and jobs", Play("do batch", "fail", then=("do batch",), which=3, is_done=True)),
    ("consumers and jobs", Play("take and do", "fail", then=("take and do",), which=3)),
]


@pytest.mark.parametrize(("name", "play"), IN_FULL, ids=[f"{name}: {p}" for name, p in IN_FULL])
def test_no_call_of_a_play_breaks_a_promise(name: str, play: Play) -> None:
    with tempfile.TemporaryDirectory(dir=scratch(), prefix="fsmq-stories-") as folder:
        for finding in explore(STORIES[name], play, Path(folder)):
            assert finding is None, f"\n{finding}"
