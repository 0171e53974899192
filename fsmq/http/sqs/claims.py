"""What becomes of claims: messages are deleted, or hidden for longer, or visible again at once.

A receipt names a message and a claim of it. It never touches a claim of somebody else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from fsmq.spool.errors import ClaimEnded, FsmqError, NoSuchMessage, NoSuchQueue, as_unavailable
from fsmq.spool.layout.transitions import State
from fsmq.spool.verbs.removal import remove_ready

from .ask import Action, Actions, Ask, Result
from .batches import entries_of, failure, outcome
from .errors import SqsError, invalid, missing, no_such_queue, translated
from .names import Receipt, unpack_receipt
from .queue_attributes import MAX_VISIBILITY_S, check_number

_GONE = "Message does not exist or is not available for visibility timeout change."


class Claims(Actions):
    """The ends and the renewals of claims."""

    def actions(self) -> Mapping[str, Action]:
        return {
            "ChangeMessageVisibility": self.change,
            "ChangeMessageVisibilityBatch": self.change_batch,
            "DeleteMessage": self.delete,
            "DeleteMessageBatch": self.delete_batch,
        }

    # -- delete ------------------------------------------------------------------------------------

    async def delete(self, ask: Ask) -> Result:
        queue = ask.queue("receive")
        self.check_there(queue)
        await self._delete(queue, [unpack_receipt(queue, ask.members["ReceiptHandle"])])
        return {}

    async def delete_batch(self, ask: Ask) -> Result:
        queue = ask.queue("receive")
        self.check_there(queue)
        failed: list[Result] = []
        receipts, successful = [], []
        for entry in entries_of(ask, "DeleteMessageBatchRequestEntry"):
            try:
                receipts.append(unpack_receipt(queue, entry["ReceiptHandle"]))
                successful.append({"Id": entry["Id"]})
            except SqsError as error:
                failed.append(failure(entry, error))
        if receipts:
            await self._delete(queue, receipts)
        return outcome(successful, failed)

    async def _delete(self, queue: str, receipts: Sequence[Receipt]) -> None:
        """Remove messages that are in these claims, or that nobody holds."""
        ids = [receipt.message_id for receipt in receipts]
        claims = [receipt.claim for receipt in receipts]
        outcomes = await self._service.remove_if(queue, ids, claims)
        ended = [i for i, outcome in zip(ids, outcomes, strict=True) if outcome == "ended"]
        if ended:
            # What is in flight now is someone else's, and stays.
            await self._service.complete(remove_ready(self._spool.context, queue, ended))

    # -- visibility --------------------------------------------------------------------------------

    async def change(self, ask: Ask) -> Result:
        queue = ask.queue("receive")
        self.check_there(queue)
        await self._change(queue, ask.members)
        return {}

    async def change_batch(self, ask: Ask) -> Result:
        queue = ask.queue("receive")
        self.check_there(queue)
        failed: list[Result] = []
        successful = []
        for entry in entries_of(ask, "ChangeMessageVisibilityBatchRequestEntry"):
            try:
                await self._change(queue, entry)
                successful.append({"Id": entry["Id"]})
            except FsmqError as error:
                failed.append(failure(entry, translated(error)))
        return outcome(successful, failed)

    async def _change(self, queue: str, given: Mapping[str, Any]) -> None:
        seconds = given.get("VisibilityTimeout")
        if seconds is None:
            raise missing("VisibilityTimeout")
        check_number("VisibilityTimeout", seconds, 0, MAX_VISIBILITY_S)
        handle = given["ReceiptHandle"]
        receipt = unpack_receipt(queue, handle)
        if time.time() + seconds > receipt.at_ms / 1000 + MAX_VISIBILITY_S + 1:
            words = "Total VisibilityTimeout for the message is beyond the limit"
            raise invalid("VisibilityTimeout", seconds, f"{words} [{MAX_VISIBILITY_S} seconds].")
        unsynced = self._spool.unsynced
        name = receipt.message_id
        try:
            if seconds:
                await self._service.complete(
                    unsynced.renew(queue, name, float(seconds), receipt.claim)
                )
            else:
                await self._service.complete(unsynced.release(queue, name, 0.0, receipt.claim))
        except NoSuchQueue:
            raise no_such_queue() from None
        except (NoSuchMessage, ClaimEnded):
            if not self._is_visible(queue, name):
                raise invalid("ReceiptHandle", handle, _GONE) from None

    def _is_visible(self, queue: str, message_id: str) -> bool:
        tree = self._spool.tree
        with as_unavailable(f"cannot look into queue {queue!r}"):
            return tree.look(tree.path(State.READY, queue, message_id)) is not None
