"""Every setting of every program: its unit, range, default and the sentence that `--help` shows.

`SETTINGS` is the one place to add or change one; command lines, environment variables, the
configuration file and the help text are made from it (see `fsmq.daemons.settings.commandline`). The
dataclasses of `fsmq.daemons.settings.options` give a program its values with their types.
"""

from pathlib import Path
from typing import Literal, get_args

from fsmq.daemons.settings.limits import LIMITS
from fsmq.http.dialects import CHOICES, DIALECTS
from fsmq.kinds import Choice, Location, Seconds, Setting, Several, Switch, Text, Whole, WholeOr
from fsmq.spool.records.peers import host_name

SyncMode = Literal["auto", "fsync", "syncfs", "none"]
OnOff = Literal["on", "off"]
Watch = Literal["auto", "events", "poll"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "text", "json", "journal"]

DEFAULT_ROOT = Path("/tmp/mq")

COMMANDS = {"mq": "mq", "mover": "mq-mover", "reaper": "mq-reaper", "up": "fsmq up"}
"""The programs that take settings, and what a user types to start each."""

TABLES = {"mq": "mq", "mover": "mover", "reaper": "reaper", "up": "mq"}
"""The table of the configuration file that each program reads over the top level."""

OF_DIALECTS = tuple(setting for one in DIALECTS.values() for setting in one.settings())
"""The settings of the dialects, each defined in its own package."""

_EVERY = tuple(COMMANDS)
_LOOPS = ("mover", "reaper")
_DAEMONS = ("mq", *_LOOPS)

