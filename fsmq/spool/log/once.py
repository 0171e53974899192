"""Publishing numbered batches of a writer, each once: what a job that is started again needs.

    logs/<log>/writers/<writer>.json    {"number": …, "from": …}

Before a batch is published the file says its number, and where the log ended then. Whoever
publishes that number again reads from there on, and finds the batch by the id of its first message.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from ..errors import InvalidValue, as_unavailable
from ..layout import documents
from ..layout.names import check_queue
from .log import Log, LogEntry

_FOLDER = "writers"
_MAX_FILE_BYTES = 4096


def publish_once(log: Log, writer: str, number: int, messages: Sequence[LogEntry]) -> range | None:
    """Publish a batch of a writer, all or none; its offsets, None if a later one is there.

    It is stored once, however often it is published, as long as retention keeps it and its numbers
    do not decrease. One process at a time publishes for a writer. The messages must have no ids.

    Raises what :meth:`Log.publish_many` raises.
    """
    check_queue(writer, "writer")
    if any(message.id is not None for message in messages):
        raise InvalidValue("id", "cannot be given to the messages of a numbered batch")
    with as_unavailable(f"cannot publish batch {number} of {writer}"):
        own, noted = f"{writer}:{number}", _read(log, writer)
        if noted is not None and noted[0] > number:
            return None
        first = None
        if noted is None or noted[0] < number:
            noted = (number, log.end())
            _write(log, writer, *noted)
        elif messages:
            first = _find(log, noted[1], own)
        if not messages:
            return range(noted[1], noted[1])
    if first is not None:
        return range(first, first + len(messages))
    return log.publish_many([replace(messages[0], id=own), *messages[1:]])


def is_published(log: Log, writer: str, number: int) -> bool:
    """Whether a batch is in the log, or a later one is noted. Raises Unavailable."""
    with as_unavailable(f"cannot look for batch {number} of {writer}"):
        noted = _read(log, writer)
        if noted is None or noted[0] < number:
            return False
        return noted[0] > number or _find(log, noted[1], f"{writer}:{number}") is not None


def _path(log: Log, writer: str) -> str:
    return f"{log._store.disk.folder}/{_FOLDER}/{writer}.json"


def _read(log: Log, writer: str) -> tuple[int, int] | None:
    try:
        found = documents.read(log.spool.context.tree, _path(log, writer), _MAX_FILE_BYTES)
        return documents.whole(found, "number"), documents.whole(found, "from")
    except (FileNotFoundError, ValueError):
        return None


def _write(log: Log, writer: str, number: int, start: int) -> None:
    tree, path = log.spool.context.tree, _path(log, writer)
    folder = path.rpartition("/")[0]
    if not tree.is_folder(folder):
        try:
            tree.make_entry(folder)
        except FileExistsError:
            pass  # another writer was quicker
        tree.sync_folder(folder.rpartition("/")[0])
    tree.replace(path, json.dumps({"number": number, "from": start}).encode() + b"\n")


def _find(log: Log, start: int, own: str) -> int | None:
    """The offset of the message with an id, from an offset on; it is durable then."""
    log._store.settle()  # a writer may have died between its append and the sync
    offset = max(start, log.first())
    while True:
        page = log.page(offset)
        for message in page.messages:
            if message.id == own:
                return message.offset
        if page.next <= offset:
            return None
        offset = page.next
