"""A descriptor is closed once: its number may then belong to a file of another thread."""

from __future__ import annotations

import os

import pytest

from fsmq.spool import Queue, Spool, prepare
from fsmq.spool.layout.uuids import derived_uuid7
from tests.spool.helpers import Clock


@pytest.mark.parametrize("verb", ["deliver", "expire"])
def test_a_check_of_a_message_closes_its_file_once(
    jobs: Queue, spool: Spool, clock: Clock, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    own = derived_uuid7(int(clock() * 1e9) - 3600 * 10**9, b"an hour ago")
    jobs.configure(retention=10)
    name = jobs.put(b"x", id=own)
    failed: list[int] = []
    real = os.close

    def close(fd: int) -> None:
        try:
            real(fd)
        except OSError:
            failed.append(fd)

    monkeypatch.setattr(os, "close", close)
    if verb == "deliver":
        spool.complete(prepare.renew_at_least(spool.context, "jobs", [name], 30.0))
    else:
        spool.deliver()
        clock.advance(11)
        assert jobs.claim() == []
    assert failed == []
