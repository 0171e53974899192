"""Retention: which segments go, oldest first and each as a whole.

One goes when its age, the size of the rest and every channel allow it. A channel's veto holds for
``max_lag``, and while the log has at most ``max_bytes``. Beyond that ``when_full`` decides: the
segment goes and the channel counts what it has lost, or publishers are refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from ..errors import NoSuchChannel
from .chain import Piece
from .channels import ChannelStore
from .disk import REFUSES
from .ranges import Range
from .reader import Known
from .record import FIRST
from .store import Store


class Outcome(NamedTuple):
    """What a look has done: segments that went, by name, and what they had; channels that lost
    messages."""

    removed: list[str]
    lost: dict[str, int]
    ranges: list[Range]


class Retention:
    """Applies the retention of one log. channels: all of its channels."""

    def __init__(self, store: Store, channels: Callable[[], list[ChannelStore]]) -> None:
        self._store = store
        self._disk = store.disk
        self._channels = channels

    def step(self) -> Outcome:
        """Remove what may go now. Raises NoSuchLog, Unavailable, OSError."""
        settings = self._store.settings
        outcome = Outcome([], {}, [])
        known = self._store.known(True)
        sizes = [piece.limit - FIRST for piece in known.pieces]
        rest, refuses = sum(sizes), False
        for number, piece in enumerate(known.pieces):
            age = self._age(known.pieces, number)
            is_beyond = settings.max_bytes is not None and rest > settings.max_bytes
            is_old = age >= settings.retain_for or (is_beyond and settings.when_full == "drop")
            if not is_old or rest - sizes[number] < (settings.retain_bytes or 0):
                break
            if number == len(known.pieces) - 1:
                with self._store.writing() as tail:
                    tail.roll_if_used()  # at the next look it is not the newest one
                break
            is_any_behind = self._is_any_behind(piece.end, age, is_beyond)
            if is_any_behind is None:
                break
            if is_any_behind and settings.when_full == "refuse":
                refuses = True
                break
            self._remove(piece, outcome)
            rest -= sizes[number]
        self._refuse(refuses)
        return outcome

    def _age(self, pieces: list[Piece], number: int) -> float:
        """Seconds since the last message of a piece, or since a moment shortly after it.

        A piece whose time is ahead, since the clock was set back, is as old as the next one.
        """
        now, age = self._disk.clock(), 0.0
        for at, piece in enumerate(pieces[number:], number):
            following = pieces[at + 1] if at + 1 < len(pieces) else None
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

    def _remove(self, piece: Piece, outcome: Outcome) -> None:
        for channel in self._channels():
            with suppress(NoSuchChannel):
                lost = channel.lose_before(piece.end)
                outcome.lost[channel.name] = outcome.lost.get(channel.name, 0) + lost
        with self._store.writing() as tail:
            outcome.removed.extend(tail.remove_through(piece.number))
        outcome.ranges.append((piece.start, piece.end))

    def _refuse(self, refuses: bool) -> None:
        path = f"{self._disk.folder}/{REFUSES}"
        if not refuses:
            self._disk.tree.unlink(path)
            return
        with suppress(FileExistsError):
            os.close(self._disk.tree.create(path))
