"""Where a verb works: on a server, or straight on the folder of a spool."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import click
from click.shell_completion import CompletionItem

from fsmq.cli.failures import Exit, Failure
from fsmq.daemons.settings.settings import DEFAULT_ROOT
from fsmq.spool import Counts, Message, Moved, NewMessage, NoSuchQueue, QueueSettings, Spool
from fsmq.spool.claimed import Claimed
from fsmq.spool.layout.transitions import MESSAGE_FOLDERS
from fsmq.spool.queue import Queue as SpoolQueue
from fsmq.spool.views.counts import Overview

F = TypeVar("F", bound=Callable[..., Any])

VARIABLE = "FSMQ_AT"
# What people write who mean a server.
_host_and_port = re.compile(r"[\w.-]+:\d{1,5}")


class Queue(Protocol):
    """A queue, wherever it is; the methods of :class:`fsmq.spool.queue.Queue` and their errors."""

    def settings(self) -> QueueSettings: ...
    def configure(self, **changes: Any) -> QueueSettings: ...
    def put(
        self,
        body: bytes,
        *,
        delay: float | None = None,
        priority: int = 0,
        ttl: float | None = None,
        id: str | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> str: ...
    def put_many(self, messages: Iterable[bytes | NewMessage]) -> list[str]: ...
    def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[Claimed]: ...
    def renew(self, message: Message | str, visibility: float | None = None) -> float: ...
    def release(self, message: Message | str, delay: float = 0.0) -> None: ...
    def bury(self, message: Message | str) -> None: ...
    def remove_each(self, messages: Iterable[Message | str]) -> list[bool]:
        """Remove messages; tells for each whether it was there."""

    def purge(self, *, progress: Callable[[int], None] = ...) -> None: ...
    def peek(self, count: int = 10, *, state: str = "ready", after: str = "") -> list[Message]: ...
    def find(self, message_id: str) -> Message | None: ...
    def counts(self) -> Counts: ...
    def move_to(
        self,
        target: str,
        *,
        only: Sequence[str] | None = None,
        in_flight: bool = False,
        progress: Callable[[int], None] = ...,
    ) -> Moved: ...
    def delete(self) -> None: ...


class Topic(Protocol):
    """A topic, wherever it is; the methods of :class:`fsmq.spool.topic.Topic` and their errors."""

    def subscribe(self, queue: str, filter: Mapping[str, Any] | None = None) -> bool: ...
    def unsubscribe(self, queue: str) -> bool: ...
    def subscriptions(self) -> dict[str, dict[str, list[Any]] | None]: ...
    def publish(
        self,
        body: bytes,
        *,
        delay: float | None = None,
        priority: int = 0,
        ttl: float | None = None,
        content_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> dict[str, str]: ...
    def delete(self) -> None: ...


class Place(Protocol):
    """A spool, behind a server or as a folder."""

    where: str

    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    def queues(self) -> list[str]:
        """The names of all queues, sorted."""

    def queue(self, name: str) -> Queue:
        """A queue that exists. Raises NoSuchQueue, at the latest with its first use."""

    def create(self, name: str) -> bool:
        """Create a queue; False if it was there."""

    def survey(self, queue: str | None = None) -> dict[str, Overview]:
        """Counts and ages of all queues, or of one."""

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""

    def topic(self, name: str) -> Topic:
        """A topic that exists. Raises NoSuchTopic, at the latest with its first use."""

    def create_topic(self, name: str) -> bool:
        """Create a topic; False if it was there."""


class RootQueue(SpoolQueue):
    """A queue of a spool that is opened for one verb."""

    def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[Claimed]:
        """Claim what is ready; only where that is nothing, do the mover's work first.

        That lists the folders, and as a rule a mover runs.
        """
        ready = self.spool.complete(self.spool.unsynced.claim(self.name, count, visibility))
        return Claimed.all(self, ready) if ready else super().claim(count, visibility, wait)


class Root:
    """The folder of a spool; no program has to run."""

    def __init__(self, root: Path, *, create: bool = False) -> None:
        """Open it, or create it. Raises Failure where it is none, UnusableSpool."""
        self.where = str(root.absolute())
        self.path = root
        if not root.exists() and _host_and_port.fullmatch(str(root)):
            said = f"{root} is not a folder; for a server give a URL"
            raise Failure(said, Exit.USAGE, f"give --at http://{root}")
        if not create and not all((root / name).is_dir() for name in MESSAGE_FOLDERS):
            raise Failure(
                f"there is no spool in {root}",
                Exit.UNUSABLE,
                f"make one: fsmq up --root {root}; or give another place with --at or {VARIABLE}",
            )
        self.spool = Spool(root, create=create)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.spool.close()

    def queues(self) -> list[str]:
        """The names of all queues, sorted."""
        return self.spool.queues()

    def queue(self, name: str) -> RootQueue:
        """A queue that exists. Raises InvalidValue, NoSuchQueue."""
        if not self.spool.has_queue(name):
            raise NoSuchQueue(name)
        return RootQueue(self.spool, name)

    def create(self, name: str) -> bool:
        """Create a queue; False if it was there."""
        return self.spool.create_queue(name)

    def survey(self, queue: str | None = None) -> dict[str, Overview]:
        """Counts and ages of all queues, or of one."""
        return self.spool.survey(queue)

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return self.spool.topics()

    def topic(self, name: str) -> Topic:
        """A topic; whether it exists is seen by its first use. Raises InvalidValue."""
        return self.spool.topic(name)

    def create_topic(self, name: str) -> bool:
        """Create a topic; False if it was there."""
        return self.spool.create_topic(name)


def at_option(command: F) -> F:
    """Give a verb ``--at``; its value is for `open_place`."""
    return click.option(
        "--at",
        "--root",
        "at",
        metavar="URL|FOLDER",
        shell_complete=_folders,
        help=f"The server or the folder of the spool. [{VARIABLE}, then FSMQ_ROOT,"
        f" then {DEFAULT_ROOT}]",
    )(command)


def root_option(command: F) -> F:
    """Give a verb that needs the folder itself ``--root``; its value is a path."""

    def convert(ctx: click.Context, param: click.Parameter, value: str | None) -> Path:
        said = value or _variable(VARIABLE)
        if said is not None and is_url(said):
            if value is None and (root := _variable("FSMQ_ROOT")) is not None:
                return Path(root)
            raise click.UsageError(
                f"{ctx.info_name} works on the folder itself, not on {said}: log in to its host"
                " and give --at FOLDER"
            )
        return _folder(said)

    return click.option(
        "--root",
        "--at",
        "root",
        metavar="FOLDER",
        callback=convert,
        shell_complete=_folders,
        help=f"The folder of the spool. [{VARIABLE}, then FSMQ_ROOT, then {DEFAULT_ROOT}]",
    )(command)


def open_place(at: str | None, *, create: bool = False, patience: float | None = None) -> Place:
    """Open what ``--at`` names. Raises Failure, UnusableSpool.

    create: make the folder a spool where it is none.
    patience: seconds to wait for a server; None: as long as a person would.
    """
    said = at or _variable(VARIABLE)
    if said is not None and is_url(said):
        # Only here: it brings an HTTP library along, which takes its time to load.
        from fsmq.cli.place.server import Server

        return Server(said, patience)
    return Root(_folder(said), create=create)


def is_url(at: str) -> bool:
    """Whether a place is named by a URL."""
    return at.startswith(("http://", "https://"))


def is_default(at: str | None) -> bool:
    """Whether nobody has said where the spool is."""
    return not (at or _variable(VARIABLE) or _variable("FSMQ_ROOT"))


def _folders(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    return [CompletionItem(begun, type="dir")]  # the shell knows them


def _folder(said: str | None) -> Path:
    return Path(said or _variable("FSMQ_ROOT") or DEFAULT_ROOT)


def _variable(name: str) -> str | None:
    return os.environ.get(name) or None  # an empty one counts as none
