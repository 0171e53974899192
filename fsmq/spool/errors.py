"""The errors that the spool raises: what happened, to which queue or message, what to do.

The tree, with those of the client and of other modules::

  · FsmqError (Exception)
    · AccessDenied (PermissionError)  [fsmq.client.errors]
    · Bury  [fsmq.spool.claimed]
    · ClaimEnded
    · ClaimVoid
    · ConnectionFailed (ConnectionError)  [fsmq.client.errors]
    · ConsumerInUse
    · DuplicateMessage
    · InvalidValue (ValueError)
    · MessageTooLarge
    · NoRoom
    · NoSuchChannel (LookupError)
    · NoSuchLog (LookupError)
    · NoSuchMessage (LookupError)
    · NoSuchQueue (LookupError)
    · NoSuchSchedule (LookupError)
    · NoSuchSubscription (LookupError)
    · NoSuchTopic (LookupError)
    · NotInFlight (LookupError)
    · OffsetGone (LookupError)
    · OtherWriter
    · Reserved
    · Retry  [fsmq.spool.claimed]
    · Unavailable
      · InUse
      · LogFull
      · QueueFull
      · Unlisted  [fsmq.spool.index.listings]
      · Unrecovered  [fsmq.spool.limits.sequencer]
      · Unsent  [fsmq.spool.limits.sequencer]
    · UnexpectedAnswer  [fsmq.client.errors]
    · UnusableSpool

The errors of the server, which clients see as responses, are in `fsmq.http.problems`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class FsmqError(Exception):
    """The base of all errors of fsmq.

    ``index`` is the position, from 0, of the message it concerns, if a call has several.
    """

    index: int | None = None

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.index is None else f"message {self.index}: {text}"


class InvalidValue(FsmqError, ValueError):
    """A value is not accepted. ``field`` names it, ``problem`` says what is expected."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class NoSuchQueue(FsmqError, LookupError):
    """There is no folder ``queues/<queue>``."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"there is no queue named {queue!r}; create it first")
        self.queue = queue


class NoSuchTopic(FsmqError, LookupError):
    """There is no folder ``topics/<topic>``."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"there is no topic named {topic!r}; create it first")
        self.topic = topic


class NoSuchSubscription(FsmqError, LookupError):
    """The queue is not subscribed to the topic."""

    def __init__(self, topic: str, queue: str) -> None:
        super().__init__(f"queue {queue!r} is not subscribed to topic {topic!r}")
        self.topic = topic
        self.queue = queue


class NoSuchLog(FsmqError, LookupError):
    """There is no folder ``logs/<log>``."""

    def __init__(self, log: str) -> None:
        super().__init__(f"there is no log named {log!r}; create it first")
        self.log = log


class NoSuchChannel(FsmqError, LookupError):
    """The log has no channel of this name."""

    def __init__(self, log: str, channel: str) -> None:
        super().__init__(f"log {log!r} has no channel named {channel!r}; create it first")
        self.log = log
        self.channel = channel


class NoSuchSchedule(FsmqError, LookupError):
    """There is no file ``schedules/<schedule>.json``."""

    def __init__(self, schedule: str) -> None:
        super().__init__(f"there is no schedule named {schedule!r}; define it first")
        self.schedule = schedule


class OffsetGone(FsmqError, LookupError):
    """Retention has removed the messages at these offsets; ``first`` is the first remaining."""

    def __init__(self, log: str, offset: int, first: int) -> None:
        super().__init__(f"log {log!r} has no message {offset} any more: its first is {first}")
        self.log = log
        self.first = first


class NotInFlight(FsmqError, LookupError):
    """A channel has not handed this message out, or its claim is over."""

    def __init__(self, log: str, channel: str, offset: int) -> None:
        super().__init__(f"message {offset} is not in flight in channel {channel!r} of {log!r}")
        self.offset = offset


class ClaimVoid(FsmqError):
    """This claim is void: its channel was moved to another position, or created again."""

    def __init__(self, log: str, channel: str) -> None:
        super().__init__(
            f"channel {channel!r} of log {log!r} went to another position, or was made anew, since"
            " this claim"
        )


class OtherWriter(FsmqError):
    """The log takes messages only from the processes of another host, named ``host``."""

    def __init__(self, log: str, host: str) -> None:
        super().__init__(
            f"log {log!r} takes messages from the host {host!r} alone:"
            " publish there, or set its writers to hosts"
        )
        self.host = host


class NoSuchMessage(FsmqError, LookupError):
    """The message is in none of the folders in which the verb looks for it."""

    def __init__(self, queue: str, message_id: str, where: str) -> None:
        super().__init__(f"queue {queue!r} has no message {message_id!r} {where}")
        self.queue = queue
        self.message_id = message_id


class ClaimEnded(FsmqError):
    """The given claim has ended; nothing was done. Another consumer may have the message."""

    def __init__(self, queue: str, message_id: str) -> None:
        super().__init__(
            f"this claim of message {message_id!r} of queue {queue!r} has ended:"
            " another consumer may have the message"
        )
        self.queue = queue
        self.message_id = message_id


