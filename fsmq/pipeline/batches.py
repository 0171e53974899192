"""The making of Arrow record batches from messages as they were found on the disk.

Column by column, and what a whole run has in common is said once for it: there are millions of
messages, and what is done for one of them alone counts against the few system calls that read it.
"""

from __future__ import annotations

import gc
import re
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from fsmq.pipeline.columns import (
    OF_CONTENT,
    RUN_BYTES,
    Run,
    created_us,
    deliveries_of,
    expires_us,
    shown,
    state_of,
    visible_us,
)
from fsmq.spool import State
from fsmq.spool.compression import MAX_PLAIN_BYTES
from fsmq.spool.message import unpack
from fsmq.spool.names import PLAIN, UUID7, Facts, facts
from fsmq.spool.stamps import Stamp, Stamps

# Small, so that a batch is still in the processor's cache when it is sent, and Spark works on one
# while the next is read.
MAX_ROWS = 2_000
# With the run that makes it full a batch has no more than 16 MiB of bodies, and one body.
MAX_BYTES = 12 * 1024 * 1024

_Content = tuple[bytes | None, str | None, Mapping[str, str]]  # body, content type, attributes
_NO_ATTRIBUTES: Mapping[str, str] = {}
_FLAGS = (".h", ".z")
# No name has a slash in it.
_bare_ids = re.compile(rf"(?:{UUID7}/)*")


