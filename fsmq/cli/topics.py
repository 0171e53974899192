"""Topics: ``fsmq topic``, ``subscribe``, ``unsubscribe`` and ``publish``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from fsmq.cli import output
from fsmq.cli.failures import report
from fsmq.cli.group import Fsmq
from fsmq.cli.logs.publish_log import Publishing
from fsmq.cli.messages.put import opened
from fsmq.cli.output import json_option
from fsmq.cli.params import (
    LOG,
    SPAN,
    SUBSCRIBER,
    attribute_option,
    attributes_of,
    body_bytes,
    body_option,
    content_type_option,
    dedup_id_option,
    group_option,
    priority_option,
    ttl_option,
)
from fsmq.cli.place.place import at_option, open_place
from fsmq.spool import InvalidValue
from fsmq.spool.layout.topics.topics import log_of, named_subscriber

_TOPIC = {
    "Topics": {
        "create": "fsmq.cli.topics:create",
        "delete": "fsmq.cli.topics:delete",
        "ls": "fsmq.cli.topics:ls",
    }
}


@click.group("topic", cls=Fsmq, commands_by_section=_TOPIC)
def topic() -> None:
    """Create, delete and list topics."""


@click.command("create")
@click.argument("topic")
@at_option
@json_option
def create(topic: str, at: str | None, as_json: bool) -> None:
    """Create a topic.

    If the topic exists already, nothing changes. A FOLDER that is not a spool yet becomes one.
    """
    with open_place(at, create=True) as place:
        created = place.create_topic(topic)
    if as_json:
        output.document({"topic": topic, "created": created})
    elif not created:
        report(f"topic {topic} exists already")


@click.command("delete")
@click.argument("topic")
@at_option
@json_option
def delete(topic: str, at: str | None, as_json: bool) -> None:
    """Delete a topic and its subscriptions; its queues and their messages stay."""
    with open_place(at) as place:
        place.topic(topic).delete()
    if as_json:
        output.document({"topic": topic, "deleted": True})


@click.command("ls")
@click.argument("topic", required=False)
@at_option
@json_option
def ls(topic: str | None, at: str | None, as_json: bool) -> None:
    """List topics, or the queues and filters of one TOPIC."""
    with open_place(at) as place:
        if topic is not None:
            _show(topic, place.topic(topic).subscriptions(), as_json)
            return
        names = place.topics()
    if as_json:
        output.document({"topics": names})
    for name in names if not as_json else ():
        click.echo(name)


@click.command("topics", hidden=True)
@click.argument("topic", required=False)
@click.option("--create", "creates", is_flag=True, help="As fsmq topic create.")
@click.option("--delete", "deletes", is_flag=True, help="As fsmq topic delete.")
@at_option
@json_option
@click.pass_context
def topics(
    ctx: click.Context,
    topic: str | None,
    creates: bool,
    deletes: bool,
    at: str | None,
    as_json: bool,
) -> None:
    """Older form of fsmq topic."""
    if (creates or deletes) and topic is None:
        raise click.UsageError("Name the topic.")
    if creates and deletes:
        raise click.UsageError("Give --create or --delete, not both.")
    verb = create if creates else delete if deletes else ls
    ctx.invoke(verb, topic=topic, at=at, as_json=as_json)


def _show(topic: str, found: dict[str, dict[str, list[object]] | None], as_json: bool) -> None:
    if as_json:
        listed = [
            {**named_subscriber(subscriber), "filter": filter}
            for subscriber, filter in found.items()
        ]
        output.document({"topic": topic, "subscriptions": listed})
    elif not found:
        report(f"no queue is subscribed to {topic}: fsmq subscribe {topic} QUEUE")
    for queue, filter in found.items() if not as_json else ():
        click.echo(queue if filter is None else f"{queue}  {json.dumps(filter)}")


@click.command("subscribe")
@click.argument("topic")
@click.argument("queue", type=SUBSCRIBER, metavar="QUEUE|logs/LOG")
@at_option
@click.option(
    "--filter", "policy", metavar="JSON", help='Which messages: \'{"type": ["order"]}\'.  [all]'
)
@click.option("--create", is_flag=True, help="Create the topic and the queue if they are missing.")
@click.option("--end", is_flag=True, hidden=True, help="As fsmq unsubscribe.")
@json_option
@click.pass_context
def subscribe(
    ctx: click.Context,
    topic: str,
    queue: str,
    at: str | None,
    policy: str | None,
    create: bool,
    end: bool,
    as_json: bool,
) -> None:
    """Subscribe a QUEUE or a LOG to a TOPIC, or change its filter.

    A filter has for each attribute a list of conditions, one of which must hold: a text,
    {"prefix": …}, {"anything-but": […]}, {"exists": true}.
    """
    if end:
        ctx.invoke(unsubscribe, topic=topic, queue=queue, at=at, as_json=as_json)
        return
    filter = None
    if policy is not None:
        try:
            filter = json.loads(policy)
        except (ValueError, RecursionError) as error:
            raise InvalidValue("filter", f"is not JSON: {error}") from error
        if not isinstance(filter, dict):
            raise InvalidValue("filter", "is not a JSON object of attributes and their conditions")
    with open_place(at, create=create) as place:
        if create:
            place.create_topic(topic)
            log = log_of(queue)
            if log is None:
                place.create_queue(queue)
            else:
                place.log(log).create()
        created = place.topic(topic).subscribe(queue, filter)
    if as_json:
        about = {"topic": topic, **named_subscriber(queue), "filter": filter, "created": created}
        output.document(about)


@click.command("unsubscribe")
@click.argument("topic")
@click.argument("queue", type=SUBSCRIBER, metavar="QUEUE|logs/LOG")
@at_option
@json_option
def unsubscribe(topic: str, queue: str, at: str | None, as_json: bool) -> None:
    """End the subscription of a QUEUE or LOG to a TOPIC; it stays, and its messages."""
    with open_place(at) as place:
        ended = place.topic(topic).unsubscribe(queue)
    if as_json:
        output.document({"topic": topic, **named_subscriber(queue), "ended": ended})
    elif not ended:
        report(f"{queue} is not subscribed to {topic}")


@click.command("publish")
@click.argument("topic", required=False)
@click.argument(
    "file", required=False, type=click.Path(path_type=Path, allow_dash=True), metavar="FILE"
)
@at_option
@body_option
@click.option("--delay", type=SPAN, help="How long to hide it first.  [the queues' default_delay]")
@priority_option
@ttl_option
@group_option
@dedup_id_option
@content_type_option
@attribute_option
@click.option("--log", "log", type=LOG, metavar="LOG", help="Publish to a log, not to a TOPIC.")
@click.option("--key", help="With --log: messages of one key stay in order.")
@click.option(
    "--id", "own_id", metavar="ID", help="With --log: published again, it stores nothing."
)
@click.option("--lines", is_flag=True, help="With --log: every line is a message.")
@click.option("--null", "-0", is_flag=True, help="With --log: every message ends with a zero byte.")
@json_option
def publish(
    topic: str | None,
    file: Path | None,
    at: str | None,
    body: str | None,
    delay: float | None,
    priority: int,
    ttl: float | None,
    group: str | None,
    dedup_id: str | None,
    content_type: str | None,
    pairs: Sequence[str],
    log: str | None,
    key: str | None,
    own_id: str | None,
    lines: bool,
    null: bool,
    as_json: bool,
) -> None:
    """Publish a message to every subscribed queue of a TOPIC, or to a log.

    Its body is FILE, --body or standard input. Prints a line "QUEUE ID" for each copy. All of them
    are on stable media then; if something fails, none is stored.

    \b
    fsmq publish news --body hello
    fsmq publish --log users --key user-7 --body created
    tail -f events | fsmq publish --log users --lines

    With --log it prints the offset of each message, when it is on stable media.
    """
    if body is not None and file is not None:
        raise click.UsageError("Give --body or a FILE, not both.")
    attributes = attributes_of(pairs)
    if log is not None:
        of_topic = (delay, priority or None, ttl, group, dedup_id)
        _check_log(topic, file, any(given is not None for given in of_topic))
        separator = b"\0" if null else b"\n" if lines else None
        of_log = Publishing(log, key, own_id, content_type, attributes, separator, as_json)
        of_log.run(at, None if topic is None else Path(topic), body)
        return
    topic = _check_topic(topic, key is not None or own_id is not None or lines or null)
    with open_place(at) as place:
        if body is not None:
            content = body_bytes(body)
        else:
            with opened(file or Path("-")) as source:
                content = source.read()
        ids = place.topic(topic).publish(
            content,
            delay=delay,
            priority=priority,
            ttl=ttl,
            content_type=content_type,
            attributes=attributes,
            group=group,
            dedup_id=dedup_id,
        )
    if as_json:
        output.document({"topic": topic, "messages": ids})
        return
    for queue, message_id in ids.items():
        click.echo(f"{queue} {message_id}")
    if not ids:
        report(f"no subscription of {topic} matches this message: it was not stored")
    sys.stdout.flush()


def _check_log(topic: str | None, file: Path | None, of_topic: bool) -> None:
    if topic is not None and file is not None:
        raise click.UsageError("Give a TOPIC or --log, not both.")
    if of_topic:
        raise click.UsageError(
            "--delay, --priority, --ttl, --group and --dedup-id are for a TOPIC."
        )


def _check_topic(topic: str | None, of_log: bool) -> str:
    if topic is None:
        raise click.UsageError("Name the TOPIC, or give --log LOG.")
    if of_log:
        raise click.UsageError("--key, --id, --lines and --null are for --log.")
    return topic
