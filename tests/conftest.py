"""Fixtures that all tests share: a root, and a running suite for each module."""

from __future__ import annotations

import gc
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.harness import sample
from tests.harness.apart import Apart
from tests.harness.suite import Suite
from tests.replay.place import scratch

_numbers = count(1)
_PIPELINE = "tests/pipeline/"
# What is asked there has the same answer on a filesystem in memory, …
_IN_MEMORY = ("tests/cli/", "tests/client/", "tests/http/", "tests/spool/")
# … except what is about syncs, or wants a second filesystem.
_ON_DISK = (
    "tests/http/test_daemons.py",
    *(f"tests/spool/test_{name}.py" for name in ("sync", "filesystem", "network", "faults")),
)
# Bytes for all processes of a run; a container has 64 MiB there unless it is told otherwise.
_ROOM = 2 << 30
# Each of their tests forks again and again: see `tests/harness/apart.py`.
_FORK_MUCH = tuple(
    f"tests/spool/test_{name}"
    for name in ("crash", "schedule", "model_crashes", "dedup_ids", "fifo_model", "reprioritize")
)
# Files of a minute or more that share something, and then those whose tests share nothing: begun
# late, one would keep a single process at the end of the whole run.
_LONG = (
    _PIPELINE,
    *_FORK_MUCH,
    "tests/replay/test_replay.py",
    "tests/systemd/test_machine.py",
    "tests/power/test_power.py",
    "tests/test_dist.py",
    "tests/test_off_linux.py",
    "tests/test_real_input.py",
    "tests/http/test_loop.py",
    "tests/faults/test_real_disks.py",
    "tests/http/ui/test_actions.py",  # a browser, which takes more than one core: not four at once
    "tests/http/ui/test_pages_seen.py",
)
_SHARE_NOTHING = (
    "tests/power/test_kills.py",
    "tests/test_pages.py",
    "tests/interleave/test_interleave.py",
    "tests/test_benchmarks.py",
)
# By so much `nice`: where both want a core, the others have a quarter of it. The daemons that they
# start have sessions of their own, which Linux gives the share of all tests together (autogroups):
# without that they starve beside Spark, and the whole takes longer.
_GIVES_WAY = 5

# How long an example takes, or to make one, tells how busy the machine is; how large one is, or
# whether it is wanted, is chance.
_SEARCH: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.data_too_large,
        hypothesis.HealthCheck.filter_too_much,
        hypothesis.HealthCheck.large_base_example,
    ],
}
# Each run of the tests looks at the same examples, so that a change fails only for what it does;
# `make soak-models` looks at others each time.
hypothesis.settings.register_profile("same", derandomize=True, **_SEARCH)
hypothesis.settings.register_profile("random", **_SEARCH)
hypothesis.settings.load_profile("same")

# Tests start a thousand programs: each would compile all that it imports once more.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


_IS_ONE_OF_MANY = "PYTEST_XDIST_WORKER" in os.environ
_apart = Apart(lambda nodeid: nodeid.startswith(_FORK_MUCH))


class _OneSpark(LoadFileScheduling):
    """A file's tests run in one process, and all of the pipeline's: they share one Spark.

    Those of some files share nothing, and run wherever there is room.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_SHARE_NOTHING):
            return nodeid
        if nodeid.startswith(_FORK_MUCH):
            return "apart"
        return _PIPELINE if _is_pipeline(nodeid) else super()._split_scope(nodeid)


def _is_pipeline(nodeid: str) -> bool:
    return nodeid.startswith(_PIPELINE)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """What ``--dist loadgroup`` would do if it knew pytest 9.2."""
    return _OneSpark(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", action="store_true", help="what `make test` does of all tests")


def _unchanged(config: pytest.Config) -> list[str]:
    return sample.unchanged(sample.changed()) if config.getoption("--sample") else []


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [
        f"left out, since nothing they are about has changed: {one}" for one in _unchanged(config)
    ]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    path = collection_path.relative_to(config.rootpath).as_posix()
    return path.startswith(tuple(one.rstrip("/") for one in _unchanged(config))) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a sample does not need; begin with the longest, the pipeline first."""
    if config.getoption("--sample"):
        out = sample.left_out(item.nodeid for item in items)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in out])
        items[:] = [item for item in items if item.nodeid not in out]
    first = (*_LONG, *_SHARE_NOTHING)

    def place(item: pytest.Item) -> int:
        return next((n for n, of in enumerate(first) if item.nodeid.startswith(of)), len(first))

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among a million objects that stay: those of pytest and of its imports."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the others give way to the process that has the longest, as long as that is at it."""
    if _IS_ONE_OF_MANY and not _is_pipeline(item.nodeid) and not os.nice(0):
        os.nice(_GIVES_WAY)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Run tests that fork much elsewhere, unless this process has imported nothing else."""
    if not _IS_ONE_OF_MANY or not item.nodeid.startswith(_FORK_MUCH):
        return None
    pytest_runtest_setup(item)
    _apart.run(item)
    return True


def pytest_sessionfinish() -> None:
    _apart.close()


class Folders:
    """Folders for tests; in place of pytest's own factory.

    disk: makes those of tests that are about disks. memory: where those of the others lie, for whom
    a disk only takes time: a sync, or the end of a folder, some milliseconds each.
    """

    def __init__(self, disk: pytest.TempPathFactory, memory: Path) -> None:
        self._disk = disk
        self._memory = memory

    def mktemp(self, basename: str, numbered: bool = True) -> Path:
        test = os.environ["PYTEST_CURRENT_TEST"]  # or the first one that needs the folder
        if test.startswith(_ON_DISK) or not test.startswith(_IN_MEMORY):
            return self._disk.mktemp(basename, numbered)
        folder = self._memory / (f"{basename}{next(_numbers)}" if numbered else basename)
        folder.mkdir(mode=0o700)
        return folder


@pytest.fixture(scope="session")
def tmp_path_factory(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Folders | pytest.TempPathFactory]:
    where = scratch()
    if where is None or shutil.disk_usage(where).free < _ROOM:
        yield tmp_path_factory
        return
    with tempfile.TemporaryDirectory(
        dir=where, prefix="fsmq-tests-", ignore_cleanup_errors=True
    ) as memory:
        yield Folders(tmp_path_factory, Path(memory))


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: Folders) -> Iterator[Path]:
    """A folder of the test's own; if the test passes it is gone at once, as memory is short."""
    failed = request.session.testsfailed
    folder = tmp_path_factory.mktemp(re.sub(r"\W", "_", request.node.name)[:30])
    yield folder
    if request.session.testsfailed == failed:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A place for a spool; nothing stands there yet."""
    return tmp_path / "mq"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """The three programs, shared by a module's tests, each of which uses queues of its own."""
    with Suite(tmp_path_factory.mktemp("suite") / "mq") as running:
        yield running


@pytest.fixture
def queue(suite: Suite, request: pytest.FixtureRequest) -> str:
    """A queue of the test's own in the shared suite; gone queues leave nothing behind."""
    name = re.sub(r"[^a-z0-9_]", "-", request.node.name.lower())[:100] + f"-{next(_numbers)}"
    (suite.root / "queues" / name).mkdir()
    return name


@pytest.fixture
async def client(suite: Suite) -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client whose paths begin at the suite."""
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(suite.url, timeout=timeout) as session:
        yield session
