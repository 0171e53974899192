"""mq-mover: delivers new messages to their queues, and hidden ones when their timers end."""

import time
from pathlib import Path

from fsmq.daemons.process import logs
from fsmq.daemons.process.exits import EXIT_CLEAN
from fsmq.daemons.process.loop import Loop
from fsmq.daemons.process.start import (
    open_journal,
    probed,
    refusal,
    settle_memory,
    take_log_level,
    tell_misspelt,
)
from fsmq.daemons.process.unwatched import Unwatched
from fsmq.daemons.settings.options import MoverOptions, program
from fsmq.spool.context import Context
from fsmq.spool.errors import FsmqError, UnusableSpool
from fsmq.spool.index.events import check_watched, must_poll
from fsmq.spool.layout.filesystem import refuse_root
from fsmq.spool.layout.transitions import DELAY, NEW, QUEUES
from fsmq.spool.layout.tree import Tree
from fsmq.spool.log.upkeep import UpkeepThread
from fsmq.spool.mover.delivery import Delivery
from fsmq.spool.records.reports import Reports
from fsmq.spool.schedules.scheduler import SchedulerThread
from fsmq.spool.spool import open_context

log = logs.get_logger(__name__)
# Every message causes several events, and waking up for each costs as much as a delivery. So the
# messages of this many seconds are delivered together; of more seconds if there are many and there
# was no claim lately, as nobody waits for them then.
_GATHER_S = 0.002
_GATHER_MUCH_S = 0.01
_MUCH = 16  # messages of one step
_LATELY_S = 1.0
# When a file in `delay/` is first read: most claims have ended by then. A shorter timer ends this
# much late at most.
_FIRST_LOOK_S = 0.1
# How long a shell's file stays in `new/`: after moving several files, `mv` looks at each once more.
_REST_S = 0.02


@program("mover", MoverOptions)
def main(options: MoverOptions) -> int:
    """Deliver messages: new ones to their queues, hidden ones when their timers end.

    With --root it serves a whole spool. With --source and --destination it serves one leg: each
    file <queue>:<id> of the source becomes <queue>/<id> in the destination, --delay seconds after
    its arrival and not before the deadline that a claim has set. Any number may run on one spool,
    on any number of hosts.

    \b
    Examples:
      mq-mover --root /var/lib/fsmq
      mq-mover --source outbox --destination queues --delay 5m
    """
    logs.setup(options.log_level, options.log_format, "mq-mover")
    tell_misspelt()
    try:
        context, filesystem = open_context(_open(options))
        polls = must_poll(options.watch, filesystem.network)
    except UnusableSpool as error:
        return refusal(error)
    if options.root is not None and (code := probed(options.root)):
        return code
    try:
        return _run(options, context, polls, filesystem.whole_sync)
    except UnusableSpool as error:
        return refusal(error)


def _open(options: MoverOptions) -> Tree:
    if options.root is not None:
        refuse_root(options.root)
        return Tree(options.root)
    assert options.source is not None
    assert options.destination is not None
    source, destination = options.source.absolute(), options.destination.absolute()
    for folder in (source, destination):
        if not folder.is_dir():
            raise UnusableSpool(f"{folder} is not a folder: create it, or give another")
        refuse_root(folder)
    if source.stat().st_dev != destination.stat().st_dev:
        raise UnusableSpool(
            f"{source} and {destination} are on two filesystems, where no rename is atomic:"
            " move one of them"
        )
    if _delivers(options):
        return Tree(destination.parent)
    folders = {DELAY: str(source), QUEUES: str(destination)}
    return Tree(destination.parent, create=False, folders=folders)


def _delivers(options: MoverOptions) -> bool:
    """Whether the leg is from ``new`` to ``queues``, where dot-names have to be recovered.

    With --delay it is a leg like any other.
    """
    if options.source is None or options.destination is None or options.delay:
        return False
    destination = options.destination.absolute()
    return destination.name == QUEUES and options.source.absolute() == destination.parent / NEW


def _run(options: MoverOptions, context: Context, polls: bool, whole_sync: bool) -> int:
    tree = context.tree
    if options.root is not None:
        context.journal = open_journal(
            tree, context.metrics, options.journal, "mover", options.node
        )
    delivery = Delivery(
        context,
        delay=options.delay,
        new=options.root is not None or _delivers(options),
        timers=not _delivers(options),
        events=not polls,
        poll_interval=options.poll_interval,
        expiry_interval=options.expiry_interval,
        rest=_REST_S,
        first_look=_FIRST_LOOK_S,
        on_problem=_log_problem,
        on_fault=_log_fault,
    )

    beside: list[UpkeepThread | SchedulerThread] = []
    if options.root is not None:
        beside = [
            UpkeepThread(context, _log_fault, whole_sync=whole_sync),
            SchedulerThread(context, _log_problem, _log_fault, events=not polls),
        ]

    def reload() -> None:
        take_log_level("mover", MoverOptions)
        delivery.rescan()

    check_watched(options.watch)
    unwatched = Unwatched(context.metrics)
    loop = Loop(reload)
    loop.register(delivery.fileno())
    served = _served(options)
    settle_memory()  # keeps the garbage collector from scanning a million timers
    log.info("started", serves=served, watch="events" if delivery.hears else "poll")
    is_ready = False
    reports = _reports(options, tree)
    while not loop.stopping:
        moved = delivery.step()
        if not is_ready and delivery.fault is None:
            is_ready = True
            loop.ready(f"serving {served}")
        if moved:
            log.debug("moved", messages=moved)
        delivery.measure_lag()
        context.journal.measure_lag()
        unwatched.look()
        reports.write_if_due(context.metrics)
        if not delivery.is_behind:
            lately = time.monotonic() - delivery.claimed_at < _LATELY_S
            is_long = not moved or (moved >= _MUCH and not lately)
            # If nothing was moved, the event that woke it was not for the mover, or can wait.
            loop.pause(min(_GATHER_MUCH_S if is_long else _GATHER_S, delivery.timeout()))
        loop.wait(0.0 if moved else delivery.timeout())
    for thread in beside:
        thread.close()
    reports.leave()
    log.info("stopped", counted=context.metrics.totals())
    delivery.close()
    context.journal.close()
    return EXIT_CLEAN


def _log_problem(name: str, reason: str) -> None:
    log.warning("left alone", file=name, reason=reason)


def _log_fault(name: str, error: Exception) -> None:
    # A trace is useful only for errors that neither the disk nor a foreign file explains.
    trace = None if isinstance(error, OSError | FsmqError) else error
    log.warning("cannot deliver, trying again", what=name, error=error, exc_info=trace)


def _reports(options: MoverOptions, tree: Tree) -> Reports:
    """The reports of this mover; movers of different legs have different names."""
    leg = "" if options.root is not None else "-new" if _delivers(options) else "-delay"
    return Reports(tree, options.node, f"mover{leg}")


def _served(options: MoverOptions) -> Path:
    served = options.root if options.root is not None else options.source
    assert served is not None
    return served


if __name__ == "__main__":
    main(prog_name="mq-mover")
