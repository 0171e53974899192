"""The `fsmq` command: what an operator types.

`COMMANDS` is the one place to add a verb: its name, and where its function stands. Each verb is a
click command in the folder for its section, or in a module here. It takes ``--at`` from `place`,
prints with `output`, and lets every error of the spool pass: `group` tells it, with what to do next
and an exit code.
"""

import click

from fsmq._version import __version__
from fsmq.cli.group import Fsmq

COMMANDS = {
    "Messages": {
        "put": "fsmq.cli.messages.put:put",
        "get": "fsmq.cli.messages.get:get",
        "ack": "fsmq.cli.messages.settle:ack",
        "renew": "fsmq.cli.messages.settle:renew",
        "release": "fsmq.cli.messages.settle:release",
        "bury": "fsmq.cli.messages.settle:bury",
        "priority": "fsmq.cli.messages.settle:priority",
        "peek": "fsmq.cli.messages.peek:peek",
        "find": "fsmq.cli.messages.find:find",
        "life": "fsmq.cli.messages.life:life",
        "mv": "fsmq.cli.messages.mv:mv",
        "redrive": "fsmq.cli.messages.redrive:redrive",
        "moves": "fsmq.cli.messages.redrive:moves",
        "purge": "fsmq.cli.queues.queues:purge",
    },
    "Queues": {
        "ls": "fsmq.cli.queues.queues:ls",
        "stat": "fsmq.cli.queues.queues:stat",
        "create": "fsmq.cli.queues.queues:create",
        "config": "fsmq.cli.queues.config:config",
        "pause": "fsmq.cli.queues.pause:pause",
        "resume": "fsmq.cli.queues.pause:resume",
        "delete": "fsmq.cli.queues.queues:delete",
        "top": "fsmq.cli.queues.top:top",
        "history": "fsmq.cli.queues.history:history",
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
        "logs": "fsmq.cli.logs.logs:logs",
        "log": "fsmq.cli.logs.logs:log",
        "channel": "fsmq.cli.logs.logs:channel",
        "read": "fsmq.cli.logs.logs:read",
    },
    "Spools and programs": {
        "up": "fsmq.cli.admin.up:up",
        "doctor": "fsmq.cli.admin.doctor:doctor",
        "cluster": "fsmq.cli.admin.cluster:cluster",
        "fsck": "fsmq.cli.admin.fsck:fsck",
        "probe": "fsmq.cli.admin.probe:probe",
        "bench": "fsmq.cli.admin.bench:bench",
        "keys": "fsmq.cli.admin.keys:keys",
        "settings": "fsmq.cli.admin.settings:settings",
        "completion": "fsmq.cli.admin.completion:completion",
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
