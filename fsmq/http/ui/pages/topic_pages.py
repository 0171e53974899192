"""Topics: what they are, which queues are subscribed, and a message to try them with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp.web import StreamResponse

from fsmq.spool.errors import NoSuchTopic
from fsmq.spool.layout.messages.message import NewMessage
from fsmq.spool.layout.names import check_queue
from fsmq.spool.layout.topics.filters import Filter

from ...guard import access
from ...guard.sight import seen_of
from ...routing import needs
from ..acts import Act, Acts, Done, Form, Question, attributes_of
from ..commands import curl, fsmq
from ..streams import Streams
from ..visit import Visit


class TopicPages:
    """The handlers."""

    def __init__(self, streams: Streams, acts: Acts, *, may_act: bool) -> None:
        self._streams = streams
        self._acts = acts
        self._may_act = may_act
        self._of_topic: Mapping[str, Act] = {
            "subscribe": Act("admin", _subscribe),
            "unsubscribe": Act("admin", _unsubscribe, _ask_unsubscribe),
            "publish": Act("send", _publish, _ask_publish),
            "delete": Act("admin", _delete, _ask_delete),
        }
        self._of_all: Mapping[str, Act] = {"create": Act("admin", _create)}

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "topics", self.topics, "All topics")
        add("GET", "topics/{topic}", self.topic, "One topic", needs.topic())
        if self._may_act:
            add("POST", "topics", self.on_all, "Create a topic")
            add("POST", "topics/{topic}", self.on_topic, "Do something with it", needs.topic())

    async def topics(self, visit: Visit) -> StreamResponse:
        async def values() -> dict[str, Any]:
            return {"topics": await visit.service.listing(_sizes, visit)}

        return await self._streams.page_or_stream(visit, "topics.html", "topics_live.html", values)

    async def topic(self, visit: Visit) -> StreamResponse:
        topic = visit.call.topic
        return await self._streams.page_or_stream(
            visit,
            "topic.html",
            "topic_live.html",
            lambda: visit.service.listing(_subscribed, visit, topic),
            lambda: visit.service.listing(_seen, visit),
        )

    async def on_all(self, visit: Visit) -> StreamResponse:
        form = await visit.form()
        topic = check_queue(form.get("topic", [""])[0].strip(), "topic")
        return await self._acts.answer(visit, self._of_all, topic, access.topic(topic))

    async def on_topic(self, visit: Visit) -> StreamResponse:
        topic = visit.call.topic
        return await self._acts.answer(visit, self._of_topic, topic, access.topic(topic))


def _subscribed(visit: Visit, topic: str) -> dict[str, Any]:
    found = visit.spool.subscriptions(topic)
    shown = {
        queue: None if one is None or one.policy is None else json.dumps(one.policy)
        for queue, one in seen_of(visit.identity, found).items()
    }
    return {"topic": topic, "subscriptions": shown, "on": access.topic(topic)}


def _seen(visit: Visit) -> dict[str, Any]:
    return {"queues": visit.identity.visible(visit.spool.queues())}


def _sizes(visit: Visit) -> dict[str, int]:
    """How many are subscribed to each topic."""
    found = {}
    for name in visit.identity.visible_topics(visit.spool.topics()):
        try:
            found[name] = len(seen_of(visit.identity, visit.spool.subscriptions(name)))
        except NoSuchTopic:
            continue  # it was deleted just now
    return found


async def _create(visit: Visit, form: Form) -> Done:
    await visit.service.in_thread(visit.spool.create_topic, form.queue)
    return Done("topic_created", 1, visit.url("topics", form.queue))


def _subscriber(visit: Visit, form: Form) -> str:
    queue = check_queue(form.text("queue").strip())
    # Else an admin of a topic could put messages into any queue.
    visit.require("admin", queue)
    return queue


async def _subscribe(visit: Visit, form: Form) -> Done:
    queue = _subscriber(visit, form)
    taken = Filter.parse(form.text("filter").encode())
    await visit.service.in_thread(visit.spool.subscribe, form.queue, queue, taken)
    return Done("subscribed", 1, visit.url("topics", form.queue), queue)


async def _ask_unsubscribe(visit: Visit, form: Form) -> Question:
    queue = _subscriber(visit, form)
    return Question(
        f"End the subscription of {queue}?",
        (f"What is published to {form.queue} from now on does not come to {queue}.",),
        "End the subscription",
        command=fsmq("unsubscribe", form.queue, queue),
        curl=curl(visit, "DELETE", "_topics", form.queue, "queues", queue),
    )


async def _unsubscribe(visit: Visit, form: Form) -> Done:
    queue = _subscriber(visit, form)
    await visit.service.in_thread(visit.spool.unsubscribe, form.queue, queue)
    return Done("unsubscribed", 1, visit.url("topics", form.queue))


async def _ask_publish(visit: Visit, form: Form) -> Question:
    """Which queues would get the message, before it is sent."""
    attributes = attributes_of(form)
    subscribed = await visit.service.listing(visit.spool.subscriptions, form.queue)
    found = seen_of(visit.identity, subscribed)
    takers = [name for name, one in found.items() if one is None or one.matches(attributes)]
    where = ", ".join(takers) or "none"
    return Question(
        f"Publish to {form.queue}?",
        (
            f"By their filters {len(takers)} of {len(found)} subscriptions take it: {where}.",
            "They get it all at once, or none does.",
        ),
        f"Publish to {len(takers)}",
        command=f"echo … | {fsmq('publish', form.queue)}",
        curl=f"echo … | {curl(visit, 'POST', '_topics', form.queue, 'messages')} --data-binary @-",
    )


async def _publish(visit: Visit, form: Form) -> Done:
    body = form.text("body").replace("\r\n", "\n").encode()
    kind = form.text("content_type").strip() or None
    group, dedup_id = form.text("group") or None, form.text("dedup_id") or None
    message = NewMessage(
        body,
        content_type=kind,
        attributes=attributes_of(form),
        group=group,
        dedup_id=dedup_id,
    )
    ids: Mapping[str, Any] = await visit.service.publish(visit.identity, form.queue, message)
    return Done("published", len(ids), visit.url("topics", form.queue))


async def _ask_delete(visit: Visit, form: Form) -> Question:
    subscribed = await visit.service.listing(visit.spool.subscriptions, form.queue)
    found = seen_of(visit.identity, subscribed)
    return Question(
        f"Delete the topic {form.queue}?",
        (
            f"Its {len(found)} subscriptions go; the queues and their messages stay.",
            "Who publishes to it gets an error from then on.",
        ),
        f"Delete {form.queue}",
        command=fsmq("topic", "delete", form.queue),
        curl=curl(visit, "DELETE", "_topics", form.queue),
        typed=form.queue,
    )


async def _delete(visit: Visit, form: Form) -> Done:
    await visit.service.listing(visit.spool.delete_topic, form.queue)
    return Done("topic_deleted", 1, visit.url("topics"))
