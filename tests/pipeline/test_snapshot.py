"""Snapshots: Spark reads what is in the spool, and opens only the files it needs."""

from __future__ import annotations

import gc
import os
import random
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from inotify_simple import INotify, flags
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import EqualTo, GreaterThan, Not, StringContains, StringStartsWith

from fsmq.pipeline.columns import SCHEMA, Run
from fsmq.pipeline.datasource import columns_of
from fsmq.pipeline.read.arrow import Batches, no_collector
from fsmq.pipeline.read.finder import Finder
from fsmq.pipeline.read.listing import Group, Listing, Range
from fsmq.pipeline.read.snapshot import PushingReader
from fsmq.spool import NewMessage, Spool, State
from fsmq.spool.layout.names import entry
from fsmq.spool.layout.tree import Tree
from fsmq.spool.layout.uuids import uuid7
from tests.harness.mounts import Mount, mount  # noqa: F401 (a fixture)
from tests.pipeline.spools import QUEUES, every_kind, other_files

Read = Callable[..., DataFrame]
Row = dict[str, Any]
Found = set[tuple[str, str, str]]  # queue, id and state


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spool with every kind of message and other files; no test changes it."""
    where = every_kind(tmp_path_factory.mktemp("snapshot") / "mq")
    other_files(where)
    return where


@pytest.fixture
def read(spark: SparkSession) -> Read:
    """``read(root, "jobs", columns="id")`` reads a snapshot."""

    def load(root: Path, queue: str = "*", schema: str | None = None, **more: str) -> DataFrame:
        reader = spark.read.format("fsmq").options(root=str(root), queue=queue, **more)
        return (reader.schema(schema) if schema else reader).load()

    return load


def rows_of(table: DataFrame) -> list[Row]:
    return [row.asDict() for row in table.collect()]


def by_library(root: Path) -> list[Row]:
    """The messages as the library reads them."""
    same = ("queue", "priority", "created_at", "expires_at", "deliveries", "content_type", "body")
    found: list[Row] = []
    with Spool(root, delivers=False, create=False) as spool:
        for queue in spool.queues():
            for state in ("new", "ready", "in_flight", "delayed"):
                for m in spool.queue(queue).peek(10_000, state=state):
                    row = {name: getattr(m, name) for name in same}
                    row["id"] = os.fsencode(m.id).decode("utf-8", "backslashreplace")
                    row |= {"state": state, "visible_at": m.deadline}
                    found.append(row | {"attributes": dict(m.attributes)})
    return found


def by_key(rows: list[Row]) -> dict[tuple[str, str], Row]:
    keyed = {(row["queue"], row["id"]): row for row in rows}
    assert len(keyed) == len(rows), "a message was found twice"
    return keyed


def tree_and_times(root: Path) -> list[tuple[str, int, int]]:
    return sorted(
        (str(p), p.lstat().st_mtime_ns, p.lstat().st_ctime_ns) for p in [root, *root.rglob("*")]
    )


_YEAR_10000 = 253_402_300_800


def test_a_snapshot_equals_what_the_library_reads(root: Path, read: Read) -> None:
    before = tree_and_times(root)
    rows = rows_of(read(root, ",".join(QUEUES)))
    assert tree_and_times(root) == before, "a snapshot changes nothing"
    expected = by_key(by_library(root))
    assert len(expected) > 100
    assert {row["state"] for row in expected.values()} == {"new", "ready", "in_flight", "delayed"}
    live = by_key([row for row in rows if row["state"] != "removed"])
    assert live.keys() == expected.keys()
    for key, row in live.items():
        for name, value in expected[key].items():
            got = row[name]
            if name.endswith("_at"):
                got = None if got is None else got.timestamp()
                value = value if value is None or value < _YEAR_10000 else None
            assert got == value, (key, name)
    sizes = {p.name.rpartition(":")[2]: p.stat().st_size for p in (root / "delay").glob("*:*-*")}
    assert all(row["size"] == sizes.get(row["id"], row["size"]) for row in rows)


def test_removed_messages_are_read_until_they_are_reaped(root: Path, read: Read) -> None:
    rows = rows_of(read(root, columns="queue,id,state,body").where("state = 'removed'"))
    files = {p for p in (root / "remove").iterdir() if p.is_file() and not p.is_symlink()}
    folders = [p for p in (root / "remove").iterdir() if p.is_dir()]
    assert len(rows) == len(files) + 2
    assert len(folders) == 1, "a queue that was deleted as a whole"
    assert sorted(row["body"] for row in rows if row["queue"] == "gone") == [b"1", b"2"]


def test_names_that_are_not_utf_8_are_escaped(root: Path, read: Read) -> None:
    ids = {row["id"] for row in rows_of(read(root, "jobs", columns="id"))}
    assert {r"caf\xe9", "grüße", "notes.h", "report-17"} <= ids
    assert not ids & {"link", "dangling", "pipe", "folder", ".hidden", "with:colon", ""}


@pytest.mark.parametrize(
    ("queue", "queues"),
    [
        ("jobs", {"jobs"}),
        ("jobs, mail@example.org", {"jobs", "mail@example.org"}),
        ("jobs*", {"jobs", "jobs:night"}),
        ("*night,gone*", {"jobs:night", "gone"}),
        ("no*", {"nobodys"}),
        ("never*", set()),
    ],
)
def test_queues_are_selected_by_name_list_and_pattern(
    root: Path, read: Read, queue: str, queues: set[str]
) -> None:
    assert {row["queue"] for row in rows_of(read(root, queue, columns="queue"))} == queues


def test_columns_come_in_the_order_of_the_schema(root: Path, read: Read) -> None:
    table = read(root, "jobs", schema="body binary, state string, id string")
    assert table.columns == ["body", "state", "id"]
    assert ("plain", "ready", "report-17") in {
        (bytes(row["body"]).decode("latin-1"), row["state"], row["id"]) for row in table.collect()
    }
    assert read(root, "jobs", columns="size, id").columns == ["size", "id"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"queue": "jobs"}, 'option root: is missing: .option("root", "/var/lib/fsmq")'),
        ({"root": "ROOT"}, 'option queue: is missing: .option("queue", "jobs")'),
        ({"root": "ROOT", "queue": "job"}, "there is no queue named 'job'"),
        ({"root": "ROOT", "queue": "a b"}, "option queue: 'a b' is not a queue name"),
        ({"root": "here", "queue": "jobs"}, "option root: 'here' is relative"),
        ({"root": "ROOT/nowhere", "queue": "jobs"}, "No such file or directory"),
        ({"root": "ROOT/new", "queue": "jobs"}, "is not a spool: it has no folder 'new'"),
        ({"root": "ROOT", "queu": "jobs"}, "option queu: unknown option; did you mean queue?"),
        ({"root": "ROOT", "path": "x"}, 'give the folder of the spool as .option("root", …)'),
        ({"root": "ROOT", "queue": "jobs", "partitions": "many"}, "'many' is not a whole number"),
        ({"root": "ROOT", "queue": "jobs", "maxBodyBytes": "0"}, "maxBodyBytes: 0 is less than 1"),
        (
            {"root": "ROOT", "queue": "jobs", "columns": "id,boddy"},
            "unknown column 'boddy'; expected some of: q",
        ),
    ],
)
def test_an_error_names_the_wrong_option(
    spark: SparkSession, root: Path, options: dict[str, str], problem: str
) -> None:
    given = {name: value.replace("ROOT", str(root)) for name, value in options.items()}
    with pytest.raises(Exception, match=re.escape(problem)):
        spark.read.format("fsmq").options(**given).load().collect()


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("id string, subject string", "unknown column 'subject'; expected some of: queue, id"),
        ("id string, size string", "has the column 'size' as string; it is bigint"),
    ],
)
def test_a_wrong_schema_is_refused(root: Path, read: Read, schema: str, problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        read(root, "jobs", schema=schema).collect()


def test_a_large_body_fails_unless_it_is_filtered_out(tmp_path: Path, read: Read) -> None:
    with Spool(tmp_path / "mq", sync="none", delivers=False) as spool:
        [small, large] = spool.queue("jobs", create=True).put_many([b"x" * 10, b"x" * 101])
    with pytest.raises(Exception, match=f"message '{large}' has 101 bytes"):
        read(tmp_path / "mq", "jobs", maxBodyBytes="100").collect()
    table = read(tmp_path / "mq", "jobs", maxBodyBytes="100")
    assert [row["id"] for row in rows_of(table.where("size <= 100"))] == [small]


def test_a_spool_on_a_read_only_mount_can_be_read(
    tmp_path: Path,
    read: Read,
    mount: Mount,  # noqa: F811
) -> None:
    every_kind(tmp_path / "mq")
    there = mount(tmp_path / "there", bind=tmp_path / "mq")
    subprocess.run(["mount", "-o", "remount,bind,ro", str(there)], check=True)
    with pytest.raises(OSError, match="Read-only"):
        (there / "new" / "x").touch()
    assert read(there).count() == read(tmp_path / "mq").count() > 100


def test_deliveries_are_unknown_with_times_in_whole_seconds(tmp_path: Path, read: Read) -> None:
    every_kind(tmp_path / "mq")
    whole = 1_790_000_000
    for path in [*(tmp_path / "mq").rglob("*")]:
        os.utime(path, (whole, whole), follow_symlinks=False)
    rows = rows_of(read(tmp_path / "mq", "jobs", columns="state,deliveries,visible_at"))
    assert {row["deliveries"] for row in rows} == {None}
    times = {row["visible_at"].timestamp() for row in rows if row["state"] == "in_flight"}
    assert times == {whole}


def test_queries_on_one_table_are_independent(root: Path, read: Read) -> None:
    table = read(root)
    everything = table.count()
    ready = table.where("state = 'ready'")
    assert 0 < ready.count() < everything == table.count()
    assert table.union(ready).count() == everything + ready.count()
    assert table.join(ready, ["queue", "id", "state"]).count() == ready.count()


# -- filters -------------------------------------------------------------------------------------


def _literals(rows: list[Row]) -> dict[str, list[str]]:
    """Values to compare with, by column: existing ones and others."""
    values: dict[str, list[str]] = {}
    for column in ("queue", "id", "state"):
        some = [*sorted({row[column] for row in rows})[::7], "ready", "jobs", "zz", "ä"]
        values[column] = [f"'{value}'" for value in some if "\\" not in value]
    for column in ("priority", "deliveries", "size"):
        values[column] = [str(v) for v in {row[column] for row in rows} | {-1, 3, 1 << 20}]
    for column in ("created_at", "expires_at", "visible_at"):
        some = sorted({row[column] for row in rows if row[column] is not None})[::5]
        values[column] = [f"timestamp'{v:%Y-%m-%d %H:%M:%S.%f}+00:00'" for v in some]
        values[column].append("timestamp'2001-01-01 00:00:00+00:00'")
    return values


def _filters(chance: random.Random, values: dict[str, list[str]]) -> Iterator[str]:
    """An endless sequence of predicates with every operator that Spark pushes down."""
    while True:
        parts = []
        for _ in range(chance.choice([1, 1, 2])):
            column = chance.choice(list(values))
            one, other = chance.choice(values[column]), chance.choice(values[column])
            bare = one.strip("'")[:9] if one[0] == "'" else ""
            forms = [f"{column} {op} {one}" for op in ("=", "<", "<=", ">", ">=", "<>", "<=>")]
            forms += [f"{column} in ({one}, {other})", f"{column} in ({one}, null)"]
            forms += [f"{column} is null", f"{column} is not null"]
            if bare:
                forms += [f"{column} like {form}" for form in (f"'{bare}%'", f"'%{bare}%'")]
                forms.append(f"{column} like '%{bare[-3:]}'")
            form = chance.choice(forms)
            parts.append(f"not ({form})" if chance.random() < 0.4 else form)
        yield chance.choice([" and ", " or "]).join(parts)


def test_pushed_filters_find_what_spark_finds(root: Path, read: Read) -> None:
    table = read(root, partitions="1")
    is_same = hypothesis.settings.get_current_profile_name() == "same"
    seed = 8 if is_same else random.randrange(1 << 30)
    filters = _filters(random.Random(seed), _literals(rows_of(table)))
    wanted: list[str] = []
    expected: list[Found] = []
    # Ids differ in each run: some filters match nothing.
    while sum(map(bool, expected)) < 8:
        some = list(islice(filters, 24))
        wanted += some
        expected += _passing(table, some)
    parts = [
        table.where(test).select(f.lit(i).alias("i"), "queue", "id", "state")
        for i, test in enumerate(wanted)
    ]
    found: list[Found] = [set() for _ in wanted]
    for row in reduce(lambda one, other: one.union(other), parts).collect():
        found[row["i"]].add((row["queue"], row["id"], row["state"]))
    for i, test in enumerate(wanted):
        assert found[i] == expected[i], f"seed {seed}: {test}"


def _passing(table: DataFrame, tests: list[str]) -> list[Found]:
    """The matches of each test; Spark pushes down nothing in a select."""
    columns = [f.expr(test).alias(f"t{i}") for i, test in enumerate(tests)]
    rows = table.select("queue", "id", "state", *columns).collect()
    return [
        {(row["queue"], row["id"], row["state"]) for row in rows if row[f"t{i}"]}
        for i in range(len(tests))
    ]


# -- what is opened ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opened() -> Iterator[list[str]]:
    """The names of all files that this process opens, from an audit hook."""
    files: list[str] = []
    is_over = False

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and not is_over and isinstance(arguments[0], str):
            files.append(arguments[0].rpartition("/")[2])

    sys.addaudithook(note)
    yield files
    is_over = True  # a hook cannot be removed, and must not keep what later tests open


def in_this_process(
    root: Path, filters: list[Any] | None = None, **options: str
) -> tuple[list[Row], list[Any]]:
    """A snapshot without Spark: its rows, and the filters that remain for Spark."""
    given = {"root": str(root), "queue": "*", **options}
    reading = PushingReader(columns_of(given), given)
    left = list(reading.pushFilters(filters or []))
    parts = reading.partitions()
    return [
        row for part in parts for batch in reading.read(part) for row in batch.to_pylist()
    ], left


def test_messages_are_opened_only_for_headers_and_bodies(root: Path, opened: list[str]) -> None:
    opened.clear()
    rows, _ = in_this_process(root, columns="queue,id,state,size,deliveries,visible_at,created_at")
    names = {row["id"] for row in rows} | {entry(row["queue"], row["id"]) for row in rows}
    assert len(rows) > 100
    assert not names.intersection(opened)
    opened.clear()
    rows, _ = in_this_process(root, columns="queue,id,content_type,attributes")
    seen = [name for name in opened if name in names]
    assert seen
    assert all(name.endswith((".h", ".h.z")) for name in seen)
    found = [row for row in rows if row["content_type"] or row["attributes"]]
    assert 0 < len(found) < len(seen) + 1
    opened.clear()
    in_this_process(root, columns="id,body")
    assert len(names.intersection(opened)) >= len(rows) - 1, "all of them are opened for bodies"


def test_a_query_opens_only_the_messages_it_needs(root: Path, read: Read) -> None:
    table = read(root)
    with INotify(nonblocking=True) as opens:
        opens.add_watch(root / "queues" / "jobs", flags.OPEN)

        def of_messages() -> set[str]:
            return {event.name for event in opens.read(timeout=0) if not event.mask & flags.ISDIR}

        jobs = table.where("queue = 'jobs' and state = 'ready'")
        for unopened in (
            jobs.groupBy("state").agg(f.max("size"), f.max("deliveries"), f.min("created_at")),
            jobs.select("id", "visible_at").where("size >= 0").orderBy("id").limit(3),
            table.selectExpr("count(*)"),
            table.alias("a").join(jobs.alias("b"), "id").selectExpr("a.id", "b.priority"),
        ):
            assert unopened.collect()
            assert not of_messages(), unopened._jdf.queryExecution().toString()
        assert len(jobs.select("body").collect()) == len(of_messages()) > 10
        [one] = jobs.orderBy("id").select("id").limit(1).collect()
        assert jobs.where(f.col("id") == one.id).select("body").count() == 1
        assert len(jobs.where(f.col("id") == one.id).select("body").collect()) == 1
        assert of_messages() == {one.id}, "the filter spares the others"


def test_a_pushed_filter_opens_only_matches(root: Path, opened: list[str]) -> None:
    everything, _ = in_this_process(root)
    names = {row["id"] for row in everything}
    names |= {entry(row["queue"], row["id"]) for row in everything}
    body = StringContains(("content_type",), "text")
    for filters, passes in [
        ([EqualTo(("state",), "in_flight")], lambda row: row["state"] == "in_flight"),
        ([GreaterThan(("size",), 500)], lambda row: row["size"] > 500),
        ([EqualTo(("queue",), "jobs:night")], lambda row: row["queue"] == "jobs:night"),
        ([StringStartsWith(("id",), "p99")], lambda row: row["id"].startswith("p99")),
        ([Not(EqualTo(("deliveries",), 0))], lambda row: row["deliveries"] != 0),
    ]:
        opened.clear()
        rows, left = in_this_process(root, [*filters, body])
        assert left == [body], "what is not understood is left to Spark"
        assert rows == [row for row in everything if passes(row)]
        assert 0 < len(rows) < len(everything)
        assert len([name for name in opened if name in names]) == len(rows), filters


# -- concurrent changes --------------------------------------------------------------------------


def _read_after(spool: Spool, change: Callable[[], Any]) -> list[tuple[str, str, bytes | None]]:
    """The id, state and body of messages that were listed before a change and read after it."""
    everywhere = [State.NEW, State.READY, State.DELAY, State.REMOVE]
    groups = list(Listing(spool.tree, lambda queue: True, everywhere).groups(Range()))
    change()
    batches = Batches(SCHEMA)
    finder = Finder(spool.tree, 1000)
    for group in groups:
        for run in finder.read(group):
            assert not list(batches.add(run))
    finder.close()
    return [
        (row["id"], row["state"], row["body"])
        for batch in batches.rest()
        for row in batch.to_pylist()
    ]


def _remaining(spool: Spool) -> set[str]:
    return {p.name.rpartition(":")[2] for p in spool.tree.root.rglob("*-7*-*") if p.is_file()}


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda spool, queue, ids: spool.deliver(), "ready"),
        (lambda spool, queue, ids: queue.claim(9, visibility=900), "in_flight"),
        (
            lambda spool, queue, ids: [queue.release(m.id) for m in queue.claim(9, visibility=9)],
            "ready",
        ),
        (lambda spool, queue, ids: queue.remove(*ids), "removed"),
        (lambda spool, queue, ids: (spool.deliver(), queue.purge()), "removed"),
        (lambda spool, queue, ids: (spool.deliver(), queue.delete()), "removed"),
    ],
)
def test_a_message_that_moved_after_the_listing_is_found(
    spool: Spool, change: Callable[..., Any], state: str
) -> None:
    queue = spool.queue("jobs", create=True)
    ids = queue.put_many([b"1", b"2", b"3"])
    rows = _read_after(spool, lambda: change(spool, queue, ids))
    assert rows == [(id_, state, body) for id_, body in zip(ids, [b"1", b"2", b"3"], strict=True)]


def test_a_message_reaped_after_the_listing_is_left_out(spool: Spool) -> None:
    queue = spool.queue("jobs", create=True)
    [one, other] = queue.put_many([b"1", b"2"])

    def reap() -> None:
        queue.remove(one)
        (spool.tree.root / "remove" / entry("jobs", one)).unlink()

    assert _read_after(spool, reap) == [(other, "ready", b"2")]


def test_a_message_released_during_the_listing_is_read_once(spool: Spool) -> None:
    queue = spool.queue("jobs", create=True)
    queue.put_many([b"1", b"2", b"3"])
    [claimed] = queue.claim(visibility=900)

    class Watched(Tree):
        """A tree that releases a message after the folder of its queue was read."""

        def walk(self, path: str) -> Iterator[os.DirEntry[str]]:
            yield from super().walk(path)
            if path == "queues/jobs" and not released:
                released.append(queue.release(claimed.id))

    released: list[None] = []
    everywhere = [State.NEW, State.READY, State.DELAY, State.REMOVE]
    watched = Watched(spool.tree.root, create=False)
    groups = list(Listing(watched, lambda queue: True, everywhere).groups(Range()))
    watched.close()
    assert released
    assert Counter(i for group in groups for i in group.ids) == Counter(_remaining(spool))


def test_an_id_put_again_after_its_removal_is_two_messages(root: Path, spool: Spool) -> None:
    queue = spool.queue("jobs", create=True)
    queue.put(b"old", id="report-17")
    queue.remove("report-17")
    queue.put(b"new", id="report-17")
    rows, _ = in_this_process(spool.tree.root)
    assert sorted((row["state"], row["body"]) for row in rows) == [
        ("ready", b"new"),
        ("removed", b"old"),
    ]


def test_times_of_bare_ids_are_the_same_in_bulk(spool: Spool) -> None:
    queue = spool.queue("jobs", create=True)
    queue.put_many([b""] * 2500)
    earliest, latest = (
        "00000000-0000-7000-8000-000000000000",
        "ffffffff-ffff-7fff-bfff-ffffffffffff",
    )
    queue.put(b"", id=earliest)
    queue.put(b"", id=latest)
    spool.deliver()

    def times() -> dict[str, tuple[Any, ...]]:
        rows, _ = in_this_process(spool.tree.root, columns="id,created_at,priority,expires_at")
        return {row["id"]: (row["created_at"], row["priority"], row["expires_at"]) for row in rows}

    bare = times()
    assert len(bare) == 2502
    assert bare[earliest][0].timestamp() == 0
    assert bare[latest][0] is None, "beyond the year 9999"
    # A foreign name makes the reader parse all ids of its run one by one.
    folder = spool.tree.root / "queues" / "jobs"
    strange = [f"{list(bare)[n]}\n{list(bare)[n + 1]}" for n in (5, 1500, 2500)]
    for name in strange:
        (folder / name).write_bytes(b"")
    mixed = times()
    assert [mixed.pop(name) for name in strange] == [(None, 0, None)] * 3
    assert mixed == bare


@contextmanager
def churn(spool: Spool) -> Iterator[None]:
    """Claim and release messages in a thread."""
    over = threading.Event()

    def work() -> None:
        queue = spool.queue("jobs", create=True)
        while not over.is_set():
            for message in queue.claim(3, visibility=900):
                queue.release(message.id)
            over.wait(0.002)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()


def test_every_message_is_read_once_while_others_claim(spool: Spool) -> None:
    ids = spool.queue("jobs", create=True).put_many(b"%d" % number for number in range(300))
    spool.deliver()
    with churn(spool):
        for _ in range(30):
            rows, _ = in_this_process(spool.tree.root, columns="id,body", partitions="3")
            assert sorted(row["id"] for row in rows) == sorted(ids)
            assert sorted(int(row["body"]) for row in rows) == list(range(300))


# -- batches -------------------------------------------------------------------------------------


def test_a_batch_is_bounded_in_rows_and_unpacked_bytes(spool: Spool) -> None:
    many = Batches(SCHEMA)
    run = Run("jobs", State.READY, [uuid7() for _ in range(1000)], [(0, 0, b"")] * 1000)
    sizes = [len(batch) for _ in range(5) for batch in many.add(run)]
    assert sizes + [len(batch) for batch in many.rest()] == [2_000, 2_000, 1_000]
    uneven = Batches(SCHEMA)
    runs = [run, run._replace(ids=run.ids[:999], files=run.files[:999]), run, run]
    sizes = [len(batch) for one in runs for batch in uneven.add(one)]
    assert sizes + [len(batch) for batch in uneven.rest()] == [1_999, 2_000]

    mebibyte = 1024 * 1024
    queue = spool.queue("zeros", create=True)
    queue.configure(compression="zlib")
    ids = queue.put_many([bytes(mebibyte)] * 50)
    queue.configure(compression=None)
    ids += queue.put_many([bytes(mebibyte)] * 30)
    large = Batches(SCHEMA)
    finder = Finder(spool.tree, 64 * mebibyte)
    runs = finder.read(Group("zeros", State.NEW, ids))
    batches = [batch for run in runs for batch in large.add(run)]
    batches += large.rest()
    finder.close()
    assert [id_ for batch in batches for id_ in batch.column("id").to_pylist()] == ids
    lengths = [[len(body) for body in batch.column("body").to_pylist()] for batch in batches]
    assert all(set(of_batch) == {mebibyte} for of_batch in lengths)
    assert max(map(sum, lengths)) <= 17 * mebibyte
    assert min(map(sum, lengths[:-1])) > 8 * mebibyte, "no more of them than needed"


def test_the_garbage_collector_is_paused_and_frozen() -> None:
    with no_collector():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


# -- partitions ----------------------------------------------------------------------------------


def test_ranges_of_names_split_a_queue_evenly(spool: Spool) -> None:
    spool.queue("jobs", create=True).put_many(NewMessage(b"", priority=n % 3) for n in range(2000))
    spool.deliver()
    # A small sample of the names, as with millions of messages.
    listing = Listing(spool.tree, lambda queue: True, [State.READY], sample=128)
    ranges = listing.split(lambda messages: round(messages / 500))
    assert 3 <= len(ranges) <= 5
    sizes = [sum(len(g.ids) for g in listing.groups(within)) for within in ranges]
    assert sum(sizes) == 2000
    assert max(sizes) < 2 * 2000 / len(ranges)


def test_partitions_are_read_in_parallel_and_in_order(root: Path, read: Read) -> None:
    table = read(root, columns="queue,id,state", partitions="5")
    assert table.rdd.getNumPartitions() == 5
    ready = [(r["queue"], r["id"]) for r in table.collect() if r["state"] == "ready"]
    assert ready == sorted(ready), "the order of the spool"
