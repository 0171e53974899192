"""A warning says that the default root may be emptied at boot."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fsmq.cli import main
from fsmq.cli.place import place
from fsmq.spool import Spool
from fsmq.spool.probe import cleaned_at_boot
from tests.harness.suite import HOME

# Another default than the real /tmp/mq.
_START = """
import sys
from pathlib import Path
from fsmq.daemons.settings.settings import SETTINGS
for setting in SETTINGS:
    if setting.name == "root" and setting.default is not None:
        object.__setattr__(setting, "default", Path(sys.argv[1]))
from {module} import {command}
{command}(sys.argv[2:])
"""
_PROGRAMS = {"mq": ("fsmq.daemons.mq", "main"), "up": ("fsmq.cli.admin.up", "up")}


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A root below a folder that is emptied at boot."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder) / "mq"


def warnings(program: str, default: Path, *options: str) -> list[str]:
    """The warnings of a program until it serves."""
    module, command = _PROGRAMS[program]
    script = _START.format(module=module, command=command)
    arguments = [str(default), "--port=0", "--log-format=json", *options]
    found = []
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments], cwd=HOME, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            event = json.loads(line)
            found += [event["event"]] if event["level"] == "warning" else []
            if event["event"] == "started" and event["program"] == "mq":
                process.terminate()
                process.stderr.read()
                break
    return [event for event in found if event != "probe"]


@pytest.mark.parametrize("program", _PROGRAMS)
def test_a_program_without_a_root_warns_that_messages_may_be_lost(
    program: str, temporary: Path
) -> None:
    warning = "MESSAGES MAY BE LOST AT THE NEXT BOOT: no root was given"
    assert warnings(program, temporary).count(warning) == 1
    assert warning not in warnings(program, temporary, f"--root={temporary}")


def test_the_doctor_warns_of_the_default_root(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "DEFAULT_ROOT", temporary)
    Spool(temporary).close()
    clean: dict[str, str | None] = {place.VARIABLE: None, "FSMQ_ROOT": None}

    def findings(*arguments: str, **env: str) -> list[str]:
        command: click.Command = main
        ran = CliRunner().invoke(command, ["doctor", "--json", *arguments], env={**clean, **env})
        return [f["text"] for f in json.loads(ran.stdout)["findings"] if f["name"] == "root"]

    assert findings() == [
        f"{temporary} may be empty after the next boot: many systems empty /tmp then"
    ]
    assert findings(f"--at={temporary}") == findings(FSMQ_ROOT=str(temporary)) == []


def test_links_are_resolved(temporary: Path) -> None:
    temporary.mkdir()
    (temporary / "link").symlink_to("/var/tmp")
    assert cleaned_at_boot(temporary / "link" / "mq") == "/var/tmp"
    assert cleaned_at_boot(Path("/var/lib/fsmq")) is None
    assert cleaned_at_boot(Path("/tmpfs")) is None