class Batches:
    """Collects messages into record batches of a schema, bounded by rows and by bytes.

    schema: the columns wanted, checked. coarse: the filesystem keeps whole seconds only. limit:
    bytes that a compressed body may unpack to; one beyond stays as it is in the file.
    """

    def __init__(
        self, schema: StructType, *, coarse: bool = False, limit: int = MAX_PLAIN_BYTES
    ) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._stamps = Stamps(coarse)
        self._reads = not OF_CONTENT.isdisjoint(schema.names)
        # None: no body is wanted, so none is unpacked.
        self._limit = limit if "body" in schema.names else None
        self._collected: list[_Rows] = []
        self._count = 0
        self._bytes = 0

    def add(self, run: Run) -> Iterator[pa.RecordBatch]:
        """Take messages in; batches when enough are together."""
        for rows in self._rows(run):
            self._collected.append(rows)
            self._count += len(rows.ids)
            self._bytes += rows.bytes
            if self._count >= MAX_ROWS or self._bytes >= MAX_BYTES:
                yield self._batch()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is left when all were added: one batch, or none."""
        if self._count:
            yield self._batch()

    def _batch(self) -> pa.RecordBatch:
        collected, self._collected, self._count, self._bytes = self._collected, [], 0, 0
        return pa.RecordBatch.from_arrays(
            [_array(collected, field) for field in self._schema], schema=self._schema
        )

    def _rows(self, run: Run) -> Iterator[_Rows]:
        """A run with what its files say, in parts: what is small on the disk may be large."""
        whole = _Rows(run, self._stamps)
        if not self._reads or whole.bare or not any(i.endswith(_FLAGS) for i in run.ids):
            yield whole
            return
        first, size = 0, 0
        contents: list[_Content] = []
        for end, (message_id, file) in enumerate(zip(run.ids, run.files, strict=True), 1):
            content = self._content(message_id, file[2])
            contents.append(content)
            size += len(content[0] or b"")
            if size >= RUN_BYTES or end == len(run.ids):
                part = run._replace(ids=run.ids[first:end], files=run.files[first:end])
                yield _Rows(part, self._stamps, contents)
                first, size, contents = end, 0, []

    def _content(self, message_id: str, raw: bytes | None) -> _Content:
        if raw is None or not message_id.endswith(_FLAGS):
            return raw, None, _NO_ATTRIBUTES
        known = facts(message_id)
        if self._limit is None:
            return unpack(raw, known._replace(packed=False))
        return unpack(raw, known, self._limit)


class _Rows:
    """The messages of a run, and what several columns read from them; each is read once.

    contents: None if all files are bodies and nothing else.
    """

    def __init__(
        self, run: Run, stamps: Stamps, contents: Sequence[_Content] | None = None
    ) -> None:
        self.queue, self.place, self.ids, files = run
        self._stamps = stamps
        self.sizes, self._mtimes, self.bodies = zip(*files, strict=True)
        self.types: Sequence[str | None] = [None] * len(files)
        self.attributes: Sequence[Mapping[str, str]] = [_NO_ATTRIBUTES] * len(files)
        if contents is not None:
            self.bodies, self.types, self.attributes = zip(*contents, strict=True)

    @property
    def bytes(self) -> int:
        """Of all bodies together."""
        return sum(len(body) for body in self.bodies if body is not None)

    @cached_property
    def bare(self) -> bool:
        """Whether all ids are UUIDs and nothing else, as most are."""
        return _bare_ids.fullmatch("/".join([*self.ids, ""])) is not None

    @cached_property
    def facts(self) -> list[Facts]:
        return [facts(i) for i in self.ids]

    @cached_property
    def stamps(self) -> list[Stamp | None]:
        return list(map(self._stamps.decode, self.ids, self._mtimes))

    def queues(self) -> list[str]:
        return [self.queue] * len(self.ids)

    def states(self) -> list[str]:
        if self.place is State.DELAY:
            return [state_of(self.place, stamp) for stamp in self.stamps]
        return [state_of(self.place, None)] * len(self.ids)

    def created(self) -> list[int | None]:
        if not self.bare:
            return [created_us(known.created_ms) for known in self.facts]
        # The first 48 bits of each tell the time; read all at once that costs a sixth.
        words = array("Q", bytes.fromhex("".join(self.ids).replace("-", "")))
        if sys.byteorder == "little":
            words.byteswap()
        return [created_us(word >> 16) for word in words[::2]]

    def priorities(self) -> list[int]:
        if self.bare:
            return [PLAIN.priority] * len(self.ids)
        return [known.priority for known in self.facts]

    def expiries(self) -> list[int | None]:
        if self.bare:
            return [PLAIN.expires_s] * len(self.ids)
        return [expires_us(known) for known in self.facts]

    def visible(self) -> list[int | None]:
        if self.place is State.DELAY:
            return [visible_us(self.place, stamp) for stamp in self.stamps]
        return [None] * len(self.ids)

    def deliveries(self) -> list[int | None]:
        coarse = self._stamps.coarse
        return [deliveries_of(self.place, stamp, coarse) for stamp in self.stamps]


def _array(collected: Sequence[_Rows], field: pa.Field) -> pa.Array:
    if field.name == "attributes":
        return _attributes(collected, field.type)
    values = _MAKERS[field.name]
    return pa.array(list(chain.from_iterable(map(values, collected))), field.type)


def _attributes(collected: Sequence[_Rows], kind: pa.DataType) -> pa.Array:
    ends = [0]
    names: list[str] = []
    values: list[str] = []
    for rows in collected:
        for attributes in rows.attributes:
            if attributes:
                names += attributes.keys()
                values += attributes.values()
            ends.append(len(names))
    flat = pa.array(names, pa.string()), pa.array(values, pa.string())
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), *flat, type=kind)


_MAKERS: dict[str, Callable[[_Rows], Sequence[Any]]] = {
    "queue": _Rows.queues,
    "id": lambda rows: rows.ids if rows.bare else list(map(shown, rows.ids)),
    "state": _Rows.states,
    "created_at": _Rows.created,
    "priority": _Rows.priorities,
    "expires_at": _Rows.expiries,
    "visible_at": _Rows.visible,
    "deliveries": _Rows.deliveries,
    "size": lambda rows: rows.sizes,
    "content_type": lambda rows: rows.types,
    "body": lambda rows: rows.bodies,
}


@contextmanager
def no_collector() -> Iterator[None]:
    """Without Python's search for cycles: a million rows make none, and it costs a tenth."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
