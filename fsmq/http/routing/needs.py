"""Needs: the right that a route requires before its handler is called and its body is read.

A route is added with its need; only an open one has none. For each request the server lets the
dialect identify the sender, then checks the need, and only then calls the handler, which may read
the body.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..guard import access
from ..guard.access import Identity
from ..guard.keys import Right
from .call import Call


@dataclass(frozen=True)
class Need:
    """The rights that the sender of a request needs.

    ask: checks them. Raises Unauthorized, Forbidden; InvalidValue for an invalid name in the path.
    rights: the same for the OpenAPI document: each a right and a name of the path, such as
        ``receive:{queue}``; ``any:`` is any right on it. Empty: any right on anything.
    more: in words, what the handler checks later.
    """

    ask: Callable[[Call, Identity], None]
    rights: tuple[str, ...] = ()
    more: str = ""

    def then(self, more: str) -> Need:
        """This need, and in words what the handler checks later."""
        return replace(self, more=more)


# Any right at all: which names a request is about is known only from its body or the disk.
anybody = Need(lambda call, identity: identity.require_any())


def queue(right: Right | None = None) -> Need:
    """A right on the queue of the path; None: any."""
    return _on("queue", right, lambda call: call.queue)


def topic(right: Right | None = None) -> Need:
    """A right on the topic of the path; None: any.

    What is published goes to all subscribed queues, so subscribing a queue needs admin on both.
    """
    return _on("topic", right, lambda call: access.topic(call.topic))


def log(right: Right | None = None) -> Need:
    """A right on the log of the path; None: any."""
    return _on("log", right, lambda call: access.log(call.log))


def channel(right: Right | None = None) -> Need:
    """A right on the channel of the path; None: any."""
    return _on("channel", right, lambda call: access.channel(*call.channel))


def both(one: Need, other: Need) -> Need:
    """Two needs, in this order."""

    def ask(call: Call, identity: Identity) -> None:
        one.ask(call, identity)
        other.ask(call, identity)

    return Need(ask, one.rights + other.rights)


def _on(what: str, right: Right | None, name: Callable[[Call], str]) -> Need:
    def ask(call: Call, identity: Identity) -> None:
        if right is None:
            identity.require_sight(name(call))
        else:
            identity.require(right, name(call))

    return Need(ask, (f"{right or 'any'}:{{{what}}}",))
