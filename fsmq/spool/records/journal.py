"""The lifecycle journal: one line for each step of each message, in segments under ``journal/``.

It is for analytics; no message depends on it. Noting a step costs a microsecond and never waits: a
thread writes the lines. If it cannot (a full disk, too many at once), they are lost and counted. A
segment is written under a dot-name and closed by a rename, so that readers of the folder find only
whole segments. docs/journal.md specifies the format.
"""

from __future__ import annotations

import errno
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from itertools import chain
from json.encoder import encode_basestring_ascii
from typing import ClassVar, NamedTuple, TypedDict, Unpack

from ..durability.locks import lock
from ..layout.files import write_all
from ..layout.names import ALIVE
from ..layout.steps import portions
from ..layout.transitions import JOURNAL
from ..layout.tree import Tree
from .acts import Act, StepOfAct
from .journal_files import is_segment, show
from .log_steps import VERSION, StepOfLog
from .metrics import Metrics
from .reports import Reports

SUFFIX = ".jsonl"
# A segment is closed at this age or size, whichever comes first.
SEGMENT_S = 10.0
SEGMENT_BYTES = 8 * 1024 * 1024
_PAUSE_S = 0.2
# After an error of the disk.
_RETRY_S = 5.0
# How many lines may wait for the thread: about a second of a process's work at full speed.
_MAX_WAITING = 100_000

# The names of the details in a line, in their order.
_FIELDS = {
    "size": "size",
    "deliveries": "deliveries",
    "claim_ms": "claim_ms",
    "source": "from",
    "target": "to",
    "was": "was",
    "reason": "reason",
}

via: ContextVar[str | None] = ContextVar("via", default=None)
"""What caused a step, such as a dialect's name; None: the program itself."""

_LAG = ("journal_lag",)


def is_kept(tree: Tree) -> bool:
    """Whether any program writes a journal on this tree, or has recently done so.

    It looks for segments, also open ones, which the reaper keeps for as long as configured; and at
    the reports of live programs, for a spool in which nothing has happened yet.
    """
    try:
        if any(is_segment(name) for name in tree.names(tree.folder(JOURNAL))):
            return True
        return any(_LAG in report.snapshot.gauges for report in Reports(tree, "", "").read())
    except OSError:
        return False  # a user who may not look there cannot write either


class Details(TypedDict, total=False):
    """The details of a step besides the message's queue and id.

    size: bytes of the file. deliveries: how often it has been claimed. claim_ms: the length of the
    claim that this step made, in milliseconds. source, target: the other queue, if the message
    changed its queue. was: its id there, if different. reason: why it was given back or buried.
    """

    size: int | None
    deliveries: int | None
    claim_ms: int | None
    source: str
    target: str
    was: str
    reason: str | None


class _Noted(NamedTuple):
    """The same step of several messages that became durable together."""

    at_ms: int
    event: str
    queue: str
    messages: Sequence[tuple[str, Details]]
    via: str


class NoJournal:
    """Keeps nothing."""

    def note(self, event: str, queue: str, message_id: str, **details: Unpack[Details]) -> None:
        """Note a step of a message; never raises and never waits."""
        self.note_all(event, queue, [(message_id, details)])

    def note_all(self, event: str, queue: str, messages: Sequence[tuple[str, Details]]) -> None:
        """Note the same step of several messages, each with its id and details."""

    def note_of_log(
        self,
        event: str,
        log: str,
        channel: str | None,
        ranges: Sequence[tuple[int, int]],
        **details: int | str,
    ) -> None:
        """Note a step of ranges of offsets of a log; never raises and never waits."""

    def note_act(self, act: Act) -> None:
        """Note what somebody did; never raises and never waits."""

    def flush(self) -> None:
        """Write what was noted, so that it is not lost if this process is killed."""

    def measure_lag(self) -> None:
        pass

    def close(self) -> None:
        pass


