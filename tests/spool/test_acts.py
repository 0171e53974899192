"""Acts of people in the dashboard, which the journal keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsmq.spool.inspection import Act, Acts
from fsmq.spool.spool import Spool

ONE = Act(1_795_277_401_234, "operator", "purge", "jobs", "", 3)
TWO = Act(1_795_277_402_000, "", "move", "jobs.dead", "jobs", 12)


def test_an_act_is_kept_when_its_process_has_ended(tmp_path: Path) -> None:
    for act in (ONE, TWO):
        with Spool(tmp_path, sync="none", journal=True) as spool:
            spool.context.journal.note_act(act)
    [first, second] = sorted((tmp_path / "journal").iterdir())
    assert json.loads(second.read_text()) == {
        "v": 1, "at": TWO.at_ms, "event": "act", "who": "", "action": "move", "on": "jobs.dead",
        "count": 12, "to": "jobs", "host": json.loads(first.read_text())["host"], "via": "library",
    }  # fmt: skip
    with Spool(tmp_path, sync="none") as spool:
        acts = Acts(spool.tree)
        assert acts.look() == [TWO, ONE]
        first.unlink()
        assert acts.look() == [TWO]


def test_an_act_is_found_before_its_segment_is_closed(tmp_path: Path) -> None:
    with Spool(tmp_path, sync="none", journal=True) as spool:
        spool.context.journal.note_act(ONE)
        spool.context.journal.flush()
        assert Acts(spool.tree).look() == [ONE]


@pytest.mark.parametrize("line", ["{}", "[" * 5000, '{"event":"act","at":"x"}', '"event":"act"'])
def test_lines_that_are_no_acts_are_skipped(tmp_path: Path, line: str) -> None:
    with Spool(tmp_path, sync="none") as spool:
        folder = tmp_path / "journal"
        folder.mkdir(exist_ok=True)
        (folder / "1795277401234-a-1-1.jsonl").write_text(f'{line}"event":"act"\n{line}\n')
        assert Acts(spool.tree).look() == []
