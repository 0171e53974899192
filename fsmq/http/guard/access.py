"""Access: who sends a request, and what they may do with which queues.

Every dialect takes the key from where its clients put it, and then asks the identity that it gets:

    identity = call.identify(token)      # or call.identify_bearer()
    identity.require("send", queue)      # or: if not identity.may("send", queue): …

Whether an answer may show names that the request does not contain is decided in `sight.py`.

Rights: ``send`` allows to put messages into a queue; ``look`` to see them; ``receive`` to see,
claim, renew, release and remove them; ``admin`` to create, configure and delete the queue. With any
right on a queue an identity may see it: its name in listings, its counts and its settings. Topics
are named ``topics/<name>``, logs ``logs/<name>``, and the channels of a log
``logs/<name>/<channel>``. The rights on a schedule are those on its queue.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NoReturn

from ..problems import Forbidden, Unauthorized
from .keys import Grants, Key, KeyRing, Right

__all__ = ["Access", "Identity", "Right", "bearer", "channel", "log", "schedule", "topic"]

_ANONYMOUS = "anonymous"


def topic(name: str) -> str:
    """The name by which rights on a topic are granted."""
    return f"topics/{name}"


def schedule(name: str) -> str:
    """The name by which rights on a schedule are granted if its queue is not known."""
    return f"schedules/{name}"


def log(name: str) -> str:
    """The name by which rights on a log are granted."""
    return f"logs/{name}"


def channel(of: str, name: str) -> str:
    """The name by which rights on a channel are granted."""
    return f"logs/{of}/{name}"


def _expired(key: Key) -> Unauthorized:
    return Unauthorized(f"the key {key.name!r} has expired", unknown=True)


def bearer(values: Sequence[str]) -> str | None:
    """The key of the ``Authorization`` headers of a request; None if it has none.

    Raises:
        Unauthorized: there are several, or it is of another scheme.
    """
    if not values:
        return None
    scheme, _, token = values[0].partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer":
        raise Unauthorized("expected one Authorization header: Bearer and the key")
    return token.strip()


class Identity:
    """The sender of a request, with its rights.

    Attributes:
        name: of the key, or ``anonymous``; can appear in logs and metrics.
        account: the name whose limits apply; None if there are no keys, so that only the limits for
            all requests together apply.
        stale: whether the key has been changed or removed.
    """

    __slots__ = ("_grants", "_key", "account", "name", "stale")

    def __init__(self, name: str, grants: Grants | None, key: Key | None = None) -> None:
        self.name = name
        self.stale = False
        self._grants = grants  # None: everything is allowed
        self.account = None if grants is None else name
        self._key = key

    @property
    def is_anonymous(self) -> bool:
        return self._key is None

    @property
    def key(self) -> Key | None:
        return self._key

    @property
    def is_over(self) -> bool:
        """Whether its key is no longer valid: waits and streams should end."""
        return self.stale or self.has_expired

    @property
    def has_expired(self) -> bool:
        """Whether its key has expired."""
        return self._key is not None and self._key.is_over(time.time())

    def check_holds(self) -> None:
        """Raise Unauthorized if it has expired."""
        if self._key is not None and self.has_expired:
            raise _expired(self._key)

    @property
    def seconds_left(self) -> float:
        """For how long its key is still valid, unless it is removed; infinite if for ever."""
        end = None if self._key is None else self._key.not_after
        return math.inf if end is None else max(0.0, end - time.time())

    @property
    def rights(self) -> Hashable:
        """Its rights: equal for identities with the same rights."""
        return None if self._grants is None else tuple(sorted(self._grants.names.items()))

    def may(self, right: Right, queue: str) -> bool:
        """Whether it has a right on a queue (or on a :func:`topic`)."""
        return self._grants is None or self._grants.hold(right, queue)

    def may_see(self, queue: str) -> bool:
        """Whether it has any right on a queue."""
        return self._grants is None or any(
            pattern.fullmatch(queue) for pattern in self._grants.patterns.values()
        )

    @property
    def sees_all_queues(self) -> bool:
        """Whether it may see every queue that can exist."""
        return self._grants is None or any("*" in names for names in self._grants.names.values())

    def granted(self, right: Right) -> tuple[str, ...] | None:
        """The patterns of names on which it has a right, as in the file of keys; None: on all."""
        return None if self._grants is None else self._grants.names.get(right, ())

    def visible(self, queues: Iterable[str]) -> list[str]:
        """Those of the queues that it may see."""
        return [queue for queue in queues if self.may_see(queue)]

    def visible_topics(self, topics: Iterable[str]) -> list[str]:
        """Those of the topics that it may see."""
        return [name for name in topics if self.may_see(topic(name))]

    def visible_logs(self, logs: Iterable[str]) -> list[str]:
        """Those of the logs that it may see."""
        return [name for name in logs if self.may_see(log(name))]

    def require_any(self) -> None:
        """Check that it has any right at all.

        Raises:
            Unauthorized: no key was sent, or one without rights.
        """
        if self._grants is None or self._grants.patterns:
            return
        if self.is_anonymous:
            raise Unauthorized("a key is needed: send Authorization: Bearer and the key")
        raise Unauthorized(f"the key {self.name!r} has no right on anything", unknown=True)

    def require(self, right: Right, queue: str) -> None:
        """Check that it has a right on a queue (or on a :func:`topic`).

        Raises:
            Unauthorized: no key was sent, and this is not allowed without one.
            Forbidden: the key lacks the right.
        """
        if not self.may(right, queue):
            self.refuse(f"{right} on {queue!r}")

    def require_sight(self, queue: str) -> None:
        """Check that it has any right on a queue. Raises as :meth:`require`."""
        if not self.may_see(queue):
            self.refuse(f"send, receive, look or admin on {queue!r}")

    def refuse(self, needed: str) -> NoReturn:
        """Raise the error of :meth:`require` for a right that it lacks."""
        if self.is_anonymous:
            raise Unauthorized(
                f"this needs a key with the right {needed}: send Authorization: Bearer and the key"
            )
        raise Forbidden(f"the key {self.name!r} lacks the right {needed}")


class Access:
    """The identities of a file of keys; without a file, everybody may do everything."""

    def __init__(self, ring: KeyRing | None = None) -> None:
        self._ring = ring
        self._identities: dict[str, Identity] = {}
        self._anonymous = self._make_anonymous(ring)

    @property
    def needs_keys(self) -> bool:
        """Whether there is a file of keys."""
        return self._ring is not None

    def identify(self, token: str | None) -> Identity:
        """The identity of a key, or of a request without one (None).

        Raises:
            Unauthorized: there is no such key, or it has expired.
        """
        if self._ring is None or token is None:
            return self._anonymous
        key = self._ring.find(token)
        if key is None:
            raise Unauthorized("unknown key", unknown=True)
        if key.is_over(time.time()):
            raise _expired(key)
        return self._of_key(key)

    def signer(self, access_key: str) -> tuple[Identity, str]:
        """The identity of an access key, and the secret with which its requests are signed.

        Raises:
            Unauthorized: there is no such key, or it has expired.
        """
        key = None if self._ring is None else self._ring.signer(access_key)
        if key is None or key.secret is None or key.is_over(time.time()):
            raise Unauthorized("unknown access key", unknown=True)
        return self._of_key(key), key.secret

    def of_session(self, name: str, proves: Callable[[bytes], bool]) -> Identity | None:
        """The identity of a key by its name, for a session that was begun with that key.

        proves: whether it was this key, given the current hash of the key of that name.
        Returns None if there is no such key, it has expired, or it was another one.
        """
        key = None if self._ring is None else self._ring.named(name)
        if key is None or key.is_over(time.time()) or not proves(key.digest):
            return None
        return self._of_key(key)

    def _of_key(self, key: Key) -> Identity:
        identity = self._identities.get(key.name)
        if identity is None:
            identity = self._identities[key.name] = Identity(key.name, key.grants, key)
        return identity

    def replace(self, ring: KeyRing) -> None:
        """Use the keys of a new file; requests admitted by old keys are still answered."""
        same = {key.name: key for key in ring.keys}
        for name, identity in list(self._identities.items()):
            if same.get(name) != identity.key:
                identity.stale = True
                del self._identities[name]
        if self._ring is None or self._ring.anonymous != ring.anonymous:
            self._anonymous.stale = True
            self._anonymous = self._make_anonymous(ring)
        self._ring = ring

    @staticmethod
    def _make_anonymous(ring: KeyRing | None) -> Identity:
        return Identity(_ANONYMOUS, None if ring is None else ring.anonymous)
