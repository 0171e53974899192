"""The native dialect: it has all paths that no other dialect has."""

from __future__ import annotations

from aiohttp.web import Response

from fsmq.spool.errors import FsmqError

from ..dialect import Dialect
from ..problems import problem
from ..service.service import Service
from .cluster import Cluster
from .history import HistoryOfQueues
from .inspection import Inspection
from .logs.channels import Channels
from .logs.logs import Logs
from .messages.acks import Acks
from .messages.batch import Batches
from .messages.by_id import ById
from .messages.messages import Messages
from .messages.moves import Moves
from .messages.several import SeveralQueues
from .queues import Queues
from .schedules import Schedules
from .topics import Topics


class NativeDialect(Dialect):
    """Queues are at ``/{queue}``, messages at ``/{queue}/messages``."""

    name = "native"

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        for part in (
            Queues,
            Messages,
            SeveralQueues,
            Batches,
            Acks,
            Inspection,
            HistoryOfQueues,
            ById,
            Topics,
            Moves,
            Logs,
            Channels,
            Schedules,
            Cluster,
        ):
            part(service).add_routes(self.router)

    def problem(self, error: FsmqError) -> Response:
        return problem(error)
