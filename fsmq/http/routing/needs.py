"""Needs: the right that a route asks for, before its handler is called and its body is read.

A route says its need when it is added; without one it is not added, unless it is for everybody. The
order is the server's: the dialect tells who sends a request, the need is asked, and only then the
handler is called, and may read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..guard import access
from ..guard.access import Identity
from ..guard.keys import Right
from .call import Call

# Raises Unauthorized, Forbidden; InvalidValue for a name in the path that can be none.
Need: TypeAlias = Callable[[Call, Identity], None]


def anybody(call: Call, identity: Identity) -> None:
    """Any right at all: what a request is about is found out later, in its body or on the disk."""
    identity.require_any()


def queue(right: Right | None = None) -> Need:
    """A right on the queue of the path; None: any."""
    return lambda call, identity: _ask(identity, right, call.queue)


def topic(right: Right | None = None) -> Need:
    """A right on the topic of the path; None: any.

    What is published goes to all subscribed queues; so to subscribe one needs admin on both.
    """
    return lambda call, identity: _ask(identity, right, access.topic(call.topic))


def log(right: Right | None = None) -> Need:
    """A right on the log of the path; None: any."""
    return lambda call, identity: _ask(identity, right, access.log(call.log))


def channel(right: Right | None = None) -> Need:
    """A right on the channel of the path; None: any."""
    return lambda call, identity: _ask(identity, right, access.channel(*call.channel))


def both(one: Need, other: Need) -> Need:
    """Two needs, in this order."""

    def need(call: Call, identity: Identity) -> None:
        one(call, identity)
        other(call, identity)

    return need


def _ask(identity: Identity, right: Right | None, name: str) -> None:
    if right is None:
        identity.require_sight(name)
    else:
        identity.require(right, name)
