"""Compares the messages in a spool after a crash with its history."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fsmq.spool.fsck import check
from fsmq.spool.layout.claim_names import claim_name
from fsmq.spool.layout.messages.message import unpack
from fsmq.spool.layout.names import facts, split_entry
from fsmq.spool.layout.stamps import Stamps
from tests.harness.suite import PATIENCE_S, eventually
from tests.power import bodies, dedup
from tests.power.clients import BUSY, MAIN
from tests.power.dead import DeadHistory, is_ours
from tests.power.dedup import DUPS, POLLS, READ, WRITE, Copy, DedupHistory
from tests.power.history import History, Message
from tests.power.ops import ACCURACY_S, Op, content
from tests.power.reuse import is_reused
from tests.power.verbs import ATTEMPT, OverHttp

_HELD_S = 3600.0
# Messages that are hidden for less are waited for; the others are read from their files.
_SOON_S = 1.0
_stamps = Stamps()


class StoredFile(NamedTuple):
    """The file of a message."""

    folder: str
    queue: str
    id: str
    deadline: float  # Unix seconds; 0: none
    claim: str  # the name of its claim, if it has one
    path: Path


class Inspection:
    """An inspection of a spool whose daemons run again; it adds to the findings of its history."""

    def __init__(self, history: History, root: Path, http: OverHttp) -> None:
        self.delivered = 0
        self.hidden = 0
        self._history = history
        self._root = root
        self._http = http
        self._out: set[tuple[str, str]] = set()
        self.dedup = DedupHistory(history.ops, history.certain, history.find, history.gone)
        self.dead = DeadHistory(history.ops, history.certain, history.find, history.gone)

    def run(self, queues: Mapping[str, bool | None], settings: Mapping[str, set[float]]) -> None:
        """Inspect everything.

        queues: whether each exists (None: unknown). settings: the visibility timeouts that each
        queue may have.
        """
        self.check_queues(queues, settings)
        self.dedup.check_load()
        self._await_moves()
        for queue in {MAIN, BUSY, *queues}:
            self._http.create(queue)  # shows leftovers of a deleted queue
        self._drain({MAIN, BUSY, *queues})
        self._check_stored()
        self._history.reuse.check(looked=time.monotonic())
        self._check_dedup()
        self._check_dead()
        for finding in check(self._root).findings:
            if finding.severity.value == "error":
                self._history.find("fsck", str(finding))

    def _await_moves(self) -> None:
        """Wait until all moves are done, except those with a torn order."""
        folder = self._root / "moves"
        torn = {path for path in folder.glob("*.json") if _is_torn(path)}
        for path in sorted(torn):
            self._history.find("undone", f"the order of the move {path.stem} is torn")
        eventually(lambda: set(folder.glob("*.json")) <= torn)

    def check_queues(
        self, queues: Mapping[str, bool | None], settings: Mapping[str, set[float]]
    ) -> None:
        """Check which queues exist, and their settings; parameters as of :meth:`run`."""
        for queue, exists in queues.items():
            if exists is not None and self._is_there(queue) != exists:
                what = "is gone" if exists else "is back"
                what += f"; {self._history.last_of(queue)}"
                self._history.find("lost" if exists else "resurrected", f"queue {queue} {what}")
        for queue, allowed in settings.items():
            # A queue whose create was under way may be missing, with its settings.
            if queues.get(queue) or self._is_there(queue):
                self._check_settings(queue, allowed)

    def _check_settings(self, queue: str, allowed: set[float]) -> None:
        status, _, body = self._http.ask("GET", f"/{queue}")
        found = json.loads(body)["settings"]["visibility_timeout"] if status == 200 else None
        if found not in allowed:
            what = f"{found} (HTTP {status}), set to {allowed}; {self._history.last_of(queue)}"
            self._history.find("lost", f"settings of {queue}: {what}")

    def _is_there(self, queue: str) -> bool:
        return (self._root / "queues" / queue).is_dir()

    def _drain(self, queues: set[str]) -> None:
        """Fetch until no message can come within the next second."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            fetched = sum(self._fetch(queue) for queue in queues) + self._poll()
            if not fetched and not any(self._comes_soon(found) for found in self._stored()):
                return
            if not fetched:
                time.sleep(0.02)  # for the mover and for timers that end soon
        self._history.find("stuck", "something is ready, or its timer is over, and is not fetched")

    def _comes_soon(self, found: StoredFile) -> bool:
        return found.folder != "delay" or found.deadline < time.time() + _SOON_S

    def _fetch(self, queue: str) -> int:
        op = Op("fetch", queue, "inspection", time.monotonic(), time.time())
        got = self._http.fetch(queue, 1000, _HELD_S)
        op.answered, op.answered_wall, op.status = time.monotonic(), time.time(), 200
        for message_id, known, deadline, fault, _ in got:
            if (queue, message_id) in self._out:
                self._history.find("duplicated", f"{queue}:{message_id} was fetched twice")
            self._out.add((queue, message_id))
            self.delivered += 1
            if is_reused(message_id):
                self._history.reuse.add_delivery(op, message_id, known, deadline, fault)
                continue
            message = self._history.identify(queue, message_id, known, fault)
            if message is not None:
                self._history.check_fetch(message, op)
        return len(got)

    def _poll(self) -> int:
        """Poll the dedup queue once."""
        op = Op(POLLS, DUPS, "inspection", time.monotonic(), time.time())
        op.got = [list(got) for got in self._http.dedup_poll(1000, _HELD_S)]
        op.answered, op.answered_wall, op.status = time.monotonic(), time.time(), 200
        self.delivered += len(op.got)
        self.dedup.check_poll(op)
        return len(op.got)

    def _check_dedup(self) -> None:
        sides: dict[str, list[Copy]] = {READ: [], WRITE: []}
        for found in self._stored():
            if found.queue in sides:
                key, fault = _content_of(found, dedup.key_of)
                message_id = found.id if found.queue == READ else None
                sides[found.queue].append(Copy(message_id, key, found.deadline, fault))
        self.dedup.check_stored(sides[READ], sides[WRITE])

    def _check_dead(self) -> None:
        self.hidden += self.dead.check_stored(
            (found.queue, found.id, found.path, *_content_of(found))
            for found in self._all_stored()
            if is_ours(found.queue)
        )

    def _check_no_longer_there(self, message: Message) -> None:
        if self._history.removed_by(message):
            self._history.find("resurrected", message.story())

    def _check_stored(self) -> None:
        seen: set[tuple[str, str]] = set()
        for found in self._stored():
            if found.queue in (READ, WRITE):
                continue
            if (found.queue, found.id) in seen:
                self._history.find("duplicated", f"{found.queue}:{found.id} is stored twice")
            seen.add((found.queue, found.id))
            self.hidden += (found.queue, found.id) not in self._out
            if is_reused(found.id):
                self._history.reuse.add_stored(
                    time.monotonic(), found.queue, found.id, found.deadline, *_content_of(found)
                )
            elif (found.queue, found.id) not in self._out:
                self._check_hidden(found)
        for message in self._history.messages.values():
            self._check_place(message, seen)

    def _check_place(self, message: Message, seen: set[tuple[str, str]]) -> None:
        places = {(queue, message.id) for queue in self._history.places(message)} & seen
        if not places and self._history.is_stored(message):
            self._history.find("lost", message.story())
        if places and message in self._history.excused:
            self._history.find("lost", f"404 for a message that is there: {message.story()}")
        if len(places) > 1:
            self._history.find("duplicated", f"by a move: {message.story()}")
        if (message.queue, message.id) in seen and self._history.is_moved(message):
            self._history.find("undone", f"a move: {message.story()}")

    def _check_hidden(self, found: StoredFile) -> None:
        message = self._history.identify(found.queue, found.id, *_content_of(found))
        if message is None:
            return
        self._check_no_longer_there(message)
        if self._history.is_undone_release(message, found.deadline, found.claim):
            where = f"it is in {found.folder} until {found.deadline:.3f} as {found.claim}"
            self._history.find("undone", f"a release, {where}: {message.story()}")
        hold = self._history.hold(message, float("inf"))
        if hold is not None and found.deadline < hold.until - ACCURACY_S:
            early = hold.until - found.deadline
            self._history.find("held twice", f"{early:.3f} s too early: {message.story()}")

    def _stored(self) -> Iterator[StoredFile]:
        """The messages in queues that are fetched from."""
        return (found for found in self._all_stored() if not is_ours(found.queue))

    def _all_stored(self) -> Iterator[StoredFile]:
        """All messages in the spool, including those that this inspection has claimed."""
        for folder in ("new", "delay"):
            for path in (self._root / folder).iterdir():
                parts = split_entry(path.name)
                if parts is not None:
                    yield from _look(folder, *parts, path)
        for queue in (self._root / "queues").iterdir():
            for path in queue.iterdir():
                yield from _look("queues", queue.name, path.name, path)


def _look(folder: str, queue: str, message_id: str, path: Path) -> Iterator[StoredFile]:
    try:
        mtime_ns = path.stat().st_mtime_ns
    except FileNotFoundError:
        return  # it has just been moved
    stamp = _stamps.decode(message_id, mtime_ns)
    if stamp is None:
        yield StoredFile(folder, queue, message_id, 0.0, "", path)
        return
    claim = claim_name(_stamps, stamp.deliveries or 0, stamp.deadline_ms)
    yield StoredFile(folder, queue, message_id, stamp.deadline_ms / 1000, claim, path)


def _content_of(
    found: StoredFile, key_of: Callable[[bytes], str] = bodies.key_of
) -> tuple[str | None, str]:
    body, _, attributes = unpack(found.path.read_bytes(), facts(found.id))
    try:
        return content(key_of(body), int(attributes.get(ATTEMPT, 0))), ""
    except bodies.BrokenBody as error:
        return None, str(error)


def _is_torn(order: Path) -> bool:
    """Whether the file of a move has lost its content; a move that has just ended has not."""
    try:
        json.loads(order.read_bytes())
    except FileNotFoundError:
        return False
    except ValueError:
        return True
    return False
