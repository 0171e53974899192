"""The Prometheus page, parsed by the official parser, and the health pages."""

from __future__ import annotations

import os
import re
from pathlib import Path

from aiohttp import ClientSession
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from fsmq.http.service.monitoring.log_survey import OF_CHANNEL, OF_LOG
from fsmq.spool import Spool
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.layout.uuids import uuid7
from fsmq.spool.records.metrics import METRICS
from tests.harness.suite import Suite, eventually, eventually_on_loop
from tests.http.helpers import Wire, ask, fetch, post
from tests.http.monitoring import page, until


async def test_metrics_of_messages(client: ClientSession, queue: str) -> None:
    dead = f"{queue}.dead"
    await ask(
        client,
        "PATCH",
        f"/{queue}",
        json={"max_deliveries": 2, "dead_letter_queue": dead, "visibility_timeout": 0.1},
    )
    for _ in range(3):
        await post(client, queue, b"x")
    await post(client, queue, b"x", delay=3600)
    first = await fetch(client, queue, visibility=60)
    await ask(client, "DELETE", f"/{queue}/messages/{first.id}")
    for _ in range(4):
        await fetch(client, queue)
    await until(client, "fsmq_messages_dead_lettered_total", 2, queue=queue)
    # Counts of messages may be a second old, and older on a busy machine.
    found = await until(client, "fsmq_queue_messages", 2, queue=dead, state="ready")
    assert found.sum("fsmq_messages_sent_total", queue=queue, process="mq") == 4
    assert found.sum("fsmq_messages_deleted_total", queue=queue) == 1
    assert found.sum("fsmq_messages_received_total", queue=queue) == 5
    assert found.sum("fsmq_messages_redelivered_total", queue=queue, process="mover") == 2
    assert found.sum("fsmq_queue_messages", queue=queue, state="delayed") == 1
    assert 0 < found.sum("fsmq_queue_oldest_message_age_seconds", queue=dead) < 120
    assert found.sum("fsmq_batch_fill_ratio_count", queue=queue) == 5
    assert found.sum("fsmq_batch_fill_ratio_sum", queue=queue) == 5
    assert found.processes() >= {"mq", "mover"}
    await until(client, "fsmq_files_reaped_total", found.sum("fsmq_files_reaped_total"))


async def test_metrics_of_consumers(suite: Suite, client: ClientSession, queue: str) -> None:
    with Spool(suite.root, delivers=False) as spool:
        Consumer(spool, queue, reads=[queue, "none*"]).close()
    for _ in range(3):
        await post(client, queue, b"12345")
    found = await until(client, "fsmq_consumer_messages_behind", 3, consumer=queue, queue=queue)
    assert found.sum("fsmq_consumer_bytes_behind", consumer=queue) == 15
    age = found.sum("fsmq_consumer_oldest_message_age_seconds", consumer=queue, queue=queue)
    assert 0 <= age < 120


async def test_metrics_of_latencies(client: ClientSession, queue: str, suite: Suite) -> None:
    before = (await page(client)).sum
    (suite.root / "new" / f".{queue}").touch()
    (suite.root / "new" / f".{queue}").rename(suite.root / "new" / f"{queue}:{uuid7()}")
    await post(client, queue, b"x")
    await fetch(client, queue)
    await ask(client, "GET", "/no-such-queue/messages")
    after = (await page(client)).sum
    count = "fsmq_http_request_duration_seconds_count"
    assert after(count, operation="post", status="201") == before(count, operation="post") + 1
    assert after(count, operation="claim", status="404") >= 1
    bucket = "fsmq_http_request_duration_seconds_bucket"
    assert after(bucket, operation="post", le="+Inf") == after(count, operation="post")
    assert after("fsmq_sync_duration_seconds_count") > before("fsmq_sync_duration_seconds_count")
    assert after("fsmq_sync_group_changes_sum") > before("fsmq_sync_group_changes_sum")
    delivery = "fsmq_delivery_latency_seconds_count"

    async def is_counted() -> bool:  # together with those of others, which come later
        return (await page(client)).sum(delivery) > before(delivery)

    await eventually_on_loop(is_counted)


NAME = re.compile(r"[a-z][a-z0-9_]*")
TYPES = {"counter", "gauge", "histogram", "summary", "metric"}
OTHER_UNITS = {"ms", "milliseconds", "us", "ns", "s", "sec", "minutes", "kb", "mb", "percent"}


def lint(family: Metric) -> list[str]:
    """Violations of the rules of ``promtool check metrics``."""
    words = family.name.split("_")
    labels = {label for sample in family.samples for label in sample.labels}
    is_counter = family.type == "counter"
    rules = {
        "is not in snake case": NAME.fullmatch(family.name),
        "has no help": family.documentation,
        "has an end that is for parts of histograms": words[-1] not in ("count", "sum", "bucket"),
        "tells its type": not TYPES & set(words),
        "has a unit that is none of the base units": not OTHER_UNITS & set(words),
        "has a label that is not in snake case": all(map(NAME.fullmatch, labels)),
        "ends in _total, or does not": all(
            is_counter == sample.name.endswith("_total") for sample in family.samples
        ),
    }
    return [f"{family.name} {what}" for what, holds in rules.items() if not holds]


