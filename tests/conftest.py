"""Fixtures of all tests (a root, a running suite for each module), and the order of tests."""

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
from tests.harness.mounts import mount  # noqa: F401 (a fixture)
from tests.harness.suite import Suite
from tests.replay.place import scratch

_numbers = count(1)
_PIPELINE = "tests/pipeline/"
# Tests that pass just as well on a filesystem in memory, …
_IN_MEMORY = ("tests/cli/", "tests/client/", "tests/http/", "tests/spool/")
# … except those of syncs, and those that need a second filesystem.
_ON_DISK = (
    "tests/http/test_daemons.py",
    *(f"tests/spool/test_{name}.py" for name in ("sync", "filesystem", "network", "faults")),
)
# Bytes for all processes of a run; a container has 64 MiB there by default.
_ROOM = 2 << 30
# Their tests fork often: see `tests/harness/apart.py`.
_FORK_MUCH = tuple(
    f"tests/spool/test_{name}"
    for name in ("crash", "schedule", "model_crashes", "dedup_ids", "fifo_model", "reprioritize")
)
# Files of a minute or more whose tests share something, then those whose tests share nothing. They
# start first: else one of them would run alone at the end.
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
    "tests/http/ui/test_actions.py",  # a browser needs more than one core: not four at once
    "tests/http/ui/test_pages_seen.py",
)
_SHARE_NOTHING = (
    "tests/power/test_kills.py",
    "tests/test_pages.py",
    "tests/interleave/test_interleave.py",
    "tests/test_benchmarks.py",
)
# Niceness of all tests but Spark's: they get a quarter of a contested core. Daemons have their own
# sessions, and Linux shares cores by session (autogroups): without this they slow Spark down.
_NICENESS = 5

# The time of an example depends on the load of the machine; its size is chance.
_SEARCH: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.data_too_large,
        hypothesis.HealthCheck.filter_too_much,
        hypothesis.HealthCheck.large_base_example,
    ],
}
# Each run tries the same examples, so that a failure is due to the change; `make soak-models`
# tries others each time.
hypothesis.settings.register_profile("same", derandomize=True, **_SEARCH)
hypothesis.settings.register_profile("random", **_SEARCH)
hypothesis.settings.load_profile("same")

# Tests start a thousand programs: without bytecode each would compile its imports again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_IS_ONE_OF_MANY = "PYTEST_XDIST_WORKER" in os.environ
_apart = Apart(lambda nodeid: nodeid.startswith(_FORK_MUCH))


class _OneSpark(LoadFileScheduling):
    """The tests of a file run in one process, and so do all of the pipeline, which share one Spark.

    Tests of files that share nothing run in any process.
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
    """Like ``--dist loadgroup``, which does not work with pytest 9.2."""
    return _OneSpark(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", action="store_true", help="only the tests that `make test` runs")


def _unchanged(config: pytest.Config) -> list[str]:
    return sample.unchanged(sample.changed()) if config.getoption("--sample") else []


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [f"left out, because their subject has not changed: {one}" for one in _unchanged(config)]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    path = collection_path.relative_to(config.rootpath).as_posix()
    return path.startswith(tuple(one.rstrip("/") for one in _unchanged(config))) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not in the sample; start with the longest, the pipeline first."""
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
    """Collect no garbage meanwhile: pytest and its imports make a million objects that stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give the process of the pipeline, which takes longest, more of a core than the others."""
    if _IS_ONE_OF_MANY and not _is_pipeline(item.nodeid) and not os.nice(0):
        os.nice(_NICENESS)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Run tests that fork often in a small interpreter, unless this run has one process."""
    if not _IS_ONE_OF_MANY or not item.nodeid.startswith(_FORK_MUCH):
        return None
    pytest_runtest_setup(item)
    _apart.run(item)
    return True


def pytest_sessionfinish() -> None:
    _apart.close()


class Folders:
    """Folders for tests, in place of pytest's factory.

    disk: the factory for tests of disks. memory: the place for all others, which saves them the
    milliseconds that a disk takes for a sync or the removal of a folder.
    """

    def __init__(self, disk: pytest.TempPathFactory, memory: Path) -> None:
        self._disk = disk
        self._memory = memory

    def mktemp(self, basename: str, numbered: bool = True) -> Path:
        test = os.environ["PYTEST_CURRENT_TEST"]  # the first one that needs the folder
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
    """A folder for one test, removed as soon as it passes, because memory is short."""
    failed = request.session.testsfailed
    folder = tmp_path_factory.mktemp(re.sub(r"\W", "_", request.node.name)[:30])
    yield folder
    if request.session.testsfailed == failed:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A path for a spool that does not exist yet."""
    return tmp_path / "mq"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """The three programs, shared by the tests of a module, each of which uses its own queues."""
    with Suite(tmp_path_factory.mktemp("suite") / "mq") as running:
        yield running


@pytest.fixture
def queue(suite: Suite, request: pytest.FixtureRequest) -> str:
    """A queue for one test in the shared suite."""
    name = re.sub(r"[^a-z0-9_]", "-", request.node.name.lower())[:100] + f"-{next(_numbers)}"
    (suite.root / "queues" / name).mkdir()
    return name


@pytest.fixture
async def client(suite: Suite) -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client of the suite."""
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(suite.url, timeout=timeout) as session:
        yield session
