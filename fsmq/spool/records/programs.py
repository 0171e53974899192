"""Programs: what the processes on all hosts report about themselves, for people."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from .metrics import METRICS, Snapshot
from .reports import Report

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Program(NamedTuple):
    """One process, with its counters since its start. None: unknown.

    since: its start, in Unix seconds, and memory, in bytes: only for processes of this host. lag:
    how late each kind of its work is, in seconds. syncs: how many; sync_p50, sync_p99: percentiles
    of their seconds. group: average changes in one sync.
    """

    node: str
    process: str
    pid: int | None
    since: float | None
    memory: int | None
    lag: dict[str, float]
    syncs: int
    sync_p50: float | None
    sync_p99: float | None
    group: float | None
    races_lost: int
    journal_lag: float | None


def program(report: Report, here: str) -> Program:
    """The program of a report; ``here``: the node of this host."""
    pid = report.pid if report.node == here else None
    snapshot = report.snapshot
    syncs = _cells(snapshot, "sync")
    groups = _cells(snapshot, "group")
    number = int(sum(groups[:-1])) if groups else 0
    return Program(
        report.node,
        report.process,
        report.pid,
        _since(pid),
        _memory(pid),
        {key[1]: value for key, value in snapshot.gauges.items() if key[0] == "lag"},
        int(sum(syncs[:-1])) if syncs else 0,
        _quantile("sync", syncs, 0.5),
        _quantile("sync", syncs, 0.99),
        round(groups[-1] / number, 1) if groups and number else None,
        sum(count for key, count in snapshot.counts.items() if key[0] == "lost_race"),
        snapshot.gauges.get(("journal_lag",)),
    )


def _cells(snapshot: Snapshot, what: str) -> list[float]:
    """A histogram, whatever its labels: a number for each bucket, then the sum."""
    found: Iterable[list[float]] = (c for k, c in snapshot.histograms.items() if k[0] == what)
    return [sum(column) for column in zip(*found, strict=True)]


def _quantile(what: str, cells: list[float], share: float) -> float | None:
    """The upper end of the bucket that contains this quantile."""
    wanted = share * sum(cells[:-1])
    if not wanted:
        return None
    seen = 0.0
    for bound, number in zip(METRICS[what].bounds, cells, strict=False):
        seen += number
        if seen >= wanted:
            return bound
    return METRICS[what].bounds[-1]


def _since(pid: int | None) -> float | None:
    try:
        return None if pid is None else os.stat(f"/proc/{pid}").st_ctime
    except OSError:
        return None  # it has just ended, or the system has no such files


def _memory(pid: int | None) -> int | None:
    if pid is None:
        return None
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None
