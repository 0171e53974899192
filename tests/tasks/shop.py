"""The application that the worker processes of these tests import, and the tests, too.

FSMQ_TASKS_AT is its place. Tasks write a line to the file FSMQ_TASKS_NOTES, so that it shows what
has run, in the order in which it did.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from fsmq import Bury, Retry
from fsmq.tasks import Tasks, current_run

app = Tasks(os.environ.get("FSMQ_TASKS_AT", "nowhere"), results="results")
_NOTES = "FSMQ_TASKS_NOTES"


def note(*words: object) -> None:
    """Write a line in one piece: several processes write."""
    line = " ".join(map(str, words)) + "\n"
    fd = os.open(os.environ[_NOTES], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def notes(first: str = "") -> list[list[str]]:
    """The words of the lines so far that begin with a word."""
    path = Path(os.environ[_NOTES])
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.split()[1:] for line in lines if line.startswith(first)]


@app.task(retries=80)
def work(n: int) -> int:
    time.sleep(0.02)  # as long as work may take
    note("work", n, os.getpid())
    return n * n


@app.task
async def awaited(n: int) -> int:
    await asyncio.sleep(0)
    return -n


@app.task
def hold(pipe: str) -> str:
    """Run until somebody writes to a named pipe."""
    note("hold", os.getpid())
    text = Path(pipe).read_text()
    note("held", os.getpid())
    return text


@app.task(retries=3, backoff=0.2)
def fail(text: str) -> None:
    run = current_run()
    assert run is not None
    note("fail", time.monotonic(), run.deliveries, run.is_last)
    raise ValueError(text)


@app.task
def ask(what: str) -> None:
    run = current_run()
    assert run is not None
    note("ask", run.deliveries)
    if what == "bury":
        raise Bury("no use")
    if run.deliveries < 6:
        raise Retry(0.05)


@app.task(unique=True)
def single(key: str, pipe: str = "") -> None:
    note("single", key)
    if pipe:
        Path(pipe).read_text()


@app.task(unique=lambda key, more: key)
def by_key(key: str, more: int) -> None: ...


@app.task(cron="* * * * * *", queue="ticks")
def tick() -> None:
    note("tick", os.getpid())


@app.task(timeout=0.2, retries=0)
def spin() -> None:
    while True:
        try:
            time.sleep(0.001)
        except Exception:
            note("swallowed")


@app.task(timeout=0.2, retries=0)
async def doze() -> None:
    await asyncio.Event().wait()


@app.task(timeout=0.2, retries=0, queue="stuck")
def stuck(pipe: str) -> None:
    """Wait in C, where no exception arrives."""
    note("stuck", os.getpid())
    Path(pipe).read_text()


@app.task(timeout=0.2, retries=0, queue="stuck")
async def blocked(pipe: str) -> None:
    """Wait where no coroutine should, so that nothing can cancel it."""
    note("stuck", os.getpid())
    Path(pipe).read_text()


@app.task
def returns(what: str) -> Any:
    return {"set": {1, 2}, "tuple": (1, 2), "text": "ä", "none": None}[what]


@app.task(queue="aside")
def aside() -> None:
    note("aside")
