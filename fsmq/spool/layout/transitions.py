"""The folders of a spool, and the transitions: the whole life of a message as one table.

A transition is one rename; of any number of racers, on any number of hosts, the one whose rename
succeeds has won, and all others see ENOENT.

    put ─► .staged ─► new ─► ready ─► delay ─► ready …      (claim, redeliver)
                       │       │        └────► ready of the dead-letter queue
                       │       │        │
                       └───────┴────────┴────► remove ─► gone
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

NEW, QUEUES, DELAY, REMOVE = "new", "queues", "delay", "remove"
TOPICS, CONFIG, MOVES, JOURNAL, PEERS = "topics", "config", "moves", "journal", "peers"
METRICS, CONSUMERS, STAGING = "metrics", "consumers", "staging"
FOLDERS = (
    *(NEW, QUEUES, DELAY, REMOVE),
    *(TOPICS, CONFIG, MOVES, CONSUMERS, STAGING, JOURNAL, PEERS, METRICS),
)
MESSAGE_FOLDERS = (NEW, QUEUES, DELAY, REMOVE)
FILE_MODE = 0o600  # of every file that fsmq makes


class State(Enum):
    """Where a message stands; the value is what users see."""

    NEW = "new"  # durable, not yet delivered
    READY = "ready"  # in its queue, may be claimed
    DELAY = "delay"  # hidden until its timer ends
    REMOVE = "remove"  # deleted, waiting to be unlinked


class Transition(NamedTuple):
    """One row of the table: which rename it is."""

    source: State
    target: State
    replaces: bool = False  # may the target be overwritten? only where it is rubbish already


DELIVER = Transition(State.NEW, State.READY)
DEFER = Transition(State.NEW, State.DELAY)
CLAIM = Transition(State.READY, State.DELAY)
RELEASE = Transition(State.DELAY, State.READY)
REDELIVER = Transition(State.DELAY, State.READY)
BURY = Transition(State.DELAY, State.READY)
PULL = Transition(State.READY, State.READY)  # from the write to the read side of a dedup queue
MOVE_NEW = Transition(State.NEW, State.NEW)
MOVE_READY = Transition(State.READY, State.READY)
MOVE_DELAY = Transition(State.DELAY, State.READY)
REMOVE_NEW = Transition(State.NEW, State.REMOVE, replaces=True)
REMOVE_READY = Transition(State.READY, State.REMOVE, replaces=True)
REMOVE_DELAY = Transition(State.DELAY, State.REMOVE, replaces=True)
