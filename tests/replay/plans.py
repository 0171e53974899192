"""The scenarios of each verb: a part runs with the tests, all in the soak."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from tests.replay.scenario import Happens, Scenario, fails, record, starts
from tests.replay.verbs import VERBS

# Verbs that share their code and so their syncs.
FAMILIES = {
    "put": ("put", "put_own", "put_own_batch", "put_delayed", "put_batch"),
    "claim": ("claim", "take_batch"),
    "renew": ("renew", "renew_ready"),
    "release": ("release",),
    "divide": ("divide_batch", "retry_batch"),
    "bury": ("bury_batch", "dead_bury"),
    "remove": ("remove_held", "remove_ready", "remove_new", "commit_batch"),
    "purge": ("purge", "purge_at_once"),
    "delete a queue": ("delete_queue", "delete_queue_at_once"),
    "create a queue": ("create_queue",),
    "configure": ("configure", "configure_if_seen"),
    "create a topic": ("create_topic",),
    "describe a topic": ("describe_topic",),
    "delete a topic": ("delete_topic",),
    "subscribe": ("subscribe",),
    "unsubscribe": ("unsubscribe",),
    "publish": ("publish",),
    "retry": ("retry_left", "retry_changed"),
    "stage": ("stage", "stage_and_remove"),
    "dedup send": ("dedup_send",),
    "dedup poll": ("dedup_poll",),
    "dedup ack": ("dedup_ack", "dedup_ack_shown"),
    "dedup purge": ("dedup_purge", "dedup_purge_at_once"),
    "order a move": ("order_move",),
    "move": ("move",),
    "set a priority": ("set_priority",),
    "redrive": ("dead_redrive", "dead_redrive_some", "dead_order"),
    "upsert": (
        "id_upsert_new",
        "id_upsert",
        "id_upsert_held",
        "id_upsert_undelivered",
        "id_ensure",
    ),
    "claim by id": ("id_claim", "id_claim_new"),
    "renew by id": ("id_renew",),
    "remove by id": ("id_ack", "id_remove", "id_remove_new"),
}
# Verbs with tens of thousands of states after an unsynced one of another process …
LONG = ("put_own_batch", "stage", "stage_and_remove")
# … and verbs with thousands of states beside a mover, which share their syncs with others.
LONG_BESIDE = ("id_upsert_batch", "id_postpone")
_SHARING = {verb for family in FAMILIES.values() for verb in family[1:]}


def beside_a_mover(verb: str) -> list[list[str]]:
    """A verb before, after and between unsynced actions of a mover."""
    return [["deliver", verb], [verb, "deliver"], ["deliver", verb, "deliver", "reap"]]


# The tests run each verb with one of them.
BESIDE_A_MOVER = {
    verb: beside_a_mover(verb)[number % 3]
    for number, verb in enumerate(VERBS)
    if verb not in LONG_BESIDE
}
UNSYNCED = [verb for verb in VERBS if verb not in (*LONG, *LONG_BESIDE)]
WITH_SYNCFS = [verb for verb in VERBS if verb not in (*_SHARING, *LONG_BESIDE)]


def all_of(verb: str) -> Iterator[Scenario]:
    """All scenarios with one verb; an unsynced one of another process is among the pairs."""
    for verbs in beside_a_mover(verb):
        yield record(verbs)
    yield record(["deliver", verb], "syncfs")


# In these verbs, the test itself acts as another process, which a failing call would break.
WITHOUT_HAPPENINGS = ("put_promoted", "retry_promoted", "retry_changed_promoted")
_ACTIONS = {"fails": fails(0), "lacks descriptors": fails(3), "meets a program that starts": starts}
HAPPENINGS = tuple(_ACTIONS)


def with_happening(verb: str, happening: str, at: int, *behind: str) -> Scenario:
    """A verb with a happening at a call, and others of another process behind it."""
    return record([verb, *behind], happens=Happens(at, _ACTIONS[happening]))


def all_happenings(verb: str) -> Iterator[tuple[str, Scenario]]:
    """Every happening at every call of a verb; alone, and with a retry by another process."""
    for happening in HAPPENINGS if verb not in WITHOUT_HAPPENINGS else ():
        # No retry of a job: after a failed commit a later job of its name finishes it.
        for behind in ((),) if verb in FAMILIES["stage"] else ((), (verb,)):
            for at in count():
                scenario = with_happening(verb, happening, at, *behind)
                if not scenario.has_happened:
                    break
                yield f"{verb} {happening} at call {at}, then {behind}", scenario
