"""Channels of logs over HTTP: the requests of each verb, and what the answers mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from fsmq.spool.errors import ClaimVoid, NoSuchChannel, NotInFlight
from fsmq.spool.layout.settings import MAX_VISIBILITY_S, check_number, check_seconds
from fsmq.spool.log.channel import MOST_CLAIMED, ChannelState
from fsmq.spool.log.delivered import Given, acked_of, claim_of, generation_of, offset_of
from fsmq.spool.log.log_places import From
from fsmq.spool.log.log_settings import ChannelSettings
from fsmq.spool.log.ranges import Range, ranges_of
from fsmq.spool.log.segment.record import LogMessage
from fsmq.spool.verbs.remove_if import Acked
from fsmq.wire import log_message, seconds

from ..errors import UnexpectedAnswer, error_of
from ..exchange import Answer, Verb
from .incoming import member, parsed
from .log_verbs import json_of, place_of, settings_in, unless_gone
from .queue_verbs import MAX_COUNT, Verbs

# How often a worker asks a channel for its order, which can be changed.
_ASK_S = 10.0


class Claim(NamedTuple):
    """A message that was claimed, from an answer."""

    message: LogMessage
    deliveries: int
    deadline: float
    generation: int


class ChannelVerbs:
    """Generators that a transport drives; see :mod:`fsmq.client.exchange`."""

    def __init__(self, verbs: Verbs, log: str, channel: str) -> None:
        self._verbs = verbs
        self._names = log, channel
        self._path = f"/_logs/{log}/channels/{channel}"

    def create(self, from_: From, settings: Mapping[str, Any]) -> Verb[bool]:
        """A retry after a lost answer finds the channel, and returns False."""
        parameters = {"from": place_of(from_)}
        answer = yield from self._verbs.done("PUT", self._path, parameters, json_of(settings))
        return bool(member(answer, "created"))

    def delete(self) -> Verb[None]:
        outcome = yield from self._verbs.outcome("DELETE", self._path)
        unless_gone(outcome, NoSuchChannel)

    def state(self) -> Verb[ChannelState]:
        answer = yield from self._verbs.done("GET", self._path)
        found = parsed(answer)
        try:
            given = {name: found[name] for name in ChannelState._fields}
        except (KeyError, TypeError) as error:
            raise UnexpectedAnswer(answer.status, f"no channel of fsmq: {error!r}") from error
        return ChannelState(**{**given, "settings": settings_in(answer, ChannelSettings)})

    def configure(self, changes: Mapping[str, Any]) -> Verb[ChannelSettings]:
        answer = yield from self._verbs.done("PATCH", self._path, body=json_of(changes) or b"{}")
        return settings_in(answer, ChannelSettings)

    def seek(self, to: From) -> Verb[int]:
        """A retry after a lost answer moves it again."""
        answer = yield from self._verbs.done("POST", f"{self._path}/seek", {"to": place_of(to)})
        return int(member(answer, "position"))

    def claim(self, count: int, visibility: float | None, wait: float) -> Verb[list[Claim]]:
        """After a lost answer the claims end at their deadlines; a retry claims other messages."""
        most = min(check_number("count", count, 1, MOST_CLAIMED), MAX_COUNT)
        if visibility is not None:
            check_seconds("visibility", visibility, MAX_VISIBILITY_S)
        path = f"{self._path}/messages"
        answer = yield from self._verbs.claimed(path, {}, most, visibility, wait)
        return [] if answer is None else _claims(answer)

    def ack(self, messages: Iterable[Given]) -> Verb[int]:
        given = list(messages)
        ranges = ranges_of(sorted({offset_of(one) for one in given}))
        return (yield from self.done_ranges(ranges, self._generation(given)))

    def ack_each(self, messages: Iterable[Given]) -> Verb[list[Acked]]:
        given = list(messages)
        try:
            yield from self.ack(given)
        except (NotInFlight, ClaimVoid) as error:
            if len(given) == 1:
                return [acked_of(error)]
            outcomes = []
            for one in given:
                outcomes += yield from self.ack_each([one])
            return outcomes
        return ["removed"] * len(given)

    def done_ranges(self, ranges: Iterable[Range], generation: int | None) -> Verb[int]:
        """How many were done; for a retry after a lost answer all count, as the first try did
        those that it finds done."""
        number = 0
        waiting = iter(ranges)
        while part := list(islice(waiting, MAX_COUNT)):
            body = json_of({"ranges": part, "generation": generation})
            outcome = yield from self._verbs.outcome("POST", f"{self._path}/done", body=body)
            if outcome.answer.status != 200:
                raise error_of(outcome.answer)
            of_part = sum(end - start for start, end in part)
            number += of_part if outcome.again else int(member(outcome.answer, "done"))
        return number

    def done_through(self, last: Given) -> Verb[int]:
        body = json_of({"through": offset_of(last), "generation": self._generation([last])})
        answer = yield from self._verbs.done("POST", f"{self._path}/done", body=body)
        return int(member(answer, "done"))

    def renew(self, messages: Iterable[Given], visibility: float | None) -> Verb[float]:
        if visibility is not None:
            check_seconds("visibility", visibility, MAX_VISIBILITY_S)
        deadline = 0.0
        for one in messages:
            deadline = yield from self._verbs.renew(*self._one(one), visibility, claim_of(one))
        return deadline

    def release(
        self, messages: Iterable[Given], delay: float, reason: str | None = None
    ) -> Verb[None]:
        for one in messages:
            yield from self._verbs.release(*self._one(one), delay, claim_of(one), reason)

    def bury(self, messages: Iterable[Given], reason: str | None = None) -> Verb[None]:
        for one in messages:
            yield from self._verbs.bury(*self._one(one), reason, claim_of(one))

    def _one(self, given: Given) -> tuple[str, str]:
        return "/".join(self._names), str(offset_of(given))

    def _generation(self, messages: Iterable[Given]) -> int | None:
        return generation_of(*self._names, messages)


class ClaimsOfWorker:
    """Claims for a worker from a channel: only messages that can be processed concurrently.

    made: makes a message from each claim.
    """

    def __init__(self, log: str, channel: str, made: Callable[..., Any]) -> None:
        self._names = log, channel
        self._made = made
        self._order = "strict"
        self._asked_at = float("-inf")

    def __call__(
        self, verbs: Verbs, count: int, visibility: float | None, wait: float
    ) -> Verb[list[Any]]:
        channel = ChannelVerbs(verbs, *self._names)
        now = time.monotonic()
        if now >= self._asked_at + _ASK_S:
            self._order, self._asked_at = (yield from channel.state()).settings.order, now
        # Several messages of one key in one claim would be processed concurrently.
        most = count if self._order == "none" else 1
        claims = yield from channel.claim(most, visibility, wait)
        return [self._made(*claim) for claim in claims]


def _claims(answer: Answer) -> list[Claim]:
    try:
        return [
            Claim(
                log_message(found),
                int(found["deliveries"]),
                seconds(found["deadline"]),
                int(found["generation"]),
            )
            for found in member(answer, "messages")
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise UnexpectedAnswer(answer.status, f"no messages of fsmq: {error!r}") from error
