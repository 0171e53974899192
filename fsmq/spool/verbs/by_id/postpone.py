"""Postpone: give an unclaimed message a new delay, by its given id.

It is put again with the new delay, so that it sorts among messages that are due then. First it is
renamed back to the dot-name under which it was put: nobody can claim it there, and from there it
comes back after a crash, or if the put fails.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from ...context import Context, Prepared
from ...durability.ids import staged_name
from ...errors import Unavailable
from ...layout.messages.given_ids import link_name
from ...layout.messages.message import NewMessage
from ...layout.names import facts
from ...layout.settings import MAX_DELAY_S, check_seconds
from ...layout.steps import finish
from ...layout.transitions import NEW, State
from ...views.reading import UNLIMITED, read
from ..draft import draft
from ..latch import is_delayed, latch_patiently
from .by_id import ROUNDS, at_index
from .upsert import StagingById, Stored


def postpone(
    context: Context, queue: str, given_id: str, delay: float, attributes: Mapping[str, str]
) -> Prepared[Stored] | None:
    """Put an unclaimed message again, with this delay; None if there is none.

    attributes: those to change.

    Raises:
        InvalidValue, MessageTooLarge, NoSuchQueue, Unavailable
    """
    check_seconds("delay", delay, MAX_DELAY_S)
    changed = NewMessage(b"", delay, id=given_id, attributes=attributes)
    with at_index(context, queue, given_id, "postpone in"):
        for _ in range(ROUNDS):
            staging = StagingById(context, queue)
            try:
                is_done = _begin(context, staging, link_name(given_id), changed)
            except BaseException:
                staging.abort()
                raise
            if is_done:
                return Prepared(staging.dirty, staging.stored, staging.abort)
            staging.abort()
            if is_done is None:
                return None
    raise Unavailable(f"the message of the id {given_id!r} keeps moving from folder to folder")


def _begin(context: Context, staging: StagingById, link: str, changed: NewMessage) -> bool | None:
    """Write a message again, and take out the old one.

    None if there is none that can be postponed; False if it has just moved.
    """
    queue = staging.queue
    staging.hold(link)
    staging.keep_purges_away()
    found = staging.standing([link]).get(link)
    if found is None:
        return None
    path = context.tree.path(found.state, queue, found.name)
    latched = latch_patiently(context, path)
    if latched is None:
        return False
    try:
        if found.state is State.DELAY and not is_delayed(context, found.name, latched):
            return None
        message = _again(context, found.name, latched.fd, changed)
        again = draft(context, message, context.settings_of(queue), is_indexed=True)
        staging.write(link, again, found)
        staged = staged_name(queue, link, found.name, latched.fd)
        return staging.take_out(path, context.tree.folder(NEW, staged))
    finally:
        latched.close()


def _again(context: Context, name: str, fd: int, changed: NewMessage) -> NewMessage:
    """The content of an open message, with the changes applied."""
    known = facts(name)
    content = finish(read(context, fd, os.fstat(fd).st_size, known, UNLIMITED))
    ttl = None if known.expires_s is None else max(0.0, known.expires_s - context.clock())
    return replace(
        changed,
        body=content.body,
        priority=known.priority,
        ttl=ttl,
        content_type=content.content_type,
        attributes={**content.attributes, **changed.attributes},
        group=content.own.group,
    )
