"""Helpers for tests of logs and channels."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import ChannelMessage, Spool
from fsmq.spool.log.log import Log
from fsmq.spool.log.log_places import From

MODES = pytest.mark.parametrize("writers", ["host", "hosts"])


def bodies(log: Log, from_: From = 0) -> list[bytes]:
    return [message.body for message in log.read(from_)]


def offsets(messages: Iterable[ChannelMessage]) -> list[int]:
    return [message.offset for message in messages]


def file_names(log: Log) -> list[str]:
    return sorted(os.listdir(log.spool.context.tree.root / "logs" / log.name / "log"))


def segments(log: Log) -> list[Path]:
    folder = log.spool.context.tree.root / "logs" / log.name / "log"
    return [folder / name for name in file_names(log) if name[0] != "."]


def forget(log: Log) -> None:
    """Close the log, so that the next call opens it as a new process would."""
    log.spool.open_logs.close()  # type: ignore[attr-defined]


@contextmanager
def failing_syncs() -> Iterator[None]:
    def fail(fd: int) -> None:
        raise OSError(5, "injected")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        yield


@contextmanager
def opened(root: Path, **settings: Any) -> Iterator[Log]:
    """The log "users" in a new spool; it is created if there are settings."""
    with Spool(root) as spool:
        log = spool.log("users")
        if settings:
            log.create(**settings)
        yield log
