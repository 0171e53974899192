"""mq-reaper: unlinks what was removed."""

import os
import time
from collections.abc import Callable
from functools import partial

from fsmq.daemons.process import logs
from fsmq.daemons.process.exits import EXIT_CLEAN
from fsmq.daemons.process.loop import Loop
from fsmq.daemons.process.start import open_journal, refusal, take_log_level, tell_misspelt
from fsmq.daemons.process.unwatched import Unwatched
from fsmq.daemons.settings.options import ReaperOptions, program
from fsmq.daemons.settings.settings import DEFAULT_ROOT
from fsmq.spool.errors import UnusableSpool
from fsmq.spool.index.events import Events, check_watched, must_poll
from fsmq.spool.layout.filesystem import is_network, kind_of, refuse_root, refuse_snapshot
from fsmq.spool.layout.transitions import REAPED, REMOVE
from fsmq.spool.layout.tree import Tree
from fsmq.spool.moves.ended import forget_ended
from fsmq.spool.reaper import Reaper
from fsmq.spool.records import thinning
from fsmq.spool.records.journal import NoJournal
from fsmq.spool.records.journal_files import close_abandoned, expire
from fsmq.spool.records.metrics import Metrics
from fsmq.spool.records.reports import Reports
from fsmq.spool.stale_links import StaleLinks

log = logs.get_logger(__name__)
# Removals come in bursts: after one is reaped, wait this long for more.
_GATHER_S = 0.05
# How often the folder is listed even with events; the reaper reports at the same time.
_DISTRUST_S = 5.0
# How often the journal is maintained.
_KEEP_EVERY_S = 30.0
# How often the history is maintained.
_THIN_EVERY_S = 600.0


@program("reaper", ReaperOptions)
def main(options: ReaperOptions) -> int:
    """Unlink the files of a folder, for good: removed messages and deleted queues.

    \b
    Examples:
      mq-reaper --root /var/lib/fsmq
    """
    logs.setup(options.log_level, options.log_format, "mq-reaper")
    tell_misspelt()
    try:
        tree = _open(options)
        refuse_snapshot(tree)
        polls = must_poll(options.watch, is_network(kind_of(tree.root)))
        return _run(options, tree, polls)
    except UnusableSpool as error:
        return refusal(error)


def _open(options: ReaperOptions) -> Tree:
    source = options.source.absolute()
    refuse_root(options.root or source)
    ours = options.root is not None or source == DEFAULT_ROOT / REMOVE
    if ours:
        return Tree(source.parent)
    if not source.is_dir():
        raise UnusableSpool(f"{source} is not a folder: create it, or give another")
    return Tree(source.parent, create=False, folders={REMOVE: str(source)})


def _run(options: ReaperOptions, tree: Tree, polls: bool) -> int:
    events = None if polls else Events(tree)

    def reload() -> None:
        take_log_level("reaper", ReaperOptions)

    loop = Loop(reload)
    if events is not None:
        events.watch(tree.folder(REMOVE), lasting=True)
        check_watched(options.watch)
        loop.register(events.fileno())
    folder = os.path.join(tree.root, tree.folder(REMOVE))
    watches = events is not None and events.is_complete
    log.info("started", serves=folder, watch="events" if watches else "poll")
    loop.ready(f"serving {folder}")

    def should_stop() -> bool:
        loop.ping()
        return loop.stopping

    metrics, reports = Metrics(), Reports(tree, options.node, "reaper")
    keeper = _Keeper(options, tree) if options.root is not None else None
    journal = NoJournal()
    if keeper is not None:
        journal = open_journal(tree, metrics, options.journal, "reaper", options.node)
    reaper = Reaper(
        tree,
        stop=should_stop,
        on_reaped=partial(journal.note, REAPED.event),
        on_fault=lambda name, error: log.warning("cannot unlink", file=name, error=error),
    )
    stale = StaleLinks(
        tree, lambda path, error: log.warning("cannot look for stale links", path=path, error=error)
    )
    unwatched = Unwatched(metrics)
    total = 0
    while not loop.stopping:
        if keeper is not None:
            keeper.step()
        if events is not None:
            events.read()
        reaped = reaper.run()
        total += reaped
        metrics.count(("reap",), reaped)
        journal.measure_lag()
        unwatched.look()
        reports.write_if_due(metrics)
        if reaped:
            log.debug("reaped", files=reaped)
            loop.pause(_GATHER_S)
        watches = events is not None and events.is_complete
        pause = _DISTRUST_S if watches else options.poll_interval
        again = reaper.timeout()
        pause = min(pause, stale.step())
        loop.wait(pause if again is None else min(pause, again))
    reports.leave()
    journal.close()
    log.info("stopped", reaped=total)
    return EXIT_CLEAN


class _Keeper:
    """Maintains the journal, the history, and the records of moves.

    Closes the segments of writers that died, merges old hours into larger steps, and unlinks what
    is past its retention.
    """

    def __init__(self, options: ReaperOptions, tree: Tree) -> None:
        self._options = options
        self._tree = tree
        self._due = self._thin_due = 0.0
        self._reported: dict[str, str] = {}

    def step(self) -> None:
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _KEEP_EVERY_S
        self._try("close", lambda: close_abandoned(self._tree))
        self._try("expire", self._expire)
        self._try("forget moves", lambda: forget_ended(self._tree))
        if time.monotonic() >= self._thin_due:
            self._thin_due = time.monotonic() + _THIN_EVERY_S
            self._try("thin", self._thin)

    def _try(self, what: str, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError as error:
            if self._reported.get(what) != str(error):
                self._reported[what] = str(error)
                log.warning("cannot maintain the records", work=what, error=error)

    def _expire(self) -> None:
        options = self._options
        removed = expire(self._tree, options.journal_retention, options.journal_bytes, time.time())
        if removed:
            log.debug("removed segments of the journal", segments=removed)

    def _thin(self) -> None:
        options, now = self._options, time.time()
        thinned = thinning.thin(self._tree, now)
        removed = thinning.expire(self._tree, options.history_retention, options.history_bytes, now)
        if thinned or removed:
            log.debug("thinned the history", thinned=thinned, removed=removed)


if __name__ == "__main__":
    main(prog_name="mq-reaper")
