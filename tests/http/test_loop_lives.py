"""A life of very many steps holds up nobody, and its page shows the last of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmq.spool.layout.names import new_id
from tests.harness.suite import Suite
from tests.http.helpers import Wire
from tests.http.test_loop import HELD_S, exchange, longest, watch_over
from tests.http.watched import Watch

STEPS = 100_000


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Suite, Watch, str]]:
    """mq with a watcher, and the id of a message that was claimed and released again and again."""
    for suite, watch in watch_over(tmp_path_factory.mktemp("lived")):
        (suite.root / "queues" / "q").mkdir()
        message = new_id()
        (suite.root / "queues" / "q" / message).write_bytes(b"x")
        write(suite.root, message)
        yield suite, watch, message


def write(root: Path, message: str) -> None:
    now = int(time.time() * 1000)
    steps = [{"at": now, "event": "accepted", "queue": "q", "id": message, "size": 1}]
    for number in range(1, STEPS):
        event = "claimed" if number % 2 else "released"
        steps.append({"at": now + number // 100, "event": event, "queue": "q", "id": message})
    (root / "journal").mkdir(exist_ok=True)
    file = root / "journal" / f"{now:013}-other-1-1.jsonl"
    file.write_text("".join(f"{json.dumps(step, separators=(',', ':'))}\n" for step in steps))


@pytest.mark.parametrize("target", ["/_ui/q/q/m/{}", "/q/messages/{}/life"])
def test_no_life_of_many_steps_holds_up_the_loop(
    lived: tuple[Suite, Watch, str], target: str
) -> None:
    suite, watch, message = lived
    asked = target.format(message)
    statuses = []
    held = longest(watch, lambda: statuses.append(exchange(suite, "GET", asked)))
    assert set(statuses) == {200}
    assert held <= HELD_S


def test_a_page_shows_the_last_steps_and_the_api_has_all(
    lived: tuple[Suite, Watch, str],
) -> None:
    suite, _, message = lived
    with Wire(suite.url, timeout=60) as wire:
        page = wire.ask("GET", f"/_ui/q/q/m/{message}").body.decode()
        life = wire.ask("GET", f"/q/messages/{message}/life").body.decode().splitlines()
    assert "These are the last 500 of 100\u202f000 steps" in page
    assert page.count("<strong>claimed</strong>") == page.count("<strong>released</strong>") == 250
    assert "<strong>accepted</strong>" not in page
    assert len(page) < 500_000
    assert len(life) == STEPS
    assert json.loads(life[0])["event"] == "accepted"
