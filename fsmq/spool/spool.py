"""The spool as a library: ``Spool(root).queue("jobs").put(b"...")`` needs no daemon."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from . import reaper
from ._sync.selection import Selection
from .context import Context, Prepared, complete
from .durability.sync import Syncer, SyncMode
from .errors import NoSuchQueue, UnusableSpool, as_unavailable, unavailable
from .index.counting import Counts
from .index.events import Events, WatchMode, check_watched, must_poll
from .index.ready import Ready
from .index.share import WHOLE, Share
from .indexed import Indexed
from .layout.filesystem import Filesystem, examine, refuse_root, refuse_snapshot
from .layout.messages.message import Message
from .layout.names import check_queue
from .layout.settings import LONGEST_WAIT_S, QueueSettings, check_seconds
from .layout.settings_store import SettingsStore
from .layout.stamps import Stamps
from .layout.steps import finish
from .layout.topics.filters import Filter
from .layout.topics.topics import Topics
from .layout.transitions import REAPED
from .layout.tree import Tree
from .log.logs import Logs
from .moves.moves_of_spool import MovesOfSpool
from .overview import OverviewOfSpool
from .queue import Queue
from .records import peers
from .records.journal import Journal, is_kept
from .schedules.schedule import SchedulesOfSpool
from .topic import Topic
from .verbs.choice import Choice, flat
from .verbs.queues import creation, deletion, subscribing
from .verbs.several import Turns, claim_several_in
from .views.census import Census
from .views.counts import Overview, survey

if TYPE_CHECKING:
    from .mover.delivery import Delivery
    from .worker.blocking_worker import Worker

T = TypeVar("T")


def open_context(tree: Tree) -> tuple[Context, Filesystem]:
    """The context of an opened tree, and the facts about its filesystem. Raises UnusableSpool."""
    refuse_snapshot(tree)
    try:
        filesystem = examine(tree)
    except OSError as error:
        tried = f"cannot find out how exact the times of {tree.root} are"
        raise UnusableSpool(f"{tried}: {error.strerror}") from error
    tree.network = filesystem.network
    tree.in_place = filesystem.in_place
    tree.shared = filesystem.shared
    context = Context(
        tree=tree,
        stamps=Stamps(filesystem.coarse),
        settings=SettingsStore(tree),
        ready=Ready(tree),
        topics=Topics(tree),
        keeps_inodes=filesystem.keeps_inodes,
    )
    return context, filesystem


class Spool(OverviewOfSpool, MovesOfSpool, SchedulesOfSpool):
    """An opened spool.

    root: the folder; it and its subfolders are created if missing, unless ``create`` is False.
    sync: how changes become durable, see :class:`~fsmq.spool.durability.sync.Syncer`.
    workers: the number of parallel fsyncs.
    delivers: whether this object does the mover's work whenever it claims. Leave it True in a
        script that runs without daemons.
    watch: "events" or "poll"; "auto" polls on network filesystems, whose events do not cross hosts,
        on systems other than Linux, which have no such events, and for folders that cannot be
        watched because the user has no inotify instances or watches left.
    poll_interval: seconds between two listings when polling.
    max_message_bytes: the largest body that any queue accepts.
    journal: whether to note the steps of messages in the journal; None: if others do.
    program: the journal's ``via`` for steps of which nothing else is known.

    ``fsmq.spool.prepare`` has the verbs in two steps, for programs that group their syncs.

    Safe in threads, but not on both sides of a fork: only one of the processes learns of a disk
    error. Close it, or use it in a ``with``.

    Raises:
        UnusableSpool: the root cannot be opened or created, or lacks the events demanded; or root
            opens what belongs to another user.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        sync: SyncMode = "auto",
        workers: int = 8,
        delivers: bool = True,
        watch: WatchMode = "auto",
        poll_interval: float = 0.25,
        share: Share = WHOLE,
        max_message_bytes: int = 16 * 1024 * 1024,
        create: bool = True,
        journal: bool | None = False,
        program: str = "library",
        clock: Callable[[], float] = time.time,
    ) -> None:
        refuse_root(Path(root))
        self.tree = Tree(root, create=create)
        try:
            self.context, self.filesystem = open_context(self.tree)
            self._events: Events | None = None
            if not must_poll(watch, self.filesystem.network):
                self._events = Events(self.tree)
        except BaseException:
            self.tree.close()
            raise
        self._poll_interval = poll_interval
        self.syncer = Syncer(self.tree, sync, workers, whole=self.filesystem.whole_sync)
        self.context.ready = Ready(
            self.tree, share=share, events=self._events, poll_interval=poll_interval
        )
        self.context.clock = clock
        if is_kept(self.tree) if journal is None else journal:
            self.context.journal = Journal(
                self.tree,
                self.context.metrics,
                host=peers.host_name(),
                program=program,
                clock=clock,
            )
        self.context.max_message_bytes = max_message_bytes
        self.census = Census(self.context)
        self.open_logs = Logs(self)
        self.open_logs.worker, self.context.to_log = _channel_worker, self._taking
        self._delivering = threading.Lock()
        self._delivery: Delivery | None = None
        if delivers:
            from .mover.delivery import Delivery

            self._delivery = Delivery(
                self.context, events=self._events is not None, poll_interval=poll_interval
            )
        try:
            check_watched(watch)
        except UnusableSpool:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptors and threads. Completed verbs are durable without it."""
        self.context.close()
        if self._delivery is not None:
            self._delivery.close()
        if self._events is not None:
            self._events.close()
        self.open_logs.close()
        self.syncer.close()
        self.tree.close()

    # -- queues ----------------------------------------------------------------------------------

    def queue(self, name: str, *, create: bool = False) -> Queue:
        """A queue to work with. It is only created if ``create`` is given.

        Its verbs raise NoSuchQueue if it does not exist.
        """
        queue = Queue(self, check_queue(name))
        if create:
            queue.create()
        return queue

    def select(self, queues: str | Iterable[str]) -> Selection[Worker]:
        """Several queues to claim from together: ``["high:3", "tenant-*"]``. See `Choice`."""
        return Selection(self, Choice(queues))

    def _claim_several(
        self, turns: Turns, count: int, visibility: float | None, wait: float
    ) -> list[Message]:
        """The implementation of a selection's ``claim``."""
        end = time.monotonic() + check_seconds("wait", wait, LONGEST_WAIT_S)
        while True:
            since = self.context.ready.waits.taken
            self.deliver()
            found = turns.choice.find(self.context)
            claiming = claim_several_in(self.context, turns, found, count, visibility)
            messages = self.complete(finish(claiming))
            left = end - time.monotonic()
            if messages or left <= 0:
                return messages
            pauses = (self.context.pause_of(one, left) for one in flat(found))
            self.wait(min([left, *pauses]), since)

    def _selection_worker(self, selection: Selection[Worker], *of: Any) -> Worker:
        """The implementation of a selection's ``worker``."""
        from .worker.blocking_worker import queue_worker  # imports asyncio

        return queue_worker(self, selection, *of)

    def queues(self) -> list[str]:
        """The names of all visible queues, sorted."""
        with as_unavailable("cannot list the queues"):
            return self.tree.queues()

    def has_queue(self, name: str) -> bool:
        """Whether there is a queue of this name."""
        check_queue(name)
        with as_unavailable(f"cannot look for queue {name!r}"):
            return self.tree.has_queue(name)

    def create_queue(self, name: str, *, index: bool = False, fifo: bool = False) -> bool:
        """Create a queue durably; False if it exists.

        index: its messages can be found by the ids that producers give them, see :meth:`indexed`.
            Raises InvalidValue if it exists without an index.
        fifo: the messages of each group are claimed in their order. Raises InvalidValue if it
            exists without that, or together with ``index``.
        """
        kinds = {"index": index, "fifo": fifo}
        return creation.create(
            self.context,
            check_queue(name),
            {kind: True for kind, is_one in kinds.items() if is_one},
        )

    def indexed(self, name: str) -> Indexed:
        """The messages of a queue with an index, accessed by the ids that producers gave them."""
        return Indexed(self, check_queue(name))

    def delete_queue(self, name: str) -> None:
        """Delete a queue and all its messages. Raises NoSuchQueue."""
        self.complete(deletion.delete_queue(self.context, name))

    def settings(self, name: str) -> QueueSettings:
        """A queue's settings. Raises InvalidValue, NoSuchQueue, Unavailable."""
        check_queue(name)
        try:
            return self.context.settings_of(name)
        except OSError as error:
            raise unavailable(error, f"cannot read the settings of {name!r}") from error

    def configure(self, name: str, changes: Mapping[str, Any]) -> QueueSettings:
        """Change settings of a queue durably; they take effect at once, for all processes.

        The dead-letter queue is created if it is missing.

        Raises:
            InvalidValue, NoSuchQueue, Unavailable
        """
        return creation.change(self.context, name, lambda *_: changes)

    def counts(self, name: str) -> Counts:
        """The number of a queue's messages in each state, by listing.

        Raises:
            InvalidValue, NoSuchQueue, Unavailable
        """
        return self.context.counts(name)

    def survey(self, name: str | None = None) -> dict[str, Overview]:
        """Counts and ages of all queues, or of one, in one pass over the tree.

        Raises:
            InvalidValue, NoSuchQueue, Unavailable
        """
        with as_unavailable("cannot look over the queues"):
            if name is not None and not self.tree.has_queue(check_queue(name)):
                raise NoSuchQueue(name)
            return survey(self.context, name)

    # -- topics ----------------------------------------------------------------------------------

    def topic(self, name: str, *, create: bool = False) -> Topic:
        """A topic to work with. It is only created if ``create`` is given.

        Its verbs raise NoSuchTopic if it does not exist.
        """
        topic = Topic(self, check_queue(name, "topic"))
        if create:
            topic.create()
        return topic

    def topics(self) -> list[str]:
        """The names of all visible topics, sorted."""
        with as_unavailable("cannot list the topics"):
            return self.context.topics.names()

    def create_topic(self, name: str) -> bool:
        """Create a topic durably; False if it exists."""
        return subscribing.create_topic(self.context, name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its subscriptions; the queues and their messages stay.

        Raises NoSuchTopic.
        """
        subscribing.delete_topic(self.context, name)

    def subscriptions(self, topic: str) -> dict[str, Filter | None]:
        """The subscribed queues, sorted, each with its filter; None: all messages.

        Raises:
            InvalidValue, NoSuchTopic, Unavailable
        """
        return self.context.topics.subscriptions(topic)

    def subscribe(
        self, topic: str, queue: str, filter: Filter | None = None, *, keep: bool = False
    ) -> bool:
        """Subscribe a queue durably, or replace its filter; False if it was subscribed.

        keep: leave an existing subscription as it is.

        Raises:
            InvalidValue, NoSuchTopic, NoSuchQueue, Unavailable
        """
        return subscribing.subscribe(self.context, topic, queue, filter, keep=keep)

    def unsubscribe(self, topic: str, queue: str) -> bool:
        """End a subscription durably; False if there was none.

        Raises:
            InvalidValue, NoSuchTopic, Unavailable
        """
        return subscribing.unsubscribe(self.context, topic, queue)

    # -- durability ------------------------------------------------------------------------------

    def complete(self, prepared: Prepared[T]) -> T:
        """Make a verb durable and return its result. Raises Unavailable on a disk error."""
        return complete(self.context, self.syncer, prepared)

    # -- the mover's and the reaper's work, for programs that run alone ----------------------------

    def deliver(self) -> int:
        """Do what the mover would do now; returns how many messages moved.

        A message that cannot be moved now waits for a later call, and does not block others. Raises
        Unavailable if they cannot be listed.
        """
        if self._delivery is None:
            return 0
        moved = 0
        with self._delivering:
            if self._delivery.fault is not None:
                self._delivery.rescan()  # the caller needs the current state
            while (step := self._delivery.step()) or self._delivery.is_behind:
                moved += step
            fault = self._delivery.fault
        if fault is not None and not moved:
            with as_unavailable("cannot deliver"):
                raise fault
        return moved

    def reap(self) -> int:
        """Unlink what was removed; returns how many messages. Raises Unavailable."""
        with as_unavailable("cannot reap"):
            return reaper.reap(
                self.tree, on_reaped=partial(self.context.journal.note, REAPED.event)
            )

    def wait(self, seconds: float, since: int | None = None) -> None:
        """Sleep until something happens in the tree, a timer ends, or ``seconds`` have passed.

        since: see `Waits.sleep`.
        """
        ready, timers = self.context.ready, self._delivery
        if not ready.hears_all:
            seconds = min(seconds, self._poll_interval)
        if timers is not None:
            seconds = min(seconds, timers.timeout())
        files = [] if timers is None or (fd := timers.fileno()) is None else [fd]
        ready.waits.sleep(seconds, since, files, self.events_fileno(), ready.refresh)

    def events_fileno(self) -> int | None:
        """Readable when the ready index needs a refresh; None if the spool polls."""
        return None if self._events is None else self._events.fileno()


def _channel_worker(*of: Any) -> Any:
    from .worker.blocking_worker import channel_worker

    return channel_worker(*of)
