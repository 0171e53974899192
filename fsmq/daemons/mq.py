"""mq: answers HTTP, and makes every message durable before it says yes."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from fsmq.daemons.listening import CAN_YIELD, Yielding, bind, handed_down, listen, listen_admin, url
from fsmq.daemons.process import logs
from fsmq.daemons.process.exits import EXIT_CLEAN, EXIT_CONFIGURATION
from fsmq.daemons.process.filewatch import FileWatch
from fsmq.daemons.process.notify import Notifier, listen_fds
from fsmq.daemons.process.start import (
    open_journal,
    probed,
    raise_file_limit,
    refusal,
    settle_memory,
    share_interpreter,
    take_log_level,
    unmap_large_blocks,
    warn_of_root,
)
from fsmq.daemons.process.supervise import module_child, run
from fsmq.daemons.process.unwatched import Unwatched
from fsmq.daemons.protection import Protection, limits_of
from fsmq.daemons.settings.options import MqOptions, program
from fsmq.daemons.statsd import Statsd
from fsmq.http.emodb.admin import Admin
from fsmq.http.guard.admission import Admission
from fsmq.http.guard.keys import KeysError
from fsmq.http.server import Server
from fsmq.http.service.service import Service
from fsmq.http.sqs.names import SqsOptions
from fsmq.http.ui.dialect import UiOptions
from fsmq.spool.errors import UnusableSpool
from fsmq.spool.index.share import Share
from fsmq.spool.records import peers
from fsmq.spool.spool import Spool

log = logs.get_logger(__name__)
_GRACE_S = 5.0


@program("mq", MqOptions)
def main(options: MqOptions) -> int:
    """Answer HTTP on a spool.

    A message is on stable media before its POST is answered. mq-mover has to run on the same spool
    for messages to be delivered, and mq-reaper for removed ones to be unlinked; fsmq up runs all
    three.
    """
    logs.setup(options.log_level, options.log_format, _name(options))
    raise_file_limit()
    if options.processes > 1 and options.process_index is None:
        return _run_many(options)
    try:
        listening = handed_down(options) or listen_fds() or [listen(options)]
        admin = listen_admin(options, listening)
    except OSError as error:
        log.error("cannot listen", address=options.address, port=options.port, error=error.strerror)
        return EXIT_CONFIGURATION
    try:
        protection = Protection(options, listening)
    except KeysError as error:
        log.error("cannot start", error=error)
        return EXIT_CONFIGURATION
    try:
        spool = Spool(
            options.root,
            sync=options.sync,
            workers=options.workers,
            delivers=False,
            watch=options.watch,
            poll_interval=options.poll_interval,
            max_message_bytes=options.max_message_bytes,
        )
    except UnusableSpool as error:
        return refusal(error)
    if not options.process_index:
        warn_of_root(options.root, options.root_is_given)
        if code := probed(options.root):
            return code
    with spool:
        daemon = _Daemon(options, spool, listening, admin, protection)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(daemon.run())


class _Daemon:
    """One process of mq."""

    def __init__(
        self,
        options: MqOptions,
        spool: Spool,
        listening: list[socket.socket],
        admin: socket.socket | None,
        protection: Protection,
    ) -> None:
        self._options = options
        self._protection = protection
        self._spool = spool
        self._listening = listening
        self._admin = admin
        self._notifier = Notifier()
        self._stop = asyncio.Event()
        self._method = ""
        spool.syncer.on_sync = self._on_sync

    async def run(self) -> int:
        options = self._options
        context = self._spool.context
        context.journal = open_journal(
            context.tree, context.metrics, options.journal, "mq", options.node
        )
        service = Service(
            self._spool,
            workers=options.workers,
            max_waiters=options.max_waiters,
            poll_interval=options.poll_interval,
            read_timeout=options.read_timeout,
            access=self._protection.access,
            admission=Admission(limits_of(options)),
            node=options.node,
            process=_name(options),
            processes=options.processes,
            history=options.history == "on" and not options.process_index,
        )
        ui = None
        if options.ui != "off":
            ui = UiOptions(may_act=options.ui == "on", bodies=options.ui_bodies == "on")
        server = Server(
            service,
            options.dialects,
            host_names=self._protection.host_names,
            ui=ui,
            sqs=_sqs_options(options),
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup, service)
        certificate = self._protection.certificate
        await server.start(self._listening, certificate.context if certificate else None)
        end_admin = await self._start_admin(service)
        tasks = [loop.create_task(self._beat(service))]
        if self._notifier.watchdog_interval is not None:
            tasks.append(loop.create_task(self._ping(self._notifier.watchdog_interval)))
        if options.stats == "statsd":
            tasks.append(loop.create_task(self._statsd(server)))
        watch = self._watch_files(service)
        where = " ".join(url(listening, certificate is not None) for listening in self._listening)
        spool = self._spool
        log.info(
            "started",
            listening=where,
            root=options.root,
            sync=spool.syncer.mode,
            filesystem=spool.filesystem.kind,
            watch="poll" if spool.polls else "events",
        )
        settle_memory()
        share_interpreter()
        unmap_large_blocks()
        self._notifier.ready(f"listening on {where}")
        await self._stop.wait()
        log.info("stopping", waiting=len(service.receiver.waiters))
        for task in tasks:
            task.cancel()
        if watch is not None:
            watch.close()
        await server.stop(options.shutdown_timeout)
        await end_admin()
        self._leave()
        context.journal.close()
        log.info("stopped", counted=spool.context.metrics.totals())
        return EXIT_CLEAN

    async def _start_admin(self, service: Service) -> Callable[[], Awaitable[None]]:
        """Serve the admin port, if there is one; what ends that."""
        async with AsyncExitStack() as started:
            if self._admin is not None:
                port, admin = self._admin.getsockname()[1], Admin(service)
                await admin.start(self._admin)
                started.push_async_callback(admin.stop)
                if self._options.admin_port is None and CAN_YIELD:
                    yielding = Yielding(port, self._options.process_index or 0, admin.stop)
                    started.callback(yielding.close)
            return started.pop_all().aclose

    def _on_stop(self, number: int) -> None:
        if self._stop.is_set():
            log.warning("ending at once on a second signal")
            os._exit(128 + number)
        self._stop.set()
        self._notifier.stopping()

    def _on_sync(self, method: str, changes: int, seconds: float) -> None:
        """Measure, and log what --sync auto does when it does something else."""
        metrics = self._spool.context.metrics
        metrics.observe(("sync", method), seconds)
        metrics.observe(("group",), changes)
        if method != self._method:
            self._method = method
            log.debug("syncing", method=method, changes=changes, seconds=round(seconds, 4))

    def _on_hangup(self, service: Service) -> None:
        self._notifier.reloading()
        take_log_level("mq", MqOptions)
        self._protection.reload(service)
        service.receiver.rescan()
        self._notifier.ready()

    def _watch_files(self, service: Service) -> FileWatch | None:
        """Read keys and certificates again when they change."""
        protection = self._protection
        if not protection.files:
            return None
        watch = FileWatch(protection.files, lambda: protection.reload_changed(service))
        watch.start()
        return watch

    async def _ping(self, interval: float) -> None:
        while True:
            self._notifier.ping()
            await asyncio.sleep(interval)

    async def _statsd(self, server: Server) -> None:
        options = self._options
        survey = None if options.process_index else server.service.surveys.queues
        metrics = self._spool.context.metrics
        statsd = Statsd(metrics, options.stats_prefix, options.stats_tags, options.node, survey)
        await statsd.run(options.stats_address, options.stats_interval)

    async def _beat(self, service: Service) -> None:
        """Tell the other hosts that we live, and learn our share of the ids from them."""
        failing, unwatched = False, Unwatched(self._spool.context.metrics)
        while True:
            unwatched.look()
            try:
                self._spool.context.ready.set_share(await service.in_thread(self._beat_once))
                failing = False
            except OSError as error:
                if not failing:  # once is enough: a full disk may stay full for long
                    log.warning("cannot say that this host lives", error=error)
                failing = True
            await asyncio.sleep(peers.BEAT_S)

    def _beat_once(self) -> Share:
        options, tree = self._options, self._spool.tree
        peers.beat(tree, options.node, url(self._listening[0]).rpartition("/")[2])
        nodes = peers.alive(tree, options.node)
        others = None if options.peers == "auto" else options.peers
        process = options.process_index or 0
        return peers.share(nodes, options.node, others, process, options.processes)

    def _leave(self) -> None:
        if not self._options.process_index:
            try:
                peers.leave(self._spool.tree, self._options.node)
            except OSError:
                pass  # the others will notice by our silence


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop; None for Python's own, where the quicker one is not installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:  # it comes with fsmq on Linux only
        return None
    return new_event_loop


def _sqs_options(options: MqOptions) -> SqsOptions:
    auth = None if options.sqs_auth == "auto" else options.sqs_auth
    return SqsOptions(options.sqs_account, options.sqs_region, options.sqs_url, auth)


def _name(options: MqOptions) -> str:
    return "mq" if options.process_index is None else f"mq-{options.process_index}"


def _run_many(options: MqOptions) -> int:
    """Several processes on one port; they meet in the tree alone."""
    arguments = sys.argv[1:]
    kept = listen_fds()
    fds = [listening.fileno() for listening in kept]
    if kept:
        arguments.append(f"--listening={','.join(map(str, fds))}")
    elif options.port == 0:
        # Bound but not listening: it gets no connection, and keeps the port for the children.
        kept = [bind(options.address, 0)]
        arguments.append(f"--port={kept[0].getsockname()[1]}")
    children = [
        module_child(
            f"mq-{index}", "fsmq.daemons.mq", [*arguments, f"--process-index={index}"], fds
        )
        for index in range(options.processes)
    ]
    try:
        return run(children, prefix=False, grace=options.shutdown_timeout + _GRACE_S)
    finally:
        for one in kept:
            one.close()


if __name__ == "__main__":
    main(prog_name="mq")
