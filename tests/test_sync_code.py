"""`make sync` generates the code for threads from the code for coroutines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness import sync_code


def test_generated_code_is_up_to_date() -> None:
    assert sync_code.unlike() == {}


def test_each_rule_is_used() -> None:
    text = "".join(written.read_text() for written, _ in sync_code.pairs())
    for pattern, replacement in sync_code.RULES:
        text, count = re.subn(pattern, replacement, text, flags=re.S)
        assert count > 0, pattern


def test_a_difference_is_reported_and_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_code, "HOME", tmp_path)
    folders = {name: tmp_path / "fsmq" / name for name in ("_async", "_sync")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    (folders["_async"] / "a.py").write_text("async def put() -> None:\n    await put()\n")
    made, left = folders["_sync"] / "a.py", folders["_sync"] / "left.py"
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
