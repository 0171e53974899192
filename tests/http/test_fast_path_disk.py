"""Failing disks under groups of the fast path."""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.faults.inject import RENAMES, injected
from tests.harness.suite import Suite
from tests.http.helpers import Wire
from tests.http.inside import Inside
from tests.http.test_errors import is_problem
from tests.http.test_fast_path_limits import send_all


def test_a_removal_that_fails_in_the_middle_of_a_group(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request whose message is removed is answered that there was none."""
    with Inside(root) as server, ExitStack() as stack:
        ids = server.queue("q", ready=[b"x"] * 5)
        wires = [stack.enter_context(Wire(server.url)) for _ in ids]
        tree = server.spool.tree
        move = tree.move

        def one_fails(how: Any, queue: str, message_id: str, *more: Any) -> bool:
            if message_id == ids[3]:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return move(how, queue, message_id, *more)

        monkeypatch.setattr(tree, "move", one_fails)
        targets = [f"/q/messages/{one}" for one in ids]
        server.call(lambda: send_all(wires, "DELETE", *targets))
        answers = [wire.answer() for wire in wires]
        monkeypatch.undo()
        assert is_problem(answers[3], 503, "unavailable")
        assert {answer.status for answer in answers} <= {202, 503}
        again = [wire.ask("DELETE", target) for wire, target in zip(wires, targets, strict=True)]
        assert [answer.status for answer in again[:4]] == [404, 404, 404, 202]
        assert again[4].status in (202, 404)
        assert server.taken >= 5


# Every second rename, behind the first few.
FAULTS = [f"{call}:error=EIO:when=7+2" for call in RENAMES.split(",")]


def test_failing_renames(root: Path) -> None:
    with Suite(root, mq_options=["--sync=none"], mover=False, reaper=False) as suite:
        ready = root / "queues" / "q"
        ready.mkdir()
        for number in range(20):
            (ready / f"m{number:02}").write_bytes(b"x")
        with ExitStack() as stack:
            wires = [stack.enter_context(Wire(suite.url)) for _ in range(20)]
            with injected(suite, *FAULTS, programs=["mq"]) as fault:
                for number, wire in enumerate(wires):
                    wire.request("DELETE", f"/q/messages/m{number:02}")
                answers = [wire.answer() for wire in wires]
            assert fault.hits
            left = {path.name for path in ready.iterdir()}
            for number, answer in enumerate(answers):
                assert answer.status in (202, 503)
                assert answer.status == 503 or f"m{number:02}" not in left
            for number, wire in enumerate(wires):
                assert wire.ask("DELETE", f"/q/messages/m{number:02}").status in (202, 404)
        assert not list(ready.iterdir())
