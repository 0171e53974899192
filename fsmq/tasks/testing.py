"""A pytest plugin for tests of tasks: ``pytest_plugins = ["fsmq.tasks.testing"]``.

>>> def test_a_picture_is_resized(tasks_of):
...     with tasks_of(app) as work_off:  # app works in a spool of this test's own
...         resize.send("cat.png", width=200)
...         work_off()
...     assert Path("cat.200.png").exists()

For tests that need no queue there is ``Tasks(…, eager=True)``, or ``app.eager = True``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from fsmq.spool.claimed import Claim
from fsmq.spool.spool import Spool

from .app import Tasks
from .common import source, weighed

WorkOff: TypeAlias = Callable[..., None]
TasksOf: TypeAlias = "Callable[[Tasks], AbstractContextManager[WorkOff]]"
_VISIBILITY_S = 3600.0


@pytest.fixture
def tasks_of(tmp_path: Path) -> TasksOf:
    """``with tasks_of(app) as work_off``: calls go to a new spool; ``work_off()`` makes them."""

    @contextmanager
    def moved(app: Tasks) -> Iterator[WorkOff]:
        with Spool(tmp_path / "mq", sync="none") as spool, app.at(spool):
            yield lambda wait=0.0: _work_off(app, spool, wait)

    return moved


def _work_off(app: Tasks, spool: Spool, wait: float) -> None:
    """Make calls in this thread until none is ready.

    wait: seconds for which it also waits for those that are delayed, such as retries.
    """
    choice = weighed(app, None)
    app.run(app.preparing(choice))
    chosen = source(spool, choice)
    end = time.monotonic() + wait
    while True:
        messages = chosen.claim(1, _VISIBILITY_S)
        if not messages and any(spool.counts(queue).delayed for queue in app.queues):
            messages = chosen.claim(1, _VISIBILITY_S, max(0.0, end - time.monotonic()))
        if not messages:
            return
        with messages[0] as message:
            app.handle(message, Claim(_VISIBILITY_S, asyncio.Event()))
