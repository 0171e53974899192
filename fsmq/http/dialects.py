"""Which dialects there are."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp.web import Response

from fsmq.spool.errors import FsmqError

from .dialect import Dialect
from .dynamiq.dialect import Dynamiq
from .emodb.dialect import EmoDb
from .native.many import Many
from .native.messages import Native
from .native.moves import Moves
from .native.topics import NativeTopics
from .problems import problem
from .service.service import Service


class NativeDialect(Dialect):
    """Our own; it has all paths that no other dialect has."""

    name = "native"

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        Native(service).add_routes(self.router)
        Many(service).add_routes(self.router)
        NativeTopics(service).add_routes(self.router)
        Moves(service).add_routes(self.router)

    def problem(self, error: FsmqError) -> Response:
        return problem(error)


# Beside the native one.
DIALECTS: Mapping[str, type[Dialect]] = {dialect.name: dialect for dialect in (EmoDb, Dynamiq)}
