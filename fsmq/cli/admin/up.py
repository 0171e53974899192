"""``fsmq up``: the three programs as one."""

import fcntl
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from fsmq.daemons.process import logs
from fsmq.daemons.process.exits import EXIT_CONFIGURATION
from fsmq.daemons.process.init import leave_init
from fsmq.daemons.process.start import tell_misspelt, warn_of_root
from fsmq.daemons.process.supervise import module_child, run
from fsmq.daemons.settings.options import UpOptions, program
from fsmq.parts import require
from fsmq.spool.layout.transitions import FOLDERS, QUEUES

log = logs.get_logger(__name__)
_GRACE = 5.0  # seconds: what the programs need to stop after their last request has been answered

_MQ_ONLY = (
    "address",
    "port",
    "processes",
    "sync",
    "shutdown_timeout",
    "keys",
    "tls_cert",
    "tls_key",
    "host_names",
    "let_anyone_in",
)


@program("up", UpOptions)
def up(options: UpOptions) -> int:
    """Run mq, mq-mover and mq-reaper on one spool, until SIGTERM or Ctrl-C.

    A program that dies is started again. The other settings of the programs come from the
    environment and the configuration file; options given here override both.

    \b
    Examples:
      fsmq up --root /var/lib/fsmq
      fsmq up --config fsmq.toml --port 8081
    """
    require("fsmq up", "server")
    leave_init()
    form = logs.chosen_format(options.log_format)
    logs.setup(options.log_level, form, "up")
    tell_misspelt()
    warn_of_root(options.root, options.root_is_given)
    if options.any_folder == "no" and (found := _strange(options.root)):
        log.error(
            "this folder is not a spool",
            root=options.root,
            found=found[:5],
            advice="name an empty folder or a spool; --any-folder=yes makes one here anyway",
        )
        return EXIT_CONFIGURATION
    lock = _lock(options.root)
    root = str(options.root)
    common = [f"--log-format={form}", *_passed_on(options, ("config", "log_level", "journal"))]
    serving = _passed_on(options, _MQ_ONLY)
    mq = module_child("mq", "fsmq.daemons.mq", [f"--root={root}", *common, *serving])
    mover = module_child("mover", "fsmq.daemons.mover", [f"--root={root}", *common])
    reaper = module_child("reaper", "fsmq.daemons.reaper", [f"--root={root}", *common])

    def announce(statuses: Mapping[str, str]) -> None:
        found = re.search(r"https?://[^\s/]+:(\d+)", statuses["mq"])
        url = found[0] if found else f"http://{options.address}:{options.port}"
        if found:
            # After a restart clients expect the same port, even if port 0 chose any free one.
            mq.argv = [*mq.argv, f"--port={found[1]}"]
        lines = [f"fsmq is up: {url}", f"root:       {root}"]
        if admin := re.search(r"admin port (\d+) of (\w+)", statuses["mq"]):
            lines.append(f"admin port: {admin[1]} of {admin[2]}")
        _print(*lines)

    with lock:
        return run(
            [mq, mover, reaper],
            prefix=form == "text",
            on_started=announce,
            grace=options.shutdown_timeout + _GRACE,
        )


def _strange(root: Path) -> list[str]:
    """What else is in a folder that is no spool; empty if it is one, or may become one."""
    try:
        entries = set(os.listdir(root))
    except OSError:
        return []  # not there yet, or the programs say why they refuse it
    return [] if QUEUES in entries else sorted(entries.difference(FOLDERS, ["lost+found"]))


def _lock(root: Path) -> ExitStack:
    """Hold a lock on the root as long as this runs, and warn if another one does."""
    held = ExitStack()
    try:
        root.mkdir(0o700, parents=True, exist_ok=True)
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        held.callback(os.close, fd)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.warning(
            "another fsmq up runs on this root",
            root=root,
            advice="stop one of them, unless both are wanted, such as in two containers",
        )
    except OSError:
        pass  # a network filesystem without locks on folders, or a root that the programs refuse
    return held


def _passed_on(options: UpOptions, fields: Sequence[str]) -> list[str]:
    """Return the arguments for what was given on our own command line."""
    return [
        f"--{field.replace('_', '-')}={getattr(options, field)}"
        for field in fields
        if field in options.given
    ]


def _print(*lines: str) -> None:
    try:
        print(*lines, sep="\n", flush=True)
    except OSError:
        pass  # serve even if nobody reads our output
