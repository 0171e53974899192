"""Tests that fork much run in an interpreter that has nothing but them in its memory.

A process of `make test` has imported all tests and what they use, a third of a gigabyte: each fork
of it, and what both write behind that, is some ten milliseconds of work more than where there are
only these. Their reports come as if they had run here.

As a plugin of pytest this module is the other side, which writes reports to a pipe.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

_HOME = Path(__file__).resolve().parents[2]
_PIPE = "TEST_APART_PIPE"


class Apart:
    """The interpreter for such tests, begun at the first of them. is_apart: whether one is."""

    def __init__(self, is_apart: Callable[[str], bool]) -> None:
        self._is_apart = is_apart
        self._told: defaultdict[str, list[pytest.TestReport]] = defaultdict(list)
        self._reports: BufferedReader | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, item: pytest.Item) -> None:
        """Wait until a test has run there, and report it as this process does."""
        hook, nodeid = item.ihook, item.nodeid
        hook.pytest_runtest_logstart(nodeid=nodeid, location=item.location)
        for report in self._reports_of(item):
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=nodeid, location=item.location)

    def _reports_of(self, item: pytest.Item) -> list[pytest.TestReport]:
        if self._reports is None:
            self._begin(item)
        assert self._reports is not None
        told, to_report = self._told, item.config.hook.pytest_report_from_serializable
        while not any(report.when == "teardown" for report in told[item.nodeid]):
            try:
                data = pickle.load(self._reports)
            except EOFError:
                return [*told.pop(item.nodeid), self._died(item)]
            report = to_report(config=item.config, data=data)
            told[report.nodeid].append(report)
        return told.pop(item.nodeid)

    def _begin(self, item: pytest.Item) -> None:
        """Let it run all such tests of the session, in their order."""
        wanted = [one.nodeid for one in item.session.items if self._is_apart(one.nodeid)]
        told, tells = os.pipe()
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")}
        profile = item.config.getoption("--hypothesis-profile", None)
        # They may be more than a command line takes.
        with TemporaryDirectory() as folder:
            arguments = Path(folder) / "arguments"
            options = [f"--hypothesis-profile={profile}"] if profile else []
            arguments.write_text("\n".join([*options, *wanted]))
            command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", __name__, f"@{arguments}"]
            self._process = subprocess.Popen(
                command,
                cwd=_HOME,
                env={**clean, _PIPE: str(tells)},
                stdout=subprocess.DEVNULL,
                pass_fds=[tells],
            )
            os.close(tells)
            self._reports = open(told, "rb")  # noqa: SIM115  # until the end of the session
            self._reports.peek(1)  # until it has read its arguments

    def _died(self, item: pytest.Item) -> pytest.TestReport:
        assert self._process is not None
        told = f"the interpreter for tests that fork much has ended: {self._process.wait()}"
        return pytest.TestReport(item.nodeid, item.location, {}, "failed", told, "call")

    def close(self) -> None:
        """Wait for its end."""
        if self._process is not None and self._reports is not None:
            self._reports.close()
            self._process.wait()


def _tell(data: object) -> None:
    with open(int(os.environ[_PIPE]), "wb", closefd=False) as pipe:
        pickle.dump(data, pipe)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _tell(_config.hook.pytest_report_to_serializable(config=_config, report=report))


def pytest_configure(config: pytest.Config) -> None:
    global _config
    _config = config


_config: pytest.Config
