"""``spark.read.format("fsmq")``: a snapshot of a spool. Nothing is claimed and nothing written.

Every message is told as it was at the moment when it was read. One that is in the spool all the
time is in the snapshot once, also if it changes its state meanwhile: the listing sees to that (see
`listing`), and whoever then finds it gone looks along the direction of travel.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from fsmq.pipeline.columns import OF_CONTENT, OF_FILE, Batches, Found, check_schema
from fsmq.pipeline.filters import Pushed
from fsmq.pipeline.finder import Finder, open_tree
from fsmq.pipeline.listing import Listing, Queues, Range
from fsmq.pipeline.options import Options
from fsmq.spool import InvalidValue, State
from fsmq.spool.compression import MAX_PLAIN_BYTES
from fsmq.spool.errors import telling
from fsmq.spool.filesystem import looks_coarse
from fsmq.spool.message import MAX_HEADER_BYTES
from fsmq.spool.names import facts
from fsmq.spool.stamps import Stamps
from fsmq.spool.tree import Tree

OPTIONS = ("root", "queue", "columns", "partitions", "maxBodyBytes")

# What a record batch can carry with room for the others in it.
_LARGEST_BODY = 2_000_000_000
_PER_PARTITION = 20_000
_NAMES_IN_MEMORY = 500_000


@dataclass
class Part(InputPartition):
    """One task's share: a range of names in all folders."""

    within: Range


class SnapshotReader(DataSourceReader):
    """Reads messages as they stand in the tree.

    Raises:
        InvalidValue: an option or a column that does not fit.
    """

    def __init__(self, schema: StructType, given: Options) -> None:
        self._schema = check_schema(schema)
        self._root = given.root()
        self._queues = Queues(given.required("queue", "jobs"))
        self._partitions = given.integer("partitions", 0)
        self._limit = given.integer("maxBodyBytes", MAX_PLAIN_BYTES)
        if self._limit > _LARGEST_BODY:
            raise InvalidValue("option maxBodyBytes", f"is more than {_LARGEST_BODY:,}")
        self._pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802  # Spark's name
        """Take in the filters that spare work; the rest is Spark's."""
        return self._pushed.push(filters)

    def partitions(self) -> Sequence[Part]:
        """Ranges of names of about the same length.

        Raises:
            UnusableSpool, NoSuchQueue, Unavailable
        """
        tree = open_tree(self._root)
        try:
            with telling(f"cannot list {self._root}"):
                self._queues.check(tree)
                return [Part(within) for within in self._listing(tree).split(self._into)]
        finally:
            tree.close()

    def _into(self, messages: int) -> int:
        if self._partitions:
            return self._partitions
        cores = os.cpu_count() or 1
        return min(messages // _PER_PARTITION, max(2 * cores, messages // _NAMES_IN_MEMORY))

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
            with telling(f"cannot read {self._root}"):
                coarse = looks_coarse(tree)
                batches = Batches(self._schema, coarse=coarse, limit=self._limit)
                for message in self._messages(tree, partition.within, Stamps(coarse)):
                    batch = batches.add(message)
                    if batch is not None:
                        yield batch
                yield from batches.rest()
        finally:
            tree.close()

    def _messages(self, tree: Tree, within: Range, stamps: Stamps) -> Iterator[Found]:
        columns = set(self._schema.names)
        passes = self._pushed.looked_at(stamps)
        bodies = "body" in columns
        headers = not OF_CONTENT.isdisjoint(columns)
        looks = self._pushed.needs_file() or not OF_FILE.isdisjoint(columns)
        looks_at_delayed = looks or self._pushed.needs_stamp() or "state" in columns
        with closing(Finder(tree, self._limit)) as finder:

            def filled(listed: Found) -> Found | None:
                opens = bodies or (headers and facts(listed.id).headed)
                # Opening tells all, but a filter may spare it.
                if (not opens or passes) and (
                    looks_at_delayed if listed.place is State.DELAY else looks
                ):
                    found = finder.look(listed)
                    if found is None or (passes and not passes(found)):
                        return None
                    if not opens:
                        return found
                if not opens:
                    return listed
                found = finder.read(listed, None if bodies else MAX_HEADER_BYTES)
                return None if found and passes and not passes(found) else found

            for listed in self._listed(tree, within):
                message = filled(listed)
                if message is not None:
                    yield message

    def _listed(self, tree: Tree, within: Range) -> Iterator[Found]:
        for queue, listed in sorted(self._listing(tree).names(within).items()):
            for message_id, place in sorted(listed.seen.items()):
                yield Found(queue, message_id, place)
            for message_id in sorted(listed.removed):
                yield Found(queue, message_id, State.REMOVE)
