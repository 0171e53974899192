"""docs/cli.md tells every verb and every exit code. (tests/test_pages.py runs its examples.)"""

from __future__ import annotations

import re

from fsmq.cli import COMMANDS
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
