"""What can be typed: `COMMANDS` is the one place to add a command, `OLDER` has the older forms.

Messages and programs have verbs of their own; all else is a noun with verbs, ``fsmq queue create``.
A noun uses the same verb as the others for the same act: create, delete, config, list, show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple


class Noun(NamedTuple):
    """A group of commands. verbs: where the function of each is, as ``module:function``."""

    summary: str
    example: str
    verbs: Mapping[str, str]

    @property
    def help(self) -> str:
        """What ``--help`` says above the verbs."""
        return f"{self.summary}\n\n\b\nExamples:\n  {self.example}"


COMMANDS: Mapping[str, Mapping[str, str | Noun]] = {
    "Messages": {
        "put": "fsmq.cli.messages.put:put",
        "get": "fsmq.cli.messages.get:get",
        "ack": "fsmq.cli.messages.settle:ack",
        "renew": "fsmq.cli.messages.settle:renew",
        "release": "fsmq.cli.messages.settle:release",
        "bury": "fsmq.cli.messages.settle:bury",
        "priority": "fsmq.cli.messages.settle:priority",
        "remove": "fsmq.cli.messages.settle:remove",
        "peek": "fsmq.cli.messages.peek:peek",
        "find": "fsmq.cli.messages.find:find",
        "life": "fsmq.cli.messages.life:life",
        "mv": "fsmq.cli.messages.mv:mv",
        "redrive": "fsmq.cli.messages.redrive:redrive",
    },
    "Queues, topics, logs, schedules": {
        "queue": Noun(
            "Create, list, configure, pause, purge and delete queues.",
            "fsmq queue create jobs",
            {
                "create": "fsmq.cli.queues.queues:create",
                "delete": "fsmq.cli.queues.queues:delete",
                "config": "fsmq.cli.queues.config:config",
                "list": "fsmq.cli.queues.queues:list_queues",
                "show": "fsmq.cli.queues.queues:show",
                "pause": "fsmq.cli.queues.pause:pause",
                "resume": "fsmq.cli.queues.pause:resume",
                "purge": "fsmq.cli.queues.queues:purge",
                "history": "fsmq.cli.queues.history:history",
            },
        ),
        "topic": Noun(
            "Create, list and delete topics; subscribe to them and publish.",
            "fsmq topic subscribe news mail --create",
            {
                "create": "fsmq.cli.topics:create",
                "delete": "fsmq.cli.topics:delete",
                "list": "fsmq.cli.topics:list_topics",
                "show": "fsmq.cli.topics:show",
                "subscribe": "fsmq.cli.topics:subscribe",
                "unsubscribe": "fsmq.cli.topics:unsubscribe",
                "publish": "fsmq.cli.topics:publish",
            },
        ),
        "log": Noun(
            "Create, list, configure and delete logs; publish to them and read them.",
            "fsmq log publish users --body created",
            {
                "create": "fsmq.cli.logs.logs:create",
                "delete": "fsmq.cli.logs.logs:delete",
                "config": "fsmq.cli.logs.logs:config",
                "list": "fsmq.cli.logs.logs:list_logs",
                "show": "fsmq.cli.logs.logs:show",
                "publish": "fsmq.cli.logs.publish_log:publish",
                "read": "fsmq.cli.logs.read:read",
                "feed": "fsmq.cli.logs.feed:feed",
                "verify": "fsmq.cli.logs.logs:verify",
            },
        ),
        "channel": Noun(
            "Create, list, configure, move, pause and delete channels of logs.",
            "fsmq channel create users mailer --from first",
            {
                "create": "fsmq.cli.logs.channels:create",
                "delete": "fsmq.cli.logs.channels:delete",
                "config": "fsmq.cli.logs.channels:config",
                "list": "fsmq.cli.logs.channels:list_channels",
                "show": "fsmq.cli.logs.channels:show",
                "seek": "fsmq.cli.logs.channels:seek",
                "pause": "fsmq.cli.logs.channels:pause",
                "resume": "fsmq.cli.logs.channels:resume",
            },
        ),
        "schedule": Noun(
            "Put messages at the times of a crontab line.",
            "fsmq schedule create nightly '30 3 * * *' jobs --body report",
            {
                "create": "fsmq.cli.schedules:create",
                "delete": "fsmq.cli.schedules:delete",
                "list": "fsmq.cli.schedules:list_schedules",
                "show": "fsmq.cli.schedules:show",
                "next": "fsmq.cli.schedules:upcoming",
                "run": "fsmq.cli.schedules:run",
                "pause": "fsmq.cli.schedules:pause",
                "resume": "fsmq.cli.schedules:resume",
            },
        ),
        "move": Noun(
            "List and stop the moves in the background, which fsmq redrive begins.",
            "fsmq move list",
            {
                "list": "fsmq.cli.messages.moves:list_moves",
                "stop": "fsmq.cli.messages.moves:stop",
            },
        ),
        "consumer": Noun(
            "List and forget the consumers that work in batches, such as streams of Spark.",
            "fsmq consumer list",
            {
                "list": "fsmq.cli.consumers:list_consumers",
                "show": "fsmq.cli.consumers:show",
                "forget": "fsmq.cli.consumers:forget",
            },
        ),
    },
    "Spools and programs": {
        "up": "fsmq.cli.admin.up:up",
        "top": "fsmq.cli.queues.top:top",
        "doctor": "fsmq.cli.admin.doctor:doctor",
        "cluster": "fsmq.cli.admin.cluster:cluster",
        "fsck": "fsmq.cli.admin.fsck:fsck",
        "backup": "fsmq.cli.admin.backup:backup",
        "restore": "fsmq.cli.admin.backup:restore",
        "probe": "fsmq.cli.admin.probe:probe",
        "bench": "fsmq.cli.admin.bench:bench",
        "key": Noun(
            "Create and list the keys that clients of a server need.",
            "fsmq key create worker --receive 'jobs.*' --keys keys.toml",
            {
                "create": "fsmq.cli.admin.keys:create",
                "list": "fsmq.cli.admin.keys:list_keys",
            },
        ),
        "settings": "fsmq.cli.admin.settings:settings",
        "completion": "fsmq.cli.admin.completion:completion",
        "pipeline": "fsmq.cli.pipeline:pipeline",
        "work": "fsmq.cli.work:work",
    },
}
"""Every command, under the heading that ``fsmq --help`` lists it with; loaded when it is used."""

SYNONYMS = {
    "ls": "list",
    "rm": "delete",
    "add": "create",
    "new": "create",
    "stat": "show",
    "stats": "show",
}
"""Verbs that a noun takes for its own; no help lists them."""

_NAME = "NAME"
OLDER: Mapping[str, Mapping[str, str]] = {
    "ls": {"": "queue list"},
    "stat": {"": "queue show"},
    "create": {"": "queue create"},
    "delete": {"": "queue delete"},
    "config": {"": "queue config"},
    "pause": {"": "queue pause"},
    "resume": {"": "queue resume"},
    "purge": {"": "queue purge"},
    "history": {"": "queue history"},
    "topics": {
        "--create": "topic create",
        "--delete": "topic delete",
        _NAME: "topic show",
        "": "topic list",
    },
    "topic ls": {_NAME: "topic show", "": "topic list"},
    "subscribe": {"--end": "topic unsubscribe", "": "topic subscribe"},
    "unsubscribe": {"": "topic unsubscribe"},
    "publish": {"--log LOG": "log publish", "": "topic publish"},
    "logs": {_NAME: "channel list", "": "log list"},
    "log LOG": {
        "--create": "log create",
        "--delete": "log delete",
        "--to QUEUE": "log feed",
        "--verify": "log verify",
        "--set SETTING=VALUE": "log config",
        "": "log show",
    },
    "channel LOG CHANNEL": {
        "--create": "channel create",
        "--delete": "channel delete",
        "--seek PLACE": "channel seek",
        "--pause": "channel pause",
        "--resume": "channel resume",
        "--set SETTING=VALUE": "channel config",
        "": "channel show",
    },
    "read": {"": "log read"},
    "moves": {"--stop": "move stop", "": "move list"},
    "consumers": {
        "--forget": "consumer forget",
        _NAME: "consumer show",
        "": "consumer list",
    },
    "keys": {"": "key"},
}
"""What is typed now for each older form, by the option that decided, or whether a name is given.

