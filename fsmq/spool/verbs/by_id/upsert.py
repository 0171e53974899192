"""Upsert and ensure: put messages by the ids that their producers give, into a queue with an index.

The ids are locked from the look to the end. A message whose id is free is linked to it before the
sync. One that replaces another gets the link of the message that will have the id next. After the
sync the old message is removed, durably, before the new one is shown: so at no time, crashes
included, has the id neither message, and never are both shown.
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

    rest: what is left to do if messages are replaced; complete it and its result first.
    """

    names: list[str]
    rest: Prepared[Stored] | None = None


def upsert(
    context: Context,
    queue: str,
    messages: Sequence[NewMessage],
) -> Prepared[Stored]:
    """Put messages; each replaces the one that has its id, if there is one.

    All or none, until the first one is shown or replaced: a later failure can leave a part.

    The ``id`` of a message can be any text. If an id comes twice, the last one counts.

    Raises:
        InvalidValue, MessageTooLarge, NoSuchQueue, QueueFull, Unavailable
    """
    [prepared] = upsert_each(context, {queue: messages})
    return prepared


def upsert_each(
    context: Context, messages: Mapping[str, Sequence[NewMessage]]
) -> list[Prepared[Stored]]:
    """The same in several queues, in all or none; what is to be completed in each.

    Their ids are locked together, so that no process waits for one while it holds another.
    """
    stagings = [StagingById(context, queue) for queue in messages]
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
    return [Prepared(one.dirty, one.stored, one.abort) for one in stagings]


def ensure(
    context: Context,
    queue: str,
    messages: Sequence[NewMessage],
    among: Sequence[str] = (),
) -> Prepared[list[bool]]:
    """Put those messages whose ids no message of the queue has; for each, whether it was put.

    Of any number of callers, on any host, only one puts a message of an id.
    among: other queues, whose messages must not have the id either.

    Raises:
        InvalidValue, MessageTooLarge, NoSuchQueue, QueueFull, Unavailable
    """
    others = [name for name in among if name != queue]
    staging = StagingById(context, queue, among=others, only_new=True)
    links, checked = _checked(context, staging, messages)
    with _storing(context, staging):
        staging.hold(*links)
        staging.write_all(links, checked)

    def commit() -> list[bool]:
        staging.publish()
        return staging.is_put

    return Prepared(staging.dirty, commit, staging.abort)


def _checked(
    context: Context, staging: StagingById, messages: Sequence[NewMessage]
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
def _storing(context: Context, *stagings: StagingById) -> Iterator[None]:
    """On an error take back what was written, and re-raise."""
    try:
        yield
    except BaseException as error:
        for staging in stagings:
            staging.abort()
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


class StagingById:
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
        # The dot-name of the old message, where nobody can claim it but recovery finds it.
        self._taken_out: str | None = None
        self._names: ByteLocks | None = None

    def write_all(self, links: list[str], drafts: list[Draft]) -> None:
        """Write messages with these links, whose ids are locked."""
        tree = self._tree
        # If an id comes twice, the last message is put, or with only_new the first.
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
        """Take over ids that are locked; they are freed at the end."""
        self._held = held

    def hold(self, *links: str) -> None:
        """Lock the ids. Raises FileNotFoundError, Unavailable, OSError."""
        self._held = hold_patiently(self._tree, dict.fromkeys(self.queues, links))

    def keep_purges_away(self) -> None:
        """Keep purges out until the end: the message only gets a new name. Unavailable, OSError."""
        self._names = may_rename(self._tree, self.queue)

    def write(self, link: str, draft: Draft, replaced: Standing | None) -> None:
        """Write one message. replaced: the one that has the id, as far as is known."""
        tree, context = self._tree, self._context
        path = tree.folder(NEW, draft.dot_name(self.queue, number_of_id(link)))
        mtime_ns = draft.timer_ns(context.stamps, context.now_ms())
        written = _Written(draft, path, mtime_ns=mtime_ns, link=link, replaced=replaced)
        fd = tree.create(path)
        self._written.append(written)
        written.fill(fd, tree, self.dirty)
        # After the last byte and the timer: so a file with a link is complete, unless the power was
        # cut.
        try:
            tree.link(path, link_path(tree, self.queue, link, coming=replaced is not None))
        except FileExistsError:
            self._refused.append(written)

    def take_out(self, path: str, staged: str) -> bool:
        """Move the old message where nobody can claim it; False if it is not there."""
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
                # A message that is reported as existing must survive a crash, and may be unsynced.
                folders = (tree.folder(name, queue) for name in (QUEUES, IDS))
                self.dirty.folders |= {*folders, tree.folder(DELAY)}
            had |= found
        return had

    def stored(self) -> Stored:
        """Continue once the messages are durable: remove what they replace, or show them."""
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
            self.abort()
            reraise(error, f"cannot replace a message of queue {queue!r}")
        return Stored([], Prepared(dirty, lambda: Stored(self.publish()), self.abort))

    def publish(self) -> list[str]:
        """Show the messages, which are durable now; their names."""
        try:
            # Nobody deletes the index of an id that is held. If a network lost the lock, or `rm`
            # removed the index, the check after the renames takes them back. The one before makes a
            # network filesystem drop its cache of a deleted folder.
            self._check_current()
            for written in self._written:
                self._show(written)
            self._check_current()
        except BaseException as error:
            self.abort()
            reraise(error, f"cannot publish to queue {self.queue!r}")
        self._free()
        return note_stored(self._context, self.queue, self._written)

    def _is_current(self) -> bool:
        """Whether the queue exists, and is still the same."""
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
            if leads_to(tree, coming, written.inode):  # else the network lost our lock
                tree.rename(coming, at, replace=True)

    def abort(self) -> None:
        """Remove what was written. Recovery removes what cannot be removed now."""
        self.dirty.close()
        for written in self._written:
            with suppress(OSError, FsmqError):
                self._abort(written)
        self._free()

    def _abort(self, written: _Written) -> None:
        tree, queue, old = self._tree, self.queue, written.replaced
        if self._taken_out is not None and tree.stat(self._taken_out) is not None:
            settle(tree, queue, [written.link])  # it comes back
        elif (
            old is not None
            and self._removes
            and state_of(tree, queue, old.name, old.inode) is None
            and self._is_current()
        ):
            return  # the id must have a message: the next process to look it up shows this one
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
