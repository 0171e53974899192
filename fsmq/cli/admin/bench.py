"""``fsmq bench``: what the disk under a folder can do, and which ``--sync`` suits it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import click

from fsmq.cli.output import bar, json_option
from fsmq.cli.params import Span
from fsmq.cli.place.place import root_option
from fsmq.spool import prepare
from fsmq.spool.durability.sync import SyncMode
from fsmq.spool.errors import FsmqError
from fsmq.spool.layout.files import add_file
from fsmq.spool.layout.filesystem import mounts_below
from fsmq.spool.layout.messages.message import NewMessage
from fsmq.spool.probe.trials import duration_of
from fsmq.spool.spool import Spool

_FAILED = 1
_QUEUE = "bench"
_GROUPS = (1, 8, 64)
_METHODS: tuple[SyncMode, ...] = ("fsync", "syncfs", "auto", "none")
# Each measurement is made in this many turns, and the measurements take turns, so that other load
# on the disk slows all of them alike.
_TURNS = 4
# What helps when this part of the `Limits` is the largest.
_CURES: dict[Literal["flush", "journal", "cpu"], str] = {
    "flush": "a disk with power-loss protection answers at once; clients at one time share flushes",
    "journal": "another filesystem may need less: run this on ext4 and on xfs, a mount of its own",
    "cpu": "a Python built with profile-guided optimisation, or a faster core",
}
# From this ratio on, one method counts as faster than another: less is noise.
_CLEARLY = 1.1
# Floors, measured without a spool, one file or write after the other: files that are created,
# written, fsynced and closed; and blocks overwritten in place, whose sync commits no journal.
_FLOOR, _FLUSH = "raw fsync", "raw flush"
_BLOCK_BYTES = 4096
_BLOCKS = 64


@dataclass
class Figure:
    """What was measured for one method and one size of groups."""

    method: str
    group: int
    body_bytes: int
    seconds: list[float] = field(default_factory=list)  # for each group

    @property
    def rate(self) -> float:
        """Messages a second."""
        return len(self.seconds) * self.group / sum(self.seconds)

    def latency_ms(self, share: float) -> float:
        """The time within which ``share`` (0 to 1) of the groups were done."""
        ordered = sorted(self.seconds)
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def as_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "group": self.group,
            "body_bytes": self.body_bytes,
            "messages_per_second": round(self.rate, 1),
            "p50_ms": round(self.latency_ms(0.5), 3),
            "p95_ms": round(self.latency_ms(0.95), 3),
            "p99_ms": round(self.latency_ms(0.99), 3),
            "max_ms": round(self.latency_ms(1.0), 3),
        }


@dataclass(frozen=True)
class Advice:
    """Which ``--sync`` suits a disk, and why."""

    sync: Literal["auto", "fsync", "syncfs"]
    reason: str


@dataclass(frozen=True)
class Limits:
    """What a single put waits for, in milliseconds at the median.

    flush: the disk, until data is on stable media. cpu: everything but the sync. journal: the rest,
    as the filesystem has to record the new file.
    """

    flush_ms: float
    journal_ms: float
    cpu_ms: float

    @property
    def largest(self) -> Literal["flush", "journal", "cpu"]:
        """What takes the most."""
        return max(_CURES, key=lambda part: getattr(self, f"{part}_ms"))


@dataclass(frozen=True)
class Result:
    """All figures of a run, in the order in which they were asked for."""

    filesystem: str
    own_mount: bool  # whether no one else has files on the same mount
    figures: list[Figure]
    advice: Advice
    limits: Limits

    def as_dict(self) -> dict[str, Any]:
        return {
            "filesystem": self.filesystem,
            "own_mount": self.own_mount,
            "figures": [figure.as_dict() for figure in self.figures],
            "sync": self.advice.sync,
            "reason": self.advice.reason,
            "put_alone": {**asdict(self.limits), "largest": self.limits.largest},
        }


@click.command("bench")
@json_option
@click.option(
    "--seconds",
    type=Span(low=0.05),
    default=2.0,
    help="How long each of the figures is measured.  [2 s]",
)
@click.option(
    "--bytes",
    "body_bytes",
    type=click.IntRange(0, 16 * 2**20),
    default=1024,
    show_default=True,
    help="The length of each message.",
)
@root_option
def bench(root: Path, body_bytes: int, seconds: float, as_json: bool) -> None:
    """Measure what this disk can do, and which --sync suits it.

    Puts messages into a scratch spool inside the folder, which is removed afterwards: in groups of
    1, 8 and 64, as mq forms them when this many clients wait at once, with each --sync method,
    compared to a plain loop of fsyncs. An existing spool is left alone. Exits with 0, or with 1 if
    the disk fails.

    \b
    Examples:
      fsmq bench --root /var/lib/fsmq
      fsmq bench --seconds 500ms --bytes 100
    """
    signal.signal(signal.SIGTERM, _end)
    try:
        with scratch(root) as folder, bar("measuring", 1000, wanted=not as_json) as show:
            result = measure(folder, seconds, body_bytes, lambda share: show(round(1000 * share)))
    except (OSError, FsmqError) as error:
        click.echo(f"fsmq: cannot measure in {root}: {error}", err=True)
        sys.exit(_FAILED)
    click.echo(json.dumps(result.as_dict(), indent=2) if as_json else _as_text(result))


def measure(
    folder: Path,
    seconds: float,
    body_bytes: int,
    progress: Callable[[float], None] = lambda share: None,
) -> Result:
    """Measure all figures in an empty folder, each for ``seconds``.

    progress: called with the share (0 to 1) of the work that is done.

    Raises:
        OSError, FsmqError: the disk fails.
    """
    body = os.urandom(body_bytes)
    with ExitStack() as stack:
        spools: dict[SyncMode, Spool] = {}
        for method in _METHODS:
            spool = Spool(folder / "mq", sync=method, delivers=False, max_message_bytes=2**30)
            spools[method] = stack.enter_context(spool)
        filesystem = spools["auto"].filesystem
        if not filesystem.whole_sync:
            # One syncfs promises too little on this filesystem: the spool would use fsync.
            del spools["syncfs"]
        spools["auto"].create_queue(_QUEUE)
        floors = [Figure(method, 1, body_bytes) for method in _FLOORS]
        puts = [Figure(method, group, body_bytes) for group in _GROUPS for method in spools]
        turns = [figure for _ in range(_TURNS) for figure in (*floors, *puts)]
        for done, figure in enumerate(turns):
            progress(done / len(turns))
            if figure.method in _FLOORS:
                _try_floor(folder / "floor", seconds / _TURNS, body, figure)
            else:
                method = next(m for m in spools if m == figure.method)
                _try_put(spools[method], seconds / _TURNS, body, figure)
                _remove_messages(spools["none"])
        progress(1.0)
    figures = [*floors, *puts]
    is_own = _is_own_mount(folder)
    return Result(filesystem.kind, is_own, figures, advise(figures), limits(figures))


def advise(figures: list[Figure]) -> Advice:
    """Say which method suits a disk with these figures."""
    rates = {(figure.method, figure.group): figure.rate for figure in figures}
    if ("syncfs", _GROUPS[0]) not in rates:
        return Advice("fsync", "this filesystem does not promise that one syncfs covers everything")
    gains = [rates["syncfs", group] / rates["fsync", group] for group in _GROUPS]
    if all(gain >= _CLEARLY for gain in gains):
        most = max(gains)
        return Advice(
            "auto",
            f"syncfs is faster at every size of group (up to {most:.1f}×), and auto finds that out;"
            " unlike a fixed syncfs it turns back to fsync when another writer slows the disk",
        )
    if all(gain <= 1 / _CLEARLY for gain in gains):
        return Advice("fsync", "fsync of each file is faster than syncfs at every size of group")
    return Advice(
        "auto",
        f"syncfs against fsync is {gains[0]:.1f}× for one message and {gains[-1]:.1f}× for groups"
        f" of {_GROUPS[-1]}: auto takes what is faster for the group at hand",
    )


def limits(figures: list[Figure]) -> Limits:
    """Say what a single put waits for on a disk with these figures."""
    alone = {figure.method: figure.latency_ms(0.5) for figure in figures if figure.group == 1}
    flush, cpu = alone[_FLUSH], alone["none"]
    return Limits(flush, max(0.0, alone["auto"] - flush - cpu), cpu)


@contextmanager
def scratch(root: Path) -> Iterator[Path]:
    """A folder inside ``root``; it and folders made for it are removed. Raises OSError."""
    missing = [path for path in (root, *root.parents) if not path.exists()]
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A dot-name: the programs and fsck ignore it.
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for path in missing:
            try:
                path.rmdir()
            except OSError:
                break  # someone uses it by now


def _try_floor(folder: Path, seconds: float, body: bytes, figure: Figure) -> None:
    """Measure the disk without a spool."""
    folder.mkdir()
    with closing(_FLOORS[figure.method](folder, body)) as each:
        next(each)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or not figure.seconds:
            figure.seconds.append(duration_of(lambda: next(each)))
    shutil.rmtree(folder)


def _create(folder: Path, body: bytes) -> Generator[None, None, None]:
    for number in count():
        yield
        add_file(folder / str(number), body)


def _overwrite(folder: Path, body: bytes) -> Generator[None, None, None]:
    """Overwrite blocks of a file, as many as a message has; they exist, so no journal is needed."""
    size = max(1, len(body))
    step = -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
    fd = os.open(folder / "blocks", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(fd, b"x" * step * _BLOCKS, 0)
        os.fsync(fd)
        for number in count():
            yield
            os.pwrite(fd, (body or b"y"), number % _BLOCKS * step)
            os.fdatasync(fd)
    finally:
        os.close(fd)


_FLOORS = {_FLOOR: _create, _FLUSH: _overwrite}


def _try_put(spool: Spool, seconds: float, body: bytes, figure: Figure) -> None:
    messages = [NewMessage(body)] * figure.group

    def one() -> None:
        spool.complete(prepare.put(spool.context, _QUEUE, messages))

    one()  # not measured: the first put pays for the removal of the messages before it
    end = time.perf_counter() + seconds
    first = True
    while first or time.perf_counter() < end:
        first = False
        figure.seconds.append(duration_of(one))


def _remove_messages(spool: Spool) -> None:
    spool.queue(_QUEUE).purge()
    spool.reap()


def _is_own_mount(folder: Path) -> bool:
    """Whether the root of the spool, in which ``folder`` is, is where a filesystem is mounted."""
    root = folder.parent.resolve()
    return root.name in mounts_below(root.parent)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # an exception, so that the scratch folder is removed


def _as_text(result: Result) -> str:
    where = "a mount of its own" if result.own_mount else "shared with other files"
    lines = [f"filesystem: {result.filesystem or 'unknown'}, {where}"]
    lines.append("")
    lines.append(
        f"{'':14}{'group':>5}{'messages/s':>12}{'p50':>10}{'p95':>10}{'p99':>10}{'max':>10}"
    )
    last = 0
    for figure in result.figures:
        if figure.method not in _FLOORS and figure.group != last:
            last = figure.group
            lines.append("")
        times = "".join(f"{figure.latency_ms(share):7.2f} ms" for share in (0.5, 0.95, 0.99, 1.0))
        lines.append(f"{figure.method:14}{figure.group:5}{figure.rate:12,.0f}{times}")
    lines.append("")
    lines.append("A group is what shares one sync; its messages wait for it together. raw fsync is")
    lines.append(
        "the plain loop of create, write, fsync, close; raw flush overwrites blocks of one"
    )
    lines.append("file; none is not durable.")
    lines.append("")
    alone = result.limits
    lines.append(
        f"A put alone waits {alone.flush_ms:.2f} ms for the disk's flush, {alone.journal_ms:.2f} ms"
        f" for the filesystem's journal, {alone.cpu_ms:.2f} ms for the CPU."
    )
    lines.append(f"Most is the {alone.largest}: {_CURES[alone.largest]}.")
    lines.append("")
    lines.append(f"--sync {result.advice.sync}: {result.advice.reason}.")
    if not result.own_mount and result.advice.sync != "fsync":
        lines.append("Other writers on this filesystem slow syncfs: a mount of its own is better.")
    return "\n".join(lines)
