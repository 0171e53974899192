"""``fsmq settings`` prints all settings, also as a file to start from; settings of new queues."""

from __future__ import annotations

import json
import os
import re
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner

from fsmq.cli.admin.settings import settings
from fsmq.daemons.settings.settings import SETTINGS
from tests.cli.helpers import Command
from tests.harness.suite import HOME, Suite
from tests.test_options import PROGRAMS, Ran

VALUE = re.compile(r"^# ([a-z-]+ = )(?!\()", re.MULTILINE)


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(settings, arguments)
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_file_changes_nothing_with_and_without_its_comments(
    program: str, tmp_path: Path
) -> None:
    needed = ["--root", str(tmp_path)] if program in ("mover", "reaper") else []
    without = Ran(program, *needed).options
    path = tmp_path / "fsmq.toml"
    for text in (printed("--toml"), VALUE.sub(r"\1", printed("--toml"))):
        path.write_text(text)
        ran = Ran(program, *needed, "--config", str(path))
        assert ran.result.exit_code == 0, ran.output
        for field in fields(without):
            if field.name not in ("config", "given", "root_is_given"):
                assert getattr(ran.options, field.name) == getattr(without, field.name)
    assert len(VALUE.findall(printed("--toml"))) > 30


def test_every_setting_is_in_each_form() -> None:
    names = {setting.name for setting in SETTINGS if setting.in_file}
    assert set(re.findall(r"^# ([a-z-]+) = ", printed("--toml"), re.MULTILINE)) == names
    assert set(re.findall(r"^([a-z-]+) \(", printed(), re.MULTILINE)) == names
    assert {one["name"] for one in json.loads(printed("--json"))["settings"]} == names


def test_the_page_has_what_the_command_prints() -> None:
    assert printed("--toml").strip() in (HOME / "docs" / "settings.md").read_text()


@pytest.mark.parametrize(
    "bad", ["max_depth=0", "max_deliveries=3", "nosuch=1", "dead_letter_queue=q"]
)
@pytest.mark.parametrize("at", ["folder", "server"])
def test_a_refused_setting_leaves_no_queue(suite: Suite, at: str, bad: str) -> None:
    fsmq = Command(suite.url if at == "server" else suite.root)
    done = fsmq("queue", "create", "q", "retention=7d", bad, code=2)
    assert bad.split("=")[0] in done.stderr.decode()
    assert "q" not in fsmq.out("queue", "list", "--names").split()


def test_what_a_server_refuses_leaves_no_queue(tmp_path: Path) -> None:
    """A key that may not bury into another queue."""
    keys = tmp_path / "keys.toml"
    key = Command("").out("key", "create", "app", "--admin=app.*", f"--keys={keys}").strip()
    with Suite(tmp_path / "mq", mq_options=[f"--keys={keys}"]) as suite:
        fsmq = Command(suite.url)
        settings = ["max_deliveries=3", "dead_letter_queue=other"]
        fsmq("queue", "create", "app.jobs", *settings, code=77, FSMQ_KEY=key)
        assert os.listdir(suite.root / "queues") == []
        settings = ["max_deliveries=3", "dead_letter_queue=app.dead"]
        fsmq("queue", "create", "app.jobs", *settings, FSMQ_KEY=key)
        assert sorted(os.listdir(suite.root / "queues")) == ["app.dead", "app.jobs"]
