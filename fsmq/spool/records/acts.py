"""Acts: what people did in the dashboard, one line of the journal each, and the last of them.

They are kept for as long as the journal is, and written by all processes of all hosts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..layout.transitions import JOURNAL
from ..layout.tree import Tree
from .journal_files import is_segment
from .life import lines_with
from .log_steps import VERSION

EVENT = "act"
_MARK = [f'"event":"{EVENT}"'.encode()]
MOST = 200


class Act(NamedTuple):
    """What somebody did.

    at_ms: Unix milliseconds. who: the name of the key; empty without keys. on: the queue,
    ``topics/NAME`` or ``schedules/NAME``. to: a queue that got messages, the queue of a schedule,
    or empty. number: to how many it was done.
    until: when a pause ends; empty for other actions, and for a pause without an end.
    """

    at_ms: int
    who: str
    action: str
    on: str
    to: str
    number: int
    until: str = ""

    @classmethod
    def from_json(cls, found: Any) -> Act:
        """The act in a line of the journal. Raises ValueError if there is none."""
        match found:
            case {
                "event": "act",
                "at": int(at),
                "who": str(who),
                "action": str(action),
                "on": str(on),
                "count": int(count),
            }:
                texts = (found.get(name) for name in ("to", "until"))
                to, until = (text if isinstance(text, str) else "" for text in texts)
                return cls(at, who, action, on, to, count, until)
        raise ValueError("is no act")


class StepOfAct(NamedTuple):
    """An act on its way into the journal. messages: as other steps have them; here one line."""

    act: Act
    via: str
    messages: tuple[None] = (None,)

    @property
    def at_ms(self) -> int:
        return self.act.at_ms

    def lines(self, host: str) -> Iterator[str]:
        """The line as in the journal."""
        act = self.act
        line = {"v": VERSION, "at": act.at_ms, "event": EVENT, "who": act.who}
        line |= {"action": act.action, "on": act.on, "count": act.number}
        line |= {"to": act.to} if act.to else {}
        line |= {"until": act.until} if act.until else {}
        yield json.dumps({**line, "host": host, "via": self.via}, separators=(",", ":")) + "\n"


class Acts:
    """Reads the last acts, and each closed segment of the journal only once."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._read: dict[str, list[Act]] = {}

    def look(self, budget_s: float = 2.0) -> list[Act]:
        """The last acts, the newest first; the oldest may follow in the next look.

        Raises OSError.
        """
        end = time.monotonic() + budget_s
        names = [name for name in self._tree.names(self._tree.folder(JOURNAL)) if is_segment(name)]
        names.sort(key=lambda name: name.removeprefix("."), reverse=True)
        self._read = {name: self._read[name] for name in names if name in self._read}
        found: list[Act] = []
        for name in names:
            acts = self._read.get(name)
            if acts is None:
                if time.monotonic() > end:
                    break
                acts = list(self._acts(name))
                if name[0] != ".":
                    self._read[name] = acts
            found += acts
            if len(found) >= MOST:
                break
        return sorted(set(found), reverse=True)[:MOST]

    def _acts(self, segment: str) -> Iterator[Act]:
        for _, line in lines_with(self._tree, segment, _MARK):
            try:
                yield Act.from_json(json.loads(line))
            except (ValueError, RecursionError):
                continue
