"""What the daemons have in common when they start."""

import ctypes
import gc
import os
import resource
import sys
from pathlib import Path

import click

from fsmq.daemons.process import logs
from fsmq.daemons.process.exits import EXIT_CLEAN, EXIT_CONFIGURATION, EXIT_FAILED
from fsmq.daemons.process.logs import get_logger
from fsmq.daemons.settings.options import MoverOptions, MqOptions, ReaperOptions, parse
from fsmq.daemons.settings.settings import SETTINGS, OnOff
from fsmq.spool.errors import UnusableSpool, is_passing
from fsmq.spool.layout.tree import Tree
from fsmq.spool.probe import Level, cleaned_at_boot, fatal, probe
from fsmq.spool.records.journal import Journal, NoJournal
from fsmq.spool.records.metrics import Metrics
from fsmq.words import similar

log = get_logger(__name__)
_M_MMAP_THRESHOLD = -3
_SWITCH_S = 0.001
# Smaller blocks are many, and faster from a pool.
_LARGE_BYTES = 4 * 1024 * 1024
# Variables of commands, and of what `fsmq get --exec` runs.
_OF_COMMANDS = {
    "FSMQ_AT",
    "FSMQ_KEY",
    "FSMQ_ID",
    "FSMQ_QUEUE",
    "FSMQ_DELIVERIES",
    "FSMQ_PRIORITY",
    "FSMQ_CREATED_AT",
    "FSMQ_CONTENT_TYPE",
    "FSMQ_MESSAGE_KEY",
}


def tell_misspelt() -> None:
    """Warn of each variable that is much like a setting's: nothing reads it."""
    own = [setting.variable for setting in SETTINGS if not setting.hidden]
    names = [variable.removeprefix("FSMQ_") for variable in own]
    for name in sorted(os.environ.keys() - _OF_COMMANDS - set(own)):
        prefix, _, rest = name.partition("FSMQ_")
        if prefix or not rest or rest.startswith("ATTRIBUTE_"):
            continue
        if near := similar(rest, names):
            log.warning(f"{name} is no setting; did you mean FSMQ_{near[0]}?")
            del os.environ[name]  # the programs that this one starts need not say it again


def refusal(error: UnusableSpool) -> int:
    """The exit code if the spool cannot be opened; it says whether to start the program again."""
    log.error("cannot start", error=error)
    return EXIT_FAILED if is_passing(error.__cause__) else EXIT_CONFIGURATION


def probed(root: Path) -> int:
    """Log what the probe finds; return the exit code, 0 if the root is fit for a spool.

    If the disk fails only for now, or is full, the code lets the program be started again: what
    else was found can be a consequence.
    """
    findings = probe(root)
    for finding in findings:
        if finding.level is Level.FATAL:
            log.error("probe", check=finding.name, found=finding.text)
        elif finding.level is Level.WARNING:
            log.warning("probe", check=finding.name, found=finding.text)
        else:
            log.debug("probe", check=finding.name, found=finding.text)
    if fatal(findings) is None:
        return EXIT_CLEAN
    return EXIT_FAILED if any(one.passing for one in findings) else EXIT_CONFIGURATION


def warn_of_root(root: Path, is_given: bool) -> None:
    """Warn if the root is the default, and may be empty after the next boot.

    The probe warns of any root in memory.
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
    """The lifecycle journal of this process; one that records nothing if it is turned off."""
    if setting == "off":
        return NoJournal()
    return Journal(tree, metrics, host=host, program=program)


def take_log_level(name: str, options: type[MqOptions | MoverOptions | ReaperOptions]) -> None:
    """Take the log level from the configuration again, on SIGHUP.

    A configuration that cannot be read changes nothing: a mistake must not end the program.
    """
    try:
        logs.set_level(parse(name, options, sys.argv[1:]).log_level)
    except (click.ClickException, OSError, ValueError) as error:
        reason = error.format_message() if isinstance(error, click.ClickException) else error
        log.error("the configuration stays as it was", error=reason)


def raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit: connections and unsynced messages count."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def unmap_large_blocks() -> None:
    """Let the C library return the memory of each large body when it is freed.

    It maps and unmaps large blocks; but once one is freed, it raises the threshold to that size,
    and smaller blocks come from its pools, which keep their memory: each pool would hold that of
    the largest messages. A threshold that is set is not raised.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it, musl keeps nothing
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def settle_memory() -> None:
    """Keep the garbage collector from scanning objects that live as long as the process.

    Requests leave no cycles of ours, so a scan after every 700 objects would cost a tenth of their
    time and find next to nothing. Scans must also be short, because nothing else runs during one:
    20,000 objects take milliseconds, ten times as many tens of milliseconds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 20)


def share_interpreter() -> None:
    """Let the event loop get the GIL soon, whatever other threads do.

    A waiting thread asks for it after this interval, a fifth of the default. The loop gives it up
    in each system call, so a request that is answered on the loop waits for it several times.
    """
    sys.setswitchinterval(_SWITCH_S)
