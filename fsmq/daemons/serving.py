"""One process of mq: from its sockets and its spool to the end of its last request."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from fsmq.daemons.listening import bind, handed_down, listen, url
from fsmq.daemons.process import logs
from fsmq.daemons.process.exits import EXIT_CLEAN, EXIT_CONFIGURATION
from fsmq.daemons.process.filewatch import FileWatch
from fsmq.daemons.process.notify import Notifier, listen_fds
from fsmq.daemons.process.repeated import StopSignals
from fsmq.daemons.process.start import (
    open_journal,
    probed,
    refusal,
    settle_memory,
    share_interpreter,
    take_log_level,
    unmap_large_blocks,
    warn_of_root,
)
from fsmq.daemons.process.unwatched import Unwatched
from fsmq.daemons.protection import Protection, limits_of
from fsmq.daemons.settings.options import MqOptions
from fsmq.daemons.statsd import Statsd
from fsmq.http.dialect import Dialect
from fsmq.http.dialects import switched_on
from fsmq.http.guard.admission import Admission
from fsmq.http.guard.keys import KeysError
from fsmq.http.server import Server
from fsmq.http.service.service import Service
from fsmq.parts import MissingExtra
from fsmq.spool.errors import UnusableSpool
from fsmq.spool.index.share import Share
from fsmq.spool.records import peers
from fsmq.spool.spool import Spool

log = logs.get_logger(__name__)


def serve(options: MqOptions) -> int:
    """Answer requests until a signal comes; the exit code."""
    try:
        dialects = switched_on(options.dialects, options.of_dialects)
    except MissingExtra as error:
        log.error("cannot start", error=error)
        return EXIT_CONFIGURATION
    try:
        listening = handed_down(options) or listen_fds() or [listen(options)]
        admin = _listen_admin(options, dialects)
    except OSError as error:
        log.error("cannot listen", address=options.address, port=options.port, error=error.strerror)
        return EXIT_CONFIGURATION
    try:
        for dialect in dialects:
            has_keys = options.keys is not None
            if problem := dialect.problem_of(options.of_dialects, has_keys=has_keys):
                raise KeysError(problem)
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
        daemon = _Daemon(options, spool, listening, dialects, admin, protection)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(daemon.run())


class Admin(NamedTuple):
    """The admin port of a dialect."""

    dialect: str
    socket: socket.socket


def _listen_admin(options: MqOptions, dialects: Sequence[type[Dialect]]) -> Admin | None:
    """The admin port, if the operator has asked for one. Raises OSError."""
    for dialect in dialects:
        if dialect.admin_port and (port := options.of_dialects[dialect.admin_port]):
            return Admin(dialect.name, bind(options.address, port, shared=options.processes > 1))
    return None


class _Daemon:
    """One process of mq."""

    def __init__(
        self,
        options: MqOptions,
        spool: Spool,
        listening: list[socket.socket],
        dialects: Sequence[type[Dialect]],
        admin: Admin | None,
        protection: Protection,
    ) -> None:
        self._options = options
        self._protection = protection
        self._spool = spool
        self._listening = listening
        self._dialects = dialects
        self._admin = admin
        self._notifier = Notifier()
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._signals = StopSignals()
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
            process=options.process_name,
            processes=options.processes,
            history=options.history == "on" and not options.process_index,
        )
        dialects = [one.make(service, options.of_dialects) for one in self._dialects]
        server = Server(service, dialects, host_names=self._protection.host_names)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup, service)
        certificate = self._protection.certificate
        await server.start(self._listening, certificate.context if certificate else None)
        end_admin = await self._start_admin(dialects)
        tasks = self._tasks
        tasks.append(loop.create_task(self._beat(service)))
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
        also = ""
        if self._admin is not None:
            port = self._admin.socket.getsockname()[1]
            also = f", admin port {port} of {self._admin.dialect}"
        self._notifier.ready(f"listening on {where}{also}")
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

    async def _start_admin(self, dialects: Sequence[Dialect]) -> Callable[[], Awaitable[None]]:
        """Serve the admin port, if there is one; returns a function that stops it."""
        async with AsyncExitStack() as started:
            if self._admin is not None:
                named, listening = self._admin
                [admin] = [one.admin() for one in dialects if one.name == named]
                await admin.start(listening)
                started.push_async_callback(admin.stop)
            return started.pop_all().aclose

    def _on_stop(self, number: int) -> None:
        if self._signals.is_second(number):
            log.warning("ending at once on a second signal")
            os._exit(128 + number)
        self._stop.set()
        self._notifier.stopping()

    def _on_sync(self, method: str, changes: int, seconds: float) -> None:
        """Measure a sync, and log it when --sync auto changes the method."""
        metrics = self._spool.context.metrics
        metrics.observe(("sync", method), seconds)
        metrics.observe(("group",), changes)
        if method != self._method:
            self._method = method
            log.debug("syncing", method=method, changes=changes, seconds=round(seconds, 4))

    def _on_hangup(self, service: Service) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(self._reload(service)))

    async def _reload(self, service: Service) -> None:
        self._notifier.reloading()
        take_log_level("mq", MqOptions)
        await self._protection.reload(service)
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
        """Tell the other hosts that we are alive, and take our share of the ids by theirs."""
        failing, unwatched = False, Unwatched(self._spool.context.metrics)
        while True:
            unwatched.look()
            try:
                self._spool.context.ready.set_share(await service.in_thread(self._beat_once))
                failing = False
            except OSError as error:
                if not failing:  # logged once, because a full disk can stay full for long
                    log.warning("cannot report that this host is alive", error=error)
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
                pass  # the others notice when our beats stop


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory of uvloop's event loop; None, for Python's own, if it is not installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:  # it comes with fsmq on Linux only
        return None
    return new_event_loop
