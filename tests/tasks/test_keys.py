"""Applications whose keys let them do no more than they need, on a server."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fsmq import Client
from fsmq.client.errors import AccessDenied
from fsmq.tasks import Tasks
from tests.harness.suite import Suite
from tests.http.keyfile import add_key


def test_a_sender_and_a_worker_need_few_rights(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    operator = add_key(keys, "operator", "--everything")
    sender = add_key(keys, "sender", "--send=tasks", "--look=tasks", "--look=results")
    worker = add_key(
        keys,
        "worker",
        "--receive=tasks",
        "--send=tasks",
        "--send=results",
        "--send=tasks.batches",
        "--look=tasks.batches",
    )
    with Suite(tmp_path / "mq", mq_options=[f"--keys={keys}"]) as suite:
        apps = {}
        for name, key in (("operator", operator), ("sender", sender), ("worker", worker)):
            app = Tasks(Client(suite.url, key=key, retry_for=2), results="results")
            app.task(name="add")(lambda a, b: a + b)
            apps[name] = app
        with pytest.raises(AccessDenied):
            apps["sender"].tasks["add"].send(1, 2)  # type: ignore[attr-defined]
        apps["operator"].worker()  # creates the queues
        apps["operator"].place.create_queue("tasks.batches", index=True)
        result = apps["sender"].tasks["add"].send(1, 2)  # type: ignore[attr-defined]
        unique = apps["sender"].tasks["add"].options(unique=True)
        for _ in range(2):
            other = unique.send(3, 4)  # type: ignore[attr-defined]
        calls = [apps["worker"].tasks["add"].call(n, n) for n in range(3)]
        batch = apps["worker"].batch(calls, then=calls[0])
        working = apps["worker"].worker()
        thread = threading.Thread(target=working.run)
        thread.start()
        assert (result.get(20), other.get(20)) == (3, 7)
        batch.wait(20)
        working.stop()
        thread.join()
        for app in apps.values():
            app.place.close()
