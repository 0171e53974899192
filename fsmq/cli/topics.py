"""Topics: ``fsmq topic``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from fsmq.cli import output
from fsmq.cli.failures import report
from fsmq.cli.messages.put import body_of
from fsmq.cli.output import json_option
from fsmq.cli.params import (
    SPAN,
    SUBSCRIBER,
    attribute_option,
    attributes_of,
    body_option,
    content_type_option,
    dedup_id_option,
    file_argument,
    group_option,
    priority_option,
    ttl_option,
)
from fsmq.cli.place.place import at_option, open_place
from fsmq.spool import InvalidValue
from fsmq.spool.layout.topics.topics import log_of, named_subscriber


@click.command("create")
@click.argument("topic")
@at_option
@json_option
def create(topic: str, at: str | None, as_json: bool) -> None:
    """Create a topic.

    If the topic exists already, nothing changes. A FOLDER that is not a spool yet becomes one.

    \b
    Examples:
      fsmq topic create news
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
    """Delete a topic and its subscriptions; its queues and their messages stay.

    \b
    Examples:
      fsmq topic delete news
    """
    with open_place(at) as place:
        place.topic(topic).delete()
    if as_json:
        output.document({"topic": topic, "deleted": True})


@click.command("list")
@at_option
@json_option
def list_topics(at: str | None, as_json: bool) -> None:
    """List topics.

    \b
    Examples:
      fsmq topic list
    """
    with open_place(at) as place:
        names = place.topics()
    if as_json:
        output.document({"topics": names})
    for name in names if not as_json else ():
        click.echo(name)


@click.command("show")
@click.argument("topic")
@at_option
@json_option
def show(topic: str, at: str | None, as_json: bool) -> None:
    """List the queues and logs that are subscribed to a topic, with their filters.

    \b
    Examples:
      fsmq topic show news
    """
    with open_place(at) as place:
        found = place.topic(topic).subscriptions()
    if as_json:
        listed = [
            {**named_subscriber(subscriber), "filter": filter}
            for subscriber, filter in found.items()
        ]
        output.document({"topic": topic, "subscriptions": listed})
    elif not found:
        report(f"no queue is subscribed to {topic}: fsmq topic subscribe {topic} QUEUE")
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
@json_option
def subscribe(
    topic: str, queue: str, at: str | None, policy: str | None, create: bool, as_json: bool
) -> None:
    """Subscribe a QUEUE or a LOG to a TOPIC, or change its filter.

    A filter has for each attribute a list of conditions, one of which must hold: a text,
    {"prefix": …}, {"anything-but": […]}, {"exists": true}.

    \b
    Examples:
      fsmq topic subscribe news mail --create
      fsmq topic subscribe news audit --filter '{"type": ["refund"]}'
      fsmq topic subscribe news logs/users
    """
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
    """End the subscription of a QUEUE or LOG to a TOPIC; the queue or log keeps its messages.

    \b
    Examples:
      fsmq topic unsubscribe news audit
    """
    with open_place(at) as place:
        ended = place.topic(topic).unsubscribe(queue)
    if as_json:
        output.document({"topic": topic, **named_subscriber(queue), "ended": ended})
    elif not ended:
        report(f"{queue} is not subscribed to {topic}")


@click.command("publish")
@click.argument("topic")
@file_argument
@at_option
@body_option
@click.option("--delay", type=SPAN, help="How long to hide it first.  [the queues' default_delay]")
@priority_option
@ttl_option
@group_option
@dedup_id_option
@content_type_option
@attribute_option
@json_option
def publish(
    topic: str,
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
    as_json: bool,
) -> None:
    """Publish a message to every subscribed queue of a TOPIC.

    Its body is FILE, --body or standard input. Prints a line "QUEUE ID" for each copy once all of
    them are on stable storage; if something fails, none is stored.

    \b
    Examples:
      fsmq topic publish news --body hello
      fsmq topic publish news --attribute type=refund < refund.json
    """
    attributes = attributes_of(pairs)
    with open_place(at) as place:
        ids = place.topic(topic).publish(
            body_of(body, file),
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
