"""The loop of a drop folder: follows hints, puts files that are complete, moves them to "done".

The id of a message is derived from the file's facts and bytes. So a run that was killed between
the put and the move does not put a second message, as long as the first exists.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType

import click

from fsmq.cli import output
from fsmq.cli.failures import Exit, Failure, report
from fsmq.cli.messages.drop.folder import DropFolder, Dropped, Facts, Moved, facts_of
from fsmq.cli.messages.drop.hints import Hint, Hints
from fsmq.cli.place.place import Place, Queue, Root
from fsmq.daemons.process.notify import Notifier
from fsmq.spool import (
    DuplicateMessage,
    InvalidValue,
    MessageTooLarge,
    NewMessage,
    QueueSettings,
    Unavailable,
)
from fsmq.spool.fsck import printable
from fsmq.spool.layout.uuids import derived_uuid7

ATTRIBUTE = "file"
# The time between looks at all files: events can be lost, and a new folder has no events for the
# files that are in it already.
_LOOK_EVERY_S = 30.0
# The time between checks whether the folder itself is gone.
_CHECK_EVERY_S = 5.0
# How long a file must be unchanged if there is no other way to know that it is complete.
_STILL_S = 1.0
# Bodies are held in memory, so they are limited even if a server would take longer ones.
_MOST_BYTES = 2**30
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0


@dataclass(slots=True)
class _Candidate:
    """A path to look at.

    due: when, in seconds of the monotonic clock.
    complete: whether an event said that the file is complete.
    still: seconds for which the file must be unchanged if none did.
    seen: the facts of the file at the last look.
    """

    due: float
    complete: bool
    still: float
    seen: Facts | None = None


def watch_folder(
    place: Place,
    queue: str,
    path: Path,
    done: Path | None,
    pattern: str,
    recursive: bool,
    like: NewMessage,
    as_json: bool,
    settle: float,
) -> int:
    """Put the files of a folder into a queue until a signal comes; the exit code.

    Raises Failure, NoSuchQueue.
    """
    most = _MOST_BYTES
    if isinstance(place, Root):
        spool, watched = place.path.resolve(), path.resolve()
        if spool in (watched, *watched.parents) or (recursive and watched in spool.parents):
            raise Failure(f"{path} cannot be watched: it holds a spool, or is in one", Exit.USAGE)
        most = min(most, place.context.max_message_bytes)
    folder = DropFolder(path, done, pattern, recursive)
    try:
        return Drop(place.queue(queue), queue, folder, like, most, as_json, settle).run()
    finally:
        folder.close()


class Drop:
    """Puts the files of a folder into a queue until it is stopped.

    like: what all messages have in common.
    most: how many bytes a message may have, whatever the queue's setting.
    settle: seconds for which a file must have been unchanged.
    """

    def __init__(
        self,
        queue: Queue,
        name: str,
        folder: DropFolder,
        like: NewMessage,
        most: int,
        as_json: bool,
        settle: float,
    ) -> None:
        self._settle = settle
        self._queue = queue
        self._name = name
        self._folder = folder
        self._like = like
        self._as_json = as_json
        self._hints: SimpleQueue[Hint | None] = SimpleQueue()
        self._candidates: dict[str, _Candidate] = {}
        # By path: files that are refused for good, those that are stored but not moved, and the
        # last report, so that it is not repeated.
        self._refused: dict[str, Facts] = {}
        self._stored: dict[str, tuple[Facts, str]] = {}
        self._reported: dict[str, str] = {}
        self._settings = QueueSettings()
        self._most = self._limit = most
        self._pause_s = _FIRST_PAUSE_S
        # How long a new file must be unchanged; longer where an event tells that it is closed.
        self._begun_s = _LOOK_EVERY_S
        self._signal = 0

    def run(self) -> int:
        """Work until SIGTERM or SIGINT; the exit code. Raises Failure, NoSuchQueue."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        # Sent when somebody opens a file for writing while we hold a lease; it would end us.
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        self._read_settings()
        notifier = Notifier()
        hints = Hints(self._folder, self._hints.put)
        with hints:
            # After events have begun, so that no file can come in between unseen.
            self._look(_STILL_S)
            notifier.ready(f"watching {self._folder.path}")
            next_look = time.monotonic() + self._look_every(hints)
            while not self._signal:
                self._begun_s = _LOOK_EVERY_S if hints.tells_of_closing else _STILL_S
                next_look = min(next_look, time.monotonic() + self._look_every(hints))
                self._take_due()
                due = min((c.due for c in self._candidates.values()), default=next_look)
                self._wait_until(min(due, next_look, time.monotonic() + _CHECK_EVERY_S))
                self._folder.check()
                if time.monotonic() >= next_look:
                    self._read_settings()
                    self._look(self._look_every(hints))
                    next_look = time.monotonic() + self._look_every(hints)
        notifier.stopping()
        return Exit.DONE if self._signal == signal.SIGTERM else Exit.INTERRUPTED

    def _look_every(self, hints: Hints) -> float:
        """Seconds between two looks, for which a file without an event must be unchanged."""
        if hints.problem is None:
            return _LOOK_EVERY_S
        self._report_once(".", f"cannot be watched, and is looked through: {hints.problem}")
        return _STILL_S

    # -- what there is ---------------------------------------------------------------------------

    def _look(self, still: float) -> None:
        """Make a candidate of each file without an event."""
        found = set()
        now = time.monotonic()
        try:
            for path in self._folder.files():
                found.add(path)
                self._candidates.setdefault(path, _Candidate(now, False, still))
        except OSError as error:
            report(f"cannot look into {self._folder.path}: {error.strerror}")
            return
        for known in (self._refused, self._stored, self._reported):
            for path in known.keys() - found - {"."}:
                del known[path]

    def _read_settings(self) -> None:
        """Read the queue's settings, and the limit of a message from them. Raises NoSuchQueue."""
        try:
            self._settings = self._queue.settings()
        except (Unavailable, ConnectionError) as error:
            self._retry_later(error)
        self._limit = min(self._most, self._settings.max_message_bytes or self._most)

    def _wait_until(self, moment: float) -> None:
        """Wait for hints until then, at most until the first one or a signal, and note them."""
        try:
            hint = self._hints.get(timeout=max(0.0, moment - time.monotonic()))
            while hint is not None:
                self._note(*hint)
                hint = self._hints.get_nowait()
        except Empty:
            pass

    def _note(self, path: str, complete: bool) -> None:
        now = time.monotonic()
        if complete:
            self._candidates[path] = _Candidate(now, True, _STILL_S)
        else:
            self._candidates.setdefault(path, _Candidate(now, False, self._begun_s))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signal = number
        # A second signal ends this process at once, which loses nothing.
        signal.signal(number, signal.SIG_DFL)
        self._hints.put(None)

    # -- one file --------------------------------------------------------------------------------

    def _take_due(self) -> None:
        now = time.monotonic()
        for path in [p for p, candidate in self._candidates.items() if candidate.due <= now]:
            if self._signal:
                return
            candidate = self._candidates.pop(path)
            try:
                with self._folder.opened(path) as file:
                    if file is not None:
                        self._take(file, candidate)
            except OSError as error:
                self._report_once(path, f"cannot be taken: {error.strerror or error}")

    def _take(self, file: Dropped, candidate: _Candidate) -> None:
        """Put a file and move it away, if it is complete. Raises OSError."""
        path, facts = file.path, file.facts
        if self._refused.get(path) == facts:
            return
        known = self._stored.get(path)
        if known is not None and known[0] == facts:
            self._move(file, known[1])
        elif self._is_complete(file, candidate):
            if (why := self._folder.why_not_moved(file)) is not None:
                self._refuse(file, why)
            elif (message_id := self._put(file)) is not None:
                self._stored[path] = (file.facts, message_id)
                self._move(file, message_id)

    def _is_complete(self, file: Dropped, candidate: _Candidate) -> bool:
        """Whether a file is complete; if that is not known yet, it becomes a candidate again."""
        written = self._folder.is_being_written(file)
        if written is True:
            return False  # an event will say when it is closed
        still = 0.0 if written is False or candidate.complete else candidate.still
        still = max(still, self._settle)
        if not still or candidate.seen == file.facts:
            return True
        candidate.seen = file.facts
        candidate.due = time.monotonic() + still
        self._candidates.setdefault(file.path, candidate)
        return False

    def _put(self, file: Dropped) -> str | None:
        """Store a file's message and return its id; None if it was not stored. Raises OSError."""
        size = file.stat.st_size
        if size > self._limit:
            self._refuse(file, f"has {size} bytes, and a message may have {self._limit}")
            return None
        if not self._is_young(file):
            return None
        body = file.read()
        if body is None:
            self._note(file.path, False)
            return None
        message = self._message(file, body)
        try:
            message_id = self._store(message)
        except DuplicateMessage as error:
            report(f"{file.path}: its message {error.message_id} is stored already")
            return error.message_id
        except (MessageTooLarge, InvalidValue) as error:
            self._refuse(file, str(error))
            return None
        except (Unavailable, ConnectionError) as error:
            self._candidates.setdefault(file.path, _Candidate(0.0, True, _STILL_S))
            self._retry_later(error)
            return None
        self._pause_s = _FIRST_PAUSE_S
        self._report_stored(file.path, message_id)
        if not size:
            report(f"{file.path}: is empty, and so is its message {message_id}")
        return message_id

    def _store(self, message: NewMessage) -> str:
        return self._queue.put(
            message.body,
            delay=message.delay,
            priority=message.priority,
            ttl=message.ttl,
            id=message.id,
            content_type=message.content_type,
            attributes=message.attributes,
        )

    def _message(self, file: Dropped, body: bytes) -> NewMessage:
        seed = f"{file.facts}:{hashlib.sha256(body).hexdigest()}:".encode()
        message_id = derived_uuid7(file.stat.st_ctime_ns, seed + os.fsencode(file.path))
        attributes = {ATTRIBUTE: _as_value(file.path), **self._like.attributes}
        return replace(self._like, body=body, id=message_id, attributes=attributes)

    def _is_young(self, file: Dropped) -> bool:
        """Make sure that the message, whose age is the file's, does not expire too early.

        That changes the id, so only old files are renewed: if a run is killed after the put, the
        next one must derive the same id.
        """
        spans = [s for s in (self._like.ttl, self._settings.retention) if s is not None]
        if not spans or time.time() - file.stat.st_ctime < min(spans) / 2:
            return True
        try:
            file.renew()
        except PermissionError:
            self._refuse(file, "its message would expire, since it has waited too long: touch it")
            return False
        return True

    def _move(self, file: Dropped, message_id: str) -> None:
        try:
            moved = self._folder.move(file, message_id)
        except OSError as error:
            reason = f"is stored as {message_id}, but cannot be moved away: {error.strerror}"
            self._report_once(file.path, reason)
            return
        if moved is Moved.OPEN:
            # An event comes when it is closed; if it has changed by then, it is put again.
            found = os.fstat(file.fd)
            if file.is_as_read(found):
                self._stored[file.path] = facts_of(found), message_id
            reason = f"was opened again while it was stored as {message_id}: it stays until closed"
            self._report_once(file.path, reason)
            return
        if moved is Moved.CHANGED:
            report(f"{file.path}: was changed while it was stored as {message_id}")
        elif moved is Moved.LOST:
            reason = (
                f"was written to while it was moved away: {message_id} has only what was before"
            )
            report(f"{file.path}: {reason}")
        self._stored.pop(file.path, None)
        self._reported.pop(file.path, None)

    # -- what is said ----------------------------------------------------------------------------

    def _refuse(self, file: Dropped, why: str) -> None:
        """Leave a file where it is until it changes."""
        self._refused[file.path] = file.facts
        self._report_once(file.path, f"{why}; it stays where it is")

    def _report_once(self, path: str, what: str) -> None:
        if self._reported.get(path) != what:
            self._reported[path] = what
            report(f"{path}: {what}")

    def _report_stored(self, path: str, message_id: str) -> None:
        if self._as_json:
            output.line({"queue": self._name, "id": message_id, "file": printable(path)})
        else:
            click.echo(message_id)

    def _retry_later(self, error: Exception) -> None:
        """Wait, longer each time, before the next try. Raises the error if it is lasting."""
        if getattr(error, "lasting", False):
            raise error
        pause = max(self._pause_s, getattr(error, "retry_after", 0))
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        report(f"cannot store anything, trying again in {pause:g} s: {error}")
        end = time.monotonic() + pause
        while not self._signal and time.monotonic() < end:
            self._wait_until(end)


def _as_value(path: str) -> str:
    """A path as the value of an attribute, without control characters."""
    return printable(path).strip()
