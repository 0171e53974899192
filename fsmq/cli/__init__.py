"""The `fsmq` command: what an operator types.

`grammar` has all commands, by the nouns and verbs that are typed. Each is a click command in the
folder for its section, or in a module here. It takes ``--at`` from `place`, prints with `output`,
and does not catch errors of the spool: `group` prints them with advice, and exits with their code.
"""

import click

from fsmq._version import __version__
from fsmq.cli.grammar import COMMANDS, newer
from fsmq.cli.group import Fsmq


@click.group(
    cls=Fsmq,
    commands_by_section=COMMANDS,
    newer=newer,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="fsmq", message="%(prog)s %(version)s")
def main() -> None:
    """A durable message queue whose whole state is a directory tree.

    Commands work on a server (--at http://host:8080) or straight on the folder of a spool
    (--at /var/lib/fsmq), where no program has to run. FSMQ_AT sets the default of --at.

    \b
    Examples:
      fsmq queue create jobs
      echo hello | fsmq put jobs
      fsmq get jobs --ack
    """
