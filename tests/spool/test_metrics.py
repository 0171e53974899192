"""Metrics of one process: counting, snapshots and sums."""

from __future__ import annotations

import json

import pytest

from fsmq.spool import Queue, Spool
from fsmq.spool.records.metrics import METRICS, Metrics, Snapshot
from fsmq.spool.records.reports import Reports
from tests.spool.helpers import Clock


def test_the_life_of_messages_is_counted_by_queue(spool: Spool, jobs: Queue, clock: Clock) -> None:
    jobs.configure(max_deliveries=2, dead_letter_queue="dead", visibility_timeout=10)
    jobs.put_many([b"1", b"2", b"3"])
    jobs.put(b"late", delay=5)
    jobs.put(b"short", ttl=1)
    first, *_ = jobs.claim(count=3)
    jobs.remove(first.id)
    clock.advance(4)  # "short" expires
    jobs.claim(count=1)
    clock.advance(10)
    jobs.claim(count=10)
    clock.advance(10)
    spool.deliver()
    counted = {key[0]: n for key, n in spool.context.metrics.snapshot().counts.items() if n}
    assert set(counted) <= set(METRICS)
    expected = {"put": 5, "remove": 1, "expire": 1, "defer": 1, "bury": 2, "claim": 3 + 3}
    expected["redeliver"] = 3  # two messages once, "late" once
    expected["deliver"] = 5  # "short" and "late" included
    assert {name: counted[name] for name in expected} == expected
    assert spool.context.metrics.value(("put", "jobs")) == 5


def test_a_snapshot_survives_json_and_sums_up() -> None:
    metrics = Metrics()
    metrics.count(("put", "a:b"), 2)
    metrics.set(("lag", "new"), 1.5)
    for value in (0, 0.5, 1, 7):
        metrics.observe(("batch_fill", "a"), value)
    snapshot = metrics.snapshot()
    assert snapshot.histograms == {("batch_fill", "a"): [1, 0, 1, 0, 0, 1, 1, 8.5]}
    read = Snapshot.from_json(json.loads(json.dumps(snapshot.as_json())))
    assert read == snapshot
    both = Snapshot.sum([snapshot, read, Snapshot({("put", "c"): 1}, {("lag", "new"): 1.0}, {})])
    assert both.counts == {("put", "a:b"): 4, ("put", "c"): 1}
    assert both.gauges == {("lag", "new"): 1.5}
    assert both.histograms == {("batch_fill", "a"): [2, 0, 2, 0, 0, 2, 2, 17.0]}


def test_metrics_of_deleted_queues_logs_and_schedules_are_dropped(spool: Spool) -> None:
    metrics = Metrics()
    spool.queue("present", create=True)
    spool.log("present", create=True)
    spool.schedule("present").define("0 3 * * *", "present", "due")
    for name in ("present", "deleted"):
        metrics.count(("put", name))
        metrics.observe(("batch_fill", name), 1)
        metrics.set(("fill", name), 100)
        metrics.count(("log_publish", name))
        metrics.count(("schedule", name))
    metrics.count(("purge",))
    metrics.observe(("sync", "deleted"), 1)  # here it is not the name of a queue
    Reports(spool.tree, "one", "mq").write(metrics)
    left = metrics.snapshot()
    named = {(name, "present") for name in ("put", "log_publish", "schedule")}
    assert set(left.counts) == {*named, ("purge",)}
    assert set(left.gauges) == {("fill", "present")}
    assert set(left.histograms) == {("batch_fill", "present"), ("sync", "deleted")}


def test_metrics_know_whether_anything_changed() -> None:
    metrics = Metrics()
    assert not metrics.changed
    for change in (
        lambda: metrics.count(("purge",)),
        lambda: metrics.set(("lag", "new"), 1),
        lambda: metrics.observe(("group",), 1),
    ):
        change()
        assert metrics.changed
        metrics.snapshot()
        assert not metrics.changed
    metrics.set(("lag", "new"), 1)
    metrics.count(("purge",), 0)
    assert not metrics.changed


@pytest.mark.parametrize("name", list(METRICS))
def test_every_metric_has_a_help_text_and_valid_bounds(name: str) -> None:
    metric = METRICS[name]
    assert metric.help
    assert (metric.kind == "histogram") == bool(metric.bounds)
    assert list(metric.bounds) == sorted(metric.bounds)