async def test_metrics_follow_the_conventions_of_prometheus(client: ClientSession) -> None:
    found = await until(client, "fsmq_process_up", 3)
    for metric in METRICS.values():
        name = f"fsmq_{metric.name}"
        assert found.families[name].type == metric.kind
        assert found.families[name].documentation == metric.help
    assert [problem for family in found.families.values() for problem in lint(family)] == []
    # Counters start at 0 instead of being missing.
    dropped = found.families["fsmq_journal_lines_dropped"]
    assert {(s.name, s.value) for s in dropped.samples} == {("fsmq_journal_lines_dropped_total", 0)}
    assert {s.labels["process"] for s in dropped.samples} == {"mq", "mover", "reaper"}
    lag = found.families["fsmq_journal_lag_seconds"]
    assert {s.labels["process"] for s in lag.samples} == {"mq", "mover", "reaper"}
    # The disk of the tests has other writers meanwhile.
    for what in ("free_bytes", "size_bytes"):
        assert found.sum(f"fsmq_filesystem_{what}") > 2**20
    assert found.sum("fsmq_filesystem_inodes") >= found.sum("fsmq_filesystem_free_inodes")
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = await ask(client, "GET", "/_metrics", headers=accept)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    families = list(parse_openmetrics(answer.body.decode()))
    assert len(families) == len(METRICS) + 12 + len(OF_LOG) + len(OF_CHANNEL)
    assert (await ask(client, "HEAD", "/_metrics")).status == 200


async def test_a_deleted_queue_has_no_metrics(client: ClientSession, queue: str) -> None:
    await until(client, "fsmq_queue_messages", 0, queue=queue)
    await ask(client, "DELETE", f"/{queue}")

    async def is_gone() -> bool:
        samples = (await page(client)).families["fsmq_queue_messages"].samples
        return queue not in {s.labels.get("queue") for s in samples}

    await eventually_on_loop(is_gone)


async def test_each_process_answers_with_the_metrics_of_all(root: Path) -> None:
    with Suite(root, mq_options=["--processes=2"]) as suite:
        url = suite.url
        async with ClientSession(url) as client:
            await ask(client, "PUT", "/jobs")
            for _ in range(8):
                # A connection of its own for each, so that both processes get some.
                async with ClientSession(url) as other:
                    await post(other, "jobs", b"x")
            for _ in range(6):
                async with ClientSession(url) as other:
                    await until(other, "fsmq_messages_sent_total", 8, queue="jobs")
                    # Counts are a second old or more, and can count a message twice.
                    await eventually_on_loop(lambda other=other: counts_eight(other))

            async def all_are_told_of() -> bool:
                return (await page(client)).processes() == {"mq-0", "mq-1", "mover", "reaper"}

            await eventually_on_loop(all_are_told_of)
        names = sorted(path.name.split(":")[1] for path in (root / "metrics").iterdir())
        assert names == ["mover", "mq-0", "mq-1", "reaper"]


async def counts_eight(client: ClientSession) -> bool:
    return (await page(client)).sum("fsmq_queue_messages", queue="jobs") == 8


async def test_readiness_needs_a_mover(root: Path) -> None:
    with Suite(root, reaper=False) as suite:
        wire = Wire(suite.url)
        assert wire.ask("GET", "/_health/live").json == {"live": True}
        eventually(lambda: wire.ask("GET", "/_health/ready").status == 200)
        assert wire.ask("HEAD", "/_health/ready").status == 200
        suite.terminate("mover")
        refused = wire.ask("GET", "/_health/ready")
        assert refused.status == 503
        assert int(refused.headers["Retry-After"]) > 0
        assert "no mq-mover serves new and timers" in refused.json["detail"]
        assert wire.ask("GET", "/_health/live").status == 200
        suite.restart("mover")
        eventually(lambda: wire.ask("GET", "/_health/ready").status == 200)
        # A killed process leaves its report, which becomes outdated.
        suite.kill("mover")
        assert wire.ask("GET", "/_health/ready").status == 200
        [report] = (root / "metrics").glob("*:mover:*")
        then = report.stat().st_mtime - 21
        os.utime(report, (then, then))
        assert wire.ask("GET", "/_health/ready").status == 503
        wire.close()


def test_readiness_needs_a_working_disk(root: Path) -> None:
    with Suite(root, reaper=False) as suite, Wire(suite.url) as wire:
        eventually(lambda: wire.ask("GET", "/_health/ready").status == 200)
        (root / "new").rename(root / "elsewhere")
        (root / "new").write_text("in the way")
        assert wire.ask("GET", "/_health/ready").status == 503
