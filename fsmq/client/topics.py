"""Topics over HTTP: the requests of each verb, and the objects that send them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fsmq.spool.errors import NoSuchSubscription, NoSuchTopic
from fsmq.spool.given import Body, Delay, new_message
from fsmq.spool.layout.message import NewMessage
from fsmq.spool.layout.names import check_queue
from fsmq.spool.layout.topics import log_of, subscriber_of
from fsmq.wire import unquote_id

from .errors import error_of
from .exchange import Verb
from .incoming import member
from .outgoing import headers_of, parameters_of
from .verbs import Verbs

if TYPE_CHECKING:
    from .aio import AsyncClient
    from .client import Client


class TopicVerbs:
    """Generators that a transport drives; see :mod:`fsmq.client.exchange`."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def topics(self) -> Verb[list[str]]:
        answer = yield from self._verbs.done("GET", "/_topics")
        return list(member(answer, "topics"))

    def create(self, topic: str) -> Verb[bool]:
        """A second try after a lost answer finds the topic there: False, though it was ours."""
        answer = yield from self._verbs.done("PUT", _path(topic))
        return bool(member(answer, "created"))

    def delete(self, topic: str) -> Verb[None]:
        outcome = yield from self._verbs.outcome("DELETE", _path(topic))
        if outcome.answer.status != 200:
            error = error_of(outcome.answer)
            # A second try after a lost answer finds none.
            if not (outcome.again and isinstance(error, NoSuchTopic)):
                raise error

    def subscriptions(self, topic: str) -> Verb[dict[str, dict[str, list[Any]] | None]]:
        answer = yield from self._verbs.done("GET", _path(topic))
        return {
            found["queue"] if "queue" in found else subscriber_of(found["log"]): found["filter"]
            for found in member(answer, "subscriptions")
        }

    def subscribe(self, topic: str, queue: str, filter: Mapping[str, Any] | None) -> Verb[bool]:
        body = b"" if filter is None else json.dumps(dict(filter)).encode()
        path = _subscription(topic, queue)
        answer = yield from self._verbs.done("PUT", path, body=body)
        return bool(member(answer, "created"))

    def unsubscribe(self, topic: str, queue: str) -> Verb[bool]:
        path = _subscription(topic, queue)
        outcome = yield from self._verbs.outcome("DELETE", path)
        if outcome.answer.status == 200:
            return True
        error = error_of(outcome.answer)
        if isinstance(error, NoSuchSubscription):
            return outcome.again  # an earlier try may have ended it
        raise error

    def publish(self, topic: str, message: NewMessage) -> Verb[dict[str, str]]:
        path, parameters = f"{_path(topic)}/messages", parameters_of(message)
        answer = yield from self._verbs.done(
            "POST", path, parameters, message.body, headers_of(message)
        )
        return {queue: unquote_id(found) for queue, found in member(answer, "messages").items()}


def _path(topic: str) -> str:
    return f"/_topics/{check_queue(topic, 'topic')}"


def _subscription(topic: str, subscriber: str) -> str:
    log = log_of(subscriber)
    what = f"queues/{check_queue(subscriber)}" if log is None else f"logs/{log}"
    return f"{_path(topic)}/{what}"


