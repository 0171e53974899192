"""The pages of topics: their subscriptions, and a form to publish a message."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp.web import StreamResponse

from fsmq.spool import NewMessage
from fsmq.spool.checks import check_queue
from fsmq.spool.errors import NoSuchTopic
from fsmq.spool.resources import Filter

from ...guard import access
from ...guard.sight import seen_of
from ...routing import needs
from ...service.service import hold_looks
from ..actions import Action, Actions, Done, Form, Question, attributes_of
from ..commands import curl, fsmq
from ..page_request import PageRequest
from ..streams import Streams


class TopicPages:
    """Handlers of the pages of topics."""

    def __init__(self, streams: Streams, actions: Actions) -> None:
        self._streams = streams
        self._actions = actions
        self._of_topic: Mapping[str, Action] = {
            "subscribe": Action("admin", _subscribe, form=self._topic_page),
            "unsubscribe": Action("admin", _unsubscribe, _ask_unsubscribe),
            "publish": Action("send", _publish, _ask_publish, self._topic_page),
            "delete": Action("admin", _delete, _ask_delete),
        }
        self._of_all: Mapping[str, Action] = {"create": Action("admin", _create, form=_new_page)}

    def add_pages(self, add: Callable[..., None]) -> None:
        add("GET", "topics", self.topics, "All topics")
        add("GET", "new-topic", self.creating, "A topic to be created")
        add("GET", "topics/{topic}", self.topic, "One topic", needs.topic())
        add("POST", "topics", self.on_all, "Create a topic")
        add("POST", "topics/{topic}", self.on_topic, "Do something with it", needs.topic())

    async def topics(self, request: PageRequest) -> StreamResponse:
        async def values() -> dict[str, Any]:
            return {"topics": await request.service.listing(_sizes, request)}

        return await self._streams.page_or_stream(
            request, "topics.html", "topics_live.html", values
        )

    async def topic(self, request: PageRequest) -> StreamResponse:
        topic = request.call.topic
        return await self._streams.page_or_stream(
            request,
            "topic.html",
            "topic_live.html",
            lambda: request.service.listing(_subscribed, request, topic),
            lambda: request.service.listing(_seen, request),
        )

    @staticmethod
    async def _topic_page(request: PageRequest) -> tuple[str, Mapping[str, object]]:
        topic = request.call.topic
        subscribed = await request.service.listing(_subscribed, request, topic)
        seen = await request.service.listing(_seen, request)
        return "topic.html", {**subscribed, **seen, "region": "topic_live.html"}

    async def creating(self, request: PageRequest) -> StreamResponse:
        request.require_creation()
        return await request.page(*await _new_page(request))

    async def on_all(self, request: PageRequest) -> StreamResponse:
        topic = await request.field("topic")
        return await self._actions.answer(request, self._of_all, topic, access.topic(topic))

    async def on_topic(self, request: PageRequest) -> StreamResponse:
        topic = request.call.topic
        return await self._actions.answer(request, self._of_topic, topic, access.topic(topic))


async def _new_page(request: PageRequest) -> tuple[str, Mapping[str, object]]:
    return "new_topic.html", {}


def _subscribed(request: PageRequest, topic: str) -> dict[str, Any]:
    found = request.spool.subscriptions(topic)
    shown = {
        queue: None if one is None or one.policy is None else json.dumps(one.policy)
        for queue, one in seen_of(request.identity, found).items()
    }
    return {"topic": topic, "subscriptions": shown, "on": access.topic(topic)}


def _seen(request: PageRequest) -> dict[str, Any]:
    return {"queues": request.identity.visible(request.spool.queues())}


def _sizes(request: PageRequest) -> dict[str, int]:
    """The number of subscriptions of each topic."""
    found = {}
    for name in request.identity.visible_topics(request.spool.topics()):
        try:
            found[name] = len(seen_of(request.identity, request.spool.subscriptions(name)))
        except NoSuchTopic:
            continue  # it has just been deleted
    return found


async def _create(request: PageRequest, form: Form) -> Done:
    topic = check_queue(form.queue, "topic")
    await request.service.resources.create_topic(topic)
    return Done("topic_created", 1, request.url("topics", topic))


def _subscriber(request: PageRequest, form: Form) -> str:
    queue = check_queue(form.text("queue").strip())
    # Otherwise an admin of a topic could put messages into any queue.
    request.require("admin", queue)
    return queue


async def _subscribe(request: PageRequest, form: Form) -> Done:
    queue = _subscriber(request, form)
    taken = Filter.parse(form.text("filter").encode())
    await request.service.resources.subscribe(form.queue, queue, taken)
    return Done("subscribed", 1, request.url("topics", form.queue), queue)


async def _ask_unsubscribe(request: PageRequest, form: Form) -> Question:
    queue = _subscriber(request, form)
    return Question(
        f"End the subscription of {queue}?",
        (f"Messages published to {form.queue} from now on do not reach {queue}.",),
        "End the subscription",
        command=fsmq("topic", "unsubscribe", form.queue, queue),
        curl=curl(request, "DELETE", "_topics", form.queue, "queues", queue),
    )


async def _unsubscribe(request: PageRequest, form: Form) -> Done:
    queue = _subscriber(request, form)
    await request.service.resources.unsubscribe(form.queue, queue)
    return Done("unsubscribed", 1, request.url("topics", form.queue))


async def _ask_publish(request: PageRequest, form: Form) -> Question:
    """The question before publishing, with the queues that would get the message."""
    found, takers = await request.service.listing(_takers, request, form.queue, _message(form))
    where = ", ".join(takers) or "none"
    publish = curl(request, "POST", "_topics", form.queue, "messages")
    return Question(
        f"Publish to {form.queue}?",
        (
            f"By their filters {len(takers)} of {found} subscriptions take it: {where}.",
            "All of them get it, or none does.",
        ),
        f"Publish to {len(takers)}",
        command=f"echo … | {fsmq('topic', 'publish', form.queue)}",
        curl=f"echo … | {publish} --data-binary @-",
    )


def _takers(request: PageRequest, topic: str, sent: NewMessage) -> tuple[int, list[str]]:
    """How many subscriptions the visitor may see, and those whose filters take a message."""
    found = seen_of(request.identity, request.spool.subscriptions(topic))
    hold_looks(request.call, found.values(), [sent.body])
    takers = [
        name
        for name, one in found.items()
        if one is None or one.matches(sent.attributes, sent.body)
    ]
    return len(found), takers


def _message(form: Form) -> NewMessage:
    return NewMessage(
        form.text("body").replace("\r\n", "\n").encode(),
        content_type=form.text("content_type").strip() or None,
        attributes=attributes_of(form),
        group=form.text("group") or None,
        dedup_id=form.text("dedup_id") or None,
    )


async def _publish(request: PageRequest, form: Form) -> Done:
    sent = _message(form)
    ids: Mapping[str, Any] = await request.service.publish(request.call, form.queue, sent)
    return Done("published", len(ids), request.url("topics", form.queue))


async def _ask_delete(request: PageRequest, form: Form) -> Question:
    subscribed = await request.service.listing(request.spool.subscriptions, form.queue)
    found = seen_of(request.identity, subscribed)
    return Question(
        f"Delete the topic {form.queue}?",
        (
            f"Its {len(found)} subscriptions are deleted; the queues and their messages stay.",
            "Clients that publish to it get errors from then on.",
        ),
        f"Delete {form.queue}",
        command=fsmq("topic", "delete", form.queue),
        curl=curl(request, "DELETE", "_topics", form.queue),
        typed=form.queue,
        destroys=True,
    )


async def _delete(request: PageRequest, form: Form) -> Done:
    await request.service.resources.delete_topic(form.queue)
    return Done("topic_deleted", 1, request.url("topics"))
