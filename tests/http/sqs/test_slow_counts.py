"""Counts of queues that take long are answered from a cache for a while."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fsmq.http.sqs.actions import queues
from fsmq.http.sqs.names import SqsOptions
from tests.http.inside import Inside


def test_slow_queues_are_forgotten_when_they_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "_QUICK_S", -1.0)
    with Inside(tmp_path / "mq") as inside:
        actions = queues.Queues(inside.service, SqsOptions())
        for number in range(100):
            inside.spool.create_queue(f"gone-{number}")
            counted = actions._counts(f"gone-{number}")
            assert asyncio.run_coroutine_threadsafe(counted, inside.loop).result(20).total == 0
            inside.spool.delete_queue(f"gone-{number}")
        assert 0 < len(actions._slow_until) < 40
