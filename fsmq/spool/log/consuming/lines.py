"""The lines of a channel's progress; each states one fact about some offsets.

    fsmq-channel 1 <uuid7> <generation> <lost> <first lost> <skipped> <buried> <crc32>
    done|lost|skipped|buried <from>-<to>,… <crc32>
    claimed|released|unburied <n> <until> <from>-<to>,… <crc32>
    sought 0-<to> <crc32>
    next <crc32>

The first is at the top. ``next`` seals a file: later lines are in another file. A line that does
not verify is ignored: its writer was killed, or the disk has lost it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..ranges import Range

DONE, LOST, SKIPPED, BURIED = "done", "lost", "skipped", "buried"
CLAIMED, RELEASED, UNBURIED = "claimed", "released", "unburied"
SOUGHT, NEXT = "sought", "next"
_ENDS, _HOLDS = (DONE, LOST, SKIPPED, BURIED, SOUGHT), (CLAIMED, RELEASED, UNBURIED)
MAX_HEAD_BYTES = 256
# More ranges go into another line, so that damage costs no more than these.
_MOST_RANGES = 256
# Where the disk has lost a page there can be zeros, without a line feed after them.
_between = re.compile(rb"[\n\0]+")


@dataclass(slots=True)
class Tally:
    """What a channel did not finish normally, over all its generations.

    lost: messages that retention took, or damage. first_lost: the offset of the first. skipped,
    buried: by on_poison.
    """

    lost: int = 0
    first_lost: int | None = None
    skipped: int = 0
    buried: int = 0


class Line(NamedTuple):
    """Offsets, and what happened to them.

    deliveries: how often they were handed out. until_ns: when that ends, Unix nanoseconds.
    """

    kind: str
    ranges: Sequence[Range] = ()
    deliveries: int = 0
    until_ns: int = 0

    @property
    def is_hold(self) -> bool:
        return self.kind in _HOLDS


def encode_head(uuid: str, generation: int, tally: Tally) -> bytes:
    first = "-" if tally.first_lost is None else tally.first_lost
    counts = f"{tally.lost} {first} {tally.skipped} {tally.buried}"
    return _sealed(f"fsmq-channel 1 {uuid} {generation} {counts}")


def parse_head(data: bytes) -> tuple[bytes, int, Tally] | None:
    """The first line of a file, its generation and its counts; None if it is damaged."""
    line, feed, _ = data.partition(b"\n")
    fields = _opened(line)
    if fields is None or not feed or fields[:2] != ["fsmq-channel", "1"]:
        return None
    try:
        _, generation, lost, first, skipped, buried = fields[2:]
        first_lost = None if first == "-" else int(first)
        return line + feed, int(generation), Tally(int(lost), first_lost, int(skipped), int(buried))
    except ValueError:
        return None


def encode(lines: Iterable[Line]) -> bytes:
    return b"".join(_encoded(line) for line in lines)


def _encoded(line: Line) -> bytes:
    if line.kind == NEXT:
        return _sealed(NEXT)
    text = f"{line.kind} {line.deliveries} {line.until_ns}" if line.is_hold else line.kind
    ranges = [f"{start}-{end}" for start, end in line.ranges]
    parts = range(0, len(ranges), _MOST_RANGES)
    return b"".join(_sealed(f"{text} {','.join(ranges[at : at + _MOST_RANGES])}") for at in parts)


def parse(data: bytes) -> Iterator[Line]:
    """The lines in a part of a file that verify."""
    for text in _between.split(data):
        fields = _opened(text)
        if fields is None:
            continue
        try:
            found = _line(fields)
        except ValueError:
            continue
        if found is not None:
            yield found


def _line(fields: list[str]) -> Line | None:
    if fields == [NEXT]:
        return Line(NEXT)
    kind, ranges = fields[0], [_range(one) for one in fields[-1].split(",")]
    if kind in _ENDS and len(fields) == 2:
        return Line(kind, ranges)
    if kind in _HOLDS and len(fields) == 4:
        return Line(kind, ranges, int(fields[1]), int(fields[2]))
    return None  # of a newer version


def _range(text: str) -> Range:
    start, _, end = text.partition("-")
    return int(start), int(end)


def _sealed(text: str) -> bytes:
    data = text.encode()
    return b"%s %08x\n" % (data, zlib.crc32(data))


def _opened(line: bytes) -> list[str] | None:
    text, _, seal = line.rpartition(b" ")
    if not text or seal != b"%08x" % zlib.crc32(text):
        return None
    return text.decode("ascii", "replace").split(" ")
