"""The dialect: its paths, with and without ``/v1``."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp.web import Response

from fsmq.spool.errors import FsmqError

from ..dialect import Dialect
from ..fast_path.fast_path import Reader
from ..guard.origin import Origins
from ..routing import needs
from ..routing.needs import Need
from ..routing.router import Handler
from ..service.service import Service
from . import api
from .answers import problem
from .fast_routes import DynamiqRoutes
from .heads import DynamiqHeads
from .queues import Queues
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
        admin, receive = needs.queue("admin"), needs.queue("receive")
        admin_of_topic = needs.topic("admin")
        self._add("GET", "/topics", topics.list, needs.anybody)
        self._add("GET", "/topics/{topic}", topics.show, needs.topic())
        self._add("PUT", "/topics/{topic}", topics.create, admin_of_topic)
        self._add("DELETE", "/topics/{topic}", topics.delete, admin_of_topic)
        self._add(
            "PUT",
            "/topics/{topic}/queues/{queue}",
            topics.subscribe,
            needs.both(admin_of_topic, admin),
        )
        self._add("DELETE", "/topics/{topic}/queues/{queue}", topics.unsubscribe, admin_of_topic)
        self._add("PUT", "/topics/{topic}/message", topics.publish, needs.topic("send"))
        self._add("GET", "/queues", queues.list, needs.anybody)
        self._add("GET", "/queues/{queue}", queues.show, needs.queue())
        self._add("PUT", "/queues/{queue}", queues.create, admin)
        for path in ("/queues/{queue}", "/queues/{queue}/"):  # Dynamiq's documentation has a slash
            self._add("PATCH", path, queues.configure, admin)
        for path in ("/queues/{queue}", "/queue/{queue}"):  # of its source and its documentation
            self._add("DELETE", path, queues.delete, admin)
        self._add("PUT", "/queues/{queue}/message", queues.put, needs.queue("send"))
        self._add("GET", "/queues/{queue}/messages/{number}", queues.fetch, receive)
        self._add("DELETE", "/queues/{queue}/messages/{number}", queues.remove_many, receive)
        self._add("GET", "/queues/{queue}/message/{id}", queues.look, receive)
        self._add("DELETE", "/queues/{queue}/message/{id}", queues.remove, receive)
        self._add("GET", "/status/servers", status.servers, needs.anybody)
        self._add("GET", "/status/partitionrange", status.partition_range, needs.anybody)

    def claims(self, method: str, path: str, query: str, headers: Mapping[str, str]) -> bool:
        # The path for DELETE in Dynamiq's documentation; /queue/1 and below belong to EmoDB.
        segments = path.split("/")[1:]
        at = len(segments) == 2 and segments[0] == "queue" and segments[1] != "1"
        return at and method == "DELETE"

    def reader(self, origins: Origins) -> Reader:
        needs_keys = self._service.access.needs_keys
        return DynamiqHeads(DynamiqRoutes(self._service).routes, origins, needs_keys)

    def problem(self, error: FsmqError) -> Response:
        return problem(error)

    def _add(self, method: str, path: str, handler: Handler, need: Need) -> None:
        for prefix in api.PREFIXES:
            described = api.operation(method, path, prefix)
            self.router.add(method, prefix + path, handler, described, need)
