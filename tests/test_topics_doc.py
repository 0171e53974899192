"""The examples of docs/topics.md, run by a shell and by Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.suite import HOME
from tests.test_http_doc import Shell, examples, normal
from tests.test_http_doc import shell as shell  # the fixture

DOCUMENT = HOME / "docs" / "topics.md"


def test_every_example_prints_what_the_document_says(shell: Shell) -> None:
    found = examples(DOCUMENT)
    assert len(found) > 8
    for example in found:
        printed = normal(shell.run(example.command))
        assert printed == normal(example.output), f"line {example.line}: {example.command}"


def test_the_program_runs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [program] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    for queue in ("billing", "audit"):
        (root / "queues" / queue).mkdir(parents=True)
    exec(program.replace("/var/lib/fsmq", str(root)), {})
    assert capsys.readouterr().out == "['audit', 'billing']\n"
