"""The library and both clients have the same methods and behaviour."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import inspect
import pickle
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from fsmq import (
    AsyncClient,
    Bury,
    Claim,
    Client,
    ClientQueue,
    InvalidValue,
    Message,
    NewMessage,
    NoSuchMessage,
    NoSuchQueue,
    NoSuchSchedule,
    NoSuchTopic,
    Queue,
    Retry,
    Spool,
    Topic,
)
from fsmq.client._sync.log import ClientChannel, ClientLog
from fsmq.client._sync.schedule import ClientSchedule
from fsmq.client._sync.topic import ClientTopic
from fsmq.spool.log.channel import Channel
from fsmq.spool.log.log import Log
from fsmq.spool.schedules.schedule import Schedule
from tests.client.helpers import WAIT_S, done, inside, place_of, run, worker_of
from tests.harness.suite import eventually_on_loop


@pytest.fixture
def fresh(queue: str) -> str:
    """An unused name."""
    return f"{queue}.fresh"


@pytest.fixture
async def work(place: Any, queue: str) -> Any:
    """A queue of the library or the client, with a dead-letter queue."""
    opened = await done(place.queue(queue, create=True))
    await done(opened.configure(max_deliveries=9, dead_letter_queue=f"{queue}.dead"))
    return opened


async def test_a_with_statement_acknowledges(work: Any) -> None:
    message_id = await done(work.put(b"x"))
    async with inside(work.claim_one(wait=WAIT_S)) as message:
        assert (message.id, message.body) == (message_id, b"x")
        found = await done(work.find(message_id))
        assert found.state == "in_flight"
    assert await done(work.find(message_id)) is None


async def test_a_with_statement_releases_after_an_exception(work: Any) -> None:
    message_id = await done(work.put(b"x"))
    with pytest.raises(ZeroDivisionError):
        async with inside(work.claim_one(wait=WAIT_S)):
            raise ZeroDivisionError
    [again] = await done(work.claim(wait=WAIT_S))
    assert (again.id, again.deliveries) == (message_id, 2)


async def test_an_error_is_raised_although_the_claim_is_lost(work: Any) -> None:
    await done(work.put(b"x"))

    async def fail_late() -> None:
        async with inside(work.claim_one(wait=WAIT_S)) as message:
            await done(work.remove(message))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_late()


async def test_claim_one_yields_none_without_a_message(work: Any) -> None:
    async with inside(work.claim_one()) as message:
        assert message is None


@pytest.mark.parametrize("settle", ["release", "bury"])
async def test_a_message_settled_in_a_with_statement_is_not_acknowledged(
    work: Any, settle: str
) -> None:
    message_id = await done(work.put(b"x"))
    async with inside(work.claim_one(wait=WAIT_S)) as message:
        await done(message.release(60) if settle == "release" else message.bury())
    found = await done(work.find(message_id))
    assert (found is None) == (settle == "bury")


async def test_claimed_messages_are_context_managers(work: Any) -> None:
    await done(work.put_many([b"1", b"2"]))
    left = 2
    while left:
        for message in await done(work.claim(2, wait=WAIT_S)):
            async with inside(message):
                left -= 1
    assert await done(work.claim()) == []


async def test_a_claimed_message_is_renewed_and_acknowledged(work: Any) -> None:
    await done(work.put(b"x"))
    [message] = await done(work.claim(visibility=30, wait=WAIT_S))
    assert await done(message.renew(600)) > message.deadline + 500
    assert await done(message.ack()) is True
    assert await done(message.ack()) is False
    with pytest.raises(NoSuchMessage):
        await done(message.renew(600))


async def test_methods_of_a_queue_take_messages_and_ids(work: Any) -> None:
    await done(work.put_many([b"1", b"2", b"3"]))
    claimed: list[Any] = []
    while len(claimed) < 3:
        claimed += await done(work.claim(3, wait=WAIT_S))
    one, two, three = claimed
    assert await done(work.renew(one, 60)) > 0
    await done(work.release(two, 60))
    await done(work.bury(three))
    assert await done(work.ack(one, two.id, three)) == 2
    assert await done(work.remove_each([one])) == [False]


async def test_a_claimed_message_equals_the_found_one(work: Any) -> None:
    await done(work.put(b"x", attributes={"a": "b"}))
    [message] = await done(work.claim(wait=WAIT_S))
    seen = await done(work.find(message.id))
    assert isinstance(message, Message)
    assert message == seen
    assert seen == message
    assert message != message.id
    for copied in (pickle.loads(pickle.dumps(message)), copy.deepcopy(message)):
        assert type(copied) is Message
        assert copied == message


# Differences, and why. The types of a channel's worker differ, too: the spool adds it to logs.
APART = {
    "close": "a client opens its connections again",
    "run": "of the clients: drives a verb over HTTP",
}
# The async client needs no comparison: the other is generated from it.
ALIKE = [
    (Spool, Client),
    (Queue, ClientQueue),
    (Topic, ClientTopic),
    (Schedule, ClientSchedule),
    (Log, ClientLog),
    (Channel, ClientChannel),
]
# Methods of the library that only the programs of fsmq need.
FOR_PROGRAMS = {
    Log: {"publish_each"},
    Channel: {
        "change",
        "claim_each",
        "again_in",
        "done_ranges_each",
        "changed_at",
        "end_poison",
        "release_unseen",
        "delete_if_unused",
    },
    Schedule: {"change", "replace"},
}


def methods(of: type) -> dict[str, Any]:
    public = {name for name in dir(of) if not name.startswith("_")}
    return {name: inspect.getattr_static(of, name) for name in public}


def parameters(method: Any) -> list[Any]:
    """The parameters of a method, with defaults."""
    given = inspect.signature(method).parameters.values()
    return [(p.name, p.kind, p.default, p.annotation) for p in given if p.name != "self"]


def result(method: Any) -> str:
    """The return type of a method, with the names of the library."""
    return str(inspect.signature(method).return_annotation).replace("Client", "")


@pytest.mark.parametrize(("ours", "theirs"), ALIKE)
def test_library_and_client_have_the_same_methods(ours: type, theirs: type) -> None:
    of_theirs = methods(theirs).keys() - {"run"}
    assert of_theirs <= methods(ours).keys()
    more = FOR_PROGRAMS.get(ours, set())
    assert ours is Spool or of_theirs | more == methods(ours).keys()


@pytest.mark.parametrize(
    ("ours", "theirs", "name"),
    [
        (*pair, name)
        for pair in ALIKE
        for name in sorted(methods(pair[0]).keys() & methods(pair[1]).keys())
        if name not in APART and (pair[1], name) != (ClientChannel, "worker")
    ],
)
def test_a_method_has_the_same_signature_and_docstring(ours: type, theirs: type, name: str) -> None:
    one, other = methods(ours)[name], methods(theirs)[name]
    if not callable(one):
        assert one == other or inspect.ismemberdescriptor(one)  # a field of a message
        return
    assert parameters(other) == parameters(one)
    assert inspect.getdoc(other) == inspect.getdoc(one)
    assert inspect.getdoc(one)
    assert result(other) == result(one)


async def test_naming_a_queue_or_topic_does_not_create_it(place: Any, fresh: str) -> None:
    for named, missing in ((place.queue(fresh), NoSuchQueue), (place.topic(fresh), NoSuchTopic)):
        assert named.name == fresh
        with pytest.raises(missing):
            await done(named.delete())
    assert await done(place.has_queue(fresh)) is False
    assert fresh not in await done(place.queues())
    assert fresh not in await done(place.topics())
    for name in ("_bad", "", "a/b"):
        with pytest.raises(InvalidValue, match="queue"):
            place.queue(name)
        for verb in (place.create_queue, place.delete_queue, place.begin_redrive):
            with pytest.raises(InvalidValue, match=r"queue|dead"):
                await done(verb(name))
        with pytest.raises(InvalidValue, match="topic"):
            place.topic(name)


async def test_queues_and_topics_are_created_and_deleted(place: Any, fresh: str) -> None:
    queue = await done(place.queue(fresh, create=True))
    assert await done(place.has_queue(fresh)) is True
    assert fresh in await done(place.queues())
    assert await done(queue.counts()) == (0, 0, 0, 0)
    assert await done(queue.create()) is False
    assert await done(place.create_queue(fresh)) is False
    topic = await done(place.topic(fresh, create=True))
    assert await done(topic.create()) is False
    assert await done(place.create_topic(fresh)) is False
    assert await done(topic.subscribe(fresh)) is True
    assert await done(topic.subscriptions()) == {fresh: None}
    assert list(await done(topic.publish("x"))) == [fresh]
    await done(place.delete_topic(fresh))
    await done(place.delete_queue(fresh))
    assert await done(queue.create()) is True
    assert await done(topic.create()) is True
    await done(queue.delete())
    await done(topic.delete())


VERBS: dict[str, Callable[[Any], Any]] = {
    "settings": lambda queue: queue.settings(),
    "configure": lambda queue: queue.configure(max_depth=1),
    "put": lambda queue: queue.put(b"x"),
    "put_json": lambda queue: queue.put_json(1),
    "put_many": lambda queue: queue.put_many([b"x", b"y"]),
    "claim": lambda queue: queue.claim(),
    "renew": lambda queue: queue.renew("x"),
    "release": lambda queue: queue.release("x"),
    "release later": lambda queue: queue.release("x", 5),
    "bury": lambda queue: queue.bury("x"),
    "ack": lambda queue: queue.ack("x"),
    "remove": lambda queue: queue.remove("x"),
    "remove_each": lambda queue: queue.remove_each(["x", "y"]),
    "purge": lambda queue: queue.purge(),
    "peek": lambda queue: queue.peek(),
    "find": lambda queue: queue.find("x"),
    "move_to": lambda queue: queue.move_to("other"),
    "move_to of some": lambda queue: queue.move_to("other", only=["x"]),
    "counts": lambda queue: queue.counts(),
    "delete": lambda queue: queue.delete(),
}


async def test_a_method_of_a_missing_queue_raises(place: Any, fresh: str) -> None:
    for name, verb in VERBS.items():
        with pytest.raises(NoSuchQueue) as caught:
            await done(verb(place.queue(fresh)))
        assert caught.value.queue == fresh, name
        assert await done(place.has_queue(fresh)) is False, name


async def test_begin_redrive_names_the_missing_queue(place: Any, fresh: str) -> None:
    await done(place.create_queue(fresh))
    for dead, to, missing in ((f"{fresh}.none", None, f"{fresh}.none"), (fresh, "none", "none")):
        with pytest.raises(NoSuchQueue) as caught:
            await done(place.begin_redrive(dead, to=to))
        assert caught.value.queue == missing
    assert fresh not in {move.source for move in await done(place.moves())}


async def test_a_method_of_a_missing_topic_raises(place: Any, fresh: str) -> None:
    for verb in (
        lambda topic: topic.subscriptions(),
        lambda topic: topic.publish(b"x"),
        lambda topic: topic.subscribe(fresh),
        lambda topic: topic.unsubscribe(fresh),
        lambda topic: topic.delete(),
    ):
        with pytest.raises(NoSuchTopic) as caught:
            await done(verb(place.topic(fresh)))
        assert caught.value.topic == fresh


async def test_a_schedule_is_defined_changed_run_and_deleted(
    place: Any, fresh: str, queue: str
) -> None:
    await done(place.create_queue(queue))
    schedule = place.schedule(fresh)
    for verb in (schedule.state, schedule.next, schedule.put_now, schedule.delete):
        with pytest.raises(NoSuchSchedule) as caught:
            await done(verb())
        assert caught.value.schedule == fresh
    given = {"timezone": "Europe/Berlin", "catch_up": "none", "delay": 0.5, "ttl": 60.0}
    more = {"priority": 4, "content_type": "text/x", "attributes": {"a": "ä"}, "paused": True}
    assert await done(schedule.define("@daily", queue, b"\xff", **given, **more)) is True
    assert await done(schedule.define("@daily", queue, b"\xfe", **given, **more)) is False
    state = await done(schedule.state())
    assert state in await done(place.schedules())
    assert (state.name, state.next, state.problem) == (fresh, None, None)
    found = dataclasses.asdict(state.settings)
    assert found == {"cron": "@daily", "queue": queue, "body": b"\xfe", **given, **more}
    changed = await done(schedule.configure(paused=False, body="text", delay=None))
    assert (changed.paused, changed.body, changed.delay) == (False, b"text", None)
    assert (await done(schedule.configure(body=b"\xff"))).body == b"\xff"
    assert await done(schedule.next(2)) == [
        (await done(schedule.state())).next,
        pytest.approx(time.time() + 1.5 * 86_400, abs=86_400),
    ]
    with pytest.raises(InvalidValue, match="catch_up"):
        await done(schedule.configure(catch_up="never"))
    with pytest.raises(InvalidValue, match="cron"):
        await done(schedule.define("whenever", queue))
    await done(schedule.configure(body="text"))
    message_id = await done(schedule.put_now())
    [message] = await done(place.queue(queue).claim(wait=WAIT_S))
    assert (message.id, message.body, message.priority) == (message_id, b"text", 4)
    assert (message.content_type, message.attributes) == ("text/x", {"a": "ä"})
    await done(schedule.delete())


async def put_ready(work: Any, *messages: Any) -> list[str]:
    """Put messages, and wait until they are ready."""
    ids = await done(work.put_many(messages))

    async def are_ready() -> bool:
        if isinstance(work, Queue):
            work.spool.deliver()
        return {message.id for message in await done(work.peek(100))} >= set(ids)

    await eventually_on_loop(are_ready)
    return list(ids)


async def test_messages_are_moved(work: Any) -> None:
    place = place_of(work)
    target = await done(place.queue(f"{work.name}.moved", create=True))
    one, two, three, four = await put_ready(work, b"1", b"2", b"3", b"4")
    steps: list[int] = []
    moved = await done(work.move_to(target.name, only=[two, "none"], progress=steps.append))
    assert (moved, steps[-1]) == ((1, 0), 1)
    assert type(moved).__name__ == "Moved"
    [claimed] = await done(work.claim())
    assert await done(work.move_to(target.name, only=[claimed.id])) == (0, 0)
    assert await done(work.move_to(target.name)) == (2, 0)
    assert await done(work.move_to(target.name, in_flight=True)) == (1, 0)
    assert [message.id for message in await done(target.peek())] == [one, two, three, four]
    steps.clear()
    slow = target.move_to(work.name, only=[four, "none"], rate=500, progress=steps.append)
    assert (await done(slow), steps[-1]) == ((1, 0), 1)
    assert await done(work.move_to(target.name)) == (1, 0)
    assert await done(work.move_to(target.name)) == (0, 0)
    await put_ready(work, NewMessage(b"x", id="own"))
    await put_ready(target, NewMessage(b"y", id="own"))
    assert await done(work.move_to(target.name)) == (0, 1)
    assert await done(work.move_to(target.name, only=["own"])) == (0, 1)
    assert await done(work.move_to(target.name, only=["own", "own"], in_flight=True)) == (0, 1)
    for bad, error in ((work.name, InvalidValue), ("no-such-target", NoSuchQueue)):
        for only in (None, ["own"]):
            with pytest.raises(error):
                await done(work.move_to(bad, only=only))
    await done(target.delete())


async def test_selected_dead_letters_are_redriven_at_a_rate(work: Any) -> None:
    place = place_of(work)
    dead = place.queue(f"{work.name}.dead")
    await done(work.configure(max_deliveries=9, dead_letter_queue=dead.name))
    ids = await put_ready(work, b"1", b"2", b"3")
    for message in await done(work.claim(3)):
        await done(work.bury(message, "no"))
    steps: list[int] = []
    result = await done(dead.redrive(only=[*ids[:2], "none"], rate=500, progress=steps.append))
    assert (result, steps[-1]) == ((2, 0, 0), 2)
    assert type(result).__name__ == "Redriven"
    assert [message.id for message in await done(work.peek())] == ids[:2]
    assert await done(dead.redrive(only=[], rate=500)) == (0, 0, 0)
    with pytest.raises(NoSuchQueue):
        await done(dead.redrive(only=ids[2:], rate=500, to="no-such-queue"))
    assert await done(dead.redrive(only=ids[2:])) == (1, 0, 0)
    await done(dead.delete())


async def test_peek_takes_the_names_of_states(work: Any) -> None:
    await put_ready(work, b"1", b"2")
    [claimed] = await done(work.claim())
    await done(work.put(b"3", delay=60))
    [ready] = await done(work.peek())
    assert (ready.state, claimed.state) == ("ready", "in_flight")

    async def is_delayed() -> bool:
        if isinstance(work, Queue):
            work.spool.deliver()
        return bool(await done(work.peek(state="delayed")))

    await eventually_on_loop(is_delayed)
    for state in ("new", "ready", "in_flight", "delayed"):
        found = await done(work.peek(state=state))
        assert {message.state for message in found} == ({state} if state != "new" else set())
        assert await done(work.peek(5, state=state, after=found[-1].id if found else "x")) == []
    with pytest.raises(InvalidValue, match="unknown state"):
        await done(work.peek(state="hidden"))
    with pytest.raises(InvalidValue, match="count"):
        await done(work.peek(0))


async def test_messages_are_searched_found_and_traced(place: Any, work: Any) -> None:
    red = await done(work.put("red one", attributes={"color": "red"}))
    blue = await done(work.put("blue one", attributes={"color": "blue"}))
    claimed: list[Any] = []
    while len(claimed) < 2:
        claimed += await done(work.claim(2, wait=WAIT_S))
    found = await done(work.search(state="in_flight", attributes={"Color": "red"}))
    assert ([message.id for message in found.messages], found.next) == ([red], None)
    found = await done(work.search(1, state="in_flight", contains="one"))
    assert ([message.id for message in found.messages], found.next) == ([red], red)
    found = await done(work.search(state="in_flight", contains=b"one", after=red))
    assert ([message.id for message in found.messages], found.next) == ([blue], None)
    assert (await done(work.search(state="in_flight", older_than=3600))).messages == []
    with pytest.raises(InvalidValue):
        await done(work.search(contains=""))
    [at] = await done(place.find(red))
    assert (at.queue, at.state, at.deliveries) == (work.name, "in_flight", 1)
    assert at.deadline == pytest.approx(time.time() + 30, abs=30)
    assert await done(place.find("nobody")) == []
    cluster = await done(place.cluster())
    assert {"hosts", "programs", "spool"} <= cluster.keys()
    history = await done(place.history(work.name, since=time.time() - 60, step=60))
    assert list(history) == [work.name]
    if isinstance(place, Spool):
        assert await done(work.life(red)) == ([], None)  # the library writes no journal
        return

    async def traced() -> Any:
        life = await done(work.life(red))
        return life if len(life.steps) == 3 else None

    life = await eventually_on_loop(traced)
    # Two programs write the first two steps, with their own clocks.
    assert {step.event for step in life.steps} == {"accepted", "delivered", "claimed"}
    assert life.next is None
    [accepted] = [step for step in life.steps if step.event == "accepted"]
    assert accepted.size == len("color: red\n\nred one")


async def test_settings_are_read_and_changed(work: Any) -> None:
    assert (await done(work.settings())).max_deliveries == 9
    assert await done(work.configure(max_depth=70)) == await done(work.settings())
    with pytest.raises(InvalidValue) as caught:
        await done(work.configure(max_delivery=5))
    assert caught.value.field == "max_delivery"


async def test_retry_in_a_with_statement_releases_with_its_delay(work: Any) -> None:
    message_id = await done(work.put(b"x"))
    async with inside(work.claim_one(wait=WAIT_S)):
        raise Retry(timedelta(minutes=1))
    found = await done(work.find(message_id))
    assert found.deadline == pytest.approx(time.time() + 60, abs=30)
    await done(work.release(message_id))
    [message] = await done(work.claim(wait=WAIT_S))
    async with inside(message):
        raise Retry
    async with inside(work.claim_one(wait=WAIT_S)) as again:
        assert (again.id, again.deliveries) == (message_id, 3)


async def test_bury_in_a_with_statement_buries(work: Any) -> None:
    message_id = await done(work.put(b"x"))
    async with inside(work.claim_one(wait=WAIT_S)):
        raise Bury("nobody can read it")
    assert await done(work.find(message_id)) is None
    place = place_of(work)
    [dead] = await done(place.queue(f"{work.name}.dead").claim(wait=WAIT_S))
    assert dead.id == message_id


async def test_a_message_that_cannot_be_buried_is_released(work: Any) -> None:
    await done(work.configure(dead_letter_queue=None, max_deliveries=None))
    message_id = await done(work.put(b"x"))
    with pytest.raises(InvalidValue, match="dead"):
        async with inside(work.claim_one(wait=WAIT_S)):
            raise Bury("nobody can read it")
    [again] = await done(work.claim(wait=WAIT_S))
    assert (again.id, again.deliveries) == (message_id, 2)


@pytest.mark.parametrize("raised", [Retry(), Bury("no use")])
async def test_retry_and_bury_ignore_a_lost_claim(work: Any, raised: Exception) -> None:
    await done(work.put(b"x"))
    async with inside(work.claim_one(wait=WAIT_S)) as message:
        await done(work.remove(message))
        raise raised


async def test_a_changed_copy_of_a_claimed_message_is_a_message(work: Any) -> None:
    await done(work.put(b"x"))
    async with inside(work.claim_one(wait=WAIT_S)) as message:
        changed = dataclasses.replace(message, body=b"y")
        assert type(changed) is Message
        assert changed.id == message.id
        assert not hasattr(changed, "ack")


async def test_a_worker_acknowledges_retries_and_buries(work: Any) -> None:
    seen: list[tuple[bytes, int | None]] = []
    place = place_of(work)

    async def handle(message: Message, claim: Claim) -> None:
        seen.append((message.body, message.deliveries))
        if message.body == b"broken":
            raise Bury("cannot be read")
        if message.body == b"busy" and message.deliveries == 1:
            raise Retry(0.2)
        if message.body == b"fails" and message.deliveries == 1:
            raise ValueError("once")

    await done(work.put_many([b"fine", b"broken", b"busy", b"fails"]))
    worker = worker_of(place, work, handle, concurrency=2, backoff=0.1)
    running = asyncio.create_task(run(place, worker))

    async def is_done() -> bool:
        return len(seen) == 6 and sum(await done(work.counts())) == 0

    await eventually_on_loop(is_done)
    worker.stop()
    await running
    assert sorted(seen) == [
        (b"broken", 1),
        (b"busy", 1),
        (b"busy", 2),
        (b"fails", 1),
        (b"fails", 2),
        (b"fine", 1),
    ]
    [dead] = await done(place.queue(f"{work.name}.dead").claim(wait=WAIT_S))
    assert dead.body == b"broken"


async def bodies(work: Any) -> list[bytes]:
    """Claim and acknowledge; the bodies."""
    messages = await done(work.claim(10, wait=WAIT_S))
    await done(work.ack(*messages))
    return [message.body for message in messages]


async def test_text_is_put_in_utf_8(work: Any) -> None:
    await done(work.put("Zürich"))
    assert await bodies(work) == ["Zürich".encode()]
    await done(work.put_many(["ä", NewMessage("ö")]))  # type: ignore[arg-type]
    got: list[bytes] = []
    while len(got) < 2:
        got += await bodies(work)
    assert sorted(got) == ["ä".encode(), "ö".encode()]
    for wrong in ("\ud800", 1, None, bytearray(b"x")):
        with pytest.raises(InvalidValue, match="body"):
            await done(work.put(wrong))
        with pytest.raises(InvalidValue, match="body"):
            await done(work.put_many([wrong]))


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("id", 4711),
        ("priority", "3"),
        ("priority", True),
        ("delay", "5"),
        ("ttl", "60"),
        ("group", b"g"),
        ("attributes", ["a"]),
        ("attributes", {"a": 1}),
    ],
)
async def test_a_field_of_another_type_is_refused(work: Any, field: str, wrong: Any) -> None:
    """Also over HTTP, where numbers are sent as text."""
    for put in (
        lambda: work.put(b"x", **{field: wrong}),
        lambda: work.put_many([NewMessage(b"x", **{field: wrong})]),
    ):
        with pytest.raises(InvalidValue, match=field):
            await done(put())
    assert await done(work.peek(1)) == []


@pytest.mark.parametrize("wrong", ["abc", b"abc", {"a": 1}, None])
async def test_put_many_takes_a_list(work: Any, wrong: Any) -> None:
    with pytest.raises(InvalidValue, match="messages: must be a list"):
        await done(work.put_many(wrong))
    assert await done(work.peek(1)) == []


async def test_json_is_put_with_its_content_type(work: Any) -> None:
    await done(work.put_json({"name": "Zoë", "sizes": [1, None]}, priority=7))
    [message] = await done(work.claim(wait=WAIT_S))
    assert message.body == '{"name": "Zoë", "sizes": [1, null]}'.encode()
    assert (message.content_type, message.priority) == ("application/json", 7)
    for wrong in (object(), float("nan"), "\ud800"):
        with pytest.raises(InvalidValue, match="JSON"):
            await done(work.put_json(wrong))


async def delayed(work: Any, message_id: str) -> Message:
    """A message when it is delayed; the library delivers it in a claim."""
    seen: list[Message] = []

    async def is_delayed() -> bool:
        assert await done(work.claim()) == []
        seen.append(await done(work.find(message_id)))
        return seen[-1].state == "delayed"

    await eventually_on_loop(is_delayed)
    return seen[-1]


async def test_a_delay_can_be_a_timedelta_or_a_datetime(work: Any) -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)
    for delay in (3600, timedelta(hours=1), moment):
        message_id = await done(work.put(b"x", delay=delay))
        found = await delayed(work, message_id)
        assert found.deadline == pytest.approx(moment.timestamp(), abs=60)
        await done(work.remove(found))
    await done(work.put(b"at once", delay=moment - timedelta(days=1)))
    assert await bodies(work) == [b"at once"]
    for wrong in (moment.replace(tzinfo=None), timedelta(seconds=-1), "soon"):
        with pytest.raises(InvalidValue, match="delay"):
            await done(work.put(b"x", delay=wrong))


# -- several queues --------------------------------------------------------------------------------


@pytest.fixture
async def two(place: Any, queue: str) -> list[Any]:
    """Two queues with a common prefix."""
    return [await done(place.queue(f"{queue}.{name}", create=True)) for name in ("a", "b")]


async def test_one_claim_takes_from_several_queues(place: Any, two: list[Any]) -> None:
    for one in two:
        await done(one.put(one.name, id="same"))
    found: list[Any] = []
    selection = place.select([one.name for one in two])
    while len(found) < 2:
        found += await done(selection.claim(10, wait=WAIT_S))
    assert sorted((m.queue, m.body.decode()) for m in found) == [(q.name, q.name) for q in two]
    assert await done(found[0].ack())
    await done(found[1].renew(60))
    await done(found[1].release())
    async with inside(selection.claim_one(wait=WAIT_S)) as message:
        assert (message.queue, message.deliveries) == (found[1].queue, 2)
    assert [(await done(one.counts())).total for one in two] == [0, 0]
    async with inside(selection.claim_one()) as message:
        assert message is None


async def test_a_claim_waits_for_several_queues(place: Any, two: list[Any]) -> None:
    selection = place.select(f"{two[0].name[:-1]}*")
    for one in two:
        is_async = isinstance(place, AsyncClient)
        claim = selection.claim if is_async else partial(asyncio.to_thread, selection.claim)
        claiming = asyncio.create_task(claim(wait=WAIT_S))
        await done(one.put(b"x"))
        [message] = await claiming
        assert message.queue == one.name
        await done(message.ack())


@pytest.mark.parametrize("wrong", ["", "a,a", "a:0", ["a,b"], "a b", ["x"] * 101])
async def test_malformed_selections_are_refused(place: Any, wrong: Any) -> None:
    with pytest.raises(InvalidValue, match="queues"):
        place.select(wrong)


async def test_arguments_of_a_selection_are_checked(place: Any, two: list[Any]) -> None:
    selection = place.select(two[0].name)
    for more in ({"count": 0}, {"visibility": -1}, {"wait": -1}):
        with pytest.raises(InvalidValue):
            await done(selection.claim(**more))
    with pytest.raises(NoSuchQueue):
        await done(place.select(f"{two[0].name},none").claim())


async def test_a_worker_takes_from_several_queues(place: Any, two: list[Any]) -> None:
    for one in two:
        await done(one.put_many([b"good", b"bad"]))
        await done(one.configure(max_deliveries=9, dead_letter_queue=f"{two[0].name}.dead"))
    seen: list[tuple[str, bytes]] = []

    async def handle(message: Message, claim: Claim) -> None:
        seen.append((message.queue, message.body))
        if len(seen) == 4:
            worker.stop()
        if message.body == b"bad":
            raise Bury("no try will help")

    selection = place.select([one.name for one in two])
    worker = worker_of(place, selection, handle, concurrency=3)
    await run(place, worker)
    assert sorted(seen) == sorted((one.name, body) for one in two for body in (b"good", b"bad"))
    assert [(await done(one.counts())).total for one in two] == [0, 0]
    dead = await done(place.queue(f"{two[0].name}.dead"))
    letters = await done(dead.peek(10))
    assert {letter.dead_letter.queue for letter in letters} == {one.name for one in two}
