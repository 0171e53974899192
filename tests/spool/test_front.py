"""The public names of the package, and the verbs of an opened spool."""

from __future__ import annotations

import fsmq
from fsmq import Spool
from fsmq.spool import prepare
from tests.spool.helpers import present


def test_no_verb_of_a_spool_leaves_its_change_unsynced(spool: Spool) -> None:
    verbs = set(prepare.__all__)
    assert {"put", "claim", "remove"} <= verbs
    assert [name for name in sorted(verbs) if hasattr(spool, name)] == []
    jobs = spool.queue("jobs", create=True)
    prepared = prepare.put(spool.context, "jobs", [fsmq.NewMessage(b"x")])
    [message_id] = spool.complete(prepared)
    assert present(jobs.find(message_id)).body == b"x"


def test_the_package_exports_these_names() -> None:
    errors = {
        name
        for name in fsmq.__all__
        if isinstance(found := getattr(fsmq, name), type) and issubclass(found, fsmq.FsmqError)
    }
    assert {"Bury", "ConsumerInUse", "Retry"} <= errors
    assert set(fsmq.__all__) - errors == {
        "AsyncClient",
        "Claim",
        "Client",
        "Counts",
        "LogEntry",
        "Message",
        "NewMessage",
        "QueueSettings",
        "Spool",
    }