_SPOOL, _NETWORK, _ACCESS = "The spool", "The network", "Who gets in"
_JOURNAL = "The lifecycle journal"
_HISTORY = "The history of queues"
_EVENTS, _LOGS = "Noticing new files", "Logs and configuration"
_STATS = "Metrics"


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "root",
        Location("FOLDER"),
        DEFAULT_ROOT,
        "The folder of the spool; created if it is missing.",
        _SPOOL,
        ("mq", "up"),
    ),
    Setting(
        "any-folder",
        Switch("no", "yes"),
        "no",
        "Make a spool in a folder that has other things in it.",
        _SPOOL,
        ("up",),
    ),
    Setting(
        "root",
        Location("FOLDER"),
        None,
        "The spool to serve: delivers new messages, and messages whose timers end, to"
        " their queues.",
        _SPOOL,
        ("mover",),
    ),
    Setting(
        "source",
        Location("FOLDER"),
        None,
        "The folder to move files from; with --destination, instead of --root.",
        _SPOOL,
        ("mover",),
    ),
    Setting(
        "destination",
        Location("FOLDER"),
        None,
        "The folder of queues to deliver files to, on the same filesystem.",
        _SPOOL,
        ("mover",),
    ),
    Setting(
        "root",
        Location("FOLDER"),
        None,
        "The spool to serve: files in its folder remove/ are unlinked.",
        _SPOOL,
        ("reaper",),
    ),
    Setting(
        "source",
        Location("FOLDER"),
        None,
        "The folder whose files are unlinked; instead of --root.",
        _SPOOL,
        ("reaper",),
        default_text=str(DEFAULT_ROOT / "remove"),
    ),
    Setting(
        "delay",
        Seconds(0, 31_536_000),
        0.0,
        "The least time that a file stays in the source before it is delivered.",
        _SPOOL,
        ("mover",),
    ),
    Setting(
        "sync",
        Choice(*get_args(SyncMode)),
        "auto",
        "How messages are made durable before the answer; with none they are not.",
        _SPOOL,
        ("mq", "up"),
    ),
    Setting(
        "workers",
        Whole(1, 256, "count"),
        8,
        "Size of each of two thread pools: one stores messages, one claims them.",
        _SPOOL,
        ("mq",),
    ),
    Setting(
        "peers",
        WholeOr(0, 10_000, "count", "auto"),
        0,
        "Number of other hosts that claim from the same spool. With 0, messages come strictly in"
        " order; auto counts the hosts that are alive.",
        _SPOOL,
        ("mq",),
    ),
    Setting(
        "node",
        Text("NAME", r"(?!\.)[A-Za-z0-9_.-]{1,180}", "A-Z a-z 0-9 - _ . with no dot first"),
        host_name,
        "The name of this host among its peers.",
        _SPOOL,
        _DAEMONS,
        default_text="the host's name",
    ),
    Setting(
        "address",
        Text("ADDRESS", r"[^\s\x00]{1,255}", "an address or a host name"),
        "127.0.0.1",
        "The address to listen on.",
        _NETWORK,
        ("mq", "up"),
    ),
    Setting(
        "port",
        Whole(0, 65_535, "port"),
        8080,
        "The port to listen on; 0 takes any free one.",
        _NETWORK,
        ("mq", "up"),
    ),
    Setting(
        "dialects",
        Several(*CHOICES),
        "all",
        "Dialects of HTTP to serve besides the native one, joined by commas; or all, or none.",
        _NETWORK,
        ("mq",),
    ),
    *OF_DIALECTS,
    Setting(
        "processes",
        Whole(1, 256, "count"),
        1,
        "Processes that share the port, to use more than one core.",
        _NETWORK,
        ("mq", "up"),
    ),
    Setting(
        "process-index",
        Whole(0, 255, "index"),
        None,
        "Which of the processes this one is; set by the supervisor.",
        _NETWORK,
        ("mq",),
        hidden=True,
    ),
    Setting(
        "keys",
        Location("FILE"),
        None,
        "A TOML file of keys and their rights; without one everybody may do everything.",
        _ACCESS,
        ("mq", "up"),
    ),
    Setting(
        "tls-cert",
        Location("FILE"),
        None,
        "Serve HTTPS with this certificate chain (PEM); needs --tls-key.",
        _ACCESS,
        ("mq", "up"),
    ),
    Setting(
        "tls-key",
        Location("FILE"),
        None,
        "The private key of the certificate (PEM). Both files are read again when they change.",
        _ACCESS,
        ("mq", "up"),
    ),
    Setting(
        "host-names",
        Text(
            "NAMES",
            r"[A-Za-z0-9_.-]{1,253}(,[A-Za-z0-9_.-]{1,253})*",
            "host names joined by commas",
        ),
        None,
        "Without --keys: more host names that clients may use, besides localhost and IP addresses.",
        _ACCESS,
        ("mq", "up"),
    ),
    Setting(
        "let-anyone-in",
        Switch("no", "yes"),
        "no",
        "Serve without --keys on an address that other hosts can reach.",
        _ACCESS,
        ("mq", "up"),
    ),
    Setting(
        "listening",
        Text("FDS", r"[0-9]+(,[0-9]+)*", "numbers of open sockets"),
        None,
        "The sockets to serve, already open; set by the supervisor.",
        _NETWORK,
        ("mq",),
        hidden=True,
    ),
    *LIMITS,
    Setting(
        "stats",
        Choice("none", "statsd"),
        "none",
        "Where to send metrics; Prometheus can scrape /_metrics in any case.",
        _STATS,
        ("mq",),
    ),
    Setting(
        "stats-address",
        Text("HOST:PORT", r"(\[[0-9A-Fa-f:.%]+\]|[^\s:\x00]{1,253}):[0-9]{1,5}", "HOST:PORT"),
        "127.0.0.1:8125",
        "Where statsd listens (UDP).",
        _STATS,
        ("mq",),
    ),
    Setting(
        "stats-prefix",
        Text("PREFIX", r"[A-Za-z0-9_.-]{0,200}", "A-Z a-z 0-9 - _ ."),
        "fsmq.",
        "The prefix of each statsd key, with its dot.",
        _STATS,
        ("mq",),
    ),
    Setting(
        "stats-interval",
        Seconds(0.1, 3600),
        2.0,
        "How often metrics are sent.",
        _STATS,
        ("mq",),
    ),
    Setting(
        "stats-tags",
        Choice("none", "dogstatsd"),
        "none",
        "none: the queue is a part of the key; dogstatsd: it is a tag.",
        _STATS,
        ("mq",),
    ),
    Setting(
        "watch",
        Choice(*get_args(Watch)),
        "auto",
        "How new files are noticed; use poll on mounts that send no events, such as NFS.",
        _EVENTS,
        _DAEMONS,
    ),
    Setting(
        "poll-interval",
        Seconds(0.01, 60),
        0.25,
        "The time between two listings of a polled folder.",
        _EVENTS,
        _DAEMONS,
    ),
    Setting(
        "expiry-interval",
        Seconds(0.1, 86_400),
        30.0,
        "How often expired messages are removed from the queues.",
        _EVENTS,
        ("mover",),
    ),
    Setting(
        "journal",
        Switch("off", "on"),
        "on",
        "Whether to record each step of each message in the lifecycle journal.",
        _JOURNAL,
        tuple(COMMANDS),
    ),
    Setting(
        "journal-retention",
        Seconds(60, 3_162_240_000),
        7 * 86_400.0,
        "How long the journal is kept.",
        _JOURNAL,
        ("reaper",),
    ),
    Setting(
        "journal-bytes",
        Whole(2**20, 2**50, "bytes"),
        2**30,
        "The largest size of the journal; its oldest segments are removed first.",
        _JOURNAL,
        ("reaper",),
    ),
    Setting(
        "history",
        Switch("off", "on"),
        "on",
        "Whether to note each minute how many messages each queue has, and how many come and go.",
        _HISTORY,
        ("mq", "up"),
    ),
    Setting(
        "history-retention",
        Seconds(3600, 3_162_240_000),
        72 * 3600.0,
        "How long the history is kept; after six hours in steps of ten minutes.",
        _HISTORY,
        ("reaper",),
    ),
    Setting(
        "history-bytes",
        Whole(2**20, 2**50, "bytes"),
        64 * 2**20,
        "The largest size of the history of one host; its oldest hours are removed first.",
        _HISTORY,
        ("reaper",),
    ),
    Setting(
        "log-level",
        Choice(*get_args(LogLevel)),
        "info",
        "The lowest level of events to log.",
        _LOGS,
        _EVERY,
    ),
    Setting(
        "log-format",
        Choice(*get_args(LogFormat)),
        "auto",
        "The format of the log on stderr; auto: text on a terminal, journal under systemd,"
        " otherwise JSON.",
        _LOGS,
        _EVERY,
    ),
    Setting(
        "config",
        Location("FILE"),
        None,
        "A TOML file of settings; tables [mq], [mover] and [reaper] are for one program.",
        _LOGS,
        _EVERY,
    ),
)