class Journal(NoJournal):
    """Writes the lines of one process. Safe in threads.

    host: the name of this host. program: the ``via`` of steps that have none.
    clock: gives Unix seconds.
    """

    _open: ClassVar[weakref.WeakSet[Journal]] = weakref.WeakSet()

    def __init__(
        self,
        tree: Tree,
        metrics: Metrics,
        *,
        host: str,
        program: str,
        clock: Callable[[], float] = time.time,
        segment_s: float = SEGMENT_S,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._tree = tree
        self._metrics = metrics
        self._host = host
        self._program = program
        self._clock = clock
        self._segment_s = segment_s
        self._segment_bytes = segment_bytes
        self._waiting: deque[_Noted | StepOfLog | StepOfAct] = deque()
        self._lines = 0  # how many lines these will be
        self._counting = threading.Lock()
        self._writing = threading.Lock()
        self._segment: _Segment | None = None
        self._number = 0
        self._retry_at = 0.0  # monotonic seconds
        self._behind_since: int | None = None  # Unix ms of the oldest step that is being written
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fsmq-journal", daemon=True)
        self._thread.start()
        self._open.add(self)

    def note_all(self, event: str, queue: str, messages: Sequence[tuple[str, Details]]) -> None:
        """Note the same step of several messages; never raises and never waits."""
        if queue == ALIVE:
            return  # only a probe
        if self._lines >= _MAX_WAITING:
            self._metrics.count(("journal_dropped",), len(messages))
            return
        at_ms = int(self._clock() * 1000)
        through = via.get() or self._program
        with self._counting:
            self._lines += len(messages)
        self._waiting.append(_Noted(at_ms, event, queue, messages, through))

    def note_of_log(
        self,
        event: str,
        log: str,
        channel: str | None,
        ranges: Sequence[tuple[int, int]],
        **details: int | str,
    ) -> None:
        """Note a step of ranges of offsets of a log, a line for each; never raises, never waits."""
        if self._lines >= _MAX_WAITING:
            self._metrics.count(("journal_dropped",), len(ranges))
            return
        at_ms, through = int(self._clock() * 1000), via.get() or self._program
        with self._counting:
            self._lines += len(ranges)
        self._waiting.append(StepOfLog(at_ms, event, log, channel, ranges, details, through))

    def note_act(self, act: Act) -> None:
        """Note what somebody did, even where steps of messages are dropped."""
        with self._counting:
            self._lines += 1
        self._waiting.append(StepOfAct(act, via.get() or self._program))

    def flush(self) -> None:
        """Write what was noted, so that it is not lost if this process is killed.

        The segment stays open; the reaper closes it after a kill. Never raises.
        """
        with self._writing:
            self._write_waiting()

    def measure_lag(self) -> None:
        """Record the age, in seconds, of the oldest step that is in no closed segment yet."""
        since = self._behind_since
        if since is None:
            try:
                since = self._waiting[0].at_ms
            except IndexError:
                pass
        lag = 0.0 if since is None else max(0.0, self._clock() - since / 1000)
        self._metrics.set(_LAG, round(lag, 3))

    def close(self) -> None:
        """Write what waits and close the segment."""
        self._stopping.set()
        self._thread.join()

    @classmethod
    def _leave_to_parent(cls) -> None:
        """In a child: the waiting lines, the segment and the locks are the parent's."""
        for one in cls._open:
            one._waiting.clear()
            one._lines, one._segment, one._behind_since = 0, None, None
            one._counting, one._writing = threading.Lock(), threading.Lock()

    def _run(self) -> None:
        while not self._stopping.wait(_PAUSE_S):
            self.flush()
        self.flush()
        self._finish()

    def _write_waiting(self) -> None:
        steps = [self._waiting.popleft() for _ in range(len(self._waiting))]
        lines = sum(len(step.messages) for step in steps)
        with self._counting:
            self._lines -= lines
        now = time.monotonic()
        try:
            if steps:
                if now < self._retry_at:
                    self._metrics.count(("journal_dropped",), lines)
                else:
                    self._append(steps)
                    self._metrics.count(("journal",), lines)
        except OSError:
            self._metrics.count(("journal_dropped",), lines)
            self._retry_at = now + _RETRY_S
            self._finish()
        segment = self._segment
        if segment is not None and segment.is_over(self._segment_s, self._segment_bytes):
            self._finish()

    def _append(self, steps: list[_Noted | StepOfLog | StepOfAct]) -> None:
        if self._behind_since is None:
            self._behind_since = steps[0].at_ms
        if self._segment is None:
            self._number += 1
            name = f"{int(self._clock() * 1000):013}-{self._host}-{os.getpid()}-{self._number}"
            self._segment = _Segment(self._tree, name + SUFFIX)
        lines = chain.from_iterable(
            self._lines_of(step) if isinstance(step, _Noted) else step.lines(self._host)
            for step in steps
        )
        self._segment.append("".join(portion).encode("ascii") for portion in portions(lines))

    def _finish(self) -> None:
        segment, self._segment = self._segment, None
        try:
            if segment is not None:
                segment.finish()
        except OSError:
            self._retry_at = time.monotonic() + _RETRY_S
        finally:
            self._behind_since = None

    def _lines_of(self, step: _Noted) -> Iterator[str]:
        quoted = encode_basestring_ascii
        before = (
            f'{{"v":{VERSION},"at":{step.at_ms},"event":"{step.event}","queue":{quoted(step.queue)}'
        )
        behind = f',"host":"{self._host}","via":"{step.via}"}}\n'
        for message_id, details in step.messages:
            more = ""
            for detail, field in _FIELDS.items() if details else ():
                value = details.get(detail)
                if value is not None:
                    shown = quoted(value) if isinstance(value, str) else value
                    more += f',"{field}":{shown}'
            yield f'{before},"id":{quoted(message_id)}{more}{behind}'


os.register_at_fork(after_in_child=Journal._leave_to_parent)


class _Segment:
    """A segment that is being written; locked, so that others leave it alone."""

    def __init__(self, tree: Tree, name: str) -> None:
        self._tree = tree
        self._name = name
        self._size = 0
        self._since = time.monotonic()
        self._path = tree.folder(JOURNAL, "." + name)
        held = lock(tree, self._path, os.O_CREAT | os.O_EXCL)
        if held is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), self._path)
        self._held = held

    def is_over(self, seconds: float, size: int) -> bool:
        return self._size >= size or time.monotonic() - self._since >= seconds

    def append(self, parts: Iterable[bytes]) -> None:
        """Append whole lines, all or none. Raises OSError."""
        size = self._size
        try:
            for part in parts:
                write_all(self._held.fd, part)
                size += len(part)
        except OSError:
            os.ftruncate(self._held.fd, self._size)
            raise
        self._size = size

    def finish(self) -> None:
        """Show the segment to readers. Raises OSError."""
        try:
            show(self._tree, self._held.fd, self._path, self._name)
        finally:
            self._held.unlock()
