"""``fsmq cluster``: the hosts and programs on a spool."""

from __future__ import annotations

from typing import Any

import click

from fsmq.cli import output
from fsmq.cli.output import json_option, span
from fsmq.cli.place.place import at_option, open_place
from fsmq.words import many, size


@click.command("cluster")
@at_option
@json_option
def cluster(at: str | None, as_json: bool) -> None:
    """Show the hosts and programs on a spool, and its filesystem.

    CLOCK is how far a host's clock is from the filesystem's; the LAG of a mover is how late its
    oldest work is. fsmq doctor says whether all is well.

    \b
    Examples:
      fsmq cluster
    """
    with open_place(at) as place:
        found = place.cluster()
    if as_json:
        output.document(found)
        return
    hosts = [_host(host) for host in found["hosts"]]
    output.table(["HOST", "ADDRESS", "VERSION", "LAST BEAT", "CLOCK"], hosts, left=3)
    click.echo()
    head = ["PROGRAM", "HOST", "PID", "MEMORY", "LAG", "SYNCS", "50 %", "99 %", "RACES LOST"]
    output.table(head, [_program(program) for program in found["programs"]], left=2)
    click.echo()
    spool = found["spool"]
    output.facts(
        [
            ("filesystem", f"{spool['filesystem']}, sync {spool['sync']}, watch {spool['watch']}"),
            ("room", f"{size(spool['free_bytes'])} of {size(spool['bytes'])} are free"),
            ("inodes", f"{spool['free_inodes']:,} of {spool['inodes']:,} are free"),
            *((f"{name}/", _folder(folder)) for name, folder in spool["folders"].items()),
            ("left dot-names", f"{spool['left_dot_names']:,}"),
        ]
    )


def _host(host: dict[str, Any]) -> list[str]:
    state = span(host["age"]) if host["alive"] else f"{span(host['age'])}, dead"
    clock = "-" if host["clock"] is None else f"{host['clock']:+.3f} s"
    return [host["node"], host["address"] or "-", host["version"] or "-", state, clock]


def _program(program: dict[str, Any]) -> list[str]:
    lag = max(program["lag"].values(), default=None)
    return [
        program["process"],
        program["node"],
        "-" if program["pid"] is None else str(program["pid"]),
        "-" if program["memory"] is None else size(program["memory"]),
        span(lag),
        f"{program['syncs']:,}",
        *("-" if at is None else f"{at * 1000:g} ms" for at in _sync_times(program)),
        f"{program['races_lost']:,}",
    ]


def _sync_times(program: dict[str, Any]) -> tuple[float | None, float | None]:
    return program["sync_p50"], program["sync_p99"]


def _folder(folder: dict[str, Any]) -> str:
    more = "" if folder["complete"] else " or more"
    return f"{many(folder['files'], 'file')}, {size(folder['bytes'])}{more}"
