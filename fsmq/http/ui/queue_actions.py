"""Actions on a queue and its messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp.web import StreamResponse

from fsmq.spool import NewMessage, QueueSettings
from fsmq.spool.checks import MAX_DELAY_S, MAX_PRIORITY, MAX_TTL_S, check_queue
from fsmq.spool.errors import InvalidValue, NoSuchMessage
from fsmq.spool.resources import changed
from fsmq.wire import quote_id, unquote_id
from fsmq.words import moment

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
from .hidden_actions import HIDDEN_ACTIONS
from .moving_actions import MOVING_ACTIONS
from .notices import MOST_UNDONE
from .page_request import PageRequest
from .pages.message_lists import choose_all
from .pages.queue_pages import menu_page, settings_page
from .setting_fields import OF_QUEUE, arguments

MOST_COPIES = 100
# Larger bodies are not put into the text field but copied on the server when they are sent again.
_TYPED_BYTES = 64 * 1024
_PAUSES = {"hour": 3600.0, "day": 86_400.0}
_LONGEST_PAUSE_S = 366 * 86_400.0


class QueueActions:
    """Handlers of the actions, and of the pages with forms for them."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._of_queue: Mapping[str, Action] = {
            **HIDDEN_ACTIONS,
            "bury": Action("receive", _bury, _ask_bury),
            "remove": Action("receive", _remove, _ask_remove),
            "pause": Action("admin", _pause, form=menu_page),
            "resume": Action("admin", _resume),
            "configure": Action("admin", _configure, _ask_configure, settings_page),
            "send": Action("send", _send, form=_send_page),
            **MOVING_ACTIONS,
            "purge": Action("receive", _purge, _ask_purge),
            "delete": Action("admin", _delete, _ask_delete),
        }
        self._of_all: Mapping[str, Action] = {"create": Action("admin", _create, form=_new_page)}

    def add_pages(self, add: Any) -> None:
        add("POST", "queues", self.on_all, "Create a queue")
        add("GET", "new", self.creating, "A queue to be created")
        add("POST", "q/{queue}", self.on_queue, "Do something with a queue", needs.queue())
        add("GET", "q/{queue}/send", self.sending, "A message to be sent", needs.queue("send"))

    async def on_all(self, request: PageRequest) -> StreamResponse:
        return await self._actions.answer(request, self._of_all, await request.field("queue"))

    async def on_queue(self, request: PageRequest) -> StreamResponse:
        queue = request.call.queue
        await choose_all(request, queue)
        return await self._actions.answer(request, self._of_queue, queue)

    async def creating(self, request: PageRequest) -> StreamResponse:
        request.require_creation()
        return await request.page(*await _new_page(request))

    async def sending(self, request: PageRequest) -> StreamResponse:
        return await request.page(*await _send_page(request))


async def _new_page(request: PageRequest) -> tuple[str, Mapping[str, object]]:
    return "new_queue.html", {}


async def _send_page(request: PageRequest) -> tuple[str, Mapping[str, object]]:
    """The form for a message; ``again`` in the address: filled with that one."""
    queue = request.call.queue
    settings = await request.service.in_thread(request.spool.settings, queue)
    values = {"queue": queue, "settings": settings, "again": None, "copied": False}
    values["most"] = MOST_COPIES
    again = request.query.get("again") or unquote_id(request.typed("copied"))
    if again and request.bodies:
        request.identity.require("look", queue)
        message = await request.service.receiver.find(request.call, queue, again)
        values["again"] = message
        values["copied"] = message is not None and not _is_text(message.body)
    return "send.html", values


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
        f"Remove {what}?",
        (
            f"They are taken out of {form.queue}, in whatever state they are.",
            "This cannot be undone.",
        ),
        f"Remove {what}",
        destroys=True,
        command=fsmq("ack", form.queue, ids=ids),
        curl=curl_each(request, "DELETE", form.queue, ids),
    )


async def _remove(request: PageRequest, form: Form) -> Done:
    outcomes = await request.service.queues.ack(form.queue, chosen(form))
    return Done("removed", outcomes.count("removed"), back(request, form))


