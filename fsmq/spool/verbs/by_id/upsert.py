"""Upsert and ensure: put messages by the ids that their producers give, into a queue with an index.

The ids are locked from the look to the end. A message whose id is free is linked to it before the
sync. One that replaces another is linked as that which is to have the id next; after the sync the
old one is removed, durably, before the new one is shown: there is no moment, and no crash, in which
the id has neither of the two, or both are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from ...context import Context, Prepared
from ...durability.byte_locks import ByteLocks
from ...durability.drafts import Draft, Staged, was_removed
from ...durability.ids import (
    Held,
    Standing,
    hold_patiently,
    leads_to,
    link_path,
    number_of_id,
    remove_standing,
    settle,
    state_of,
)
from ...durability.new_names import may_rename
from ...durability.sync import Dirty
from ...errors import FsmqError, InvalidValue, NoSuchQueue, reraise, unavailable
from ...layout.messages.given_ids import link_name
from ...layout.messages.message import NewMessage
from ...layout.names import check_queue
from ...layout.settings import QueueSettings
from ...layout.transitions import DELAY, IDS, NEW, QUEUES
from ..draft import draft
from ..put import MAX_BATCH, note_stored
from ..removal import dirty_of, remove_one


class Stored(NamedTuple):
    """What an upsert stored: the messages' names, in order.

    rest: what is left to be done, if ids are taken from other messages; complete it, and what
    comes of it, before anyone is told.
    """

    names: list[str]
    rest: Prepared[Stored] | None = None


def upsert(
    context: Context,
    queue: str,
    messages: Sequence[NewMessage],
) -> Prepared[Stored]:
    """Put messages; each takes the place of the one that has its id, if there is one.

    All or none, until the first one is shown or replaced: what fails then may leave a part.

    The ``id`` of a message may be any text. Of an id that comes twice the last one counts.

    Raises:
        InvalidValue, MessageTooLarge, NoSuchQueue, QueueFull, Unavailable
    """
    [prepared] = upsert_each(context, {queue: messages})
    return prepared


def upsert_each(
    context: Context, messages: Mapping[str, Sequence[NewMessage]]
) -> list[Prepared[Stored]]:
    """The same in several queues: what is to be completed in each, or nothing in any.

    Their ids are locked together: nobody waits for one while he has another.
    """
    stagings = [Staging(context, queue) for queue in messages]
    batches = [
        _checked(context, staging, portion)
        for staging, portion in zip(stagings, messages.values(), strict=True)
    ]
    with _storing(context, *stagings):
        wanted = {one.queue: links for one, (links, _) in zip(stagings, batches, strict=True)}
        with hold_patiently(context.tree, wanted) as held:
            for staging, batch in zip(stagings, batches, strict=True):
                staging.has(held.part(staging.queue))
                staging.write_all(*batch)
    return [Prepared(one.dirty, one.stored, one.abandon) for one in stagings]


def ensure(
    context: Context,
    queue: str,
    messages: Sequence[NewMessage],
    among: Sequence[str] = (),
) -> Prepared[list[bool]]:
    """Put those messages whose ids no message of the queue has; for each, whether it was put.

    Of any number of callers, on any host, one puts a message of an id.
    among: other queues, whose messages must not have the id either.

    Raises:
        InvalidValue, MessageTooLarge, NoSuchQueue, QueueFull, Unavailable
    """
    others = [name for name in among if name != queue]
    staging = Staging(context, queue, among=others, only_new=True)
    links, checked = _checked(context, staging, messages)
    with _storing(context, staging):
        staging.hold(*links)
        staging.write_all(links, checked)

    def finish() -> list[bool]:
        staging.publish()
        return staging.is_put

    return Prepared(staging.dirty, finish, staging.abandon)


def _checked(
    context: Context, staging: Staging, messages: Sequence[NewMessage]
) -> tuple[list[str], list[Draft]]:
    """Links and drafts of messages, once all of them are checked."""
    if len(messages) > MAX_BATCH:
        raise InvalidValue("messages", f"are {len(messages)}; one batch takes {MAX_BATCH}")
    try:
        for queue in reversed(staging.queues):
            check_queue(queue)
            settings = context.settings.get(queue)
            if not settings.index:
                check_index(queue, context.settings_of(queue))
        checked = [draft(context, message, settings, is_indexed=True) for message in messages]
        context.depths.admit(queue, settings.max_depth, len(checked))
    except OSError as error:
        raise unavailable(error, f"cannot store a message for queue {staging.queue!r}") from error
    return [link_name(message.id or "") for message in messages], checked


@contextmanager
def _storing(context: Context, *stagings: Staging) -> Iterator[None]:
    """Take back what was written if something is wrong, and say what."""
    try:
        yield
    except BaseException as error:
        for staging in stagings:
            staging.abandon()
        if isinstance(error, FileNotFoundError):
            for queue in (queue for staging in stagings for queue in staging.queues):
                context.settings_of(queue)  # raises NoSuchQueue if it was deleted just now
        reraise(error, f"cannot store a message for queue {stagings[0].queue!r}")


def check_index(queue: str, settings: QueueSettings) -> None:
    """Raise InvalidValue unless the queue has an index."""
    if not settings.index:
        raise InvalidValue("queue", f"{queue!r} was created without an index of ids")


@dataclass(slots=True, eq=False)
class _Written(Staged):
    """A message with its link. replaced: the message that has the id, as far as is known."""

    link: str = ""
    replaced: Standing | None = None


class Staging:
    """Messages written under their dot-names, whose ids are locked until they are shown."""

    def __init__(
        self,
        context: Context,
        queue: str,
        among: Sequence[str] = (),
        only_new: bool = False,
    ) -> None:
        tree = context.tree
        self.queue = queue
        self.queues = [queue, *among]
        self.dirty = Dirty(folders={tree.folder(NEW), tree.folder(IDS, queue)})
        self.is_put: list[bool] = []
        self._context = context
        self._tree = tree
        self._only_new = only_new
        self._held: Held | None = None
        self._written: list[_Written] = []
        self._refused: list[_Written] = []  # those whose id has a link already
        self._removes = False  # whether we have begun to remove what is replaced
        # Where a message is that nobody may claim any more, though it may yet come back.
        self._taken_out: str | None = None
        self._names: ByteLocks | None = None

    def write_all(self, links: list[str], drafts: list[Draft]) -> None:
        """Write messages with these links, whose ids are locked."""
        tree = self._tree
        # Of an id that comes twice the last one is put, or the first, if none is to be replaced.
        numbers = range(len(links))
        order = reversed(numbers) if self._only_new else numbers
        chosen = {links[at]: at for at in order}
        had = self.standing(links) if self._only_new else {}
        for at, (link, one) in enumerate(zip(links, drafts, strict=True)):
            is_put = chosen[link] == at and link not in had
            if is_put:
                self.write(link, one, None)
            self.is_put.append(is_put)
        if self._refused:
            had = self.standing([written.link for written in self._refused])
            for written in self._refused:
                written.replaced = other = had.get(written.link)
                path = link_path(tree, self.queue, written.link, coming=other is not None)
                tree.link(written.path, path)

    def has(self, held: Held) -> None:
        """Have ids that are locked; they are freed with the others."""
        self._held = held

    def hold(self, *links: str) -> None:
        """Lock the ids. Raises FileNotFoundError, Unavailable, OSError."""
        self._held = hold_patiently(self._tree, dict.fromkeys(self.queues, links))

    def keep_purges_away(self) -> None:
        """Until the end: what is written was there before. Raises Unavailable, OSError."""
        self._names = may_rename(self._tree, self.queue)

    def write(self, link: str, draft: Draft, replaced: Standing | None) -> None:
        """Write one message. replaced: that which has the id, as far as is known."""
        tree, context = self._tree, self._context
        path = tree.folder(NEW, draft.staged(self.queue, number_of_id(link)))
        written = _Written(draft, path, link=link, replaced=replaced)
        fd = tree.create(path)
        self._written.append(written)
        written.fill(fd, tree, context.stamps, self.dirty, context.clock)
        # Behind the last byte: what has a link is whole, unless the power was cut.
        try:
            tree.link(path, link_path(tree, self.queue, link, coming=replaced is not None))
        except FileExistsError:
            self._refused.append(written)

    def take_out(self, path: str, staged: str) -> bool:
        """Bring what is to be replaced where nobody claims it; False if it is not there."""
        if not self._tree.rename(path, staged):
            return False
        self._taken_out = staged
        return True

    def standing(self, links: list[str]) -> dict[str, Standing]:
        """The messages that have ids which are locked."""
        tree = self._tree
        had: dict[str, Standing] = {}
        for queue in self.queues:
            found = settle(tree, queue, [link for link in dict.fromkeys(links) if link not in had])
            if found and self._only_new:
                # What is said to stand must stand after a crash: nobody may have synced it.
                folders = (tree.folder(name, queue) for name in (QUEUES, IDS))
                self.dirty.folders |= {*folders, tree.folder(DELAY)}
            had |= found
        return had

    def stored(self) -> Stored:
        """Go on when the messages are durable: show them, or remove first what they replace."""
        if all(written.replaced is None for written in self._written):
            return Stored(self.publish())
        tree, queue = self._tree, self.queue
        # Made before the change: a failed sync casts doubt on what was begun before it.
        dirty = dirty_of(tree, queue)
        self._removes = True
        try:
            for written in self._written:
                if written.replaced is not None:
                    at = link_path(tree, queue, written.link)
                    remove_standing(tree, queue, at, written.replaced, self._taken_out)
        except BaseException as error:
            self.abandon()
            reraise(error, f"cannot replace a message of queue {queue!r}")
        return Stored([], Prepared(dirty, lambda: Stored(self.publish()), self.abandon))

    def publish(self) -> list[str]:
        """Show the messages, which are durable now; their names."""
        try:
            # Nobody deletes the index of an id that is held. Where the lock was lost with a
            # network, or the index with `rm`, the look behind the renames takes them back. The one
            # before makes a network filesystem forget a folder that was deleted.
            self._check_current()
            for written in self._written:
                self._show(written)
            self._check_current()
        except BaseException as error:
            self.abandon()
            reraise(error, f"cannot publish to queue {self.queue!r}")
        self._free()
        return note_stored(self._context, self.queue, self._written)

    def _is_current(self) -> bool:
        """Whether the queue is there, and the same as at the beginning."""
        is_same = self._held is not None and self._held.stands(self.queue)
        return is_same and self._tree.has_queue(self.queue)

    def _check_current(self) -> None:
        if not self._is_current():
            raise NoSuchQueue(self.queue)

    def _show(self, written: _Written) -> None:
        tree, context = self._tree, self._context
        if not written.show_or_leave(tree, context.stamps, self.queue, context.now_ms()):
            self._check_current()
            raise was_removed(written.draft)
        if written.replaced is not None:
            at, coming = (
                link_path(tree, self.queue, written.link, coming=after) for after in (False, True)
            )
            if leads_to(tree, coming, written.inode):  # else our lock was lost with a network
                tree.rename(coming, at, replace=True)

    def abandon(self) -> None:
        """Remove what was written. What cannot be done now, recovery does."""
        self.dirty.close()
        for written in self._written:
            with suppress(OSError, FsmqError):
                self._abandon(written)
        self._free()

    def _abandon(self, written: _Written) -> None:
        tree, queue, old = self._tree, self.queue, written.replaced
        if self._taken_out is not None and tree.stat(self._taken_out) is not None:
            settle(tree, queue, [written.link])  # it comes back
        elif (
            old is not None
            and self._removes
            and state_of(tree, queue, old.name, old.inode) is None
            and self._is_current()
        ):
            return  # the id must have one of the two: whoever looks for it next shows this one
        for coming in (False, True):
            at = link_path(tree, queue, written.link, coming=coming)
            if leads_to(tree, at, written.inode):
                tree.unlink(at)
        if not tree.unlink(written.path):
            remove_one(self._context, queue, written.draft.message_id)

    def _free(self) -> None:
        held, self._held = self._held, None
        names, self._names = self._names, None
        if names is not None:
            names.close()
        if held is not None:
            held.free()
