"""Archive and replay restore even strange messages exactly."""

from __future__ import annotations

import json
import os
import time
import zlib
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from fsmq.pipeline.jobs import archive
from fsmq.pipeline.jobs.replay import Wish, replay
from fsmq.pipeline.jobs.sending import Plan, send
from fsmq.pipeline.write.rows import check_columns
from fsmq.spool import InvalidValue, Message, NewMessage, Spool
from fsmq.spool.layout.uuids import uuid7
from tests.pipeline.spools import messages

# Spark's start and the first job take a minute where the machine is busy.
pytestmark = pytest.mark.timeout(300)

# Names of queues with a meaning for Spark or other readers of its folders.
QUEUES = ("__x", "null", "__HIVE_DEFAULT_PARTITION__", "007", "q" * 180)
_EVERY_ATTRIBUTE = {
    "".join(map(chr, range(ord("0"), ord("9") + 1))): "",
    "A_.-z": "".join(map(chr, [33, 9, *range(32, 127)])),
    "u": "äöü\U0001f600\u2028\ufeff",
    "a" * 128: "v" * 60_000,
}


def strange_names(queue: str) -> list[bytes]:
    """Names of files that people move in: all possible bytes, and misleading ones."""
    most = 254 - len(queue)
    return [
        bytes(byte for byte in range(1, 64) if byte not in b"./:"),
        bytes(range(64, 160)),
        bytes(range(160, 256)),
        b"\xff",
        b"\\xff",
        b"\\",
        b"\\x5cxff",
        "grüße".encode(),
        "gru\u0308ße".encode(),
        b"\xed\xb3\xa9",  # half a surrogate pair, which is not valid UTF-8
        b"=",
        b"%",
        b"%3D",
        b"_x",
        b"__HIVE_DEFAULT_PARTITION__",
        b"id=1",
        b" ",
        b"null",
        b"~",
        b"notes.h",
        b"p01.x.z",
        uuid7().upper().encode(),
        b"l" * most,
        b"\xe9" * (most - 1),
    ]


def by_hand() -> list[tuple[str, bytes]]:
    """Files whose contents do not match their names, or barely."""
    kinds = [
        ("", b""),
        (".h", b""),
        (".z", b""),
        (".h.z", b"not: closed\n"),
        (".h.z", b"a: b\n\nnot compressed"),
        (".z", zlib.compress(b"cut off" * 99)[:-3]),
        (".h", b"no header\n\n"),
        (".h", b"Content-Type:  spaces \ncontent-type: lower\na: \r\n\nbody"),
        (".h", b"a: 1\na: 2\n\ntwice"),
        (".h", b"a: \xff\n\nno UTF-8 in a header"),
        (".xffffffffff", b"never"),
    ]
    return [
        *((f"{uuid7()}{flags}", body) for flags, body in kinds),
        (f"p42.{uuid7()}.xffffffffff.h.z", b"a: b\n\n" + zlib.compress(b"never")),
        ("empty", b""),
        ("ffffffff-ffff-7fff-bfff-ffffffffffff", b"far off"),
        ("00000000-0000-7000-8000-000000000000", b"1970"),
    ]


def strange_messages(root: Path) -> None:
    """A spool with every kind of strange message, all ready."""
    with Spool(root, sync="none") as spool:
        for name in QUEUES:
            spool.queue(name, create=True).put(name.encode())
        jobs = spool.queue("jobs", create=True)
        jobs.put_many(
            [
                NewMessage(b""),
                NewMessage(b"", content_type="a/b"),
                NewMessage(b"Content-Type: text/plain\n\nbody", attributes={"a": "b"}),
                NewMessage(b"Content-Type: text/plain\n\nno header"),
                NewMessage(b"\n\n", attributes=_EVERY_ATTRIBUTE, content_type='x; y="z"'),
                NewMessage(Random(8).randbytes(1_500_000), priority=99, ttl=86_400 * 360),
                *(NewMessage(b"p%d" % n, priority=n, ttl=7200.5 + n) for n in (0, 1, 99)),
                NewMessage(b"own", id="own.id~1"),
            ]
        )
        packed = spool.queue("packed", create=True)
        for method in ("zlib", "zstd"):
            packed.configure(compression=method)
            packed.put(b"squeezed " * 200, content_type="a/b", attributes={"k": "v"})
            packed.put(zlib.compress(b"twice " * 500) * 2)
            packed.put(b"1" * 5000, priority=5, ttl=3600)
        spool.deliver()
    folder = root / "queues" / "jobs"
    for number, name in enumerate(strange_names("jobs")):
        (folder / os.fsdecode(name)).write_bytes(b"%d" % number)
    for name, body in by_hand():
        (folder / name).write_bytes(body)
    os.utime(folder / "empty", ns=(-(10**18), -(10**18)))
    os.utime(folder / "notes.h", ns=(2**33 * 10**9, 2**33 * 10**9))


def all_of(root: Path) -> dict[tuple[str, str], Message]:
    """Every message of a spool by queue and id."""
    with Spool(root, sync="none") as spool:
        return {
            (queue, message_id): message
            for queue in spool.queues()
            for message_id, message in messages(spool, queue).items()
        }