The value of an option is an argument now: the first one of ``--log``, the last one of the others.
"""


def newer(words: Sequence[str]) -> list[str]:
    """The command of today for an older form; other words are returned as they are."""
    for form, by_option in OLDER.items():
        if (rest := _rest(words, form.split())) is not None:
            return _rewritten(rest, by_option)
    return list(words)


def _rest(words: Sequence[str], form: Sequence[str]) -> list[str] | None:
    """What follows the verb of a form; None if the words are not of this form."""
    verb = [word for word in form if word.islower()]
    rest = list(words[len(verb) :])
    if list(words[: len(verb)]) != verb:
        return None
    if verb == form:
        return rest
    # `log users`, but neither `log create users` nor `log crate users`, which names two.
    [noun] = (of[verb[0]] for of in COMMANDS.values() if verb[0] in of)
    assert isinstance(noun, Noun)
    named = next((at for at, word in enumerate(rest) if word.startswith("-")), len(rest))
    is_verb = not rest or rest[0] in ("-h", "--help", *noun.verbs, *SYNONYMS)
    return None if is_verb or named > len(form) - len(verb) else rest


def _rewritten(rest: Sequence[str], by_option: Mapping[str, str]) -> list[str]:
    takes = {key.partition(" ")[0]: " " in key for key in by_option if key.startswith("--")}
    given: dict[str, list[str]] = {}
    kept: list[str] = []
    words = iter(rest)
    for word in words:
        option, equals, value = word.partition("=")
        if option not in takes:
            kept += [word, *words] if word == "--" else [word]
            continue
        values = given.setdefault(option, [])
        if takes[option]:
            values += [value] if equals else islice(words, 1)
    decides = next(
        key
        for key in by_option
        if not key or key.partition(" ")[0] in given or (key == _NAME and _has_name(kept))
    )
    # The command refuses those that have not decided.
    kept += [one for one in given if not takes[one] and one != decides]
    first = given.pop("--log", [])
    last = [value for values in given.values() for value in values]
    return [*by_option[decides].split(), *first, *kept, *last]


def _has_name(words: Sequence[str]) -> bool:
    """Whether there is a word beside options and the value of ``--at``."""
    before = ["", *words]
    return any(
        word[:1] != "-" and last not in ("--at", "--root")
        for last, word in zip(before, words, strict=False)
    )
