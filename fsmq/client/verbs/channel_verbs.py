"""Channels of logs over HTTP: what each verb asks, and what its answers mean."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from fsmq.spool.errors import NoSuchChannel, NotInFlight
from fsmq.spool.layout.messages.dead_letter import check_reason
from fsmq.spool.layout.settings import (
    LONGEST_WAIT_S,
    MAX_DELAY_S,
    MAX_VISIBILITY_S,
    check_number,
    check_seconds,
)
from fsmq.spool.log.channel import MOST_CLAIMED, ChannelState
from fsmq.spool.log.delivered import Given, claims_of, generation_of, offset_of
from fsmq.spool.log.log_settings import ChannelSettings
from fsmq.spool.log.open_log import From
from fsmq.spool.log.ranges import Range, ranges_of
from fsmq.spool.log.segment.record import LogMessage
from fsmq.spool.worker.patience import backoff
from fsmq.wire import MAX_WAIT_S, log_message, seconds

from ..errors import UnexpectedAnswer, error_of
from ..exchange import Answer, Pause, Verb
from .incoming import member, parsed
from .log_verbs import json_of, place_of, settings_in, unless_gone
from .queue_verbs import MAX_COUNT, Verbs


class Claim(NamedTuple):
    """A message that was claimed, as an answer tells it."""

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
        """A second try after a lost answer finds the channel there: False, though it was ours."""
        parameters = {"from": place_of(from_)}
        answer = yield from self._verbs.done("PUT", self._path, parameters, json_of(settings))
        return bool(member(answer, "created"))

    def delete(self) -> Verb[None]:
        outcome = yield from self._verbs.outcome("DELETE", self._path)
        unless_gone(outcome, NoSuchChannel)

    def state(self, retry_for: float | None = None) -> Verb[ChannelState]:
        answer = yield from self._verbs.done("GET", self._path, retry_for=retry_for)
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
        """A second try after a lost answer goes there again."""
        answer = yield from self._verbs.done("POST", f"{self._path}/seek", {"to": place_of(to)})
        return int(member(answer, "position"))

    def claim(
        self, count: int, visibility: float | None, wait: float, retry_for: float | None = None
    ) -> Verb[list[Claim]]:
        """What a lost answer claimed comes back at its deadline; a second try claims others."""
        check_number("count", count, 1, MOST_CLAIMED)
        check_seconds("wait", wait, LONGEST_WAIT_S)
        if visibility is not None:
            check_seconds("visibility", visibility, MAX_VISIBILITY_S)
        end = time.monotonic() + wait
        early = 0
        while True:
            left = min(max(0.0, end - time.monotonic()), MAX_WAIT_S)
            parameters = {
                "count": min(count, MAX_COUNT),
                "visibility": visibility,
                "wait": left or None,
            }
            asked_at = time.monotonic()
            answer = yield from self._verbs.done(
                "GET", f"{self._path}/messages", parameters, wait=left, retry_for=retry_for
            )
            if answer.status == 200:
                return _claims(answer)
            now = time.monotonic()
            if now >= end:
                return []
            # A server that stops lets nobody wait: not to ask it as fast as it can answer.
            early = early + 1 if now - asked_at < left / 2 else 0
            if early:
                yield Pause(min(backoff(early), end - now))

    def done(self, messages: Iterable[Given], retry_for: float | None = None) -> Verb[int]:
        given = list(messages)
        ranges = ranges_of(sorted({offset_of(one) for one in given}))
        return (yield from self.done_ranges(ranges, self._generation(given), retry_for))

    def done_ranges(
        self, ranges: Iterable[Range], generation: int | None, retry_for: float | None = None
    ) -> Verb[int]:
        """Those that a second try after a lost answer finds done count as done by the first."""
        number = 0
        waiting = iter(ranges)
        while part := list(islice(waiting, MAX_COUNT)):
            body = json_of({"ranges": part, "generation": generation})
            outcome = yield from self._verbs.outcome(
                "POST", f"{self._path}/done", body=body, retry_for=retry_for
            )
            if outcome.answer.status != 200:
                raise error_of(outcome.answer)
            of_part = sum(end - start for start, end in part)
            number += of_part if outcome.again else int(member(outcome.answer, "done"))
        return number

    def done_through(self, last: Given) -> Verb[int]:
        body = json_of({"through": offset_of(last), "generation": self._generation([last])})
        answer = yield from self._verbs.done("POST", f"{self._path}/done", body=body)
        return int(member(answer, "done"))

    def renew(
        self, messages: Iterable[Given], visibility: float | None, retry_for: float | None = None
    ) -> Verb[float]:
        if visibility is not None:
            check_seconds("visibility", visibility, MAX_VISIBILITY_S)
        deadline = 0.0
        for one in messages:
            answer = yield from self._verbs.done(
                "PATCH",
                f"{self._path}/messages/{offset_of(one)}",
                # 0 would be a release.
                {"visibility": 0.001 if visibility == 0 else visibility, **self._claim(one)},
                retry_for=retry_for,
            )
            deadline_text = answer.headers.get("x-message-deadline")
            if deadline_text is None:
                raise UnexpectedAnswer(answer.status, "no deadline; is this a server of fsmq?")
            deadline = seconds(deadline_text)
        return deadline

    def release(
        self, messages: Iterable[Given], delay: float, retry_for: float | None = None
    ) -> Verb[None]:
        check_seconds("delay", delay, MAX_DELAY_S)
        yield from self._each(messages, {"release": delay}, retry_for)

    def bury(
        self,
        messages: Iterable[Given],
        reason: str | None = None,
        retry_for: float | None = None,
    ) -> Verb[None]:
        parameters = {"bury": "true", "reason": check_reason(reason)}
        yield from self._each(messages, parameters, retry_for)

    def _each(
        self, messages: Iterable[Given], what: Mapping[str, Any], retry_for: float | None
    ) -> Verb[None]:
        """A second try after a lost answer finds the claim over."""
        for one in messages:
            path = f"{self._path}/messages/{offset_of(one)}"
            outcome = yield from self._verbs.outcome(
                "PATCH", path, {**what, **self._claim(one)}, retry_for=retry_for
            )
            unless_gone(outcome, NotInFlight)

    def _claim(self, given: Given) -> dict[str, Any]:
        [deliveries] = claims_of([given]).values()
        return {"generation": self._generation([given]), "deliveries": deliveries or None}

    def _generation(self, messages: Iterable[Given]) -> int | None:
        return generation_of(*self._names, messages)


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
