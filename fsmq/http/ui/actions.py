"""Actions: what a button of a page does, what right it needs, and what is asked before it is done.

One form, one route for each kind of page: the field ``do`` names the action. An action that can do
harm answers first with a question, which is a page of its own (a script shows it as a dialog), and
is done when the form comes back with ``sure``.
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

from fsmq.spool.errors import FsmqError, InvalidValue
from fsmq.spool.prepare import portions
from fsmq.wire import unquote_id

from ..guard.keys import Right
from .forms import File
from .page_request import PageRequest

log = logging.getLogger(__name__)
# So many messages at most in one action; more is a move.
MOST_IDS = 1000
_REMEMBERED = 200
# No field of a live form may be called like what scripts ask of every element, such as contains or
# id: the browser would give them the field.
SEARCHES = ("attribute", "containing", "older_than")
# So many go on at a time: they share a sync.
_TOGETHER = 100


@dataclass(frozen=True, slots=True)
class Form:
    """What was sent: on what, which messages, all fields, and the files."""

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


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked before something is done.

    lines: what it does, how many it concerns, and what cannot be taken back.
    button: the verb and the number. command, curl: the same at a shell.
    typed: what has to be typed; empty where a click is enough.
    template: what stands between the lines and the buttons, and asks: its fields.
    """

    title: str
    lines: Sequence[str]
    button: str
    command: str = ""
    curl: str = ""
    typed: str = ""
    template: str = ""
    asks: Sequence[str] = ()
    values: Mapping[str, object] = field(default_factory=dict)


class Done(NamedTuple):
    """What was done: the word that the next page says it with, to how many, and where it leads.

    of: what has to be known to undo it, where that can be done. to: a queue that got messages.
    """

    word: str
    number: int
    place: str
    of: str = ""
    to: str = ""


Do = Callable[[PageRequest, Form], Awaitable[Done]]
Ask = Callable[[PageRequest, Form], Awaitable[Question]]


class Action(NamedTuple):
    """One action. ask: None for one that harms nothing."""

    right: Right
    do: Do
    ask: Ask | None = None


class Note(NamedTuple):
    """A line for the page of what people did last. right_on: who may see that may see it."""

    at: float
    key: str
    action: str
    queue: str
    to: str
    number: int
    right_on: str


class Actions:
    """Does actions, and remembers the last of this process."""

    def __init__(self) -> None:
        self.last: deque[Note] = deque(maxlen=_REMEMBERED)

    async def answer(
        self,
        request: PageRequest,
        actions: Mapping[str, Action],
        queue: str,
        right_on: str | None = None,
    ) -> StreamResponse:
        """Do what a form says, or ask first.

        right_on: what the right is needed on, if that is not the queue.

        Raises what the action raises.
        """
        fields, files = await request.fields()
        name = fields.get("do", [""])[0]
        action = actions.get(name)
        if action is None:
            raise InvalidValue("do", f"expected one of: {', '.join(actions)}")
        right_on = queue if right_on is None else right_on
        request.require(action.right, right_on)
        ids = fields.get("message", [])
        if len(ids) > MOST_IDS:
            raise InvalidValue("message", f"are more than {MOST_IDS}: move the queue instead")
        # As addresses have them: names of files are bytes, and fields of a form are text.
        form = Form(queue, [unquote_id(one) for one in ids], fields, files)
        if action.ask is not None:
            question = await action.ask(request, form)
            if not form.text("sure"):
                return await self._ask(request, form, question)
            if question.typed and form.text("typed") != question.typed:
                wrong = "That is not its name. Nothing was done."
                return await self._ask(request, form, question, wrong)
        done = await action.do(request, form)
        key = request.identity.name
        note = Note(time.time(), key, name, queue, done.to, done.number, right_on)
        self.last.appendleft(note)
        to = f" to={done.to}" if done.to else ""
        log.info("ui action=%s key=%s queue=%s%s count=%d", name, key, queue, to, done.number)
        return request.go(request.with_notice(done.place, done.word, done.number, done.of))

    async def _ask(
        self, request: PageRequest, form: Form, question: Question, problem: str = ""
    ) -> StreamResponse:
        kept = [
            (name, value)
            for name, values in form.fields.items()
            if name not in ("sure", "typed", *question.asks)
            for value in values
        ]
        given = {name: form.text(name) for name in question.asks}
        values = {"question": question, "kept": kept, "given": given, "problem": problem}
        values |= question.values
        return await request.page("question.html", values)


def chosen(form: Form) -> Sequence[str]:
    """The ids that a form has. Raises InvalidValue if it has none."""
    if not form.ids:
        raise InvalidValue("message", "choose at least one message")
    return form.ids


def back(request: PageRequest, form: Form) -> str:
    """The page of the queue that a form was on: a message's own may be gone with it."""
    return request.url("q", form.queue, **{name: form.text(name) for name in ("state", *SEARCHES)})


async def each(things: Sequence[str], do: Callable[[str], Awaitable[object]]) -> int:
    """Do something with each; how many it was done to, where others may be gone meanwhile.

    Raises the error of the last where it was done to none.
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
    """The attributes that a form has, one a line. Raises InvalidValue."""
    attributes = {}
    for line in filter(None, map(str.strip, form.text("attributes").splitlines())):
        name, colon, value = line.partition(":")
        if not colon:
            raise InvalidValue("attributes", f"{line[:50]!r} is not NAME: VALUE")
        attributes[name.strip()] = value.strip()
    return attributes


def messages(number: int) -> str:
    """So many messages, in words."""
    return "1 message" if number == 1 else f"{number:,} messages".replace(",", "\u202f")
