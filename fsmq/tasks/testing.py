"""A pytest plugin for tests of tasks: ``pytest_plugins = ["fsmq.tasks.testing"]``.

>>> def test_a_picture_is_resized(tasks_of):
...     with tasks_of(app) as work_off:  # app works in a spool of this test's own
...         resize.send("cat.png", width=200)
...         work_off()
...     assert Path("cat.200.png").exists()

For tests that need no queue there is ``Tasks(…, eager=True)``, or ``app.eager = True``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from fsmq.spool.spool import Spool

from .app import Tasks

WorkOff: TypeAlias = Callable[..., None]
TasksOf: TypeAlias = "Callable[[Tasks], AbstractContextManager[WorkOff]]"
_LOOK_EVERY_S = 0.01


@pytest.fixture
def tasks_of(tmp_path: Path) -> TasksOf:
    """``with tasks_of(app) as work_off``: calls go to a new spool; ``work_off()`` makes them."""

    @contextmanager
    def moved(app: Tasks) -> Iterator[WorkOff]:
        with Spool(tmp_path / "mq", sync="none") as spool, app.at(spool):
            yield lambda wait=0.0: _work_off(app, spool, wait)

    return moved


def _work_off(app: Tasks, spool: Spool, wait: float) -> None:
    """Run a worker until no call is ready or in work.

    wait: seconds for which it also waits for those that are delayed, such as retries.
    """
    worker = app.worker(concurrency=1)
    running = threading.Thread(target=worker.run)
    running.start()
    end = time.monotonic() + wait
    try:
        while running.is_alive():
            counts = [spool.counts(queue) for queue in app.queues]
            late = sum(one.delayed for one in counts)
            is_over = not late or time.monotonic() >= end
            if is_over and sum(one.total for one in counts) == late:
                break
            time.sleep(_LOOK_EVERY_S)
    finally:
        worker.stop()
        running.join()
