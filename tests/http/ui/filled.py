"""A spool with data on each page, for tests and for the pictures of the documentation."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

from fsmq.spool.log.log import LogEntry
from fsmq.spool.spool import Spool

from .asked import Api


def fill(spool: Spool, api: Api) -> str:
    """Put data on each page; the id of a claimed message."""
    for name in ("mail", "reports", "jobs.dead"):
        spool.create_queue(name)
    spool.create_queue("jobs")
    spool.configure("jobs", {"dead_letter_queue": "jobs.dead", "max_deliveries": 5})
    for number in range(12):
        body = json.dumps({"invoice": number, "to": f"user{number}@example.org"}).encode()
        headers = {"X-Message-Attribute-Tenant": str(number % 7)}
        api.put("jobs", body, Content_Type="application/json", **headers)
    api.put("mail", query="?delay=3600")
    dying = api.claim("jobs")
    spool.queue("jobs").bury(dying, reason="no address")
    spool.create_topic("news")
    spool.subscribe("news", "jobs")
    spool.schedule("nightly").define("0 3 29 2 *", "reports", "run")
    _fill_logs(spool)
    return api.claim("jobs", "?wait=15&visibility=3600")


def _fill_logs(spool: Spool) -> None:
    """A log with channels that are done, behind, blocked and paused."""
    visits = spool.log("visits", create=True)
    visits.publish_many(
        [
            LogEntry(
                json.dumps({"page": f"/item/{number}", "user": number % 3}),
                key=f"user-{number % 3}",
                content_type="application/json",
                attributes={"tenant": str(number % 2)},
            )
            for number in range(12)
        ]
    )
    counter = visits.channel("counter")
    counter.create("first", order="none")
    counter.ack(*counter.claim(12))
    visits.channel("mailer").create(
        "first", order="strict", max_deliveries=1, dead_letter_queue="jobs.dead", on_poison="block"
    )
    [failed] = visits.channel("mailer").claim()
    failed.release()
    visits.channel("search").create("first", visibility_timeout=0.05, paused=False)
    visits.channel("audit").create("last", paused=True)
    spool.log("payments", create=True)


def pages(message: str) -> dict[str, str]:
    return {
        "overview": "", "queues": "queues", "menu": "queues?menu=jobs",
        "new queue": "new", "new topic": "new-topic", "new schedule": "schedules/new",
        "refused": "q/jobs?older_than=soon", "history": "q/jobs/history",
        "unknown": "nope", "examined": "cluster?health=yes",
        "queue": "q/jobs", "in flight": "q/jobs?state=in_flight",
        "message": f"q/jobs/m/{message}", "gone": "q/jobs/m/none", "send": "q/jobs/send",
        "settings": "q/jobs/settings", "dead": "dead", "topics": "topics", "topic": "topics/news",
        "logs": "logs", "new log": "new-log", "new channel": "logs/visits/new",
        "unread": "logs/visits?from=soon", "log": "logs/visits", "no channel": "logs/payments",
        "log message": "logs/visits/m/1", "no log message": "logs/visits/m/99",
        "log settings": "logs/visits/settings", "channel": "logs/visits/c/mailer",
        "channel settings": "logs/visits/c/mailer/settings",
        "change schedule": "schedules/change?name=nightly",
        "schedules": "schedules", "work": "work", "cluster": "cluster", "login": "login",
    }  # fmt: skip


def write_history(root: Path, hours: int = 3) -> None:
    """Write a history of some hours, in the format of `mq`."""
    now = int(time.time())
    for at in range(now - hours * 3600, now, 60):
        wave = 1 + math.sin(at / 1700)
        moved = round(90 * wave)
        jobs = [0, round(30 * wave**2), round(6 * wave), 4, round(8 * wave, 1)]
        jobs += [moved, moved, moved, round(wave), int(at % 1800 < 60)]
        line = {"v": 1, "at": at * 1000, "queues": {"jobs": jobs}}
        hour = time.strftime("%Y%m%dT%H", time.gmtime(at))
        file = root / "history" / f"sample-{hour}.jsonl"
        file.parent.mkdir(exist_ok=True)
        with file.open("a") as out:
            out.write(json.dumps(line) + "\n")
