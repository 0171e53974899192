"""The `fsmq` command: what an operator types.

`COMMANDS` is the one place to add a verb: its name, and where its function stands. Each verb is a
click command in a module of this package; it takes ``--at`` from `place`, prints with `output`, and
lets every error of the spool pass: `group` tells it, with what to do next and an exit code.
"""

import click

from fsmq._version import __version__
from fsmq.cli.group import Fsmq

COMMANDS = {
    "Messages": {
        "put": "fsmq.cli.put:put",
        "get": "fsmq.cli.get:get",
        "ack": "fsmq.cli.settle:ack",
        "renew": "fsmq.cli.settle:renew",
        "release": "fsmq.cli.settle:release",
        "bury": "fsmq.cli.settle:bury",
        "priority": "fsmq.cli.settle:priority",
        "peek": "fsmq.cli.peek:peek",
        "find": "fsmq.cli.find:find",
        "life": "fsmq.cli.life:life",
        "mv": "fsmq.cli.mv:mv",
        "redrive": "fsmq.cli.redrive:redrive",
        "moves": "fsmq.cli.redrive:moves",
        "purge": "fsmq.cli.queues:purge",
    },
    "Queues": {
        "ls": "fsmq.cli.queues:ls",
        "stat": "fsmq.cli.queues:stat",
        "create": "fsmq.cli.queues:create",
        "config": "fsmq.cli.config:config",
        "pause": "fsmq.cli.pause:pause",
        "resume": "fsmq.cli.pause:resume",
        "delete": "fsmq.cli.queues:delete",
        "top": "fsmq.cli.top:top",
        "history": "fsmq.cli.history:history",
    },
    "Topics": {
        "topic": "fsmq.cli.topics:topic",
        "topics": "fsmq.cli.topics:topics",  # hidden: the form of before
        "subscribe": "fsmq.cli.topics:subscribe",
        "unsubscribe": "fsmq.cli.topics:unsubscribe",
        "publish": "fsmq.cli.topics:publish",
    },
    "Schedules": {
        "schedule": "fsmq.cli.schedules:schedule",
    },
    "Logs": {
        "logs": "fsmq.cli.logs:logs",
        "log": "fsmq.cli.logs:log",
        "channel": "fsmq.cli.logs:channel",
        "read": "fsmq.cli.logs:read",
    },
    "Spools and programs": {
        "up": "fsmq.cli.up:up",
        "doctor": "fsmq.cli.doctor:doctor",
        "cluster": "fsmq.cli.cluster:cluster",
        "fsck": "fsmq.cli.fsck:fsck",
        "probe": "fsmq.cli.probe:probe",
        "bench": "fsmq.cli.bench:bench",
        "keys": "fsmq.cli.keys:keys",
        "settings": "fsmq.cli.settings:settings",
        "completion": "fsmq.cli.completion:completion",
    },
    "Data": {
        "consumers": "fsmq.cli.consumers:consumers",
        "pipeline": "fsmq.cli.pipeline:pipeline",
    },
}
"""Every verb, under the heading that ``fsmq --help`` lists it with; loaded when it is used."""


@click.group(
    cls=Fsmq,
    commands_by_section=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="fsmq", message="%(prog)s %(version)s")
def main() -> None:
    """A durable message queue whose whole state is a directory tree.

    Verbs work on a server (--at http://host:8080) or straight on the folder of a spool
    (--at /var/lib/fsmq), where no program has to run. FSMQ_AT says so once and for all.
    """
