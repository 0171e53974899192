"""Actions: what a button of a page does, which right it needs, and how it is confirmed.

Each kind of page has one form and one route; the field ``do`` names the action. An action that can
do harm is first answered with a question, which is a page of its own (a script shows it as a
dialog), and is carried out when the form comes back with ``sure``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from aiohttp.web import StreamResponse

from fsmq.spool.checks import MAX_HEADER_BYTES
from fsmq.spool.errors import FsmqError, InvalidValue
from fsmq.spool.inspection import Act
from fsmq.spool.prepare import portions
from fsmq.units import seconds, span
from fsmq.wire import MOST_QUOTED, unquote_id

from ..guard.keys import Right
from ..problems import Forbidden, Unauthorized
from .forms import File
from .page_request import MOST_ADDRESS_BYTES, PageRequest

log = logging.getLogger(__name__)
# The most messages of one action; more take a move.
MOST_IDS = 1000
_REMEMBERED = 200
# No field of a live form may have the name of a property that scripts read from every element, such
# as contains or id: they would get the field instead.
SEARCHES = ("attribute", "containing", "older_than")
# How many are done at a time, so that they share a sync.
_TOGETHER = 100


@dataclass(frozen=True, slots=True)
class Form:
    """A form that was sent: the queue, the chosen messages, all fields, and the files."""

    queue: str
    ids: Sequence[str]
    fields: Mapping[str, Sequence[str]]
    files: Mapping[str, File]

    def text(self, name: str, default: str = "") -> str:
        return self.fields.get(name, [default])[0]

    def number(self, name: str, default: float, most: float) -> float:
        """A number of a field, from 0 to ``most``. Raises InvalidValue."""
        given = self.text(name).strip()
        try:
            value = float(given) if given else default
        except ValueError:
            raise InvalidValue(name, f"{given[:50]!r} is not a number") from None
        if not 0 <= value <= most:
            raise InvalidValue(name, f"must be a number from 0 to {most:.12g}")
        return value

    def span(self, name: str, default: float, most: float) -> float:
        """The seconds of a span such as ``5m``, of at most ``most``. Raises InvalidValue."""
        given = self.text(name).strip()
        return span_of(name, given, most) if given else default


@dataclass(frozen=True, slots=True)
class Question:
    """A question to confirm an action.

    lines: what it does, how many messages it concerns, and what cannot be undone.
    button: the verb and the number. command, curl: the same in a shell.
    typed: what the user has to type; empty if a click is enough.
    template: the part between the lines and the buttons. asks: the fields of that part.
    destroys: whether something is lost for ever, so that its button is red.
    """

    title: str
    lines: Sequence[str]
    button: str
    command: str = ""
    curl: str = ""
    typed: str = ""
    template: str = ""
    asks: Sequence[str] = ()
    destroys: bool = False
    values: Mapping[str, object] = field(default_factory=dict)


class Done(NamedTuple):
    """The outcome of an action: its word in `NOTICES`, how many it was done to, and the next page.

    of: the data needed to undo it, if that is possible. to: a queue that got messages, or that of a
    schedule. until: when a pause ends.
    """

    word: str
    number: int
    place: str
    of: str = ""
    to: str = ""
    until: str = ""


Do = Callable[[PageRequest, Form], Awaitable[Done]]
Ask = Callable[[PageRequest, Form], Awaitable[Question | None]]
FormPage = Callable[[PageRequest], Awaitable[tuple[str, Mapping[str, object]]]]


class Action(NamedTuple):
    """One action.

    ask: None for one that does no harm; it returns None if there is nothing to ask. form: the
    template and the values of the page with its form, which is shown again, with what was typed,
    if it is refused; None: it has no fields.
    """

    right: Right
    do: Do
    ask: Ask | None = None
    form: FormPage | None = None


class Actions:
    """Carries out actions.

    last: those of this process, which the journal may not have yet.
    """

    def __init__(self) -> None:
        self.last: deque[Act] = deque(maxlen=_REMEMBERED)

    async def answer(
        self,
        request: PageRequest,
        actions: Mapping[str, Action],
        queue: str,
        right_on: str | None = None,
        noted: str = "",
    ) -> StreamResponse:
        """Carry out the action of a form, or ask first.

        right_on: on what the right is needed, if not on the queue. noted: what it is done to, if
        that is neither.

        Raises what the action raises.
        """
        fields, files = await request.fields()
        name = await request.field("do")
        action = actions.get(name)
        if action is None:
            raise InvalidValue("do", f"expected one of: {', '.join(actions)}")
        right_on = queue if right_on is None else right_on
        request.require(action.right, right_on)
        ids = fields.get("message", [])
        if len(ids) > MOST_IDS:
            raise InvalidValue("message", f"are more than {MOST_IDS}: move the queue instead")
        if any(len(one) > MOST_QUOTED for one in ids):
            raise InvalidValue("message", f"has an id of more than {MOST_QUOTED} characters")
        # Percent-encoded, because names of files are bytes, and fields of a form are text.
        form = Form(queue, [unquote_id(one) for one in ids], fields, files)
        try:
            done = await self._done_or_question(request, form, action)
        except (Unauthorized, Forbidden):
            raise
        except FsmqError as error:
            if action.form is None:
                raise
            request.refused(error, form.fields)
            return await request.page(*await action.form(request))
        if not isinstance(done, Done):
            return done
        await self._note(request, name, queue, noted or right_on, done)
        return request.go(request.with_notice(done.place, done.word, done.number, done.of))

    async def _done_or_question(
        self, request: PageRequest, form: Form, action: Action
    ) -> Done | StreamResponse:
        if action.ask is None:
            return await action.do(request, form)
        question = await action.ask(request, form)
        if question is None:
            return await action.do(request, form)
        if not form.text("sure"):
            return await self._ask(request, form, question)
        if question.typed and form.text("typed") != question.typed:
            request.problem = InvalidValue("typed", "That is not its name. Nothing was done.")
            return await self._ask(request, form, question)
        try:
            return await action.do(request, form)
        except InvalidValue as error:
            if error.field not in question.asks:
                raise
            request.problem = error
            return await self._ask(request, form, question)

    async def _note(self, request: PageRequest, name: str, queue: str, on: str, done: Done) -> None:
        key = request.identity.name
        at_ms = int(time.time() * 1000)
        act = Act(at_ms, key, name, on, done.to, done.number, done.until)
        self.last.append(act)
        journal = request.spool.context.journal
        journal.note_act(act)
        await request.service.in_thread(journal.flush)  # it stays even if this process is killed
        to = f" to={done.to}" if done.to else ""
        log.info("ui action=%s key=%s queue=%s%s count=%d", name, key, queue, to, done.number)

    @staticmethod
    async def _ask(request: PageRequest, form: Form, question: Question) -> StreamResponse:
        kept = [
            (name, value)
            for name, values in form.fields.items()
            if name not in ("sure", "typed", *question.asks)
            for value in values
        ]
        values = {"question": question, "kept": kept, **question.values}
        request.refused(request.problem, form.fields)
        return await request.page("question.html", values)


def span_of(name: str, given: str, most: float) -> float:
    """The seconds of a span that was typed into a field. Raises InvalidValue."""
    try:
        found = seconds(given)
    except ValueError:
        problem = f"{given[:50]!r} is not a span of time, such as 30, 5m, 2h or 7 days"
        raise InvalidValue(name, problem) from None
    if found > most:
        raise InvalidValue(name, f"must be at most {span(most)}")
    return found


def chosen(form: Form) -> Sequence[str]:
    """The ids in a form. Raises InvalidValue if it has none."""
    if not form.ids:
        raise InvalidValue("message", "choose at least one message")
    return form.ids


def back(request: PageRequest, form: Form) -> str:
    """The page of a form's queue, or all dead letters if the form was there.

    A message's own page may be gone together with the message.
    """
    if form.text("back") == "dead":
        return request.url("dead")
    shown = {name: form.text(name) for name in ("state", *SEARCHES)}
    address = request.url("q", form.queue, **shown)
    return address if len(address) <= MOST_ADDRESS_BYTES // 2 else request.url("q", form.queue)


async def each(things: Sequence[str], do: Callable[[str], Awaitable[object]]) -> int:
    """Do something with each; returns for how many it succeeded, because others may be gone.

    Raises the last error if it succeeded for none.
    """
    number = 0
    problem: FsmqError | None = None

    async def one(thing: str) -> FsmqError | None:
        try:
            await do(thing)
        except FsmqError as error:
            return error
        return None

    for part in portions(things, _TOGETHER):
        for wrong in await asyncio.gather(*map(one, part)):
            problem = wrong or problem
            number += wrong is None
    if problem is not None and not number:
        raise problem
    return number


def attributes_of(form: Form) -> dict[str, str]:
    """The attributes in a form, one per line. Raises InvalidValue."""
    attributes = {}
    given = form.text("attributes")
    if len(given) > MAX_HEADER_BYTES:
        raise InvalidValue("attributes", f"are more than {MAX_HEADER_BYTES} bytes in all")
    for line in filter(None, map(str.strip, given.splitlines())):
        name, colon, value = line.partition(":")
        if not colon:
            raise InvalidValue("attributes", f"{line[:50]!r} is not NAME: VALUE")
        attributes[name.strip()] = value.strip()
    return attributes


def messages(number: int) -> str:
    """A number of messages, in words."""
    return "1 message" if number == 1 else f"{number:,} messages".replace(",", "\u202f")
