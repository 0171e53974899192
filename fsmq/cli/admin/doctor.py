"""``fsmq doctor``: is this spool well, and what should be changed?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

import click

from fsmq.cli import output
from fsmq.cli.output import json_option
from fsmq.cli.place.place import Place, Root, at_option, is_default, open_place, survey_all
from fsmq.spool.errors import FsmqError
from fsmq.spool.fsck import printable
from fsmq.spool.probe import cleaned_at_boot
from fsmq.spool.probe.health import Finding, Health, examine, of_queues, of_schedules

if TYPE_CHECKING:
    from fsmq.cli.place.server import Server

_LOW_SHARE = 0.05
_COLOURS = {
    Health.OK: "green",
    Health.NOTE: "cyan",
    Health.WARNING: "yellow",
    Health.ERROR: "red",
}


@click.command("doctor")
@at_option
@json_option
def doctor(at: str | None, as_json: bool) -> None:
    """Check the health of a spool, and say what to change.

    On a FOLDER it checks the filesystem as fsmq probe does, and tests whether a mover and a reaper
    are running by giving each something to do; that takes up to 3 s. It looks for messages that are
    not delivered, queues that are nearly full, and settings that cause trouble. On a URL it checks
    what the server reports.

    Harmless at any time. Exits with 0 if all is well, 1 if there are warnings, 2 if there are
    errors; 69 if the server cannot be reached, 78 if the folder is not a spool.

    \b
    Examples:
      fsmq doctor
      fsmq doctor --at http://127.0.0.1:8080 --json
    """
    with open_place(at) as place:
        findings = [*_place(place, is_default(at)), *_findings(place)]
    worst = max((finding.health for finding in findings), key=lambda health: health.code)
    if as_json:
        listed = [{**f._asdict(), "health": f.health.value} for f in findings]
        output.document({"at": place.where, "healthy": worst.code == 0, "findings": listed})
    else:
        _show(findings)
    sys.exit(worst.code)


def _place(place: Place, nobody_chose: bool) -> Iterator[Finding]:
    cleaned = cleaned_at_boot(place.path) if isinstance(place, Root) and nobody_chose else None
    if cleaned is not None:
        text = f"{place.where} may be empty after the next boot: many systems empty {cleaned} then"
        yield Finding("root", Health.WARNING, text, "give the programs one: --root=/var/lib/fsmq")


def _findings(place: Place) -> Iterator[Finding]:
    if isinstance(place, Root):
        yield from examine(place.context, place.where)
    else:
        yield from _health(place)
        overviews, unread = survey_all(place)
        for name in unread:
            advice = "check the owner and the mode of its files: fsmq fsck on the folder"
            yield Finding("unreadable", Health.ERROR, f"{name} cannot be read", advice)
        settings = {name: place.queue(name).settings() for name in overviews}
        yield from of_queues(overviews, settings, {})
    yield from of_schedules(place.schedules())
    yield from _channels(place)


def _channels(place: Place) -> Iterator[Finding]:
    for log in place.logs():
        with suppress(FsmqError):  # it was deleted meanwhile
            for name in place.log(log).channels():
                state = place.log(log).channel(name).state()
                if state.unburied_at is not None:
                    dead = state.settings.dead_letter_queue
                    text = f"channel {name} of log {log} cannot bury message {state.unburied_at}"
                    advice = f"see whether {dead} is full, or takes no message of its size"
                    yield Finding("channels", Health.WARNING, text, advice)


def _health(server: Server) -> Iterator[Finding]:
    server.queues()  # raises if the server cannot be reached or refuses the key
    yield Finding("mq", Health.OK, f"{server.where} answers")
    status, body = server.page("/_health/ready")
    if status == HTTPStatus.OK:
        yield Finding("ready", Health.OK, "messages can be stored and will be delivered")
    elif status == HTTPStatus.SERVICE_UNAVAILABLE:
        text = f"it reports that it is not ready: {_detail(body)}"
        yield Finding("ready", Health.ERROR, text, "see the log of mq")
    yield from _inodes(server)
    text = "filesystem, mover and reaper can only be checked on the folder"
    yield Finding("folder", Health.NOTE, text, "on the server's host: fsmq doctor --at FOLDER")


def _inodes(server: Server) -> Iterator[Finding]:
    spool = server.cluster()["spool"]
    for name, free, total in (
        ("space", spool["free_bytes"], spool["bytes"]),
        ("inodes", spool["free_inodes"], spool["inodes"]),
    ):
        verb = "are" if name == "inodes" else "is"
        share = "less than 1 %" if 0 < 100 * free < total else f"{100 * free / (total or 1):.0f} %"
        if total and not free:
            text = f"none {verb} free: nothing can be stored"
            yield Finding(name, Health.ERROR, text, "free some")
        elif total and free < _LOW_SHARE * total:
            advice = "free some: puts will be refused"
            yield Finding(name, Health.WARNING, f"{share} {verb} free", advice)
        elif total:
            yield Finding(name, Health.OK, f"{share} {verb} free")


def _detail(problem: bytes) -> str:
    try:
        return str(json.loads(problem)["detail"])
    except (ValueError, TypeError, LookupError):
        return "without a reason"


def _show(findings: list[Finding]) -> None:
    for finding in findings:
        health = click.style(f"{finding.health.value:8}", fg=_COLOURS[finding.health])
        click.echo(f"{health} {finding.name}: {printable(finding.text)}")
        if finding.advice:
            click.echo(f"         → {printable(finding.advice)}")
