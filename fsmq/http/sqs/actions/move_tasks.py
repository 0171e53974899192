"""Actions on move tasks: redrives of whole dead-letter queues, in the background."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import partial

from fsmq.spool.errors import InvalidValue, as_unavailable
from fsmq.spool.inspection import MAX_LISTED, Move, latest
from fsmq.spool.on_disk import created_ms

from ...guard.sight import may_see_move, targets
from ..ask import Action, Actions, Ask, Result
from ..errors import SqsError, invalid
from ..names import is_visible, queue_of_arn
from ..queue_attributes import MEMBER, as_object, begun_ms, check_number
from .queues import sources_of

_MAX_RATE = 500
_MAX_RESULTS = 10
_STATUS: Mapping[str, str] = {
    "in_progress": "RUNNING",
    "complete": "COMPLETED",
    "stopped": "CANCELLED",
    "error": "FAILED",
}


class MoveTasks(Actions):
    """Actions on redrives."""

    def actions(self) -> Mapping[str, Action]:
        return {
            "CancelMessageMoveTask": self.cancel,
            "ListMessageMoveTasks": self.list_tasks,
            "StartMessageMoveTask": self.start,
        }

    async def start(self, ask: Ask) -> Result:
        rate = ask.get("MaxNumberOfMessagesPerSecond")
        if rate is not None:
            check_number("MaxNumberOfMessagesPerSecond", rate, 1, _MAX_RATE)
        source = self._queue_of(ask, "SourceArn")
        ask.require("receive", source)
        self._check_there(source, "SourceArn")
        origins = await self._service.listing(self._sources, ask, source)
        target = None
        if ask.get("DestinationArn") is not None:
            target = self._queue_of(ask, "DestinationArn")
        allowed = ask.allowed(target or source, partial(targets, ask.identity, target))
        if target is not None:
            self._check_there(target, "DestinationArn")
        if not origins:
            words = "Source queue must be configured as a Dead Letter Queue."
            raise SqsError("InvalidParameterValueException", words)
        if any(move.status == "in_progress" for move in await self._tasks(ask, source)):
            words = (
                "There is already a task running. Only one active task is allowed for a source"
                " queue arn at a given time."
            )
            raise SqsError("InvalidParameterValueException", words)
        if target == source:
            raise invalid("DestinationArn", ask.get("DestinationArn"), "It is the source.")
        by = rate and float(rate)
        try:
            who = ask.identity.account
            move = await self._service.moves.redrive(who, source, target, by, homes=allowed)
        except InvalidValue as error:
            if error.field != "to":
                raise
            raise invalid("DestinationArn", ask.get("DestinationArn"), error.problem) from None
        return {"TaskHandle": _handle(move.ref, ask.members["SourceArn"])}

    async def list_tasks(self, ask: Ask) -> Result:
        most = check_number("MaxResults", ask.get("MaxResults", 1), 1, _MAX_RESULTS)
        source = self._queue_of(ask, "SourceArn")
        ask.require(None, source)
        self._check_there(source, "SourceArn")
        moves = self._own(source, await self._tasks(ask, source))
        return {"Results": [self._encoded(ask, move) for move in moves[:most]]}

    async def cancel(self, ask: Ask) -> Result:
        ref, arn = _named_by(ask.members["TaskHandle"])
        source = queue_of_arn(arn, "SourceArn")
        ask.require("receive", source)
        self._check_there(source, "SourceArn")
        found = [move for move in await self._tasks(ask, source) if move.ref == ref]
        if not found or found[0].status != "in_progress":
            raise SqsError("ResourceNotFoundException", "Task does not exist.")
        stopped = await self._service.moves.stop_move(ref)
        return {"ApproximateNumberOfMessagesMoved": stopped.moved if stopped else found[0].moved}

    def _sources(self, ask: Ask, queue: str) -> list[str]:
        """The queues that the sender may see whose dead-letter queue this is."""
        return ask.identity.visible(sources_of(self._spool, queue))

    # -- parts -----------------------------------------------------------------------------------

    async def _tasks(self, ask: Ask, source: str) -> list[Move]:
        """The redrives of a queue that the sender may see, the newest first."""

        def wanted(move: Move) -> bool:
            is_one = move.redrive and move.source == source
            return is_one and may_see_move(ask.identity, move)

        return await self._service.listing(latest, self._spool.context, MAX_LISTED, wanted)

    def _own(self, source: str, moves: list[Move]) -> list[Move]:
        """The moves without those of an earlier, deleted queue of the same name."""
        with as_unavailable(f"cannot read the settings of {source!r}"):
            begun = begun_ms(self._spool.context.settings.member(source, MEMBER))
        return [
            move for move in moves if move.status == "in_progress" or created_ms(move.ref) >= begun
        ]

    def _encoded(self, ask: Ask, move: Move) -> Result:
        result: Result = {
            "Status": _STATUS[move.status],
            "SourceArn": ask.options.arn(move.source),
            "ApproximateNumberOfMessagesMoved": move.moved,
            "StartedTimestamp": created_ms(move.ref),
        }
        if move.status == "in_progress":
            result["TaskHandle"] = _handle(move.ref, result["SourceArn"])
        if move.target:
            result["DestinationArn"] = ask.options.arn(move.target)
        if move.rate is not None:
            result["MaxNumberOfMessagesPerSecond"] = round(move.rate)
        if move.total is not None:
            result["ApproximateNumberOfMessagesToMove"] = move.total
        if move.status == "error":
            result["FailureReason"] = _reason(move)
        return result

    def _queue_of(self, ask: Ask, parameter: str) -> str:
        return queue_of_arn(ask.members[parameter], parameter)

    def _check_there(self, queue: str, parameter: str) -> None:
        if not is_visible(queue) or not self._spool.has_queue(queue):
            words = f"The resource that you specified for the {parameter} parameter doesn't exist."
            raise SqsError("ResourceNotFoundException", words)


def _reason(move: Move) -> str:
    if move.target and not move.conflicts:
        return "AWS.SimpleQueueService.NonExistentQueue"
    return "CouldNotDetermineMessageSource" if move.no_origin else str(move.error)


def _handle(ref: str, arn: str) -> str:
    return base64.b64encode(json.dumps({"taskId": ref, "sourceArn": arn}).encode()).decode()


def _named_by(handle: str) -> tuple[str, str]:
    try:
        given = as_object(base64.b64decode(handle, validate=True).decode())
        return str(given["taskId"]), str(given["sourceArn"])
    except (ValueError, KeyError):
        words = "Value for parameter TaskHandle is invalid."
        raise SqsError("InvalidParameterValueException", words) from None
