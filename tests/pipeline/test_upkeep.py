"""The jobs dedup and rebalance: ready messages only, each by one rename."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fsmq.dyno import DynoQueues, Message
from fsmq.pipeline.jobs.upkeep import dedup, duplicates, rebalance, shares_of
from fsmq.spool import InvalidValue, NewMessage, NoSuchQueue, Spool
from fsmq.spool.fsck import check
from fsmq.spool.verbs.removal import remove_ready

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_ORDER = "get_json_object(string(body), '$.order')"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "mq"


def test_the_oldest_of_each_key_stays(spark: SparkSession, root: Path) -> None:
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        jobs.put(b'{"order": 1, "n": "held"}')
        assert len(jobs.claim()) == 1
        for n in range(3):
            jobs.put_many(b'{"order": %d, "n": %d}' % (order, n) for order in range(20))
        jobs.put_many([b"no key", b"no key"])
        spool.queue("other", create=True).put(b'{"order": 1}')
        spool.deliver()
    looked = dedup(spark, str(root), "jobs", BY_ORDER, dry_run=True)
    assert looked == {"would_remove": 40}
    assert dedup(spark, str(root), "*", BY_ORDER) == {
        "found": 40,
        "removed": 40,
        "taken_meanwhile": 0,
    }
    assert dedup(spark, str(root), "*", BY_ORDER)["found"] == 0
    with Spool(root, sync="none") as spool:
        left = [m.body for m in spool.queue("jobs").peek(100)]
        assert left[:20] == [b'{"order": %d, "n": 0}' % order for order in range(20)]
        assert left[20:] == [b"no key", b"no key"]
        assert spool.queue("jobs").counts().in_flight == 1
        assert spool.queue("other").counts().ready == 1
    assert dedup(spark, str(root), "jobs", "sha2(body, 256)")["removed"] == 1
    assert check(root, offline=True).findings == []


def test_what_is_claimed_meanwhile_is_left(spark: SparkSession, root: Path) -> None:
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        jobs.put_many([b"same", b"same", b"same"])
        spool.deliver()
        found = [row["id"] for row in duplicates(spark, str(root), "jobs", "body").collect()]
        assert len(jobs.claim(2)) == 2
        assert spool.complete(remove_ready(spool.context, "jobs", found)) == 1
        assert jobs.counts().in_flight == 2


def test_messages_are_spread_by_share(spark: SparkSession, root: Path) -> None:
    with Spool(root, sync="none") as spool:
        # Where a message goes is told by its id: of other ids each time as many may go elsewhere.
        spool.queue("a", create=True).put_many(
            NewMessage(b"%d" % n, id=f"01977420-dc00-7abc-8def-{n:012x}") for n in range(600)
        )
        for queue in ("b", "c"):
            spool.create_queue(queue)
        spool.deliver()
        held = spool.queue("a").claim(10)
        before = Counter(m.body for m in spool.queue("a").peek(1000))
    shares = shares_of("a=1, b=2,c=3")
    looked = rebalance(spark, str(root), "a", shares, dry_run=True)
    done = rebalance(spark, str(root), "a", shares)
    assert looked["would_move"] == done["moved"] == done["found"]
    assert looked["to_b"] + looked["to_c"] == done["moved"]
    assert rebalance(spark, str(root), "a,b,c", shares)["found"] == 0
    with Spool(root, sync="none") as spool:
        counts = {q: spool.queue(q).counts() for q in "abc"}
        after = Counter(m.body for q in "abc" for m in spool.queue(q).peek(1000))
        assert after == before
        assert counts["a"].in_flight == len(held)
    for queue, share in shares.items():
        assert counts[queue].ready == pytest.approx(590 * share / 6, abs=50)


def test_shards_are_evened_out_with_their_ids(spark: SparkSession, root: Path) -> None:
    with Spool(root, sync="none") as spool:
        queue = DynoQueues(spool, zone="a", shards=["a", "b"], strategy="local").get("tasks")
        queue.push([Message(f"{n}", "x") for n in range(100)])
        spool.deliver()
    done = rebalance(spark, str(root), "tasks@*", shares_of("tasks"))
    assert done["moved"] == done["found"] == pytest.approx(50, abs=25)
    assert rebalance(spark, str(root), "tasks@*", shares_of("tasks"))["found"] == 0
    with Spool(root, sync="none") as spool:
        queue = DynoQueues(spool, zone="a").get("tasks")
        found = [queue.get(f"{n}") for n in range(100)]
        assert {one.shard for one in found if one is not None} == {"a", "b"}
        assert None not in found
    assert check(root, offline=True).findings == []


@pytest.mark.parametrize("told", ["", "a=0", "a=x", "a b=1", "a=-1"])
def test_shares_that_are_none(told: str) -> None:
    with pytest.raises(InvalidValue, match="to: "):
        shares_of(told)


def test_a_target_has_to_be_there(spark: SparkSession, root: Path) -> None:
    with Spool(root, sync="none") as spool:
        spool.create_queue("a")
    with pytest.raises(NoSuchQueue, match="'b'"):
        rebalance(spark, str(root), "a", {"b": 1})
