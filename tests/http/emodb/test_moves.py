"""Moves of whole queues in the background: over HTTP, from the library, and after a kill."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fsmq import Spool
from fsmq.spool.moves import work
from fsmq.spool.moves.runner import MoveRunner
from tests.harness.suite import eventually_on_loop
from tests.http.emodb.helpers import EXCEPTION, Emo, payloads
from tests.http.helpers import ask, leads_to


async def move(source: Emo, target: Emo) -> str:
    answer = await ask(
        source.client, "POST", f"/{source.service}/1/_move?from={source.name}&to={target.name}"
    )
    assert answer.status == 200, answer
    return str(answer.json["id"])


async def end(emo: Emo, reference: str) -> dict[str, Any]:
    async def ended() -> Any:
        answer = await ask(emo.client, "GET", f"/{emo.service}/1/_move/{reference}")
        assert answer.status == 200, answer
        return answer.json if answer.json["status"] != "IN_PROGRESS" else None

    return dict(await eventually_on_loop(ended))


def target_of(emo: Emo) -> Emo:
    return Emo(emo.client, emo.suite, emo.service, emo.name + "-target")


async def test_a_move_takes_all_messages_and_ends_their_claims(emo: Emo) -> None:
    target = target_of(emo)
    await emo.send(*range(6))
    claimed = await emo.poll(limit=2)
    await emo.ack(claimed[0])
    await emo.post("send", "fresh")
    reference = await move(emo, target)
    assert await end(emo, reference) == {"from": emo.name, "to": target.name, "status": "COMPLETE"}
    assert (await emo.size(), await target.claims()) == (0, 0)
    assert sorted(payloads(await target.poll(limit=100)), key=str) == [1, 2, 3, 4, 5, "fresh"]
    await emo.ack(claimed[1])
    assert await target.size() == 6


async def test_a_moved_message_has_another_id(emo: Emo) -> None:
    target = target_of(emo)
    await emo.send(1)
    [before] = await emo.peek()
    await end(emo, await move(emo, target))
    [after] = await target.peek()
    assert after["id"] != before["id"]
    assert (await target.post("ack", [before["id"]])).status == 400


async def test_moved_messages_collapse_in_a_dedup_queue(dedup: Emo) -> None:
    target = target_of(dedup)
    await dedup.send("shown")
    await dedup.peek()
    await dedup.send("shown", "a", "b")
    await target.send("a", "c")
    await end(dedup, await move(dedup, target))
    assert await dedup.size() == 0
    assert payloads(await target.poll()) == ["a", "b", "c", "shown"]


async def test_a_move_of_a_queue_that_does_not_exist_completes(emo: Emo) -> None:
    assert (await end(emo, await move(emo, target_of(emo))))["status"] == "COMPLETE"


async def test_a_reference_is_valid_for_its_service_only(plain: Emo) -> None:
    reference = await move(plain, target_of(plain))
    assert len(reference) == 42
    assert reference.endswith("WW65TFFVYXKZLVMU")
    await end(plain, reference)
    answer = await ask(plain.client, "GET", f"/dedupq/1/_move/{reference}")
    assert answer.status == 404
    assert answer.headers[EXCEPTION] == "com.bazaarvoice.emodb.queue.api.UnknownMoveException"
    assert answer.json == {
        "id": reference,
        "message": f"Unknown move: {reference}",
        "suppressed": [],
    }
    dedup = Emo(plain.client, plain.suite, "dedupq", plain.name)
    assert len(await move(dedup, target_of(dedup))) == 52


async def test_a_move_in_the_native_dialect(plain: Emo) -> None:
    target = target_of(plain)
    await plain.send(1, 2, 3)
    await plain.poll(limit=1)
    path = f"/{plain.name}/move?to={target.name}"
    assert (await ask(plain.client, "POST", path)).status == 404  # there is no such target
    assert (await ask(plain.client, "PUT", f"/{target.name}")).status == 201
    answer = await ask(plain.client, "POST", path)
    assert answer.status == 202
    reference = leads_to(path, answer)
    assert reference == f"/_moves/{answer.json['move']}"

    async def ended() -> Any:
        shown = (await ask(plain.client, "GET", reference)).json
        return shown if shown["status"] != "in_progress" else None

    assert await eventually_on_loop(ended) == {
        "move": answer.json["move"],
        "from": plain.name,
        "to": target.name,
        "redrive": False,
        "in_flight": False,
        "rate": None,
        "status": "complete",
        "total": 2,
        "moved": 2,
        "conflicts": 0,
        "no_origin": 0,
        "error": None,
    }
    assert (await plain.size(), await target.size()) == (1, 2)
    everything = await ask(plain.client, "POST", path + "&in_flight=true")
    assert everything.status == 202

    async def all_came() -> bool:
        return await target.size() == 3

    await eventually_on_loop(all_came)
    for unknown in ("none", "x" * 300, "%2e%2e", "a%00b"):
        assert (await ask(plain.client, "GET", f"/_moves/{unknown}")).status == 404
    assert (await ask(plain.client, "POST", f"/{plain.name}/move")).status == 400
    assert (await ask(plain.client, "POST", path + "&in_flight=perhaps")).status == 400


# -- the library -----------------------------------------------------------------------------------


@pytest.fixture
def spool(root: Path) -> Any:
    with Spool(root, sync="none") as opened:
        yield opened


def test_a_move_has_one_worker_at_a_time(spool: Spool) -> None:
    spool.queue("a", create=True).put(b"x")
    order = spool.begin_move("a", "b")
    (spool.tree.root / "moves" / f".{order.ref}.lock").touch()
    lock = os.open(spool.tree.root / "moves" / f".{order.ref}.lock", os.O_RDWR)
    import fcntl

    fcntl.flock(lock, fcntl.LOCK_EX)
    assert spool.make_moves() == 0
    os.close(lock)  # its holder was killed
    assert spool.make_moves() == 1
    found = spool.find_move(order.ref)
    assert found is not None
    assert (found.status, found.moved, found.total) == ("complete", 1, 1)


def test_a_resumed_move_leaves_messages_that_came_later(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "PART", 1)
    a, b = spool.queue("a", create=True), spool.queue("b", create=True)
    for number in range(10):
        a.put(b"%d" % number)
    order = spool.begin_move("a", "b")
    runner = MoveRunner(spool.context, spool.syncer, lambda: b.counts().total == 4)
    assert runner.run() == 0
    assert (a.counts().total, b.counts().total) == (6, 4)
    a.put(b"later")
    assert spool.make_moves() == 1
    assert (a.counts().total, b.counts().total) == (1, 10)
    found = spool.find_move(order.ref)
    assert found is not None
    assert found.status == "complete"


def test_an_id_that_exists_in_the_target_is_counted_as_a_conflict(spool: Spool) -> None:
    spool.queue("a", create=True).put(b"mine", id="one")
    spool.queue("a").put(b"x")
    spool.queue("b", create=True).put(b"yours", id="one")
    order = spool.begin_move("a", "b")
    spool.make_moves()
    found = spool.find_move(order.ref)
    assert found is not None
    assert (found.status, found.moved, found.conflicts) == ("error", 1, 1)
    assert spool.queue("a").counts().total == 1
