"""Where messages of an id were last, by the journal: also of an own id, which tells no time.

The journal has no index, so all of it is searched, the newest segments first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from json.encoder import encode_basestring_ascii
from typing import NamedTuple

from ..layout.names import own_id
from ..layout.transitions import JOURNAL
from ..layout.tree import Tree
from .journal_files import created_ms
from .life import LifeStep, Name, in_order, lines_with


class LastPlaces(NamedTuple):
    """Where messages were last: queues and ids, in the order in which they got there.

    since: from when on the journal was searched, in Unix seconds; None if all of it was.
    """

    names: list[Name]
    since: float | None


def last_places(tree: Tree, message_id: str, known: Iterable[str], budget_s: float) -> LastPlaces:
    """Where messages of an id were last by the journal, whatever their priority or expiry.

    known: the names under which a message of this id may be, too. budget_s: seconds that it may
    take; it is looked at between segments. Raises OSError.
    """
    end = time.monotonic() + budget_s
    names = {message_id, *known}
    quoted = [encode_basestring_ascii(name).encode() for name in names]
    parts = [sign + name for name in quoted for sign in (b'"id":', b'"was":')]
    parts.append(encode_basestring_ascii(f"@{message_id}@")[1:-1].encode())
    steps: list[LifeStep] = []
    since: float | None = None
    for begun_ms, segment in _newest_first(tree):
        if since is not None and time.monotonic() > end:
            return LastPlaces(_ends(steps), since)
        for _, line in lines_with(tree, segment, parts):
            try:
                step = LifeStep.from_json(json.loads(line))
            except (ValueError, RecursionError):
                continue
            if any(one in names or own_id(one) == message_id for one in (step.id, step.was or "")):
                steps.append(step)
        since = begun_ms / 1000
    return LastPlaces(_ends(steps), None)


def _newest_first(tree: Tree) -> list[tuple[int, str]]:
    names = tree.names(tree.folder(JOURNAL))
    begun = ((created_ms(name.removeprefix(".")), name) for name in names)
    return sorted(((ms, name) for ms, name in begun if ms is not None), reverse=True)


def _ends(steps: list[LifeStep]) -> list[Name]:
    """Where the messages of some steps were after the last of these."""
    ends: dict[Name, None] = {}
    for step in in_order(steps):
        for name in step.names:
            ends.pop(name, None)
        ends[step.names[-1]] = None
    return list(ends)
