"""Functions that run later, in worker processes: their calls are messages.

>>> from fsmq.tasks import Tasks
>>> app = Tasks("/var/lib/fsmq")
>>> @app.task(retries=5)
... def resize(path: str, width: int) -> None: ...
>>> resize.send("cat.png", width=200)

``fsmq work MODULE`` runs them. ``steps`` says how one logic serves threads and coroutines;
docs/decisions/0040-tasks.md what a crash between two of its steps leaves.
"""

from typing import TYPE_CHECKING

from fsmq.later import importing

if TYPE_CHECKING:
    from .app import AsyncTasks as AsyncTasks
    from .app import Tasks as Tasks
    from .batches import AsyncBatch as AsyncBatch
    from .batches import Batch as Batch
    from .errors import NoResult as NoResult
    from .errors import TaskFailed as TaskFailed
    from .errors import TimeLimit as TimeLimit
    from .results import AsyncResult as AsyncResult
    from .results import Result as Result
    from .running import Run as Run
    from .running import current_run as current_run
    from .serializer import Json as Json
    from .serializer import Serializer as Serializer
    from .task import AsyncTask as AsyncTask
    from .task import Call as Call
    from .task import Task as Task

_LATER = {
    "AsyncBatch": "batches",
    "AsyncResult": "results",
    "AsyncTask": "task",
    "AsyncTasks": "app",
    "Batch": "batches",
    "Call": "task",
    "Json": "serializer",
    "NoResult": "errors",
    "Result": "results",
    "Run": "running",
    "Serializer": "serializer",
    "Task": "task",
    "TaskFailed": "errors",
    "Tasks": "app",
    "TimeLimit": "errors",
    "current_run": "running",
}
__all__ = [
    "AsyncTasks",
    "NoResult",
    "TaskFailed",
    "Tasks",
    "TimeLimit",
    "current_run",
]

__getattr__ = importing(__name__, _LATER)
