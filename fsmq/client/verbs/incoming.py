"""Parses a server's answers; raises UnexpectedAnswer for one that is not from fsmq."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from fsmq.spool.layout.messages.message import Message
from fsmq.spool.layout.settings import QueueSettings
from fsmq.wire import from_json

from ..errors import UnexpectedAnswer
from ..exchange import Answer


def parsed(answer: Answer) -> Any:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise UnexpectedAnswer(answer.status, "no JSON; is this a server of fsmq?") from None


def member(answer: Answer, name: str) -> Any:
    found = parsed(answer)
    if not isinstance(found, dict) or name not in found:
        raise UnexpectedAnswer(answer.status, f"no {name!r} in it; is this a server of fsmq?")
    return found[name]


def messages(queue: str | None, answer: Answer) -> list[Message]:
    try:
        return [from_json(queue, message) for message in member(answer, "messages")]
    except (KeyError, TypeError, ValueError) as error:
        raise UnexpectedAnswer(answer.status, f"no messages of fsmq: {error!r}") from error


def settings(answer: Answer) -> QueueSettings:
    given = member(answer, "settings")
    # A newer server may have more settings.
    known = {f.name for f in fields(QueueSettings)}
    return QueueSettings(**{name: value for name, value in given.items() if name in known})
