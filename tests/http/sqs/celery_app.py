"""Tasks of Celery with fsmq as the broker; each writes a line when it has run."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Any

from celery import Celery

app = Celery("tasks", broker=os.environ.get("TASKS_BROKER", "sqs://a:b@127.0.0.1:1//"))
app.conf.update(
    broker_transport_options={
        "region": "us-east-1",
        "is_secure": False,
        "wait_time_seconds": 1,
        "polling_interval": 0,
        "visibility_timeout": 4,
    },
    broker_connection_retry_on_startup=True,
    task_default_queue="tasks",
    task_acks_late=True,
    worker_enable_remote_control=False,
    worker_prefetch_multiplier=1,
)


def is_retried(number: int) -> bool:
    """Whether a step fails at first."""
    return number % 100 == 3


def is_held(number: int) -> bool:
    """Whether a step ends only by a kill of its worker."""
    return number % 250 == 5


def note(*words: object) -> None:
    with open(os.environ["TASKS_NOTES"], "a") as file:
        file.write(" ".join(map(str, words)) + "\n")


@app.task(bind=True, max_retries=3)
def step(self: Any, number: int) -> int:
    """One step of a chain; some fail at first, and some end only by a kill of their worker."""
    note("begin", number, os.getpid())
    if is_retried(number) and self.request.retries == 0:
        raise self.retry(countdown=0.1)
    if is_held(number) and not os.path.exists(f"{os.environ['TASKS_NOTES']}.killed.{number}"):
        time.sleep(600)
    note("end", number, os.getpid())
    return number


@app.task
def later(due: float) -> None:
    """A task with an earliest time."""
    note("later" if datetime.now(UTC).timestamp() >= due else "early", 0, 0)
