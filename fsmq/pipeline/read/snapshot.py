"""``spark.read.format("fsmq")``: a snapshot of a spool. Nothing is claimed and nothing written.

Every message is as it was when it was read. A message that is in the spool all the time is in the
snapshot once, even if its state changes during the read: see `listing`, and the finder, which looks
for a message that has moved along its direction of travel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from fsmq.pipeline.columns import OF_CONTENT, OF_FILE, RUN_MESSAGES, Run, check_schema
from fsmq.pipeline.options import Options
from fsmq.pipeline.read.arrow import Batches, no_collector
from fsmq.pipeline.read.finder import Finder, open_tree
from fsmq.pipeline.read.listing import Group, Listing, Queues, Range
from fsmq.pipeline.read.pushdown import Pushed
from fsmq.spool import InvalidValue, State
from fsmq.spool.checks import MAX_HEADER_BYTES
from fsmq.spool.errors import as_unavailable
from fsmq.spool.on_disk import MAX_PLAIN_BYTES, Stamps, Tree, facts, looks_coarse

OPTIONS = ("root", "queue", "columns", "partitions", "maxBodyBytes")

Passing = Callable[[Run], Run]

# The largest body that fits into a record batch with the others in it.
_LARGEST_BODY = 2_000_000_000
_PER_PARTITION = 20_000
_NAMES_IN_MEMORY = 1_000_000


@dataclass
class Part(InputPartition):
    """One task's share: a range of names in all folders."""

    within: Range


class SnapshotReader(DataSourceReader):
    """Reads the messages in the tree.

    Raises:
        InvalidValue: an option or a column is wrong.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        given = Options(options, OPTIONS)
        self._schema = check_schema(schema)
        self._root = given.root()
        self._queues = Queues(given.required("queue", "jobs"))
        self._partitions = given.integer("partitions", 0)
        self._limit = given.integer("maxBodyBytes", MAX_PLAIN_BYTES)
        if self._limit > _LARGEST_BODY:
            raise InvalidValue("option maxBodyBytes", f"is more than {_LARGEST_BODY:,}")
        self._pushed = Pushed()

    def check(self) -> None:
        """Check that the spool and the queues exist. Raises UnusableSpool, NoSuchQueue."""
        tree = open_tree(self._root)
        try:
            with as_unavailable(f"cannot look into {self._root}"):
                self._queues.check(tree)
        finally:
            tree.close()

    def partitions(self) -> Sequence[Part]:
        """Ranges of names with about the same number of messages.

        Raises:
            UnusableSpool, NoSuchQueue, Unavailable
        """
        tree = open_tree(self._root)
        try:
            with as_unavailable(f"cannot list {self._root}"), no_collector():
                self._queues.check(tree)
                return [Part(within) for within in self._listing(tree).split(self._into)]
        finally:
            tree.close()

    def _into(self, messages: int) -> int:
        if self._partitions:
            return self._partitions
        cores = os.cpu_count() or 1
        # No more tasks than needed, because each scans the whole listing.
        return min(messages // _PER_PARTITION, max(cores, messages // _NAMES_IN_MEMORY))

    def _listing(self, tree: Tree) -> Listing:
        pushed = self._pushed

        def wanted(queue: str) -> bool:
            return self._queues.holds(queue) and pushed.queue(queue)

        return Listing(tree, wanted, pushed.places(), pushed.named())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a range, in the order of their names.

        Raises:
            UnusableSpool, Unavailable
            InvalidValue: a message is larger than the option maxBodyBytes.
        """
        assert isinstance(partition, Part)
        tree = open_tree(self._root)
        try:
            with as_unavailable(f"cannot read {self._root}"), no_collector():
                coarse = looks_coarse(tree)
                batches = Batches(self._schema, coarse=coarse, limit=self._limit)
                for run in self._runs(tree, partition.within, Stamps(coarse)):
                    yield from batches.add(run)
                yield from batches.rest()
        finally:
            tree.close()

    def _runs(self, tree: Tree, within: Range, stamps: Stamps) -> Iterator[Run]:
        passing = self._pushed.looked_at(stamps)
        with closing(Finder(tree, self._limit)) as finder:
            for group in self._listing(tree).groups(within):
                runs = self._filled(finder, group, passing)
                for run in runs if passing is None else map(passing, runs):
                    if run.ids:
                        yield run

    def _filled(self, finder: Finder, group: Group, passing: Passing | None) -> Iterator[Run]:
        """The messages of a group with what the columns need, at the least cost."""
        columns = self._schema.names
        needs_look = self._pushed.needs_file() or not OF_FILE.isdisjoint(columns)
        if group.place is State.DELAY:
            needs_look = needs_look or self._pushed.needs_stamp() or "state" in columns

        def opened(part: Group, at_most: int | None) -> Iterator[Run]:
            if needs_look and passing is not None:  # to open only messages that pass
                part = part._replace(ids=[i for run in finder.look(part) for i in passing(run).ids])
            return finder.read(part, at_most)

        if "body" in columns:
            return opened(group, None)
        headed: list[str] = []
        if not OF_CONTENT.isdisjoint(columns):
            headed = [i for i in group.ids if i.endswith((".h", ".h.z")) and facts(i).headed]
        if headed:
            group = group._replace(ids=sorted(set(group.ids).difference(headed)))
        others = finder.look(group) if needs_look else _listed(group)
        return chain(others, opened(group._replace(ids=headed), MAX_HEADER_BYTES))


def _listed(group: Group) -> Iterator[Run]:
    """The messages of a group, by their names alone."""
    for first in range(0, len(group.ids), RUN_MESSAGES):
        ids = group.ids[first : first + RUN_MESSAGES]
        yield Run(group.queue, group.place, ids, [(0, 0, None)] * len(ids))


class PushingReader(SnapshotReader):
    """The same, with the filters of one query."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802  # Spark's name
        """Take the filters that save work; the others are left to Spark."""
        return self._pushed.push(filters)
