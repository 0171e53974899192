"""Cached names of an NFS client while another host changes them must break no promise.

The client answers from its cache for up to a minute: it finds files that were moved, locks and
stamps them, and renames into folders that were deleted. In each check `two` caches names, `one`
changes their files, and `two` acts on them. `tests/spool/test_network.py` imitates the cache.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.nfs.rivals import Remote
from tests.power.history import Finding

_PATIENCE_S = 20.0  # for a claim that must succeed
_SOON_S = 3.0  # for a claim that must not succeed
Check = Callable[[Remote, Remote], object]


def reservation(one: Remote, two: Remote) -> object:
    """One frees a reservation, without closing its file, while two has opened the cached name."""
    assert one("reserve", "r1")
    two("look", "new/.q:r1:own")
    assert two("stop_at_lock", "reserve", "r1")
    one("unlink_and_unlock")
    is_held_by_two = two("resume")
    is_held_by_one = one("reserve", "r1")
    one("unlock")
    two("unlock")
    return is_held_by_two and is_held_by_one and "both hosts hold a reservation"


def claim(one: Remote, two: Remote) -> object:
    """Both are about to lock a message: the second one must not touch its stamp."""
    one("put", "q", "c1")
    one("deliver")
    two("look", "queues/q/c1", "delay/q:c1")
    assert one("stop_at_lock", "claim", "q", _SOON_S, 60.0)
    assert two("stop_at_lock", "claim", "q", _SOON_S, 0.5)
    both = one("resume"), two("resume")
    two("deliver_timers", 1.0)
    again = two("claim", "q", _SOON_S)
    one("remove", "q", "c1")
    return (len(both[0]) + len(both[1]) != 1 or again) and f"claimed: {both}, then {again}"


def renewal(one: Remote, two: Remote) -> object:
    """Two renews a claim by its cached name after one's mover has ended it."""
    two("put", "q", "n1")
    one("deliver")
    assert two("claim", "q", _PATIENCE_S, 0.1)
    two("look", "delay/q:n1")
    one("deliver_timers", _PATIENCE_S)
    is_renewed = isinstance(two("renew", "q", "n1", 60.0), float)
    claimed = one("claim", "q", _SOON_S)
    one("remove", "q", "n1")
    return is_renewed and claimed and "a message is claimed during an acknowledged renewal"


def delivery(one: Remote, two: Remote) -> object:
    """One deletes and recreates a queue; two's mover delivers a message of the new one."""
    _use(two, "recreated", "v1")
    one("delete", "recreated")
    one("create", "recreated")
    one("put", "recreated", "v2")
    two("deliver")
    found = one("claim", "recreated", _PATIENCE_S)
    return not found and "an acknowledged message went to a deleted queue"


def removal(one: Remote, two: Remote) -> object:
    """One deletes and recreates a queue; two removes a message of the new one."""
    _use(two, "recreated", "o1")
    one("delete", "recreated")
    one("create", "recreated")
    one("put", "recreated", "o2")
    one("deliver")
    return two("remove", "recreated", "o2") is not True and "a removal did not find a message"


def deleted_message(one: Remote, two: Remote) -> object:
    """One deletes a queue; two claims from it."""
    one("create", "deleted")
    one("put", "deleted", "d1")
    one("deliver")
    two("look", "queues/deleted")
    two("look", "queues/deleted/d1")
    one("delete", "deleted")
    claimed = two("claim", "deleted", 0.0)
    return isinstance(claimed, list) and claimed and "a message of a deleted queue was claimed"


def deleted_queue(one: Remote, two: Remote) -> object:
    """One deletes a queue; two puts into it and configures it."""
    one("create", "deleted")
    _use(two, "deleted", "e1")
    one("delete", "deleted")
    answers = two("put", "deleted", "e2"), two("configure", "deleted", 7.0)
    return answers != ("NoSuchQueue", "NoSuchQueue") and f"a deleted queue: {answers}"


def id_again(one: Remote, two: Remote) -> object:
    """One removes a message that two has claimed; two puts its id again."""
    two("put", "q", "i1", "first")
    one("deliver")
    assert two("claim", "q", _PATIENCE_S)
    two("look", "new/q:i1", "queues/q/i1", "delay/q:i1")
    assert one("remove", "q", "i1") is True
    answer = two("put", "q", "i1", "second")
    one("deliver")
    claimed = one("claim", "q", _PATIENCE_S)
    one("remove", "q", "i1")
    return claimed != [["i1", "second"]] and f"put again: {answer}, then claimed {claimed}"


def id_twice(one: Remote, two: Remote) -> object:
    """Two has cached that an id does not exist; one puts it, then two."""
    two("look", "new/q:t1", "queues/q/t1", "delay/q:t1")
    one("put", "q", "t1")
    one("deliver")
    answer = two("put", "q", "t1")
    one("remove", "q", "t1")
    return answer != "DuplicateMessage" and f"an id that the other host has put: {answer}"


def publish(one: Remote, two: Remote) -> object:
    """One subscribes a new queue; two publishes again."""
    one("create_topic", "t")
    for queue in ("t1", "t2"):
        one("create", queue)
        one("subscribe", "t", queue)
        two("look", "queues/t3")
        two("publish", "t")
    two("publish", "t")
    one("create", "t3")
    one("subscribe", "t", "t3")
    queues = two("publish", "t")
    return queues != ["t1", "t2", "t3"] and f"published to {queues}"


def subscription(one: Remote, two: Remote) -> object:
    """One deletes a subscription, or deletes and recreates its topic; two subscribes again."""
    one("create_topic", "s")
    two("subscribe", "s", "q")
    two("look", "topics/s", "topics/s/q")
    one("unsubscribe", "s", "q")
    two("subscribe", "s", "q")
    again = one("publish", "s")
    one("delete_topic", "s")
    one("create_topic", "s")
    two("subscribe", "s", "q")
    anew = one("publish", "s")
    return (again, anew) != (["q"], ["q"]) and f"subscribed, then published to {again} and {anew}"


def settings(one: Remote, two: Remote) -> object:
    """One changes a setting that two has read."""
    one("configure", "q", 20.0)
    two("visibility", "q")
    one("configure", "q", 25.0)
    visibility = two("visibility", "q")
    return visibility != 25.0 and f"a setting is {visibility}, but the other host has set 25"


CHECKS: tuple[Check, ...] = (
    reservation,
    claim,
    renewal,
    delivery,
    removal,
    deleted_message,
    deleted_queue,
    id_again,
    id_twice,
    publish,
    subscription,
    settings,
)


def check(one: Remote, two: Remote) -> list[Finding]:
    """Run all checks; the broken promises."""
    one("create", "q")
    findings = []
    for each in CHECKS:
        fault = each(one, two)
        print(f"  {each.__name__}: {fault or 'ok'}", flush=True)
        if fault:
            findings.append(Finding(each.__name__, str(fault)))
    return findings


def _use(host: Remote, queue: str, id: str) -> None:
    """Create a queue, put a message into it, claim and remove it."""
    host("create", queue)
    host("put", queue, id)
    host("deliver")
    host("claim", queue, _PATIENCE_S)
    host("remove", queue, id)
