"""A spool with data for every command, for examples and older forms."""

from __future__ import annotations

from pathlib import Path

from fsmq import NewMessage
from fsmq.spool import Spool
from fsmq.spool.consumers.consumer import Consumer

# The id of a ready message.
UUID = "019a2c3e-7b1d-7c4a-9f00-5d2b8c1e6f42"


def prepare(root: Path) -> str:
    """Fill a spool: order-4711 is claimed, order-4712 ready, order-4713 a dead letter.

    Returns the reference of a pending move.
    """
    with Spool(root, sync="none") as spool:
        jobs = spool.queue("jobs", create=True)
        jobs.configure(max_deliveries=5, dead_letter_queue="jobs.dead", visibility_timeout=600)
        for name in ("jobs.dead", "mail", "audit", "mails", "slow"):
            spool.create_queue(name)
        for number in (4713, 4711, 4712):
            jobs.put_many([NewMessage(b"a refund", id=f"order-{number}")])
            spool.deliver()
            claimed = jobs.claim() if number != 4712 else []
            if number == 4713:
                claimed[0].bury()
        jobs.put_many([NewMessage(b"x", id=UUID)])
        spool.deliver()
        spool.create_topic("news")
        spool.topic("news").subscribe("audit")
        users = spool.log("users", create=True)
        users.publish_many([b"%d" % number for number in range(20)])
        channel = users.channel("mailer")
        channel.create("first", order="none")
        channel.claim(18)
        spool.schedule("nightly").define("30 3 * * *", "jobs", b"report")
        with Consumer(spool, "letters"):
            pass
        return spool.begin_redrive("slow").ref
