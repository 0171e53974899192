"""With one process, fetches return the ready message with the least name."""

from __future__ import annotations

import random
from pathlib import Path

from aiohttp import ClientSession

from tests.harness.suite import Suite, eventually
from tests.http.helpers import ask, fetch, post

STEPS = 150


async def test_a_claim_gets_the_least_name_redeliveries_included(
    suite: Suite, client: ClientSession, queue: str
) -> None:
    chance = random.Random(5)
    folder = suite.root / "queues" / queue
    for number in range(60):
        own = (
            {"id": f"own-{number}"}
            if number % 7 == 0
            else {"priority": chance.choice([0, 0, 5, 99])}
        )
        await post(client, queue, b"x", **own)
    eventually(lambda: len(ready(folder)) == 60)
    held: list[str] = []
    returned = 0
    for _ in range(STEPS):
        deed = chance.random()
        if held and deed < 0.3:
            message_id = held.pop(chance.randrange(len(held)))
            answer = await ask(client, "PATCH", f"/{queue}/messages/{message_id}?visibility=0")
            assert answer.status == 204
            returned += 1
        elif held and deed < 0.4:
            message_id = held.pop(chance.randrange(len(held)))
            await ask(client, "PATCH", f"/{queue}/messages/{message_id}?visibility=0.001")
            eventually(lambda wanted=message_id: wanted in ready(folder))  # its timer ends
            returned += 1
        else:
            least = ready(folder)[:1]
            answer = await fetch(client, queue, visibility=600, wait=0)
            assert [answer.id] == least if least else answer.status == 204
            held += least
    assert returned > 20


def ready(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