async def _content(request: PageRequest, form: Form) -> File:
    """The body to send: a file, that of another message, or the text that was typed."""
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
    """Whether a form sends a body back unchanged."""
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
        delay=form.span("delay", 0.0, MAX_DELAY_S) if form.text("delay") else None,
        priority=int(form.number("priority", 0, MAX_PRIORITY)),
        ttl=form.span("ttl", 0.0, MAX_TTL_S) if form.text("ttl") else None,
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
    # An id chosen by the sender can contain a comma.
    named = (
        ",".join(quote_id(one).replace(",", "%2C") for one in ids) if copies <= MOST_UNDONE else ""
    )
    return Done("sent", copies, place, named)


# -- the queue -------------------------------------------------------------------------------------


async def _create(request: PageRequest, form: Form) -> Done:
    queue = check_queue(form.queue)
    members = {"fifo": True} if form.text("fifo") else None
    created = await request.service.resources.create_queue(queue, members)
    return Done("created" if created else "there", 1, request.url("q", form.queue))


async def _pause(request: PageRequest, form: Form) -> Done:
    until: bool | str = True
    length = _PAUSES.get(form.text("for")) or form.span("length", 0.0, _LONGEST_PAUSE_S)
    if length:
        until = moment(request.now + length)
    elif form.text("length"):
        raise InvalidValue("length", "must be longer than 0")
    elif at := form.text("until").strip():
        until = at if at.endswith("Z") or "+" in at else at + ":00Z"
    settings = await request.service.in_thread(request.spool.settings, form.queue)
    before = settings.pause_at(request.now)
    await _change(request, form, {"paused": until})
    of = before if isinstance(before, str) else ""
    word, end = "pause_changed" if before else "paused", until if isinstance(until, str) else ""
    return Done(word, 1, request.url("q", form.queue), of, until=end)


async def _resume(request: PageRequest, form: Form) -> Done:
    settings = await request.service.in_thread(request.spool.settings, form.queue)
    await _change(request, form, {"paused": None})
    until = settings.paused if isinstance(settings.paused, str) else ""
    return Done("resumed", 1, request.url("q", form.queue), until)


async def _change(request: PageRequest, form: Form, changes: Mapping[str, Any]) -> None:
    await request.service.resources.configure_queue(form.queue, lambda *_: changes)


def _changes(request: PageRequest, form: Form) -> tuple[QueueSettings, dict[str, Any]]:
    """The settings, and those that were changed in the form. Raises InvalidValue."""
    old = request.spool.settings(form.queue)
    changes = OF_QUEUE.changes(request, form, old)
    changed(form.queue, old, changes)
    return old, changes


async def _ask_configure(request: PageRequest, form: Form) -> Question:
    old, changes = await request.service.in_thread(_changes, request, form)
    command = fsmq("queue", "config", form.queue, *arguments(changes))
    api = curl(request, "PATCH", form.queue, body=changes)
    return OF_QUEUE.question(form.queue, old, changes, command, api)


async def _configure(request: PageRequest, form: Form) -> Done:
    _, changes = await request.service.in_thread(_changes, request, form)
    await _change(request, form, changes)
    return Done("configured", len(changes), request.url("q", form.queue, "settings"))


async def _ask_purge(request: PageRequest, form: Form) -> Question:
    counts = await request.service.sizes.counts(form.queue)
    what = messages(counts.total)
    return Question(
        f"Purge {form.queue}?",
        (
            f"About {what} in it are removed: ready, in flight, delayed and new alike.",
            "This cannot be undone.",
        ),
        f"Purge {what}",
        destroys=True,
        command=fsmq("queue", "purge", form.queue),
        curl=curl(request, "DELETE", form.queue, "messages"),
        typed=form.queue,
    )


async def _purge(request: PageRequest, form: Form) -> Done:
    counts = await request.service.sizes.counts(form.queue)
    await request.service.resources.purge(form.queue)
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
        destroys=True,
        command=fsmq("queue", "delete", form.queue),
        curl=curl(request, "DELETE", form.queue),
        typed=form.queue,
    )


async def _delete(request: PageRequest, form: Form) -> Done:
    await request.service.resources.delete_queue(form.queue)
    return Done("deleted", 1, request.url("queues"))
