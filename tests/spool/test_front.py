"""What a program finds first: the names of the package, and the verbs of an opened spool."""

from __future__ import annotations

import inspect

import fsmq
from fsmq import Spool
from fsmq.spool.unsynced import Unsynced


def test_no_verb_of_a_spool_leaves_its_change_unsynced(spool: Spool) -> None:
    verbs = {name for name, _ in inspect.getmembers(Unsynced, inspect.isfunction) if name[0] != "_"}
    assert {"put", "claim", "remove"} <= verbs
    assert [name for name in sorted(verbs) if hasattr(spool, name)] == []
    jobs = spool.queue("jobs", create=True)
    pending = spool.unsynced.put("jobs", [fsmq.NewMessage(b"x")])
    [message_id] = spool.complete(pending)
    found = jobs.find(message_id)
    assert found is not None
    assert found.body == b"x"


def test_the_package_brings_what_programs_make_or_catch() -> None:
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
