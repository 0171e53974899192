"""Needs: the right that a route asks for, before its handler is called and its body is read.

A route says its need when it is added; without one it is not added, unless it is for everybody. The
order is the server's: the dialect tells who sends a request, the need is asked, and only then the
handler is called, and may read.
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
    """What the sender of a request needs.

    ask: raises Unauthorized, Forbidden; InvalidValue for a name in the path that can be none.
    rights: the same for people and programs: each a right and a name of the path, such as
        ``receive:{queue}``; ``any:`` is any right on it. Empty: any right on anything.
    more: what the handler asks for when it knows more, in words.
    """

    ask: Callable[[Call, Identity], None]
    rights: tuple[str, ...] = ()
    more: str = ""

    def then(self, more: str) -> Need:
        """This need, and what the handler asks for later."""
        return replace(self, more=more)


# Any right at all: what a request is about is found out later, in its body or on the disk.
anybody = Need(lambda call, identity: identity.require_any())


def queue(right: Right | None = None) -> Need:
    """A right on the queue of the path; None: any."""
    return _on("queue", right, lambda call: call.queue)


def topic(right: Right | None = None) -> Need:
    """A right on the topic of the path; None: any.

    What is published goes to all subscribed queues; so to subscribe one needs admin on both.
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
