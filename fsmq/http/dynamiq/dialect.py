"""The dialect: which paths there are, under ``/v1`` and without it."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp.web import Response

from fsmq.spool.errors import FsmqError

from ..dialect import Dialect
from ..guard.origin import Origins
from ..lane.lane import Reader
from ..routing.router import Handler
from ..service.service import Service
from . import api
from .answers import problem
from .heads import DynamiqHeads
from .queues import Queues
from .quick import Quick
from .status import Status
from .topics import Topics


class Dynamiq(Dialect):
    """``/topics``, ``/queues`` and ``/status``, and the same under ``/v1``."""

    name = "dynamiq"
    prefixes = frozenset(("v1", "topics", "queues", "status"))

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._service = service
        queues, topics, status = Queues(service), Topics(service), Status(service)
        self._add("GET", "/topics", topics.list)
        self._add("GET", "/topics/{topic}", topics.show)
        self._add("PUT", "/topics/{topic}", topics.create)
        self._add("DELETE", "/topics/{topic}", topics.delete)
        self._add("PUT", "/topics/{topic}/queues/{queue}", topics.subscribe)
        self._add("DELETE", "/topics/{topic}/queues/{queue}", topics.unsubscribe)
        self._add("PUT", "/topics/{topic}/message", topics.publish)
        self._add("GET", "/queues", queues.list)
        self._add("GET", "/queues/{queue}", queues.show)
        self._add("PUT", "/queues/{queue}", queues.create)
        for path in ("/queues/{queue}", "/queues/{queue}/"):  # its page has one with a slash
            self._add("PATCH", path, queues.configure)
        for path in ("/queues/{queue}", "/queue/{queue}"):  # as its source and as its page say
            self._add("DELETE", path, queues.delete)
        self._add("PUT", "/queues/{queue}/message", queues.put)
        self._add("GET", "/queues/{queue}/messages/{number}", queues.fetch)
        self._add("DELETE", "/queues/{queue}/messages/{number}", queues.remove_many)
        self._add("GET", "/queues/{queue}/message/{id}", queues.look)
        self._add("DELETE", "/queues/{queue}/message/{id}", queues.remove)
        self._add("GET", "/status/servers", status.servers)
        self._add("GET", "/status/partitionrange", status.partition_range)

    def claims(self, method: str, path: str, query: str, headers: Mapping[str, str]) -> bool:
        # Its page deletes a queue there; EmoDB has /queue/1 and what is below.
        segments = path.split("/")[1:]
        at = len(segments) == 2 and segments[0] == "queue" and segments[1] != "1"
        return at and method == "DELETE"

    def reader(self, origins: Origins) -> Reader:
        needs_keys = self._service.access.needs_keys
        return DynamiqHeads(Quick(self._service).verbs, origins, needs_keys)

    def problem(self, error: FsmqError) -> Response:
        return problem(error)

    def _add(self, method: str, path: str, handler: Handler) -> None:
        for prefix in api.PREFIXES:
            self.router.add(method, prefix + path, handler, api.operation(method, path, prefix))
