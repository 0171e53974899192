"""What may be done with a queue and its messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp.web import StreamResponse

from fsmq.spool import NewMessage
from fsmq.spool.checks import MAX_DELAY_S, MAX_PRIORITY, MAX_TTL_S, check_queue
from fsmq.spool.errors import InvalidValue, NoSuchMessage
from fsmq.spool.layout.settings import DEFAULTS, SETTINGS
from fsmq.wire import quote_id, unquote_id

from ..routing import needs
from .actions import (
    Action,
    Actions,
    Done,
    Form,
    Question,
    attributes_of,
    back,
    chosen,
    each,
    messages,
)
from .commands import curl, curl_each, fsmq
from .forms import File
from .hidden_actions import HIDDEN_ACTIONS, MOST_UNDONE
from .moving_actions import MOVING_ACTIONS
from .page_request import PageRequest
from .pages.queue_pages import choose_all

MOST_COPIES = 100
# What a field for typing is given; more is sent again without coming by the browser.
_TYPED_BYTES = 64 * 1024
_PAUSES = {"hour": timedelta(hours=1), "day": timedelta(days=1)}


class QueueActions:
    """The handlers."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._of_queue: Mapping[str, Action] = {
            **HIDDEN_ACTIONS,
            "bury": Action("receive", _bury, _ask_bury),
            "remove": Action("receive", _remove, _ask_remove),
            "pause": Action("admin", _pause),
            "resume": Action("admin", _resume),
            "configure": Action("admin", _configure, _ask_configure),
            "send": Action("send", _send),
            **MOVING_ACTIONS,
            "purge": Action("receive", _purge, _ask_purge),
            "delete": Action("admin", _delete, _ask_delete),
        }
        self._of_all: Mapping[str, Action] = {"create": Action("admin", _create)}

    def add_pages(self, add: Any) -> None:
        add("POST", "", self.on_all, "Create a queue")
        add("POST", "q/{queue}", self.on_queue, "Do something with a queue", needs.queue())
        add(
            "GET",
            "q/{queue}/settings",
            self.settings,
            "Its settings, to be changed",
            needs.queue("admin"),
        )
        add("GET", "q/{queue}/send", self.sending, "A message to be sent", needs.queue("send"))

    async def on_all(self, request: PageRequest) -> StreamResponse:
        form = await request.form()
        queue = check_queue(form.get("queue", [""])[0].strip())
        return await self._actions.answer(request, self._of_all, queue)

    async def on_queue(self, request: PageRequest) -> StreamResponse:
        queue = request.call.queue
        await choose_all(request, queue)
        return await self._actions.answer(request, self._of_queue, queue)

    async def settings(self, request: PageRequest) -> StreamResponse:
        queue = request.call.queue
        settings = await request.service.in_thread(request.spool.settings, queue)
        values = {
            "queue": queue,
            "values": {n: _shown(v) for n, v in settings.as_dict().items()},
            "kinds": SETTINGS,
            "defaults": {n: _shown(v) for n, v in DEFAULTS.as_dict().items()},
        }
        return await request.page("settings.html", values)

    async def sending(self, request: PageRequest) -> StreamResponse:
        queue = request.call.queue
        settings = await request.service.in_thread(request.spool.settings, queue)
        values = {"queue": queue, "settings": settings, "again": None, "copied": False}
        values["most"] = MOST_COPIES
        again = request.query.get("again")
        if again and request.bodies:
            request.identity.require("look", queue)
            message = await request.service.receiver.find(request.call, queue, again)
            values["again"] = message
            values["copied"] = message is not None and not _is_text(message.body)
        return await request.page("send.html", values)


# -- messages --------------------------------------------------------------------------------------


async def _ask_bury(request: PageRequest, form: Form) -> Question:
    settings = await request.service.in_thread(request.spool.settings, form.queue)
    if settings.dead_letter_queue is None:
        raise InvalidValue("do", "the queue has no dead-letter queue: set one first")
    what = messages(len(chosen(form)))
    return Question(
        f"Bury {what}?",
        (
            f"They go from {form.queue} to {settings.dead_letter_queue}.",
            "A redrive brings them back.",
        ),
        f"Bury {what}",
        command=fsmq("bury", form.queue, ids=form.ids),
        curl=curl_each(request, "PATCH", form.queue, form.ids, bury="true"),
        template="reason.html",
        asks=("reason",),
    )


