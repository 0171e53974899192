"""Retention removes segments, oldest first and each as a whole.

A segment is removed when its age, the size of the rest and every channel allow it. A channel's veto
holds for ``max_lag``, and while the log has at most ``max_bytes``. Beyond that ``when_full``
decides: the segment is removed and the channel counts its losses, or publishers are refused. A
channel that cannot be read, or whose lock a program keeps, counts as one that has read nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import zip_longest

from ..errors import FsmqError, NoSuchChannel
from .consuming.channels import ChannelStore
from .consuming.open_channel import TENDING_S
from .logs import Logs
from .reader import Known
from .segment.record import FIRST, Piece
from .store import Store


class Retention:
    """Applies the retention of one log."""

    def __init__(self, logs: Logs, store: Store) -> None:
        self._logs = logs
        self._store = store
        self._disk = store.disk
        # The errors of channels that could not be read.
        self._faults: dict[str, FsmqError | OSError] = {}

    def step(self) -> int:
        """Remove segments that may go now; how many.

        Raises NoSuchLog, Unavailable, OSError; the error of a channel only at the end.
        """
        removed = 0
        while self._due() is not None:  # mostly nothing is due, and nobody has to wait
            with self._logs.held(self._disk.name, writes=False):
                due = self._due()  # decided under the lock, so that settings cannot change
                if due is None:
                    break
                removed += due()
        for fault in self._faults.values():
            raise fault
        return removed

    def _due(self) -> Callable[[], int] | None:
        """The next action, if any."""
        settings = self._store.about_ours().settings
        pieces = self._store.known(True).pieces
        refuses = False
        if pieces and pieces[0].end > pieces[0].start:
            size = sum(piece.limit - FIRST for piece in pieces)
            rest = size - (pieces[0].limit - FIRST)
            age = self._age(pieces)
            is_beyond = settings.max_bytes is not None and size > settings.max_bytes
            if (is_beyond or age >= settings.retain_for) and rest >= (settings.retain_bytes or 0):
                if len(pieces) == 1:
                    return self._begin_another
                is_any_behind = self._is_any_behind(pieces[0].end, age, is_beyond)
                refuses = bool(is_any_behind) and settings.when_full == "refuse"
                if is_any_behind is not None and not refuses:
                    return partial(self._remove, pieces[0])
        is_refusing = self._disk.tree.stat(self._disk.refuses) is not None
        return None if refuses == is_refusing else partial(self._refuse, refuses)

    def _age(self, pieces: list[Piece]) -> float:
        """Seconds since the last message of the first piece, or since shortly after it.

        A piece whose time is in the future, as the clock was set back, is as old as the next one.
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
        """Whether a channel loses messages if all before ``end`` is removed; None for a veto."""
        is_any = False
        for channel in self._channels():
            try:
                position, max_lag = self._reached(channel)
            except NoSuchChannel:
                continue
            if position >= end:
                continue
            if not is_beyond and (max_lag is None or age <= max_lag):
                return None
            is_any = True
        return is_any

    def _reached(self, channel: ChannelStore) -> tuple[int, float | None]:
        """The position of a channel, and its ``max_lag``. Raises NoSuchChannel."""
        position, max_lag = 0, None
        with self._noting(channel):
            max_lag = channel.settings().max_lag
            if channel.name not in self._faults:
                with channel.locked(TENDING_S) as progress:
                    position = progress.position
        return position, max_lag

    @contextmanager
    def _noting(self, channel: ChannelStore) -> Iterator[None]:
        """Note the error of a channel, which must not hold up the log."""
        try:
            yield
        except NoSuchChannel:
            raise
        except (FsmqError, OSError) as error:
            self._faults.setdefault(channel.name, error)

    def _begin_another(self) -> int:
        """Begin a new segment, so that the newest one can be removed."""
        with self._store.writing() as tail:
            tail.roll_if_used()
        return 0

    def _remove(self, piece: Piece) -> int:
        name, context, lost = self._disk.name, self._logs.context, 0
        for channel in self._channels():
            if channel.name in self._faults:
                continue  # the next claim there counts the loss
            with suppress(NoSuchChannel), self._noting(channel):
                lost += channel.lose_before(piece.end)
        with self._store.writing() as tail:
            removed = tail.remove_through(piece.number)
        context.metrics.count(("log_lost", name), lost)
        context.metrics.count(("log_removed", name), removed)
        context.journal.note_of_log("retired", name, None, [(piece.start, piece.end)])
        return removed

    def _channels(self) -> list[ChannelStore]:
        names = self._disk.tree.folders(self._disk.channels)
        return [self._logs.channel_of(self._store, name) for name in names]

    def _refuse(self, refuses: bool) -> int:
        if not refuses:
            self._disk.tree.unlink(self._disk.refuses)
            return 0
        with suppress(FileExistsError):
            os.close(self._disk.tree.create(self._disk.refuses))
        return 0
