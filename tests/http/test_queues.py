"""Settings of queues, which take effect at once."""

from __future__ import annotations

import json
import time

import pytest
from aiohttp import ClientSession

from tests.harness.suite import Suite, eventually
from tests.http.helpers import ask, configure, fetch, post


async def test_settings_are_in_the_answer_and_shown(client: ClientSession, queue: str) -> None:
    answer = await configure(client, queue, visibility_timeout=5, max_depth=10)
    assert (answer.json["queue"], answer.json["settings"]["max_depth"]) == (queue, 10)
    shown = (await ask(client, "GET", f"/{queue}")).json["settings"]
    assert shown == answer.json["settings"]
    assert set(shown) == {
        "visibility_timeout",
        "max_deliveries",
        "dead_letter_queue",
        "retention",
        "default_delay",
        "max_message_bytes",
        "max_depth",
        "compression",
        "min_partitions",
        "max_partitions",
        "max_partition_age",
        "index",
        "paused",
        "max_in_flight",
        "max_rate",
        "max_burst",
        "retry_backoff",
        "retry_factor",
        "retry_most",
        "retry_jitter",
        "fifo",
        "max_in_flight_per_group",
        "alert_age",
        "fetch_order",
        "dedup_scope",
        "dedup_by_content",
    }


async def test_settings_are_stored_in_a_file(
    client: ClientSession, queue: str, suite: Suite
) -> None:
    await configure(client, queue, default_delay=3)
    stored = json.loads((suite.root / "config" / f"{queue}.json").read_text())
    assert stored["default_delay"] == 3


async def test_a_change_keeps_the_other_settings(client: ClientSession, queue: str) -> None:
    await configure(client, queue, retention=60)
    answer = await configure(client, queue, max_depth=5)
    assert answer.json["settings"]["retention"] == 60
    answer = await configure(client, queue, retention=None)
    assert (answer.json["settings"]["retention"], answer.json["settings"]["max_depth"]) == (None, 5)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"visibilty": 3}, "visibilty"),
        ({"visibility_timeout": -1}, "visibility_timeout"),
        ({"visibility_timeout": "30"}, "visibility_timeout"),
        ({"visibility_timeout": True}, "visibility_timeout"),
        ({"visibility_timeout": float("nan")}, "visibility_timeout"),
        ({"visibility_timeout": 10**400}, "visibility_timeout"),
        ({"max_depth": 0}, "max_depth"),
        ({"max_depth": 1.5}, "max_depth"),
        ({"max_deliveries": 3}, "max_deliveries"),
        ({"max_deliveries": 100, "dead_letter_queue": "d"}, "max_deliveries"),
        ({"max_deliveries": 3, "dead_letter_queue": "../d"}, "dead_letter_queue"),
        ({"max_deliveries": 3, "dead_letter_queue": 7}, "dead_letter_queue"),
        ({"\ud800": 1}, "\ud800"),
    ],
)
async def test_invalid_settings_change_nothing(
    client: ClientSession, queue: str, settings: dict[str, object], field: str
) -> None:
    await configure(client, queue, max_depth=77)
    body = json.dumps({"retention": 5, **settings})
    answer = await ask(client, "PATCH", f"/{queue}", data=body.encode())
    assert (answer.status, answer.json["field"]) == (400, field)
    shown = (await ask(client, "GET", f"/{queue}")).json["settings"]
    assert (shown["max_depth"], shown["retention"]) == (77, None)


async def test_a_queue_cannot_be_its_own_dead_letter_queue(
    client: ClientSession, queue: str
) -> None:
    body = {"max_deliveries": 2, "dead_letter_queue": queue}
    answer = await ask(client, "PATCH", f"/{queue}", json=body)
    assert (answer.status, answer.json["field"]) == (400, "dead_letter_queue")


async def test_a_message_delivered_too_often_moves_to_the_dead_letter_queue(
    client: ClientSession, queue: str
) -> None:
    await configure(client, queue, max_deliveries=2, dead_letter_queue=f"{queue}-dead")
    message_id = await post(client, queue, b"poison")
    for n in ("1", "2"):
        answer = await fetch(client, queue, visibility=0.1)
        assert (answer.id, answer.headers["X-Message-Deliveries"]) == (message_id, n)
    dead = await fetch(client, f"{queue}-dead")
    assert (dead.id, dead.body) == (message_id, b"poison")
    assert dead.headers["X-Message-Deliveries"] == "1"
    assert (await fetch(client, queue, wait=0.2)).status == 204


async def test_a_release_after_the_last_delivery_buries_the_message(
    client: ClientSession, queue: str
) -> None:
    await configure(client, queue, max_deliveries=1, dead_letter_queue=f"{queue}-dead")
    await post(client, queue, b"poison")
    fetched = await fetch(client, queue, visibility=600)
    await ask(client, "PATCH", f"/{queue}/messages/{fetched.id}?visibility=0")
    assert (await fetch(client, f"{queue}-dead")).id == fetched.id


async def test_the_dead_letter_queue_can_be_switched_off_and_on(
    client: ClientSession, queue: str
) -> None:
    await configure(client, queue, max_deliveries=1, dead_letter_queue=f"{queue}-dead")
    await post(client, queue, b"x")
    fetched = await fetch(client, queue, visibility=600)
    await configure(client, queue, max_deliveries=None, dead_letter_queue=None)
    await ask(client, "PATCH", f"/{queue}/messages/{fetched.id}?visibility=0")
    fetched = await fetch(client, queue, visibility=600)
    assert fetched.headers["X-Message-Deliveries"] == "2"
    await configure(client, queue, max_deliveries=1, dead_letter_queue=f"{queue}-dead")
    await ask(client, "PATCH", f"/{queue}/messages/{fetched.id}?visibility=0")
    assert (await fetch(client, f"{queue}-dead")).body == b"x"


async def test_retention_expires_old_messages(
    client: ClientSession, queue: str, suite: Suite
) -> None:
    message_id = await post(client, queue, b"old")
    eventually((suite.root / "queues" / queue / message_id).exists)
    await configure(client, queue, retention=0.05)
    young_until = time.time() + 0.1
    eventually(lambda: time.time() > young_until)
    assert (await fetch(client, queue, wait=0)).status == 204
    await configure(client, queue, retention=None)
    await post(client, queue, b"young")
    assert (await fetch(client, queue)).body == b"young"


async def test_settings_are_deleted_with_their_queue(client: ClientSession, queue: str) -> None:
    await configure(client, queue, visibility_timeout=1)
    await ask(client, "DELETE", f"/{queue}")
    await ask(client, "PUT", f"/{queue}")
    shown = (await ask(client, "GET", f"/{queue}")).json["settings"]
    assert shown["visibility_timeout"] == 30


async def test_edits_of_the_settings_file_take_effect(
    client: ClientSession, queue: str, suite: Suite
) -> None:
    path = suite.root / "config" / f"{queue}.json"
    path.write_text('{"max_message_bytes": 3}')
    answer = await ask(client, "POST", f"/{queue}/messages", data=b"four")
    assert answer.status == 413
    path.write_text("{ a slip")
    answer = await ask(client, "POST", f"/{queue}/messages", data=b"four")
    assert answer.status == 413  # as before the mistake
    path.unlink()
    answer = await ask(client, "POST", f"/{queue}/messages", data=b"four")
    assert answer.status == 201
