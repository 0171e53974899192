"""Messages of a queue in a list: those of a state, filtered, and those chosen for an action."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fsmq.spool.checks import MAX_TTL_S
from fsmq.spool.errors import InvalidValue
from fsmq.spool.inspection import Wanted, wanted
from fsmq.wire import quote_id

from ...service.monitoring.inspector import Search
from ..actions import MOST_IDS, SEARCHES, Form, span_of
from ..listed import peek
from ..page_request import PageRequest
from ..streams import Streams, Values

MESSAGES = 50
STATES = ("ready", "in_flight", "delayed", "new")


async def messages_of(request: PageRequest) -> Values:
    """The messages of a queue in one state."""
    queue = request.call.queue
    state = choice(request.query, "state", STATES, "ready")
    after = request.query.get("after", "")
    may_look = request.identity.may("look", queue)
    try:
        filtered = _wanted(request, request.query)
    except InvalidValue as error:
        if Streams.wanted(request):
            raise
        request.refused(error, {name: [value] for name, value in request.query.items()})
        filtered, may_list = None, False
    else:
        may_list = may_look
    search = Search(queue, state, MESSAGES, after, filtered)
    messages, more = await peek(request, search) if may_list else ([], None)
    return {
        "state": state,
        "states": STATES,
        "may_look": may_look,
        "messages": messages,
        "searched": {n: request.query[n] for n in SEARCHES if request.query.get(n)},
        "after": after,
        "more": more,
        "most": MOST_IDS,
    }


async def choose_all(request: PageRequest, queue: str) -> None:
    """If a form is for all matching messages, put their ids into it, up to the limit of an action.

    The question, and the action after it, are about exactly these messages. So there is another
    question if the user then chooses only the first ones.
    """
    form = await request.form()
    try:
        count = Form(queue, (), form, {}).number("count", 0, MOST_IDS)
    except InvalidValue as error:
        request.refused(error, form)  # the question is asked again
        form.pop("sure", None)
        return
    if form.pop("count", None) and count:
        form.pop("sure", None)
        if "message" in form:
            form["message"] = form["message"][: math.ceil(count)]
        else:
            await _choose(request, queue, form, math.ceil(count))
    if form.pop("all", None):
        await _choose(request, queue, form, MOST_IDS)


async def _choose(request: PageRequest, queue: str, form: dict[str, list[str]], most: int) -> None:
    request.identity.require("look", queue)
    given = {name: values[-1] for name, values in form.items() if values}
    state = choice(given, "state", STATES, "ready")
    search = Search(queue, state, most, wanted=_wanted(request, given))
    found, _ = await peek(request, search)
    form["message"] = [quote_id(one.message.id) for one in found]


def choice(
    query: Mapping[str, str], name: str, choices: Mapping[str, Any] | Sequence[str], to: str
) -> str:
    given = query.get(name, to)
    if given not in choices:
        raise InvalidValue(name, f"expected one of: {', '.join(choices)}")
    return given


def _wanted(request: PageRequest, query: Mapping[str, str]) -> Wanted | None:
    """The filter above the list of messages. Raises InvalidValue."""
    attribute = query.get("attribute", "")
    name, equals, value = attribute.partition("=")
    if attribute and not equals:
        raise InvalidValue("attribute", "must be NAME=VALUE")
    older = query.get("older_than", "").strip()
    older_than = span_of("older_than", older, MAX_TTL_S) if older else None
    contains = query.get("containing") or None
    attributes = {name.strip(): value.strip()} if attribute else None
    return wanted(request.now, attributes, contains, older_than)
