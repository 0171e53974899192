"""docs/cli.md lists all commands and exit codes. (tests/test_pages.py runs its examples.)"""

from __future__ import annotations

import re

from fsmq.cli.failures import Exit
from fsmq.cli.grammar import COMMANDS, SYNONYMS
from fsmq.cli.queues.config import config
from fsmq.spool.layout.settings import DEFAULTS
from tests.cli.helpers import commands
from tests.harness.suite import HOME

TEXT = (HOME / "docs" / "cli.md").read_text()


def test_every_command_and_every_exit_code_is_in_the_document() -> None:
    for name in (name for of in COMMANDS.values() for name in of):
        assert re.search(rf"`{name}[` ]|fsmq {name}\b", TEXT), name
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)}
    assert {int(code) for code in Exit} <= documented
    for word, verb in SYNONYMS.items():
        assert re.search(rf"`{word}`[^,]* for\s`{verb}`", TEXT), word


def test_every_setting_is_in_the_help_of_config() -> None:
    assert config.help is not None
    for name in DEFAULTS.as_dict():
        assert re.search(rf"^ *{name} ", config.help, re.MULTILINE), name


def test_the_document_lists_the_commands_without_json() -> None:
    [row] = re.findall(r"^\| ([^|]*) \| they have no such option", TEXT, re.MULTILINE)
    unable = {
        name
        for name, command in commands()
        if not any("--json" in param.opts for param in command.params)
    }
    assert set(re.findall(r"`([^`]+)`", row)) == unable
