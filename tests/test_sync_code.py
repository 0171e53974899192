"""The code for threads is what `make sync` makes from that for coroutines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness import sync_code


def test_it_is_made_from_what_is_there_now() -> None:
    assert sync_code.unlike() == {}


def test_each_rule_is_needed() -> None:
    text = "".join(written.read_text() for written, _ in sync_code.pairs())
    for pattern, replacement in sync_code.RULES:
        text, count = re.subn(pattern, replacement, text, flags=re.S)
        assert count > 0, pattern


def test_a_change_of_one_side_is_told_and_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_code, "HOME", tmp_path)
    there = {name: tmp_path / "fsmq" / name for name in ("_async", "_sync")}
    for folder in there.values():
        folder.mkdir(parents=True)
    (there["_async"] / "a.py").write_text("async def put() -> None:\n    await put()\n")
    made, left = there["_sync"] / "a.py", there["_sync"] / "left.py"
    left.touch()
    assert sync_code.unlike().keys() == {made, left}
    monkeypatch.setattr("sys.argv", ["sync_code"])
    sync_code.main()
    assert made.read_text().endswith("\ndef put() -> None:\n    put()\n")
    assert not left.exists()
    made.write_text(made.read_text() + "# changed by hand\n")
    monkeypatch.setattr("sys.argv", ["sync_code", "--check"])
    with pytest.raises(SystemExit, match=r"_sync/a\.py"):
        sync_code.main()
