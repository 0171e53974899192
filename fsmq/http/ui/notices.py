"""What a page says about the action before it, and how that is undone."""

from __future__ import annotations

from collections.abc import Mapping

from ..guard.keys import Right

# The texts at the top of a page after an action, by the word in its address; no others are shown.
NOTICES: Mapping[str, str] = {
    "buried": "Buried: {n}.",
    "channel_created": "The channel was created.",
    "channel_deleted": "The channel was deleted.",
    "channel_paused": "Paused: nothing can be claimed from the channel.",
    "channel_resumed": "Resumed.",
    "channel_there": "The channel existed already, and is unchanged.",
    "configured": "Settings changed: {n}.",
    "created": "The queue was created.",
    "deleted": "The queue was deleted.",
    "held": "Held longer: {n}.",
    "hidden": "Hidden again: {n}.",
    "log_created": "The log was created.",
    "log_deleted": "The log was deleted.",
    "log_there": "The log existed already, and is unchanged.",
    "move_stopped": "The move was stopped; {n} had moved.",
    "moved": "Moved: {n}.",
    "moving": "The move goes on in the background.",
    "pause_changed": "The pause has a new end.",
    "paused": "Paused: nothing is claimed from the queue.",
    "published": "Published to {n}.",
    "purged": "Purged: about {n}.",
    "redriven": "Redriven: {n}.",
    "redriving": "The redrive goes on in the background.",
    "released": "Released: {n}.",
    "rescheduled": "The schedule was changed.",
    "removed": "Removed: {n}.",
    "resumed": "Resumed.",
    "schedule_deleted": "The schedule was deleted.",
    "scheduled": "The schedule is defined.",
    "sent": "Sent: {n}.",
    "skipped": "Skipped: {n}.",
    "sought": "The channel is at offset {n}.",
    "started": "The schedule puts messages again.",
    "stopped": "The schedule puts nothing until it is resumed.",
    "subscribed": "Subscribed.",
    "there": "The queue existed already.",
    "topic_created": "The topic exists now.",
    "topic_deleted": "The topic was deleted.",
    "unsubscribed": "The subscription has ended.",
}

# How to undo an action: the right, and the fields of a form; {of} is from the address.
UNDO: Mapping[str, tuple[Right, Mapping[str, str]]] = {
    "held": ("receive", {"do": "hide", "until": "{of}"}),
    "pause_changed": ("admin", {"do": "pause", "until": "{of}"}),
    "paused": ("admin", {"do": "resume"}),
    "released": ("receive", {"do": "hide", "until": "{of}"}),
    "resumed": ("admin", {"do": "pause", "until": "{of}"}),
    "sent": ("receive", {"do": "remove"}),
    "subscribed": ("admin", {"do": "unsubscribe", "queue": "{of}"}),
}

# How many ids fit into an address.
MOST_UNDONE = 50
# Actions that can be undone only with an {of}.
OF_SOME = ("held", "released", "sent", "subscribed")
