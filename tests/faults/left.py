"""Unfinished work of dead programs."""

from __future__ import annotations

import os

import pytest

from fsmq.spool import NewMessage, Spool
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.staging.commit import commit
from fsmq.spool.staging.forward import Forward
from fsmq.spool.staging.part import Job, Part


def leave_work(spool: Spool) -> list[str]:
    """Leave a committed batch, a committed job and an ordered move; the files that must go.

    The job puts ``staged`` into the queue ``q``, the move brings ``moved`` to the queue ``to``.
    """
    jobs = spool.queue("q", create=True)
    jobs.put_many([b"taken"] * 3)
    spool.deliver()
    with Consumer(spool, "good") as consumer:
        batch = consumer.claim("s", 0, ["q"], 3)
    assert batch is not None
    committed = f"consumers/good/{batch.name}.done"
    os.rename(spool.tree.root / f"consumers/good/{batch.name}.json", spool.tree.root / committed)
    part = Part(spool.context, spool.syncer.sync, Job("zz-good"))
    part.write("q", NewMessage(b"staged"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Forward, "run", _die)
        with pytest.raises(KeyboardInterrupt):
            commit(spool, Job("zz-good"), [part.finish()])
    spool.queue("from", create=True).put(b"moved")
    move = spool.begin_move("from", "to")
    return [committed, "staging/zz-good:0", f"moves/{move.ref}.json"]


def _die(forward: Forward) -> None:
    raise KeyboardInterrupt