async def _bury(request: PageRequest, form: Form) -> Done:
    reason = form.text("reason").strip() or f"buried by {request.identity.name}"
    changes, do = request.service.changes, request.service.queues.do
    number = await each(chosen(form), lambda one: do(changes.bury(form.queue, one, reason)))
    return Done("buried", number, back(request, form))


async def _ask_remove(request: PageRequest, form: Form) -> Question:
    ids = chosen(form)
    what = messages(len(ids))
    return Question(
        f"Delete {what}?",
        (
            f"They are taken out of {form.queue}, in whatever state they are.",
            "This cannot be undone.",
        ),
        f"Delete {what}",
        command=fsmq("ack", form.queue, ids=ids),
        curl=curl_each(request, "DELETE", form.queue, ids),
    )


async def _remove(request: PageRequest, form: Form) -> Done:
    outcomes = await request.service.queues.ack(form.queue, chosen(form))
    return Done("removed", outcomes.count("removed"), back(request, form))


async def _content(request: PageRequest, form: Form) -> File:
    """What is to be sent: a file, what another message has, or what was typed."""
    kind = form.text("content_type").strip()
    if file := form.files.get("file"):
        return File(file.body, kind or file.content_type)
    copied = form.text("copied")
    if copied and not form.text("body"):
        request.identity.require("look", form.queue)
        message = await request.service.receiver.find(request.call, form.queue, unquote_id(copied))
        if message is None:
            raise NoSuchMessage(form.queue, unquote_id(copied), "in any state")
        return File(message.body, kind)
    return File(form.text("body").replace("\r\n", "\n").encode(), kind)


def _is_text(body: bytes) -> bool:
    """Whether a body comes back from a form as it was."""
    try:
        return len(body) <= _TYPED_BYTES and "\r" not in body.decode()
    except UnicodeDecodeError:
        return False


async def _send(request: PageRequest, form: Form) -> Done:
    content = await _content(request, form)
    copies = int(form.number("copies", 1, MOST_COPIES)) or 1
    own = form.text("own_id").strip() or None
    if own is not None and copies > 1:
        raise InvalidValue("own_id", "is one message's: send one")
    message = NewMessage(
        content.body,
        delay=form.number("delay", 0.0, MAX_DELAY_S) if form.text("delay") else None,
        priority=int(form.number("priority", 0, MAX_PRIORITY)),
        ttl=form.number("ttl", 0.0, MAX_TTL_S) if form.text("ttl") else None,
        id=own,
        content_type=content.content_type or None,
        attributes=attributes_of(form),
        group=form.text("group") or None,
        dedup_id=form.text("dedup_id") or None,
    )
    ids = await request.service.queues.put(form.queue, [message] * copies)
    place = (
        request.url("q", form.queue, "m", ids[0]) if copies == 1 else request.url("q", form.queue)
    )
    # An id of one's own may have a comma.
    named = (
        ",".join(quote_id(one).replace(",", "%2C") for one in ids) if copies <= MOST_UNDONE else ""
    )
    return Done("sent", copies, place, named)


# -- the queue -------------------------------------------------------------------------------------


async def _create(request: PageRequest, form: Form) -> Done:
    created = await request.service.in_thread(request.spool.create_queue, form.queue)
    return Done("created" if created else "there", 1, request.url("q", form.queue))


async def _pause(request: PageRequest, form: Form) -> Done:
    until: bool | str = True
    if form.text("for") == "morning":
        tomorrow = datetime.now(UTC).date() + timedelta(days=1)
        until = f"{tomorrow.isoformat()}T06:00:00Z"
    length = _PAUSES.get(form.text("for"))
    if length is not None:
        until = (datetime.now(UTC) + length).strftime("%Y-%m-%dT%H:%M:%SZ")
    elif moment := form.text("until").strip():
        until = moment if moment.endswith("Z") or "+" in moment else moment + ":00Z"
    await request.service.in_thread(request.spool.configure, form.queue, {"paused": until})
    return Done("paused", 1, request.url("q", form.queue))


