"""Senders and workers of a fifo queue on two hosts, which are killed before any of their calls.

The clocks of the hosts are set forward and back while they run, by less than the time for which
deduplication ids are remembered.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fsmq.spool import FsmqError, NewMessage, Spool
from fsmq.spool.durability.sync import SyncMode
from fsmq.spool.errors import ClaimEnded, NoSuchMessage, Unavailable
from tests.harness.suite import PATIENCE_S
from tests.power.fifo_history import Note
from tests.spool.crashing import die_before

QUEUE, GROUPS = "orders", "abcdefgh"
HOLD_S = 2.0
# The largest error of a clock; in some loads clocks are hardly ahead, so that claims hold.
FAR_S = 60.0
_AHEAD_S = (0.0, 1.0, FAR_S)
# The most mutating calls of a program before it is killed.
_MOST_CALLS = 150
_STEP_EVERY_S = 0.1
_HOSTS = 2

_open, _write = os.open, os.write  # not hooked by `die_before`


class Log:
    """The file to which a program writes notes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._out: int | None = None  # opened in the process that writes

    def note(self, what: str, one: str, message_id: str = "-", *times: float) -> None:
        if self._out is None:
            self._out = _open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        note = Note(time.monotonic(), what, one, message_id, *times)
        _write(self._out, note.line().encode())


def new(dedup_id: str) -> NewMessage:
    return NewMessage(dedup_id.encode(), group=dedup_id[0], dedup_id=dedup_id)


class Load:
    """A sender and a worker on each of two hosts, until the power is cut.

    ahead: the most seconds that a clock is ahead. kills: the number of killed programs.
    """

    def __init__(self, root: Path, sync: SyncMode, folder: Path, chance: random.Random) -> None:
        """folder: for the notes; its name is unique."""
        self._root, self._sync, self._chance = root, sync, chance
        self._name = folder.name
        self._fork = multiprocessing.get_context("fork")
        self._ahead: Any = self._fork.RawArray("d", _HOSTS)
        self._paths = [folder / str(number) for number in range(4)]
        self._running: list[BaseProcess] = []
        self._begun = 0
        self.ahead = chance.choice(_AHEAD_S)
        self.kills = 0

    def run(self, seconds: float) -> None:
        """Run for some time, at least until a message was put and one acknowledged."""
        folder = self._paths[0].parent
        folder.mkdir()
        self._running = [self._start(number) for number in range(4)]
        begun = time.monotonic()
        while time.monotonic() < begun + seconds or not self._has_begun():
            assert time.monotonic() < begun + PATIENCE_S, "nothing is put, or acknowledged"
            self._set_a_clock()
            until = time.monotonic() + _STEP_EVERY_S
            while (left := until - time.monotonic()) > 0:
                self._start_again(left)

    def end(self) -> None:
        for process in self._running:
            process.kill()  # a waiting worker would not notice the cut
            process.join()

    def notes(self) -> list[Note]:
        """The notes without refused acknowledgements, whose claims had ended."""
        found: list[Note] = []
        for path in filter(Path.exists, self._paths):
            # A killed program may leave an incomplete line.
            whole, _, _ = path.read_text().rpartition("\n")
            for note in map(Note.read, whole.splitlines()):
                if note.what == "refused":
                    del found[-1]
                else:
                    found.append(note)
        return found

    def _has_begun(self) -> bool:
        told = {note.what for note in self.notes()}
        return {"put", "acked"} <= told

    def _set_a_clock(self) -> None:
        host = self._chance.randrange(_HOSTS)
        anywhere = self._chance.uniform(-FAR_S, self.ahead)
        self._ahead[host] = self._chance.choice((0.0, self.ahead, anywhere))

    def _start(self, number: int) -> BaseProcess:
        self._begun += 1
        program = send if number < 2 else work
        host, calls = number % _HOSTS, self._chance.randrange(_MOST_CALLS)
        log, seed = Log(self._paths[number]), f"{self._name}.{self._begun}"
        arguments = (self._open(host), log, calls, seed)
        process = self._fork.Process(target=program, args=arguments)
        process.start()
        return process

    def _start_again(self, seconds: float) -> None:
        """Restart the programs that are killed within some seconds."""
        sentinels = [process.sentinel for process in self._running]
        multiprocessing.connection.wait(sentinels, seconds)
        for number, process in enumerate(self._running):
            if process.exitcode is not None:
                assert process.exitcode == -signal.SIGKILL
                self.kills += 1
                self._running[number] = self._start(number)

    def _open(self, host: int) -> Callable[[bool], Spool]:
        """A function that opens the spool; only programs of the first host get events."""
        watch: Any = ("events", "poll")[host]

        def clock() -> float:
            return time.time() + float(self._ahead[host])

        return lambda delivers: Spool(
            self._root,
            sync=self._sync,
            delivers=delivers,
            clock=clock,
            watch=watch,
            poll_interval=0.01,
        )


@contextmanager
def _until_the_end(log: Log) -> Iterator[None]:
    try:
        yield
    except (FsmqError, OSError) as error:
        log.note("fault", f"{type(error).__name__}: {error}".replace(" ", "_"))
        os.kill(os.getpid(), signal.SIGKILL)


def send(open_spool: Callable[[bool], Spool], log: Log, calls: int, seed: str) -> None:
    """Put messages, and sometimes the last ones again."""
    chance = random.Random(seed)
    die_before(calls)
    with _until_the_end(log), open_spool(False) as spool:
        last: list[str] = []
        for number in range(1_000_000):
            if chance.random() < 0.7 or not last:
                last = [
                    f"{chance.choice(GROUPS)}-{seed}-{number}-{n}"
                    for n in range(chance.randint(1, 3))
                ]
            for one in last:
                log.note("putting", one)
            ids = spool.queue(QUEUE).put_many([new(one) for one in last])
            for one, message_id in zip(last, ids, strict=True):
                log.note("put", one, message_id)


def _insist(act: Callable[[], object]) -> None:
    """Retry while another process holds the message, as clients do after a 503."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            act()
            return
        except Unavailable:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def work(open_spool: Callable[[bool], Spool], log: Log, calls: int, seed: str) -> None:
    """Claim messages, and acknowledge or release them."""
    chance = random.Random(seed)
    die_before(calls)
    with _until_the_end(log), open_spool(True) as spool:
        while True:
            since = time.monotonic()
            claimed = spool.queue(QUEUE).claim(4, visibility=HOLD_S, wait=0.05)
            for message in claimed:
                times = since, message.deadline or 0.0
                log.note("claimed", str(message.dedup_id), message.id, *times)
            for message in claimed:
                ack = chance.random() < 0.9
                log.note("acking" if ack else "releasing", str(message.dedup_id), message.id)
                try:
                    _insist(message.ack if ack else message.release)
                except (ClaimEnded, NoSuchMessage):  # a clock ended the claim
                    log.note("refused", "-")
                    continue
                if ack:
                    log.note("acked", str(message.dedup_id), message.id)
            spool.reap()
