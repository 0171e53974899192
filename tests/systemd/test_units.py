"""systemd-analyze accepts the units and finds them little exposed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.suite import HOME

# It runs commands of users, so its sandbox is wider.
WORKER = HOME / "systemd" / "fsmq-worker@.service"
UNITS = sorted(set((HOME / "systemd").glob("*.service")) - {WORKER})
pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units, with programs that exist here."""
    for unit in (HOME / "systemd").glob("*@.*"):
        text = re.sub(r"/usr/local/lib/fsmq/bin/[a-z-]+", sys.executable, unit.read_text())
        (tmp_path / unit.name).write_text(text)
    return tmp_path


def analyze(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments], cwd=folder, capture_output=True, text=True, timeout=60
    )


def test_systemd_understands_the_units(units: Path) -> None:
    done = analyze(units, "verify", *(f"./{unit.name}" for unit in units.iterdir()))
    # The exit code is 0 even if it does not know a setting.
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_unknown_setting_is_reported(units: Path) -> None:
    unit = units / "fsmq-mq@.service"
    unit.write_text(unit.read_text().replace("WatchdogSec", "WatchdogSecs"))
    assert "WatchdogSecs" in analyze(units, "verify", f"./{unit.name}").stderr


@pytest.mark.parametrize(
    ("unit", "most"),
    [*((unit, 20) for unit in UNITS), (WORKER, 40)],
    ids=lambda one: getattr(one, "name", ""),
)
def test_the_exposure_of_a_unit_is_below_its_limit(units: Path, unit: Path, most: int) -> None:
    done = analyze(units, "security", "--offline=yes", f"--threshold={most}", f"./{unit.name}")
    assert done.returncode == 0, done.stdout


def test_the_unit_for_a_wheel_has_the_sandbox(tmp_path: Path) -> None:
    page = (HOME / "docs" / "systemd.md").read_text()
    [text] = re.findall(r"^```ini\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    unit = tmp_path / "fsmq.service"
    unit.write_text(re.sub(r"/opt/fsmq/bin/fsmq", sys.executable, text))
    verified = analyze(tmp_path, "verify", f"./{unit.name}")
    assert (verified.returncode, verified.stderr) == (0, "")
    done = analyze(tmp_path, "security", "--offline=yes", "--threshold=20", f"./{unit.name}")
    assert done.returncode == 0, done.stdout
    sandbox = UNITS[0].read_text().partition("# What the three programs may do")[2]
    assert "ProtectSystem=strict" in sandbox
    assert set(sandbox.split("\n\n")[0].splitlines()[1:]) <= set(text.splitlines())


def test_the_sandbox_is_the_same_for_all() -> None:
    begin = "# What the three programs may do"
    sandboxes = {unit.read_text().partition(begin)[2].split("\n\n")[0] for unit in UNITS}
    assert len(sandboxes) == 1
    assert "ProtectSystem=strict" in sandboxes.pop()