CLAIM_OVER = (NoSuchMessage, ClaimEnded, NotInFlight, ClaimVoid)


class DuplicateMessage(FsmqError):
    """A message with this caller-given id is in the spool already; nothing was written."""

    def __init__(self, queue: str, message_id: str) -> None:
        super().__init__(f"queue {queue!r} already holds a message with the id {message_id!r}")
        self.queue = queue
        self.message_id = message_id


class Reserved(FsmqError):
    """Another process is storing a message with this id; whether it succeeds is not known yet."""

    def __init__(self, message_id: str) -> None:
        super().__init__(f"another put of the id {message_id!r} is under way")


class ConsumerInUse(FsmqError):
    """Another process is working under this consumer name, ``consumer``."""

    def __init__(self, consumer: str) -> None:
        super().__init__(
            f"another program works as the consumer {consumer!r}: stop it, or take another name;"
            " consumers of different names share a queue. (So does a mover, while it finishes what"
            " one that died had committed: then try again.)"
        )
        self.consumer = consumer


class MessageTooLarge(FsmqError):
    """A body is larger than the limit of the queue or of the server."""

    def __init__(self, size: int | None, limit: int) -> None:
        got = "the body" if size is None else f"the body of {size} bytes"
        super().__init__(f"{got} is too large: the limit is {limit} bytes")
        self.limit = limit


class Unavailable(FsmqError):
    """The disk or the queue cannot take this now; nothing was promised. Try again later.

    ``retry_after`` is in whole seconds.
    """

    def __init__(self, reason: str, retry_after: int = 1) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class QueueFull(Unavailable):
    """The queue holds as many messages as its ``max_depth`` allows."""

    def __init__(self, queue: str, limit: int) -> None:
        super().__init__(f"queue {queue!r} is full: its max_depth is {limit} messages", 1)


class LogFull(Unavailable):
    """Channels of the log are too far behind, and its ``when_full`` is refuse."""

    def __init__(self, log: str) -> None:
        super().__init__(f"log {log!r} is full: its channels are too far behind", 10)


class InUse(Unavailable):
    """Another process holds a lock that this needs; that process may be suspended."""


class NoRoom(FsmqError):
    """There is no memory for a message now; nothing was started."""


class UnusableSpool(FsmqError):
    """The root cannot hold a spool; the message says what to do about it."""


ADVICE = {
    errno.ENOSPC: ("the disk is full (space, inodes, or the index of a folder): free some", 5),
    errno.EDQUOT: ("the disk quota is used up: raise it or free some space", 5),
    errno.EFBIG: (
        "a file is larger than this program accepts: raise --max-body-bytes, or move it",
        10,
    ),
    errno.EROFS: ("the filesystem is mounted read-only", 10),
    errno.EIO: ("the disk reports an I/O error", 5),
    errno.EMFILE: ("this process has too many open files: raise its limit", 1),
    errno.ENFILE: ("the system has too many open files", 1),
    errno.ENOMEM: ("the system is out of memory", 2),
    errno.ESTALE: ("the network filesystem lost this folder", 5),
    errno.ETIMEDOUT: ("the network filesystem does not answer", 5),
    errno.ENOTCONN: ("the filesystem is not connected", 5),
    errno.ESHUTDOWN: ("the filesystem was shut down", 10),
    errno.EACCES: ("access to the spool is denied: check its owner and modes", 10),
    errno.EPERM: ("the operation on the spool is not permitted", 10),
}


_PASSING = ADVICE.keys() - {errno.EACCES, errno.EPERM, errno.EFBIG}


BY_HAND_S = 60


def is_passing(error: BaseException | None) -> bool:
    """Whether a failed system call may succeed later without a change of the configuration."""
    if isinstance(error, Unavailable):
        return True
    return isinstance(error, OSError) and error.errno in _PASSING


def is_full(error: OSError) -> bool:
    """Whether a call failed for lack of space, inodes or quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def as_unavailable(doing: str) -> Iterator[None]:
    """Turn an OSError raised inside into Unavailable.

    doing: what could not be done, such as "cannot list the queues".
    """
    try:
        yield
    except OSError as error:
        raise unavailable(error, doing) from error


def unavailable(error: OSError, doing: str) -> Unavailable:
    """The error that `as_unavailable` raises.

    For code that runs for every message, where a ``with`` costs too much, or that raises it later.
    """
    code = error.errno or 0
    advice, retry_after = ADVICE.get(code, (error.strerror or str(error), 2))
    return Unavailable(f"{doing}: {advice} ({errno.errorcode.get(code, code)})", retry_after)


def reraise(error: BaseException, doing: str) -> NoReturn:
    """Raise an error again, an OSError as Unavailable, in code where a ``with`` costs too much."""
    if isinstance(error, OSError):
        raise unavailable(error, doing) from error
    raise error


@contextmanager
def understood(path: str) -> Iterator[None]:
    """Turn a ValueError raised inside, about a file to be changed, into Unavailable."""
    try:
        yield
    except ValueError as error:
        reason = f"{path} cannot be understood, correct it first: {error}"
        raise Unavailable(reason, BY_HAND_S) from None
