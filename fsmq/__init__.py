"""fsmq: a durable message queue whose whole state is a directory tree.

>>> from fsmq import Spool
>>> jobs = Spool("/var/lib/fsmq").queue("jobs", create=True)
>>> jobs.put(b"hello")
>>> with jobs.claim_one(wait=5) as message:
...     print(message.body)

Or over HTTP, with the same words:

>>> from fsmq import Client
>>> jobs = Client("http://127.0.0.1:8080").queue("jobs", create=True)
"""

from typing import TYPE_CHECKING, Any

from . import spool as _spool
from ._version import __version__ as __version__
from .later import importing
from .parts import require

if TYPE_CHECKING:
    from .client._async.client import AsyncClient as AsyncClient
    from .client._async.queue import AsyncQueue as AsyncQueue
    from .client._sync.client import Client as Client
    from .client._sync.queue import ClientQueue as ClientQueue
    from .client.errors import AccessDenied as AccessDenied
    from .client.errors import ConnectionFailed as ConnectionFailed
    from .client.errors import UnexpectedAnswer as UnexpectedAnswer
    from .spool import *  # noqa: F403
    from .spool import Queue as Queue
    from .spool import Topic as Topic
    from .spool.claimed import Claim as Claim
    from .spool.worker.async_worker import AsyncWorker as AsyncWorker
    from .spool.worker.blocking_worker import Worker as Worker

# Imported on first use: a program that uses the spool alone needs no HTTP library.
_LATER = {
    "AccessDenied": "client.errors",
    "AsyncClient": "client._async.client",
    "AsyncQueue": "client._async.queue",
    "AsyncWorker": "spool.worker.async_worker",
    "Claim": "spool.claimed",
    "Client": "client._sync.client",
    "ClientQueue": "client._sync.queue",
    "ConnectionFailed": "client.errors",
    "UnexpectedAnswer": "client.errors",
    "Worker": "spool.worker.blocking_worker",
}
# Classes that programs only name in annotations: they do not create instances of them.
_GIVEN = {"AsyncQueue", "AsyncWorker", "ClientQueue", "Worker"}
_OF_SPOOL = {*_spool.__all__, "Queue", "Topic"}
# `from fsmq import *` has only what programs create or catch.
__all__ = [*_spool.__all__, *sorted(_LATER.keys() - _GIVEN)]


_found = importing(__name__, _LATER)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        return getattr(_spool, name) if name in _OF_SPOOL else _found(name)
    if _LATER[name].startswith("client."):
        require(f"fsmq.{name}", "client")
    return _found(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, *_OF_SPOOL})
