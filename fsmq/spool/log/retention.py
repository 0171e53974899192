"""Retention: which segments go, oldest first and each as a whole.

One goes when its age, the size of the rest and every channel allow it. A channel's veto holds for
``max_lag``, and while the log has at most ``max_bytes``. Beyond that ``when_full`` decides: the
segment goes and the channel counts what it has lost, or publishers are refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest

from ..errors import NoSuchChannel
from .chain import Piece
from .channels import ChannelStore
from .ranges import Range
from .reader import Known
from .record import FIRST
from .store import Store


@dataclass(slots=True)
class Outcome:
    """What a look has done: how many segments went, how many messages channels have lost by that,
    and which offsets are gone."""

    removed: int = 0
    lost: int = 0
    ranges: list[Range] = field(default_factory=list)


class Retention:
    """Applies the retention of one log. channels: all of its channels. held: keeps others out who
    change settings of the log or of a channel, or make one of them anew."""

    def __init__(
        self,
        store: Store,
        channels: Callable[[], list[ChannelStore]],
        held: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._store = store
        self._disk = store.disk
        self._channels = channels
        self._held = held

    def step(self) -> Outcome:
        """Remove what may go now. Raises NoSuchLog, Unavailable, OSError."""
        outcome = Outcome()
        while self._due() is not None:  # mostly nothing is, and nobody has to wait
            with self._held():
                due = self._due()  # by what is in force until it is done
                if due is None:
                    break
                due(outcome)
        return outcome

    def _due(self) -> Callable[[Outcome], None] | None:
        """What is to be done next."""
        settings = self._store.about_ours().settings
        pieces = self._store.known(True).pieces
        refuses = False
        if pieces and pieces[0].end > pieces[0].start:
            size = sum(piece.limit - FIRST for piece in pieces)
            rest = size - (pieces[0].limit - FIRST)
            age = self._age(pieces)
            is_beyond = settings.max_bytes is not None and size > settings.max_bytes
            is_old = age >= settings.retain_for or (is_beyond and settings.when_full == "drop")
            if is_old and rest >= (settings.retain_bytes or 0):
                if len(pieces) == 1:
                    return self._begin_another
                is_any_behind = self._is_any_behind(pieces[0].end, age, is_beyond)
                refuses = bool(is_any_behind) and settings.when_full == "refuse"
                if is_any_behind is not None and not refuses:
                    return partial(self._remove, pieces[0])
        is_refusing = self._disk.tree.stat(self._disk.refuses) is not None
        return None if refuses == is_refusing else partial(self._refuse, refuses)

    def _age(self, pieces: list[Piece]) -> float:
        """Seconds since the last message of the first piece, or since a moment shortly after it.

        A piece whose time is ahead, since the clock was set back, is as old as the next one.
        """
        now, age = self._disk.clock(), 0.0
        for piece, following in zip_longest(pieces, pieces[1:]):
            last_us = self._store.reader.first_time(following) if following is not None else 0
            last_us = last_us or self._store.reader.last_time_us(Known([piece]))
            age = now - last_us / 1e6 if last_us else 0.0
            if age >= 0:
                break
        return age

    def _is_any_behind(self, end: int, age: float, is_beyond: bool) -> bool | None:
        """Whether a channel will lose messages if all before ``end`` goes; None for a veto."""
        is_any = False
        for channel in self._channels():
            try:
                with channel.locked() as progress:
                    position = progress.position
                max_lag = channel.settings().max_lag
            except NoSuchChannel:
                continue
            if position >= end:
                continue
            if not is_beyond and (max_lag is None or age <= max_lag):
                return None
            is_any = True
        return is_any

    def _begin_another(self, outcome: Outcome) -> None:
        """Begin a segment behind the newest one, which may go then."""
        with self._store.writing() as tail:
            tail.roll_if_used()

    def _remove(self, piece: Piece, outcome: Outcome) -> None:
        for channel in self._channels():
            with suppress(NoSuchChannel):
                outcome.lost += channel.lose_before(piece.end)
        with self._store.writing() as tail:
            outcome.removed += tail.remove_through(piece.number)
        outcome.ranges.append((piece.start, piece.end))

    def _refuse(self, refuses: bool, outcome: Outcome) -> None:
        if not refuses:
            self._disk.tree.unlink(self._disk.refuses)
            return
        with suppress(FileExistsError):
            os.close(self._disk.tree.create(self._disk.refuses))
