"""What becomes of claims: messages are deleted, or hidden for longer, or visible again at once.

A receipt names a message and a claim of it. It never touches a claim of somebody else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from fsmq.spool.errors import ClaimEnded, FsmqError, NoSuchMessage, NoSuchQueue, as_unavailable
from fsmq.spool.layout.settings import QueueSettings
from fsmq.spool.layout.transitions import State
from fsmq.spool.verbs.removal import remove_ready

from .ask import Action, Actions, Ask, Result
from .batches import entries_of, failure, outcome
from .errors import SqsError, invalid, missing, no_such_queue, translated
from .fifo import expired
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
        handle = ask.members["ReceiptHandle"]
        settings = self._spool.settings(queue)
        [is_done] = await self._delete(queue, settings, [unpack_receipt(queue, handle)])
        if not is_done:
            raise expired(handle)
        return {}

    async def delete_batch(self, ask: Ask) -> Result:
        queue = ask.queue("receive")
        settings = self._spool.settings(queue)
        failed: list[Result] = []
        entries, receipts, successful = [], [], []
        for entry in entries_of(ask, "DeleteMessageBatchRequestEntry"):
            try:
                receipts.append(unpack_receipt(queue, entry["ReceiptHandle"]))
                entries.append(entry)
            except SqsError as error:
                failed.append(failure(entry, error))
        if receipts:
            done = await self._delete(queue, settings, receipts)
            for entry, is_done in zip(entries, done, strict=True):
                if is_done:
                    successful.append({"Id": entry["Id"]})
                else:
                    failed.append(failure(entry, expired(entry["ReceiptHandle"])))
        return outcome(successful, failed)

    async def _delete(
        self, queue: str, settings: QueueSettings, receipts: Sequence[Receipt]
    ) -> list[bool]:
        """Remove messages that are in these claims, or that nobody holds.

        Tells for each whether its receipt was good; in a FIFO queue it is not when its claim has
        ended, since another of the group may have been given out meanwhile.
        """
        ids = [receipt.message_id for receipt in receipts]
        claims = [receipt.claim for receipt in receipts]
        outcomes = await self._service.remove_if(queue, ids, claims)
        if settings.fifo:
            return [outcome != "ended" for outcome in outcomes]
        ended = [i for i, outcome in zip(ids, outcomes, strict=True) if outcome == "ended"]
        if ended:
            # What is in flight now is someone else's, and stays.
            await self._service.complete(remove_ready(self._spool.context, queue, ended))
        return [True] * len(receipts)

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
                renewed = unsynced.renew(
                    queue, name, float(seconds), receipt.claim, though_over=True
                )
                await self._service.complete(renewed)
            else:
                await self._service.complete(unsynced.release(queue, name, 0.0, receipt.claim))
        except NoSuchQueue:
            raise no_such_queue() from None
        except (NoSuchMessage, ClaimEnded) as error:
            is_visible = self._is_visible(queue, name)
            if self._spool.settings(queue).fifo and (is_visible or isinstance(error, ClaimEnded)):
                raise expired(handle) from None
            if not is_visible:
                raise invalid("ReceiptHandle", handle, _GONE) from None

    def _is_visible(self, queue: str, message_id: str) -> bool:
        tree = self._spool.tree
        with as_unavailable(f"cannot look into queue {queue!r}"):
            return tree.look(tree.path(State.READY, queue, message_id)) is not None
