"""The folders of a spool, and the transitions: the whole life of a message as one table.

A transition is one rename. Of all processes, on any hosts, that try the same one, the process whose
rename succeeds has won; all others get ENOENT.

    put ─► .staged ──────────► ready ─► delay ─► ready …      (claim, redeliver)
              │                │ ▲        ▲ └────► ready of the dead-letter queue
              └─► new ─────────│─┴────────┤      (what a crash, or a shell user, has left there)
                   │           │          │
                   └───────────┴──────────┴────► remove ─► gone

A put with a delay goes from its dot-name to ``delay/``.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

NEW, QUEUES, DELAY, REMOVE = "new", "queues", "delay", "remove"
TOPICS, CONFIG, MOVES, JOURNAL, PEERS = "topics", "config", "moves", "journal", "peers"
METRICS, CONSUMERS, STAGING, IDS = "metrics", "consumers", "staging", "ids"
LOGS, SCHEDULES = "logs", "schedules"
FOLDERS = (
    NEW,
    QUEUES,
    DELAY,
    REMOVE,
    TOPICS,
    CONFIG,
    MOVES,
    CONSUMERS,
    STAGING,
    IDS,
    LOGS,
    SCHEDULES,
    JOURNAL,
    PEERS,
    METRICS,
)
MESSAGE_FOLDERS = (NEW, QUEUES, DELAY, REMOVE)
# The prefix of an index's name in remove/.
INDEX_TRASH = ".ids-"
# In the root of a snapshot, whose files are links to those of other snapshots.
SNAPSHOT = "backup.json"
FILE_MODE = 0o600  # of every file that fsmq creates


class State(Enum):
    """Where a message is; users see the value."""

    NEW = "new"  # durable, not yet delivered
    READY = "ready"  # in its queue, can be claimed
    DELAY = "delay"  # hidden until its timer ends
    REMOVE = "remove"  # deleted, waiting to be unlinked

    # Faster than Enum's own hash, written in Python: these are keys for each message.
    __hash__ = object.__hash__


class Step(NamedTuple):
    """A step in the life of a message, as it is recorded.

    event: its name in the journal. metric: the counter that it increments, if any.
    """

    event: str
    metric: str | None


ACCEPTED = Step("accepted", "put")
DELIVERED = Step("delivered", "deliver")
DEFERRED = Step("deferred", "defer")
CLAIMED = Step("claimed", "claim")
RENEWED = Step("renewed", "renew")
RELEASED = Step("released", "release")
REDELIVERED = Step("redelivered", "redeliver")
BURIED = Step("buried", "bury")
MOVED = Step("moved", "move")
EXPIRED = Step("expired", "expire")
REMOVED = Step("removed", "remove")
PURGED = Step("purged", None)  # a purge counts once, however many messages it removes
REAPED = Step("reaped", None)  # the reaper counts what it unlinks without a queue's name
STEPS = (
    ACCEPTED,
    DELIVERED,
    DEFERRED,
    CLAIMED,
    RENEWED,
    RELEASED,
    REDELIVERED,
    BURIED,
    MOVED,
    EXPIRED,
    REMOVED,
    PURGED,
    REAPED,
)


class Transition(NamedTuple):
    """One row of the table: a rename, and the step that it is recorded as."""

    source: State
    target: State
    step: Step
    replaces: bool = False  # may the target be overwritten? only where it is rubbish already


# The rules. Every rename of a message from one state to another is a row here. Without a row are: a
# put, which gives a finished file its name in its queue or in delay/; a renewal, which only stamps;
# a reap, which unlinks; a postponement, which renames a message to its dot-name and then to
# remove/; and the rename of a whole folder of ready messages to remove/.
DELIVER = Transition(State.NEW, State.READY, DELIVERED)
DEFER = Transition(State.NEW, State.DELAY, DEFERRED)
CLAIM = Transition(State.READY, State.DELAY, CLAIMED)
RELEASE = Transition(State.DELAY, State.READY, RELEASED)
REDELIVER = Transition(State.DELAY, State.READY, REDELIVERED)  # its claim has ended
RIPEN = Transition(State.DELAY, State.READY, DELIVERED)  # its delay has ended
BURY = Transition(State.DELAY, State.READY, BURIED)
PULL = Transition(State.READY, State.READY, MOVED)  # from the write to the read side of dedup
REPRIORITIZE = Transition(State.READY, State.READY, MOVED)  # within its queue, to another name
MOVE_NEW = Transition(State.NEW, State.NEW, MOVED)
MOVE_READY = Transition(State.READY, State.READY, MOVED)
MOVE_DELAY = Transition(State.DELAY, State.READY, MOVED)
MOVE_TIMER = Transition(State.DELAY, State.DELAY, MOVED)  # a delay that runs on there
MOVE_DELIVER = Transition(State.NEW, State.READY, MOVED)  # under another id, which is reserved
REMOVE_NEW = Transition(State.NEW, State.REMOVE, REMOVED, replaces=True)
REMOVE_READY = Transition(State.READY, State.REMOVE, REMOVED, replaces=True)
REMOVE_DELAY = Transition(State.DELAY, State.REMOVE, REMOVED, replaces=True)
EXPIRE_NEW = Transition(State.NEW, State.REMOVE, EXPIRED, replaces=True)
EXPIRE_READY = Transition(State.READY, State.REMOVE, EXPIRED, replaces=True)
EXPIRE_DELAY = Transition(State.DELAY, State.REMOVE, EXPIRED, replaces=True)
PURGE_NEW = Transition(State.NEW, State.REMOVE, PURGED, replaces=True)
PURGE_READY = Transition(State.READY, State.REMOVE, PURGED, replaces=True)
PURGE_DELAY = Transition(State.DELAY, State.REMOVE, PURGED, replaces=True)