def sizes_of(root: Path, queue: str) -> dict[str, int]:
    """The size of the file of each message."""
    found = (*root.glob(f"new/{queue}:*"), *root.glob(f"queues/{queue}/*"))
    return {path.name.removeprefix(f"{queue}:"): path.stat().st_size for path in found}


def facts_of(found: dict[tuple[str, str], Message]) -> dict[tuple[str, str], tuple[object, ...]]:
    """The facts of each message that do not change with time."""
    return {
        key: (m.body, m.content_type, dict(m.attributes), m.priority, m.created_at, m.expires_at)
        for key, m in found.items()
    }


def test_archive_and_replay_restore_every_message(spark: SparkSession, tmp_path: Path) -> None:
    root, folder = tmp_path / "mq", tmp_path / "archive"
    strange_messages(root)
    wanted, sizes = facts_of(all_of(root)), sizes_of(root, "packed")
    assert len(wanted) == len(QUEUES) + 10 + 6 + len(strange_names("jobs")) + len(by_hand())
    done = archive.drain(spark, str(root), ["*"], str(folder))
    assert (done["messages"], done["hidden"]) == (len(wanted), 0)
    assert all_of(root) == {}
    back = replay(spark, Plan(str(root), "back"), str(folder), Wish())
    assert (back["messages"], back["repeated"], back["expired"]) == (len(wanted), 0, 0)
    found = facts_of(all_of(root))
    assert found.keys() == wanted.keys()
    assert [key for key in wanted if found[key] != wanted[key]] == []
    # Compressed messages are compressed again, with the present method of the queue.
    back_in = sizes_of(root, "packed")
    assert [i for i in sizes if not back_in[i] <= sizes[i] + 10] == []
    again = replay(spark, Plan(str(root), "again"), str(folder), Wish())
    assert (again["messages"], again["repeated"]) == (0, len(wanted))


def test_a_renewed_message_differs_only_in_its_id(spark: SparkSession, tmp_path: Path) -> None:
    root, folder = tmp_path / "mq", tmp_path / "archive"
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        jobs.configure(default_delay=900, compression="zlib")
        jobs.put(b"1" * 999, priority=7, ttl=3600, delay=0, attributes={"a": "b"})
        jobs.put(b"later", delay=600)
        spool.deliver()
    (root / "queues" / "jobs" / f"p03.{uuid7()}.xffffffffff").write_bytes(b"never")
    (root / "queues" / "jobs" / "caf\udce9").write_bytes(b"by hand")
    before = all_of(root)
    archive.copy(spark, str(root), ["jobs"], str(folder))
    began = time.time()
    assert replay(spark, Plan(str(root), "new"), str(folder), Wish(renew=True))["messages"] == 4
    took = time.time() - began
    with Spool(root, sync="none") as spool:
        spool.deliver()
    new = {key: message for key, message in all_of(root).items() if key not in before}

    def facts(found: dict[tuple[str, str], Message]) -> list[tuple[object, ...]]:
        return sorted(
            (m.body, m.priority, m.content_type, sorted(m.attributes), m.expires_at)
            for m in found.values()
        )

    assert facts(new) == facts(before)
    [old, later] = [m.deadline for m in (*before.values(), *new.values()) if m.body == b"later"]
    assert old is not None
    assert later is not None
    # The rest of the delay was computed before the commit from which it counts.
    assert -1 <= later - old <= took + 1
    assert sum(m.deadline is not None for m in new.values()) == 1  # no default delay


def test_rows_that_cannot_be_put_unchanged_are_rejected(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "mq"
    with Spool(root, sync="none") as spool:
        spool.queue("jobs", create=True).configure(max_message_bytes=10)
    uuid = uuid7()
    rows = [
        ("two\nlines", "a\nb", {}),
        ("plain", "text/plain", {}),
        (uuid, None, {"a": "b"}),
        (f"{uuid}.h", None, {"a b": "c"}),
        ("x" * 251, None, {}),
        (".hidden", None, {}),
        (None, None, {}),
        ("long", None, {}),
    ]
    frame = spark.createDataFrame(
        rows, "id string, content_type string, attributes map<string,string>"
    )
    plan = Plan(str(root), "aside", "jobs", rejected_rows=str(tmp_path / "bad"), ids="whole")
    body = f.when(f.col("id") == "long", f.repeat(f.lit("x"), 11)).otherwise("x")
    done = send(frame.withColumn("body", body), plan)
    assert (done["messages"], done["rejected_rows"]) == (0, len(rows))
    aside = [json.loads(line) for line in (tmp_path / "bad" / "aside-0.jsonl").open()]
    assert {row["id"]: row["error"].split(" ")[0] for row in aside} == {
        **{row[0]: "id:" for row in rows},
        "long": "the",
    }
    for name in ("priority", "ttl"):
        with pytest.raises(InvalidValue, match=f"column {name}: is a part of a whole id"):
            check_columns(frame.withColumns({"body": body, name: f.lit(1)}).schema, "jobs", "whole")
