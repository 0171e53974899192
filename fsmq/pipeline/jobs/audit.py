"""The job audit: the rules of fsck for trees of any size, with a table of what is wrong.

The names are divided into ranges; each task checks one of them with fsck's own rules, and looks at
what is suspicious again as fsck does. A message has its range wherever it stands, so the task sees
it in all its places. Only what spans ranges is put together by the driver: files with several
names, and findings that are reported as one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from pyspark import RDD, StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from fsmq.pipeline.read.finder import open_root
from fsmq.pipeline.read.listing import Listing, Range
from fsmq.spool import Counts, InvalidValue, State
from fsmq.spool.errors import as_unavailable
from fsmq.spool.fsck import Fault, Links, Severity, Share, check_part, links_of, printable

FORMATS = ("parquet", "csv")
SHOWN = 100

_SCHEMA = (
    "group string, kind string, severity string, path string, reason string, repair string,"
    " count long"
)
_Row = tuple[Any, ...]
_PER_TASK = 50_000
_LISTED = 100_000  # findings of one kind that a task lists
_MAX_LINKS = 100_000
# A table that an earlier run wrote, or began to write, may be replaced; nothing else is.
_OF_A_TABLE = ("part-", "_", ".")


class Plan(NamedTuple):
    """How a tree is to be checked.

    offline, bodies: as fsck takes them. pause: seconds between two looks at what is suspicious.
    """

    root: str
    offline: bool = False
    bodies: bool = False
    pause: float = 2.0


class Outcome(NamedTuple):
    """What a task found. counts: messages by state. unlisted: findings by kind beyond the list.
    links: files with several names: inode, path, queue, id."""

    counts: Counter[str]
    queues: set[str]
    unlisted: dict[str, int]
    links: list[tuple[int, str, str, str]]
    findings: list[_Row]


class RangeShare(Share):
    """The messages of a range; with the first range all that is no message."""

    def __init__(self, within: Range) -> None:
        self._within = within
        self.layout = within.low == Range().low

    def may_hold(self, queue: str) -> bool:
        return self._within.may_hold(queue)

    def holds(self, queue: str, message_id: str) -> bool:
        return self._within.low <= (queue, message_id) < self._within.high


def audit(
    spark: SparkSession,
    plan: Plan,
    *,
    to: str | None = None,
    form: str = "parquet",
    dry_run: bool = False,
) -> dict[str, Any]:
    """Check a tree; what was found, with the first findings.

    to: a folder for the table of all findings, as ``form`` says.

    Raises:
        UnusableSpool: the root cannot be read, here or where the tasks run.
        InvalidValue: ``to`` is a folder with something else in it.
        Unavailable
    """
    if to is not None:
        check_place(to)
    shares = [RangeShare(within) for within in _ranges(plan.root, spark)]
    if dry_run:
        return {"root": plan.root, "tasks": len(shares), "table": to}
    outcomes = spark.sparkContext.parallelize(shares, len(shares)).map(partial(_checked, plan))
    outcomes.persist(StorageLevel.DISK_ONLY)
    try:
        parts = outcomes.map(lambda outcome: outcome._replace(findings=[])).collect()
        links = Links(_MAX_LINKS)
        for link in chain.from_iterable(outcome.links for outcome in parts):
            links.add(*link)
        across = links_of(plan.root, links, offline=plan.offline, pause=plan.pause)
        rows = outcomes.flatMap(lambda outcome: outcome.findings)
        table = _table(spark, rows.union(spark.sparkContext.parallelize(_rows(across), 1)))
        table.persist(StorageLevel.MEMORY_AND_DISK)
        if to is not None:
            table.write.mode("overwrite").format(form).options(header="true").save(to)
        return _summary(plan, parts, table, to)
    finally:
        outcomes.unpersist()


def check_place(to: str) -> None:
    """Whether a table may be written to a folder. Raises InvalidValue."""
    if "://" in to or not os.path.exists(to):
        return
    if not os.path.isdir(to):
        raise InvalidValue("to", f"{to!r} is not a folder")
    strange = [name for name in os.listdir(to) if not name.startswith(_OF_A_TABLE)]
    if strange:
        raise InvalidValue(
            "to",
            f"{to!r} holds {strange[0]!r}, which is not part of a table: choose another folder",
        )


def _ranges(root: str, spark: SparkSession) -> list[Range]:
    tree = open_root(root)
    cores = spark.sparkContext.defaultParallelism
    try:
        with as_unavailable(f"cannot list {root}"):
            listing = Listing(tree, lambda _: True, [State.NEW, State.READY, State.DELAY])
            return listing.split(lambda names: min(4 * cores, names // _PER_TASK))
    finally:
        tree.close()


def _checked(plan: Plan, share: RangeShare) -> Outcome:
    """A task: what a share holds, and what is wrong there."""
    tree = open_root(plan.root)
    try:
        part = check_part(
            tree, share, bodies=plan.bodies, offline=plan.offline, pause=plan.pause, listed=_LISTED
        )
    finally:
        tree.close()
    counts: Counter[str] = Counter(removed=part.report.removed, staged=part.report.staged)
    for one in part.report.queues.values():
        counts.update(one._asdict())
    unlisted = {kind.value: number for kind, number in part.report.unlisted.items()}
    return Outcome(
        counts, set(part.report.queues), unlisted, list(part.links.items()), _rows(part.faults)
    )


def _rows(faults: Iterable[Fault]) -> list[_Row]:
    rows = []
    for finding, _, group in faults:
        row = finding.as_dict()
        # A finding without a group is a row of its own.
        rows.append((group or row["path"], *row.values()))
    return rows


def _table(spark: SparkSession, rows: RDD[_Row]) -> DataFrame:
    """One row for each finding; those of one kind and one group are one, as fsck reports them."""
    first = f.min(f.struct("path", "reason", "repair")).alias("first")
    return (
        spark.createDataFrame(rows, _SCHEMA)
        .groupBy("group", "kind", "severity")
        .agg(first, f.sum("count").alias("count"))
        .select("kind", "severity", "first.path", "first.reason", "first.repair", "count")
        .orderBy("severity", "kind", "path")
    )


def _summary(
    plan: Plan, outcomes: list[Outcome], table: DataFrame, to: str | None
) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    unlisted: Counter[str] = Counter()
    queues: set[str] = set()
    for outcome in outcomes:
        counts.update(outcome.counts)
        unlisted.update(outcome.unlisted)
        queues |= outcome.queues
    kinds = table.groupBy("severity", "kind").agg(f.sum("count").alias("n")).collect()
    errors = sum(row["n"] for row in kinds if row["severity"] == Severity.ERROR.value)
    return {
        "root": printable(plan.root),
        "tasks": len(outcomes),
        "clean": not errors,
        "messages": sum(counts[state] for state in Counts._fields),
        "queues": len(queues),
        **{name: counts[name] for name in (*Counts._fields, "removed", "staged")},
        "errors": errors,
        "warnings": sum(row["n"] for row in kinds) - errors,
        "kinds": {row["kind"]: row["n"] for row in sorted(kinds)},
        "unlisted": dict(unlisted),
        "findings": [row.asDict() for row in table.take(SHOWN)],
        "table": to,
    }
