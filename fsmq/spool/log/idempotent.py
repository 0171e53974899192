"""Publishing each numbered batch of a writer once, for jobs that can be restarted.

    logs/<log>/writers/<writer>.json    {"number": …, "from": …}

Before a batch is published its number is written to the file, with the end of the log. A retry of
that number reads from there on, and finds the batch by the id of its first message.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from ..errors import InvalidValue, as_unavailable
from ..layout import documents
from ..layout.names import check_queue
from .log import Log, LogEntry
from .segment.disk import WRITERS
from .store import Store

_MAX_FILE_BYTES = 4096


def publish_once(log: Log, writer: str, number: int, messages: Sequence[LogEntry]) -> range | None:
    """Publish a batch of a writer, all or none; its offsets, or None if there is a later batch.

    It is stored once, however often it is published, as long as retention keeps it and numbers do
    not decrease. One process at a time publishes for a writer. The messages must have no ids.

    Raises what :meth:`Log.publish_many` raises; NoSuchLog also if the log is recreated meanwhile.
    """
    check_queue(writer, "writer")
    if any(message.id is not None for message in messages):
        raise InvalidValue("id", "cannot be given to the messages of a numbered batch")
    store = log._store  # all happens in this log, even if another gets its name
    with as_unavailable(f"cannot publish batch {number} of {writer}"):
        own, noted = f"{writer}:{number}", _read(store, writer)
        if noted is not None and noted[0] > number:
            return None
        first = None
        if noted is None or noted[0] < number:
            noted = (number, store.end())
            _write(store, writer, *noted)
        elif messages:
            first = _find(store, noted[1], own)
        if not messages:
            return range(noted[1], noted[1])
    if first is None:
        entries = log._entries([replace(messages[0], id=own), *messages[1:]])
        first = store.publish(entries)
        log._note_published(first, len(entries))
    return range(first, first + len(messages))


def _read(store: Store, writer: str) -> tuple[int, int] | None:
    path = f"{store.disk.folder}/{WRITERS}/{writer}.json"
    try:
        found = documents.read(store.disk.tree, path, _MAX_FILE_BYTES)
        return documents.whole(found, "number"), documents.whole(found, "from")
    except (FileNotFoundError, ValueError):
        return None


def _write(store: Store, writer: str, number: int, start: int) -> None:
    with closing(store.disk.opened(store.disk.folder)) as tree:
        store.about_ours()  # raises unless the folder is that of our log
        content = json.dumps({"number": number, "from": start}).encode() + b"\n"
        tree.replace(f"{WRITERS}/{writer}.json", content)


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
