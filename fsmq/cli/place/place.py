"""Where a verb works: on a server, or straight on the folder of a spool."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from fsmq.cli.failures import DEFAULT_PLACE, GIVEN, QUEUES, Exit, Failure, report
from fsmq.daemons.settings.settings import DEFAULT_ROOT
from fsmq.parts import require
from fsmq.spool import Claimed, FsmqError, NoSuchQueue, Spool, prepare
from fsmq.spool.index.events import unwatched
from fsmq.spool.layout.transitions import MESSAGE_FOLDERS
from fsmq.spool.queue import Queue as SpoolQueue
from fsmq.spool.views.counts import Overview

if TYPE_CHECKING:
    from fsmq.cli.place.server import Server
    from fsmq.client._sync.queue import ClientQueue

F = TypeVar("F", bound=Callable[..., Any])

VARIABLE = "FSMQ_AT"
# How long to look for the queue that a misspelt name may have meant.
_PATIENCE_S = 2.0
# What people may type when they mean a server.
_host_and_port = re.compile(r"[\w.-]+:\d{1,5}")


# Both have the same verbs and errors, see tests/client/test_alike.py.
Place: TypeAlias = "Root | Server"
Queue: TypeAlias = "RootQueue | ClientQueue"


class RootQueue(SpoolQueue):
    """A queue of a spool that is opened for one verb."""

    def claim(
        self, count: int = 1, visibility: float | None = None, wait: float = 0.0
    ) -> list[Claimed]:
        """Claim what is ready; only if nothing is, do the mover's work and claim again.

        The mover's work lists the folders, and usually a mover runs.
        """
        ready = self.spool.complete(prepare.claim(self.spool.context, self.name, count, visibility))
        return Claimed.all(self, ready) if ready else super().claim(count, visibility, wait)


class Root(Spool):
    """The folder of a spool; no program has to run."""

    def __init__(self, root: Path, *, create: bool = False) -> None:
        """Open it, or create it. Raises Failure where there is none, UnusableSpool."""
        self.where = str(root.absolute())
        self.path = root
        if not root.exists() and _host_and_port.fullmatch(str(root)):
            problem = f"{root} is not a folder; for a server give a URL"
            raise Failure(problem, Exit.USAGE, f"give --at http://{root}")
        if not create and not all((root / name).is_dir() for name in MESSAGE_FOLDERS):
            raise no_spool(root)
        super().__init__(root, create=create)

    def queue(self, name: str, *, create: bool = False) -> RootQueue:
        """A queue to work with; it exists. Raises InvalidValue, NoSuchQueue."""
        if not create and not self.has_queue(name):
            raise NoSuchQueue(name)
        queue = RootQueue(self, name)
        if create:
            queue.create()
        return queue


def no_spool(root: Path) -> Failure:
    """The failure for a folder that is no spool."""
    advice = f"make one: fsmq up --root {root}; or give another place with --at or {VARIABLE}"
    there = [name for name in MESSAGE_FOLDERS if (root / name).is_dir()]
    if there:
        missing = ", ".join(f"{name}/" for name in MESSAGE_FOLDERS if name not in there)
        advice = f"{missing} is missing: fsmq fsck --repair --root {root} makes it again"
    return Failure(f"there is no spool in {root}", Exit.UNUSABLE, advice)


def at_option(command: F) -> F:
    """Give a verb the option ``--at``; its value is for `open_place`."""

    def queues(value: str | None) -> list[str]:
        try:
            with open_place(value, patience=_PATIENCE_S) as place:
                return place.queues()
        except (FsmqError, Failure, OSError):
            return []

    def note(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        ctx.meta[GIVEN], ctx.meta[QUEUES] = value, partial(queues, value)
        ctx.meta[DEFAULT_PLACE] = str(DEFAULT_ROOT) if is_default(value) else None
        return value

    return click.option(
        "--at",
        "--root",
        "at",
        callback=note,
        metavar="URL|FOLDER",
        shell_complete=_folders,
        help=f"The server or the folder of the spool. [{VARIABLE}, then FSMQ_ROOT,"
        f" then {DEFAULT_ROOT}]",
    )(command)


def root_option(command: F) -> F:
    """Give a verb that needs the folder itself the option ``--root``; its value is a path."""

    def convert(ctx: click.Context, param: click.Parameter, value: str | None) -> Path:
        ctx.meta[GIVEN] = value
        place = value or _variable(VARIABLE)
        if place is not None and is_url(place):
            if value is None and (root := _variable("FSMQ_ROOT")) is not None:
                return Path(root)
            raise click.UsageError(
                f"{ctx.command_path} works on the folder itself, not on {place}: log in to its host"
                " and give --at FOLDER"
            )
        return _folder(place)

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

    create: make the folder a spool if it is not one.
    patience: seconds to wait for a server; None: as long as a person would.
    """
    place = at or _variable(VARIABLE)
    if place is not None and is_url(place):
        require("working on a server", "client")
        # Imported here, because the HTTP library takes long to load.
        from fsmq.cli.place.server import Server

        return Server(place, patience)
    return Root(_folder(place), create=create)


def survey_all(place: Place) -> tuple[dict[str, Overview], list[str]]:
    """All queues that can be read, and the names of the others."""
    before = place.queues()
    overviews = place.survey()
    missing = [name for name in before if name not in overviews]
    there = set(place.queues()) if missing else set()  # without those that were deleted
    return overviews, [name for name in missing if name in there]


def report_delays(place: Place) -> None:
    """Tell a command that waits why it may wait for longer than people expect.

    A server cannot be reached now, or folders cannot be watched.
    """
    if isinstance(place, Root):
        for limit in unwatched():
            report(f"folders cannot be watched and are listed instead: raise {limit}")
    elif (problem := place.knock()) is not None:
        report(f"cannot connect, trying again: {problem}")


def is_url(at: str) -> bool:
    """Whether a place is named by a URL."""
    return at.startswith(("http://", "https://"))


def is_default(at: str | None) -> bool:
    """Whether nobody has said where the spool is."""
    return not (at or _variable(VARIABLE) or _variable("FSMQ_ROOT"))


def _folders(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    return [CompletionItem(begun, type="dir")]  # the shell completes them


def _folder(path: str | None) -> Path:
    return Path(path or _variable("FSMQ_ROOT") or DEFAULT_ROOT)


def _variable(name: str) -> str | None:
    return os.environ.get(name) or None  # an empty one counts as none
