"""The links of messages that move to a queue with an index.

A message has its link there, durably, before it comes there. The one in the queue that it leaves is
stale from then on. So it is found by its id wherever a crash leaves it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..context import Context
from ..durability.ids import Held, given_of, hold_patiently, link_path, settle
from ..layout.given_ids import Given, link_name
from ..layout.transitions import IDS, State
from ..layout.tree import STRAY

# Messages whose links share a sync.
PART = 500
_STATES = (State.NEW, State.READY, State.DELAY, State.READY)


class LinksOfMove:
    """Some messages that are about to move, in a ``with``, which locks their ids in the target.

    conflicts: those that have to stay, since a message of the target has the same given id. Methods
    raise OSError, Unavailable.
    """

    def __init__(self, context: Context, source: str, target: str, names: Sequence[str]) -> None:
        self.conflicts: set[str] = set()
        self._tree = context.tree
        self._source, self._target = source, target
        self._names = list(dict.fromkeys(names)) if context.settings.last(target).index else []
        self._held: Held | None = None

    def __enter__(self) -> LinksOfMove:
        links = {}
        for name in self._names:
            found = self._find(name)
            if found is not None:
                links[name] = link_name(found[0].id)
        if not links:
            return self
        self._held = hold_patiently(self._tree, {self._target: links.values()})
        try:
            had = settle(self._tree, self._target, links.values())
            for name, link in links.items():
                if link in had or not self._give(name, link):
                    self.conflicts.add(name)
            self._tree.sync_folder(self._tree.folder(IDS, self._target))
        except BaseException:
            self._held.free()
            raise
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._held is not None:
            self._held.free()

    def _give(self, name: str, link: str) -> bool:
        """Link a message in the target; False if another one that moves has been given its id."""
        while (found := self._find(name)) is not None:
            try:
                self._tree.link(found[2], link_path(self._tree, self._target, link))
                return True
            except FileExistsError:
                return False
            except FileNotFoundError:
                continue  # it has moved on
        return True  # it has gone

    def _find(self, name: str) -> tuple[Given, os.stat_result, str] | None:
        """What a message says of its id, its file, and where it is; None if it has no id."""
        for state in _STATES:
            path = self._tree.path(state, self._source, name)
            try:
                found = given_of(self._tree, path, name)
            except OSError as error:
                if error.errno in STRAY:
                    continue
                raise
            return None if found is None else (*found, path)
        return None
