"""Topics over a client."""

from __future__ import annotations

from typing import Any

import pytest

from fsmq import InvalidValue, MessageTooLarge, NoSuchQueue

ARRIVAL_S = 20.0


@pytest.fixture
def kind() -> str:
    """The async client, from which the one for threads is generated."""
    return "loop"


async def test_a_topic_is_created_published_to_and_deleted(remote: Any, queue: str) -> None:
    name = f"t-{queue}"
    topic = remote.topic(name)
    assert await topic.create() is True
    assert await topic.create() is False
    assert name in await remote.topics()
    assert await topic.subscribe(queue) is True
    assert await topic.subscribe(queue, {"type": ["order"]}) is False
    assert await topic.subscriptions() == {queue: {"type": ["order"]}}
    assert await topic.publish(b"x", attributes={"type": "other"}) == {}
    ids = await topic.publish(
        b"\0x", attributes={"type": "order"}, content_type="a/b", priority=3, ttl=60
    )
    [message] = await remote.queue(queue).claim(wait=ARRIVAL_S)
    assert ids == {queue: message.id}
    assert (message.body, message.content_type, message.priority) == (b"\0x", "a/b", 3)
    assert await topic.unsubscribe(queue) is True
    assert await topic.unsubscribe(queue) is False
    await topic.delete()
    assert name not in await remote.topics()


async def test_groups_are_published_to_fifo_queues(remote: Any, queue: str) -> None:
    topic, ordered = remote.topic(f"t-{queue}"), f"{queue}-ordered"
    await topic.create()
    await remote.create_queue(ordered, fifo=True)
    await topic.subscribe(ordered)
    first = await topic.publish(b"1", group="a", dedup_id="once")
    assert await topic.publish(b"1", group="a", dedup_id="once") == first
    await topic.publish(b"2", group="a", attributes={"kind": "x"})
    [message] = await remote.queue(ordered).claim(9, wait=ARRIVAL_S)
    assert (message.id, message.group, message.dedup_id) == (first[ordered], "a", "once")
    with pytest.raises(InvalidValue, match="group"):
        await topic.publish(b"3")
    await topic.subscribe(queue)
    with pytest.raises(InvalidValue, match="dedup_id"):  # not every subscriber can deduplicate
        await topic.publish(b"3", group="a", dedup_id="other")
    await remote.queue(ordered).ack(message.id)
    [message] = await remote.queue(ordered).claim(9, wait=ARRIVAL_S)
    assert (message.body, message.group, message.attributes["kind"]) == (b"2", "a", "x")


async def test_errors_of_topics(remote: Any, queue: str) -> None:
    topic = remote.topic(f"t-{queue}")
    await topic.create()
    with pytest.raises(NoSuchQueue):
        await topic.subscribe("none")
    with pytest.raises(InvalidValue, match=r"filter\.type"):
        await topic.subscribe(queue, {"type": "order"})
    await topic.subscribe(queue)
    await remote.queue(queue).configure(max_message_bytes=3)
    with pytest.raises(MessageTooLarge):
        await topic.publish(b"four")
