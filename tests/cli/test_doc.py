"""docs/cli.md tells every verb and every exit code. (tests/test_pages.py runs its examples.)"""

from __future__ import annotations

import re

import click

from fsmq.cli import COMMANDS, main
from fsmq.cli.failures import Exit
from fsmq.cli.queues.config import config
from fsmq.spool.layout.settings import DEFAULTS
from tests.harness.suite import HOME

DOCUMENT = HOME / "docs" / "cli.md"


def test_every_verb_and_every_exit_code_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    for verbs in COMMANDS.values():
        for verb in verbs:
            assert re.search(rf"`{verb}`|fsmq {verb}\b", text), verb
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert {int(code) for code in Exit} <= documented


def test_every_setting_is_in_the_help_of_config() -> None:
    assert config.help is not None
    for name in DEFAULTS.as_dict():
        assert re.search(rf"^ *{name} ", config.help, re.MULTILINE), name


def test_the_verbs_that_print_json_are_those_that_can() -> None:
    table = DOCUMENT.read_text().partition("| verb | with `--json` |")[2].partition("\n\n")[0]
    told = {verb for line in table.splitlines() for verb in re.findall(r"`([a-z]+)`", line)}
    told -= {"show", "schedule"}  # of a group
    able = {
        verb
        for verbs in COMMANDS.values()
        for verb in verbs
        for one in [main.get_command(click.Context(main), verb)]
        if one is not None and any("--json" in param.opts for param in one.params)
    }
    assert told == able
