"""Runs tests that fork often in an interpreter that has imported nothing else.

A process of `make test` has imported all tests, a third of a gigabyte, which makes each fork some
ten milliseconds slower. Reports of these tests come as if they had run here.

In the other interpreter this module is a plugin of pytest that writes reports to a pipe.
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
    """The interpreter for tests for which ``is_apart`` holds, started at the first of them."""

    def __init__(self, is_apart: Callable[[str], bool]) -> None:
        self._is_apart = is_apart
        self._received: defaultdict[str, list[pytest.TestReport]] = defaultdict(list)
        self._reports: BufferedReader | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, item: pytest.Item) -> None:
        """Wait until a test has run there, and report it."""
        hook, nodeid = item.ihook, item.nodeid
        hook.pytest_runtest_logstart(nodeid=nodeid, location=item.location)
        for report in self._reports_of(item):
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=nodeid, location=item.location)

    def _reports_of(self, item: pytest.Item) -> list[pytest.TestReport]:
        if self._reports is None:
            self._begin(item)
        assert self._reports is not None
        received, to_report = self._received, item.config.hook.pytest_report_from_serializable
        while not any(report.when == "teardown" for report in received[item.nodeid]):
            try:
                data = pickle.load(self._reports)
            except EOFError:
                return [*received.pop(item.nodeid), self._died(item)]
            report = to_report(config=item.config, data=data)
            received[report.nodeid].append(report)
        return received.pop(item.nodeid)

    def _begin(self, item: pytest.Item) -> None:
        """Start it with all such tests of the session, in their order."""
        wanted = [one.nodeid for one in item.session.items if self._is_apart(one.nodeid)]
        reading, writing = os.pipe()
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")}
        profile = item.config.getoption("--hypothesis-profile", None)
        # Their names may be too long for a command line.
        with TemporaryDirectory() as folder:
            arguments = Path(folder) / "arguments"
            options = [f"--hypothesis-profile={profile}"] if profile else []
            arguments.write_text("\n".join([*options, *wanted]))
            command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", __name__, f"@{arguments}"]
            self._process = subprocess.Popen(
                command,
                cwd=_HOME,
                env={**clean, _PIPE: str(writing)},
                stdout=subprocess.DEVNULL,
                pass_fds=[writing],
            )
            os.close(writing)
            self._reports = open(reading, "rb")  # noqa: SIM115  # until the end of the session
            self._reports.peek(1)  # wait until it has read its arguments

    def _died(self, item: pytest.Item) -> pytest.TestReport:
        assert self._process is not None
        text = f"the interpreter for tests that fork often has ended: {self._process.wait()}"
        return pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")

    def close(self) -> None:
        """Wait until it has ended."""
        if self._process is not None and self._reports is not None:
            self._reports.close()
            self._process.wait()


def _send(data: object) -> None:
    with open(int(os.environ[_PIPE]), "wb", closefd=False) as pipe:
        pickle.dump(data, pipe)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _send(_config.hook.pytest_report_to_serializable(config=_config, report=report))


def pytest_configure(config: pytest.Config) -> None:
    global _config
    _config = config


_config: pytest.Config
