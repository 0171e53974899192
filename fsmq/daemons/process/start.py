"""What the daemons do alike when they start."""

import ctypes
import gc
import resource
import sys
from pathlib import Path

import click

from fsmq.daemons.process import logs
from fsmq.daemons.process.exits import EXIT_CLEAN, EXIT_CONFIGURATION, EXIT_FAILED
from fsmq.daemons.process.logs import get_logger
from fsmq.daemons.settings.options import MoverOptions, MqOptions, ReaperOptions, parse
from fsmq.daemons.settings.settings import OnOff
from fsmq.spool.errors import UnusableSpool, is_passing
from fsmq.spool.layout.tree import Tree
from fsmq.spool.probe import Level, cleaned_at_boot, probe
from fsmq.spool.records.journal import Journal, NoJournal
from fsmq.spool.records.metrics import Metrics

log = get_logger(__name__)
_M_MMAP_THRESHOLD = -3
_SWITCH_S = 0.001
# Smaller ones are many, and quicker from a pool.
_LARGE_BYTES = 4 * 1024 * 1024


def refusal(error: UnusableSpool) -> int:
    """With which code a program ends that cannot open its spool: to be started again, or not."""
    log.error("cannot start", error=error)
    return EXIT_FAILED if is_passing(error.__cause__) else EXIT_CONFIGURATION


def probed(root: Path) -> int:
    """Log what the probe finds; with which code to end, or 0 if the root can carry a spool.

    A disk that refuses right now is none that never can: the program is started again.
    """
    code = EXIT_CLEAN
    for finding in probe(root):
        if finding.level is Level.FATAL:
            log.error("probe", check=finding.name, found=finding.text)
            code = max(code, EXIT_FAILED if finding.passing else EXIT_CONFIGURATION)
        elif finding.level is Level.WARNING:
            log.warning("probe", check=finding.name, found=finding.text)
        else:
            log.debug("probe", check=finding.name, found=finding.text)
    return code


def warn_of_root(root: Path, is_given: bool) -> None:
    """Say loudly that a root which nobody has chosen may be empty after the next boot.

    Of one in memory, chosen or not, the probe tells.
    """
    if not is_given and (cleaned := cleaned_at_boot(root)) is not None:
        log.warning(
            "MESSAGES MAY BE LOST AT THE NEXT BOOT: no root was given",
            root=root,
            why=f"many systems empty {cleaned} then",
            advice="give one, such as --root=/var/lib/fsmq",
        )


def open_journal(
    tree: Tree, metrics: Metrics, setting: OnOff, program: str, host: str
) -> NoJournal:
    """The lifecycle journal of this process; one that keeps nothing where it is turned off."""
    if setting == "off":
        return NoJournal()
    return Journal(tree, metrics, host=host, program=program)


def take_log_level(name: str, options: type[MqOptions | MoverOptions | ReaperOptions]) -> None:
    """Read the configuration again for the log level; one that cannot be read changes nothing.

    On SIGHUP: a slip in the file must not end a program that runs well.
    """
    try:
        logs.set_level(parse(name, options, sys.argv[1:]).log_level)
    except (click.ClickException, OSError, ValueError) as error:
        reason = error.format_message() if isinstance(error, click.ClickException) else error
        log.error("the configuration stays as it was", error=reason)


def raise_file_limit() -> None:
    """Allow as many open files as we may have: each connection and each unsynced message is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def unmap_large_blocks() -> None:
    """Let the C library return the memory of each large body when it is freed.

    It maps large blocks, and unmaps them. But once one was freed it takes blocks of that size from
    its pools, which keep them: a pool for some threads each, and in each the room of the largest
    messages. A size that is set stays.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it, musl keeps nothing
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def settle_memory() -> None:
    """Keep the collector of cycles from looking at what lives as long as the process.

    A request leaves no cycles of ours, so looking for some after every 700 objects costs a tenth
    of its time and finds next to nothing. Nor may it look at too many at a time, as nothing else
    can run meanwhile: at 20,000 for milliseconds, at ten times as many for tens of them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 20)


def share_interpreter() -> None:
    """Let the event loop have the interpreter soon, whatever the threads beside it do.

    Who waits for it asks after so long, by default after five times that; and a request that is
    answered on the loop gives it away with each call of the kernel, and waits behind each.
    """
    sys.setswitchinterval(_SWITCH_S)
