"""Actions on messages that are claimed or delayed: release, hold longer, and undoing these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from fsmq.spool import Spool
from fsmq.spool.checks import MAX_DELAY_S, MAX_VISIBILITY_S
from fsmq.spool.errors import InvalidValue, as_unavailable
from fsmq.spool.inspection import Place, place_of
from fsmq.wire import quote_id, unquote_id

from .actions import Action, Done, Form, back, chosen, each
from .notices import MOST_UNDONE
from .page_request import PageRequest

_HOLD_S = 300.0


def _stood(spool: Spool, queue: str, ids: Sequence[str]) -> dict[str, Place]:
    """Where messages are, without those that are gone."""
    found: dict[str, Place] = {}
    with as_unavailable("cannot look for the messages"):
        for one in ids:
            place = place_of(spool.context, queue, one)
            if place is not None:
                found[one] = place
    return found


def _undo(stood: Mapping[str, Place]) -> str:
    """When the claim or the delay of each would have ended; empty if that cannot be undone."""
    if len(stood) > MOST_UNDONE:
        return ""
    return ",".join(
        f"{round(place.deadline * 1000)}:{quote_id(one).replace(',', '%2C')}"
        for one, place in stood.items()
        if place.deadline is not None
    )


async def _each_that_stood(
    request: PageRequest,
    form: Form,
    word: str,
    action: Callable[[str, Place | None], Awaitable[object]],
) -> Done:
    ids = chosen(form)
    stood = await request.service.listing(_stood, request.spool, form.queue, ids)
    number = await each(ids, lambda one: action(one, stood.get(one)))
    settings = await request.service.in_thread(request.spool.settings, form.queue)
    # A ready message of a fifo queue cannot be hidden again, because that would break the order.
    of = "" if settings.fifo and word == "released" else _undo(stood)
    return Done(word, number, back(request, form), of)


async def _release(request: PageRequest, form: Form) -> Done:
    delay = form.span("delay", 0.0, MAX_DELAY_S)
    changes, do = request.service.changes, request.service.queues.do
    done = await _each_that_stood(
        request,
        form,
        "released",
        lambda one, place: do(changes.release(form.queue, one, delay)),
    )
    # Where they are now.
    return done._replace(place=request.url("q", form.queue, state="delayed")) if delay else done


async def _hold(request: PageRequest, form: Form) -> Done:
    more = form.span("seconds", _HOLD_S, MAX_VISIBILITY_S)
    changes, do = request.service.changes, request.service.queues.do

    def hold(one: str, place: Place | None) -> Awaitable[object]:
        left = 0.0 if place is None or place.deadline is None else place.deadline - request.now
        seconds = min(max(0.0, left) + more, MAX_VISIBILITY_S)
        return do(changes.renew(form.queue, one, seconds))

    return await _each_that_stood(request, form, "held", hold)


async def _hide(request: PageRequest, form: Form) -> Done:
    """Hide messages again until their deadlines before a release or a renewal."""
    wanted = form.text("until").split(",", MOST_UNDONE)
    if len(wanted) > MOST_UNDONE:
        raise InvalidValue("until", f"is of more than {MOST_UNDONE} messages")
    until = {unquote_id(name): moment for moment, _, name in (one.partition(":") for one in wanted)}
    changes, do = request.service.changes, request.service.queues.do

    def hide(one: str) -> Awaitable[object]:
        moment = until[one]
        if not (moment.isascii() and moment.isdecimal() and len(moment) < 15):
            raise InvalidValue("until", "is not a moment that a page has written")
        left = min(max(0.0, int(moment) / 1000 - request.now), MAX_VISIBILITY_S)
        # Renewing a message that is ready again claims it.
        return do(changes.renew(form.queue, one, left))

    number = await each(list(until), hide)
    return Done("hidden", number, request.url("q", form.queue, state="in_flight"))


HIDDEN_ACTIONS: Mapping[str, Action] = {
    "release": Action("receive", _release),
    "hold": Action("receive", _hold),
    "hide": Action("receive", _hide),
}
