"""Topics over HTTP: the requests of each verb, and what the answers mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fsmq.spool.errors import NoSuchSubscription, NoSuchTopic
from fsmq.spool.layout.messages.message import NewMessage
from fsmq.spool.layout.names import check_queue
from fsmq.spool.layout.topics.topics import log_of, subscriber_of
from fsmq.wire import unquote_id

from ..errors import error_of
from ..exchange import Verb
from .incoming import member
from .outgoing import headers_of, parameters_of
from .queue_verbs import Verbs


class TopicVerbs:
    """Generators that a transport drives; see :mod:`fsmq.client.exchange`."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    def topics(self) -> Verb[list[str]]:
        answer = yield from self._verbs.done("GET", "/_topics")
        return list(member(answer, "topics"))

    def create(self, topic: str) -> Verb[bool]:
        """A retry after a lost answer finds the topic, and returns False."""
        answer = yield from self._verbs.done("PUT", _path(topic))
        return bool(member(answer, "created"))

    def delete(self, topic: str) -> Verb[None]:
        outcome = yield from self._verbs.outcome("DELETE", _path(topic))
        if outcome.answer.status != 200:
            error = error_of(outcome.answer)
            # A retry after a lost answer finds no topic.
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
