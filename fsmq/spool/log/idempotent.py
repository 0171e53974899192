"""Publishing each numbered batch of a writer once, for jobs that can be restarted.

    logs/<log>/writers/<writer>.json    {"number": …, "from": …, "run": …}

Before a batch is published its number is written to the file, with the end of the log. A retry of
that number reads from there on, and finds the batch by the id of its first message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

from ..errors import InvalidValue, as_unavailable
from ..layout import documents
from ..layout.names import check_queue
from .log import Log, LogEntry
from .segment.disk import WRITERS
from .store import Store

_MAX_FILE_BYTES = 4096


class Noted(NamedTuple):
    """The last batch of a writer. start: the end of the log before it. run: the writer's own."""

    number: int
    start: int
    run: dict[str, Any] | None = None


def publish_once(
    log: Log,
    writer: str,
    number: int,
    messages: Sequence[LogEntry],
    *,
    run: dict[str, Any] | None = None,
    check: Callable[[Noted], None] = lambda last: None,
) -> range | None:
    """Publish a batch of a writer, all or none; its offsets, or None if there is a later batch.

    It is stored once, however often it is published, as long as retention keeps it and numbers do
    not decrease. One process at a time publishes for a writer. The messages must have no ids. run:
    an object to note with the number. check: called with the last batch, if it has another number
    or is in the log; it may raise an error.

    Raises what :meth:`Log.publish_many` raises; NoSuchLog also if the log is recreated meanwhile.
    """
    check_queue(writer, "writer")
    if any(message.id is not None for message in messages):
        raise InvalidValue("id", "cannot be given to the messages of a numbered batch")
    store = log._store  # all happens in this log, even if another gets its name
    with as_unavailable(f"cannot publish batch {number} of {writer}"):
        own, noted = f"{writer}:{number}", _read(store, writer)
        is_last = noted is not None and noted.number == number
        first = _find(store, noted.start, own) if noted is not None and is_last else None
        if noted is not None and (first is not None or not is_last):
            check(noted)
        if noted is not None and noted.number > number:
            return None
        if noted is None or not is_last or (first is None and noted.run != run):
            noted = Noted(number, store.end(), run)
            _write(store, writer, noted)
        if not messages:
            return range(noted.start, noted.start)
    if first is None:
        entries = log._entries([replace(messages[0], id=own), *messages[1:]])
        first = store.publish(entries)
        log._note_published(first, len(entries))
    return range(first, first + len(messages))


def _read(store: Store, writer: str) -> Noted | None:
    path = f"{store.disk.folder}/{WRITERS}/{writer}.json"
    try:
        found = documents.read(store.disk.tree, path, _MAX_FILE_BYTES)
        number, start = documents.whole(found, "number"), documents.whole(found, "from")
        return Noted(number, start, documents.inner(found, "run"))
    except (FileNotFoundError, ValueError):
        return None


def _write(store: Store, writer: str, noted: Noted) -> None:
    with closing(store.disk.opened(store.disk.folder)) as tree:
        store.about_ours()  # raises unless the folder is that of our log
        document = {"number": noted.number, "from": noted.start, "run": noted.run}
        tree.replace(f"{WRITERS}/{writer}.json", json.dumps(document).encode() + b"\n")


def _find(store: Store, start: int, own: str) -> int | None:
    """The offset of the message with an id, from an offset on, made durable."""
    store.settle()  # a writer may have died between its append and the sync
    offset = max(start, store.first())
    while True:
        page = store.page(offset, 1000)
        for message in page.messages:
            if message.id == own:
                return message.offset
        if page.next <= offset:
            return None
        offset = page.next
