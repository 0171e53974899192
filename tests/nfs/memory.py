"""What a host remembers of names while another changes them, and what it must not make of that.

An NFS client answers from its memory for up to a minute: it finds what has gone elsewhere, locks
and stamps it, and renames into folders that were deleted. In each check `two` looks at names, `one`
changes what stands there, and `two` acts on it. `tests/spool/test_network.py` imitates it.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.nfs.rivals import Remote
from tests.power.history import Finding

_PATIENCE_S = 20.0  # to claim what must be there
_SOON_S = 3.0  # in which what must not be there would be claimed
Check = Callable[[Remote, Remote], object]


def reservation(one: Remote, two: Remote) -> object:
    """Freed by one, and its file not closed yet: two has it open, and remembers the name."""
    assert one("reserve", "r1")
    two("look", "new/.q:r1:own")
    assert two("stop_at_lock", "reserve", "r1")
    one("unlink_and_unlock")
    is_twos = two("go_on")
    mine = one("reserve", "r1")
    one("let_go")
    two("let_go")
    return is_twos and mine and "both hosts hold a reservation"


def claim(one: Remote, two: Remote) -> object:
    """Both are about to lock a message: who comes second must not touch its stamp."""
    one("put", "q", "c1")
    one("deliver")
    two("look", "queues/q/c1", "delay/q:c1")
    assert one("stop_at_lock", "claim", "q", _SOON_S, 60.0)
    assert two("stop_at_lock", "claim", "q", _SOON_S, 0.5)
    both = one("go_on"), two("go_on")
    two("deliver_timers", 1.0)
    again = two("claim", "q", _SOON_S)
    one("remove", "q", "c1")
    return (len(both[0]) + len(both[1]) != 1 or again) and f"claimed: {both}, then {again}"


def renewal(one: Remote, two: Remote) -> object:
    """Its timer has ended, by one's mover; two renews it where it stood."""
    two("put", "q", "n1")
    one("deliver")
    assert two("claim", "q", _PATIENCE_S, 0.1)
    two("look", "delay/q:n1")
    one("deliver_timers", _PATIENCE_S)
    told = two("renew", "q", "n1", 60.0)
    got = one("claim", "q", _SOON_S)
    one("remove", "q", "n1")
    is_held = isinstance(told, float)
    return is_held and got and "a message is handed out while an acknowledged renewal holds"


def delivery(one: Remote, two: Remote) -> object:
    """The queue is deleted and made again by one; two's mover brings a message of the new one."""
    _use(two, "made-again", "v1")
    one("drop", "made-again")
    one("make", "made-again")
    one("put", "made-again", "v2")
    two("deliver")
    found = one("claim", "made-again", _PATIENCE_S)
    return not found and "an acknowledged message went to a deleted queue"


def removal(one: Remote, two: Remote) -> object:
    """The same; two removes a message of the new one."""
    _use(two, "made-again", "o1")
    one("drop", "made-again")
    one("make", "made-again")
    one("put", "made-again", "o2")
    one("deliver")
    return two("remove", "made-again", "o2") is not True and "a removal did not find a message"


def deleted_message(one: Remote, two: Remote) -> object:
    """A queue is deleted by one; two fetches from it."""
    one("make", "deleted")
    one("put", "deleted", "d1")
    one("deliver")
    two("look", "queues/deleted")
    two("look", "queues/deleted/d1")
    one("drop", "deleted")
    got = two("claim", "deleted", 0.0)
    return isinstance(got, list) and got and "a message of a deleted queue was handed out"


def deleted_queue(one: Remote, two: Remote) -> object:
    """A queue is deleted by one; two puts into it, and sets it up."""
    one("make", "deleted")
    _use(two, "deleted", "e1")
    one("drop", "deleted")
    told = two("put", "deleted", "e2"), two("configure", "deleted", 7.0)
    return told != ("NoSuchQueue", "NoSuchQueue") and f"a deleted queue: {told}"


def id_again(one: Remote, two: Remote) -> object:
    """A message that two had is deleted by one; two puts its id again."""
    two("put", "q", "i1", "first")
    one("deliver")
    assert two("claim", "q", _PATIENCE_S)
    two("look", "new/q:i1", "queues/q/i1", "delay/q:i1")
    assert one("remove", "q", "i1") is True
    told = two("put", "q", "i1", "second")
    one("deliver")
    got = one("claim", "q", _PATIENCE_S)
    one("remove", "q", "i1")
    return got != [["i1", "second"]] and f"put again after its deletion: {told}, then {got}"


def id_twice(one: Remote, two: Remote) -> object:
    """Two knows that an id stands nowhere; one puts it; two puts it, too."""
    two("look", "new/q:t1", "queues/q/t1", "delay/q:t1")
    one("put", "q", "t1")
    one("deliver")
    told = two("put", "q", "t1")
    one("remove", "q", "t1")
    return told != "DuplicateMessage" and f"the same id, put by the other host as well: {told}"


def publish(one: Remote, two: Remote) -> object:
    """One subscribes a queue that it has just made; two publishes, as it did a moment ago."""
    one("make_topic", "t")
    for queue in ("t1", "t2"):
        one("make", queue)
        one("subscribe", "t", queue)
        two("look", "queues/t3")
        two("publish", "t")
    two("publish", "t")
    one("make", "t3")
    one("subscribe", "t", "t3")
    told = two("publish", "t")
    return told != ["t1", "t2", "t3"] and f"published to {told}"


def subscription(one: Remote, two: Remote) -> object:
    """The topic is deleted and made again by one, or only the subscription: two subscribes."""
    one("make_topic", "s")
    two("subscribe", "s", "q")
    two("look", "topics/s", "topics/s/q")
    one("unsubscribe", "s", "q")
    two("subscribe", "s", "q")
    again = one("publish", "s")
    one("drop_topic", "s")
    one("make_topic", "s")
    two("subscribe", "s", "q")
    anew = one("publish", "s")
    return (again, anew) != (["q"], ["q"]) and f"subscribed, then published to {again} and {anew}"


def settings(one: Remote, two: Remote) -> object:
    """One changes what two has read."""
    one("configure", "q", 20.0)
    two("visibility", "q")
    one("configure", "q", 25.0)
    told = two("visibility", "q")
    return told != 25.0 and f"settings are {told} where the other host has set 25"


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
    """All of it; what was broken."""
    one("make", "q")
    findings = []
    for each in CHECKS:
        told = each(one, two)
        print(f"  {each.__name__}: {told or 'ok'}", flush=True)
        if told:
            findings.append(Finding(each.__name__, str(told)))
    return findings


def _use(host: Remote, queue: str, id: str) -> None:
    """Put something into a queue, and take it out."""
    host("make", queue)
    host("put", queue, id)
    host("deliver")
    host("claim", queue, _PATIENCE_S)
    host("remove", queue, id)
