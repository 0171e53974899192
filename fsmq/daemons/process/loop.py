"""The main loop of a daemon that works on folders: signals, the watchdog, waiting."""

import os
import select
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType

from fsmq.daemons.process.logs import get_logger
from fsmq.daemons.process.notify import Notifier

log = get_logger(__name__)


class Loop:
    """Waits for files, signals and timers at once.

    SIGTERM and SIGINT set ``stopping``, a second one ends the process at once; SIGHUP calls
    ``on_reload`` from within :meth:`wait`.
    """

    def __init__(self, on_reload: Callable[[], None]) -> None:
        self.stopping = False
        self.notifier = Notifier()
        self._on_reload = on_reload
        self._reload_asked = False
        self._poller = select.poll()
        self._pinged = time.monotonic()
        # A signal writes a byte here, so that it also ends a wait that is just beginning.
        self._waker, waking = socket.socketpair()
        self._waking = waking
        for end in (self._waker, waking):
            end.setblocking(False)
        signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        self._poller.register(self._waker, select.POLLIN)
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_hangup)

    def register(self, fileno: int | None) -> None:
        """Let :meth:`wait` end when this is readable; None is ignored."""
        if fileno is not None:
            self._poller.register(fileno, select.POLLIN)

    def ready(self, status: str) -> None:
        """Tell the service manager that the start is complete."""
        self.notifier.ready(status)

    def wait(self, seconds: float) -> None:
        """Wait until something is readable, a signal came, or ``seconds`` are over."""
        interval = self.notifier.watchdog_interval
        if interval is not None:
            seconds = min(seconds, interval)
        if not self.stopping and not self._reload_asked:
            # Rounded up, so that the last millisecond of a timer is not spent spinning.
            self._poller.poll(-(-seconds * 1000 // 1) if seconds > 0 else 0)
        self._drain()
        self.ping()
        if self._reload_asked:
            self._reload_asked = False
            self.notifier.reloading()
            self._on_reload()
            self.notifier.ready()

    def pause(self, seconds: float) -> None:
        """Wait for ``seconds``, or until a signal asks to stop."""
        end = time.monotonic() + seconds
        while not self.stopping and (left := end - time.monotonic()) > 0:
            select.select([self._waker], [], [], left)
            self._drain()

    def ping(self) -> None:
        """Tell the watchdog that this process is alive, if it is time to."""
        interval = self.notifier.watchdog_interval
        if interval is not None and time.monotonic() - self._pinged >= interval / 2:
            self._pinged = time.monotonic()
            self.notifier.ping()

    def _drain(self) -> None:
        try:
            while self._waker.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        if self.stopping:
            os._exit(128 + number)
        self.stopping = True
        self.notifier.stopping()

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        self._reload_asked = True