async def _resume(request: PageRequest, form: Form) -> Done:
    settings = await request.service.in_thread(request.spool.settings, form.queue)
    await request.service.in_thread(request.spool.configure, form.queue, {"paused": None})
    until = settings.paused if isinstance(settings.paused, str) else ""
    return Done("resumed", 1, request.url("q", form.queue), until)


def _changes(request: PageRequest, form: Form) -> dict[str, Any]:
    """The settings that the form has otherwise than the page had. Raises InvalidValue."""
    old = request.spool.settings(form.queue).as_dict()
    changes: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        if name not in form.fields:
            continue
        text = form.text(name).strip()
        # What somebody else has changed since the page was shown was not changed here.
        if text == form.text(f"was.{name}", _shown(old[name])):
            continue
        if not text and setting.null:
            changes[name] = None
            continue
        changes[name] = text
        if setting.kind.native != (str,):
            with suppress(ValueError, RecursionError):
                changes[name] = json.loads(text)
    request.spool.settings(form.queue).changed(changes)
    target = changes.get("dead_letter_queue")
    if isinstance(target, str):
        # Else an admin of one queue could put messages into any other.
        request.identity.require("admin", check_queue(target, "dead_letter_queue"))
    return changes


async def _ask_configure(request: PageRequest, form: Form) -> Question:
    changes = await request.service.in_thread(_changes, request, form)
    if not changes:
        raise InvalidValue("settings", "nothing was changed")
    old = request.spool.settings(form.queue).as_dict()
    given = [f"{name}={_shown(value) or 'null'}" for name, value in changes.items()]
    return Question(
        f"Change {len(changes)} {'setting' if len(changes) == 1 else 'settings'} of {form.queue}?",
        [
            f"{name}: {_shown(old[name]) or none} → {_shown(value) or none}"
            for name, value in changes.items()
            for none in (SETTINGS[name].null,)
        ],
        "Change settings",
        command=fsmq("config", form.queue, *given),
        curl=curl(request, "PATCH", form.queue, body=changes),
    )


async def _configure(request: PageRequest, form: Form) -> Done:
    changes = await request.service.in_thread(_changes, request, form)
    await request.service.in_thread(request.spool.configure, form.queue, changes)
    return Done("configured", len(changes), request.url("q", form.queue))


async def _ask_purge(request: PageRequest, form: Form) -> Question:
    counts = await request.service.sizes.counts(form.queue)
    what = messages(counts.total)
    return Question(
        f"Purge {form.queue}?",
        (
            f"About {what} in it are deleted: ready, in flight, delayed and new alike.",
            "This cannot be undone.",
        ),
        f"Delete {what}",
        command=fsmq("purge", form.queue),
        curl=curl(request, "DELETE", form.queue, "messages"),
        typed=form.queue,
    )


async def _purge(request: PageRequest, form: Form) -> Done:
    counts = await request.service.sizes.counts(form.queue)
    await request.service.listing(request.spool.queue(form.queue).purge)
    return Done("purged", counts.total, request.url("q", form.queue))


async def _ask_delete(request: PageRequest, form: Form) -> Question:
    counts = await request.service.sizes.counts(form.queue)
    return Question(
        f"Delete the queue {form.queue}?",
        (
            f"Its settings go, and about {messages(counts.total)} in it.",
            "Producers that create it again begin an empty one. This cannot be undone.",
        ),
        f"Delete {form.queue}",
        command=fsmq("delete", form.queue),
        curl=curl(request, "DELETE", form.queue),
        typed=form.queue,
    )


async def _delete(request: PageRequest, form: Form) -> Done:
    await request.service.listing(request.spool.delete_queue, form.queue)
    return Done("deleted", 1, request.url())


def _shown(value: object) -> str:
    """A setting as a form has it: a number without needless digits, empty for none."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.12g}"
    return str(value)