class ClientTopic:
    """One topic of a server; every verb is durable when it returns."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self._run = client.run
        self._verbs = TopicVerbs(client.verbs)

    def __repr__(self) -> str:
        return f"<ClientTopic {self.name!r} of {self.client.options.origin}>"

    def create(self) -> bool:
        """Create the topic durably; False if it was there."""
        return self._run(self._verbs.create(self.name))

    def subscribe(self, queue: str, filter: Mapping[str, Any] | None = None) -> bool:
        """Subscribe a queue, or replace its filter; False if it was subscribed already.

        queue: a queue, or ``logs/<log>``.
        filter: which messages it takes by their attributes, as docs/topics.md describes; None: all.

        Raises NoSuchTopic, NoSuchQueue, NoSuchLog.
        """
        return self._run(self._verbs.subscribe(self.name, queue, filter))

    def unsubscribe(self, queue: str) -> bool:
        """End a queue's subscription; False if it had none. Raises NoSuchTopic."""
        return self._run(self._verbs.unsubscribe(self.name, queue))

    def subscriptions(self) -> dict[str, dict[str, list[Any]] | None]:
        """The subscribed queues, sorted, each with its filter or None. Raises NoSuchTopic."""
        return self._run(self._verbs.subscriptions(self.name))

    def publish(
        self,
        body: Body,
        *,
        delay: Delay | None = None,
        priority: int = 0,
        ttl: float | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
        group: str | None = None,
        dedup_id: str | None = None,
    ) -> dict[str, str]:
        """Put a copy into every subscribed queue; the id of each copy by queue. All or none.

        Of a log, ``logs/<log>``, it is the offset. See :class:`~fsmq.NewMessage` for the arguments.
        With a ``dedup_id`` that a queue has had it stores nothing there, and tells the first's id.

        Raises NoSuchTopic; MessageTooLarge, QueueFull or LogFull if one does not take it;
        InvalidValue if one has no such messages: a ``dedup_id`` is for fifo queues, which need a
        ``group``.
        """
        message = new_message(
            body, delay, priority, ttl, None, content_type, attributes, group, dedup_id
        )
        return self._run(self._verbs.publish(self.name, message))

    def delete(self) -> None:
        """Delete the topic and its subscriptions; the queues and their messages stay.

        Raises NoSuchTopic.
        """
        self._run(self._verbs.delete(self.name))


class AsyncClientTopic:
    """One topic of a server, for coroutines; otherwise as :class:`ClientTopic`."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.client = client
        self.name = name
        self._run = client.run
        self._verbs = TopicVerbs(client.verbs)

    def __repr__(self) -> str:
        return f"<AsyncClientTopic {self.name!r} of {self.client.options.origin}>"

    async def create(self) -> bool:
        """Create the topic durably; False if it was there."""
        return await self._run(self._verbs.create(self.name))

    async def subscribe(self, queue: str, filter: Mapping[str, Any] | None = None) -> bool:
        """Subscribe a queue, or replace its filter; False if it was subscribed already.

        queue: a queue, or ``logs/<log>``.
        filter: which messages it takes by their attributes, as docs/topics.md describes; None: all.

        Raises NoSuchTopic, NoSuchQueue, NoSuchLog.
        """
        return await self._run(self._verbs.subscribe(self.name, queue, filter))

    async def unsubscribe(self, queue: str) -> bool:
        """End a queue's subscription; False if it had none. Raises NoSuchTopic."""
        return await self._run(self._verbs.unsubscribe(self.name, queue))

    async def subscriptions(self) -> dict[str, dict[str, list[Any]] | None]:
        """The subscribed queues, sorted, each with its filter or None. Raises NoSuchTopic."""
        return await self._run(self._verbs.subscriptions(self.name))

    async def publish(
        self,
        body: Body,
        *,
        delay: Delay | None = None,
        priority: int = 0,
        ttl: float | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
        group: str | None = None,
        dedup_id: str | None = None,
    ) -> dict[str, str]:
        """Put a copy into every subscribed queue; the id of each copy by queue. All or none.

        Of a log, ``logs/<log>``, it is the offset. See :class:`~fsmq.NewMessage` for the arguments.
        With a ``dedup_id`` that a queue has had it stores nothing there, and tells the first's id.

        Raises NoSuchTopic; MessageTooLarge, QueueFull or LogFull if one does not take it;
        InvalidValue if one has no such messages: a ``dedup_id`` is for fifo queues, which need a
        ``group``.
        """
        message = new_message(
            body, delay, priority, ttl, None, content_type, attributes, group, dedup_id
        )
        return await self._run(self._verbs.publish(self.name, message))

    async def delete(self) -> None:
        """Delete the topic and its subscriptions; the queues and their messages stay.

        Raises NoSuchTopic.
        """
        await self._run(self._verbs.delete(self.name))
