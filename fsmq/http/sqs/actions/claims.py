"""Actions on claims: messages are deleted, hidden for longer, or made visible at once.

A receipt names a message and one claim of it, and never affects another claim.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fsmq.spool import State
from fsmq.spool.errors import ClaimEnded, FsmqError, NoSuchMessage, NoSuchQueue, as_unavailable
from fsmq.spool.prepare import Acked

from ..ask import Action, Actions, Ask, Result
from ..errors import SqsError, StaleReceipt, invalid, missing, no_such_queue, translated
from ..fifo import expired
from ..names import Receipt, unpack_receipt
from ..queue_attributes import MAX_VISIBILITY_S, check_number
from .batches import entries_of, failure, outcome


class Deletes(NamedTuple):
    """The messages that one request deletes: entries, with a receipt for each.

    failed: the results of entries with errors; None: it is not a batch.
    """

    queue: str
    fifo: bool
    entries: Sequence[Mapping[str, Any]]
    receipts: Sequence[Receipt]
    failed: list[Result] | None = None

    @property
    def ids(self) -> list[str]:
        return [receipt.message_id for receipt in self.receipts]

    @property
    def claims(self) -> list[str | None]:
        return [receipt.claim for receipt in self.receipts]

    def ended(self, outcomes: Sequence[Acked]) -> list[str]:
        """The messages whose claims have ended, to be removed if they are ready again.

        None in a FIFO queue, where another message of the group may have been delivered since.
        """
        if self.fifo or "ended" not in outcomes:
            return []
        return [i for i, outcome in zip(self.ids, outcomes, strict=True) if outcome == "ended"]

    def result(self, outcomes: Sequence[Acked]) -> Result:
        """The result, from the outcomes of removing the messages. Raises SqsError."""
        failed = list(self.failed or ())
        successful: list[Result] = []
        for entry, became in zip(self.entries, outcomes, strict=True):
            if became != "ended" or not self.fifo:
                successful.append({"Id": entry.get("Id")})
            elif self.failed is None:
                raise expired(entry["ReceiptHandle"])
            else:
                failed.append(failure(entry, expired(entry["ReceiptHandle"])))
        return {} if self.failed is None else outcome(successful, failed)


_GONE = "Message does not exist or is not available for visibility timeout change"


class Claims(Actions):
    """Actions that end or renew claims."""

    def actions(self) -> Mapping[str, Action]:
        return {
            "ChangeMessageVisibility": self.change,
            "ChangeMessageVisibilityBatch": self.change_batch,
            "DeleteMessage": self.delete,
            "DeleteMessageBatch": self.delete_batch,
        }

    # -- delete ------------------------------------------------------------------------------------

    async def delete(self, ask: Ask) -> Result:
        return await self._delete(self.read_delete(ask))

    async def delete_batch(self, ask: Ask) -> Result:
        return await self._delete(self.read_delete_batch(ask))

    def read_delete(self, ask: Ask) -> Deletes:
        """Read a DeleteMessage. Raises SqsError, and the errors of reading settings."""
        queue = ask.queue("receive")
        settings = self.settings(ask, queue)
        handle = ask.members["ReceiptHandle"]
        return Deletes(queue, settings.fifo, [ask.members], [unpack_receipt(queue, handle)])

    def read_delete_batch(self, ask: Ask) -> Deletes:
        """Read a DeleteMessageBatch. Raises the same for errors of the whole batch."""
        queue = ask.queue("receive")
        settings = self.settings(ask, queue)
        entries, receipts, failed = [], [], []
        for entry in entries_of(ask, "DeleteMessageBatchRequestEntry"):
            try:
                receipts.append(unpack_receipt(queue, entry["ReceiptHandle"]))
                entries.append(entry)
            except SqsError as error:
                failed.append(failure(entry, error))
        return Deletes(queue, settings.fifo, entries, receipts, failed)

    async def _delete(self, deletes: Deletes) -> Result:
        """Remove messages that are in these claims, or are not claimed."""
        outcomes: Sequence[Acked] = ()
        if deletes.receipts:
            ids, claims = deletes.ids, deletes.claims
            outcomes = await self._service.queues.ack(deletes.queue, ids, claims)
        if ended := deletes.ended(outcomes):
            await self._service.queues.do(self._service.changes.remove_ready(deletes.queue, ended))
        return deletes.result(outcomes)

    # -- visibility --------------------------------------------------------------------------------

    async def change(self, ask: Ask) -> Result:
        queue = ask.queue("receive")
        self.check_there(queue)
        await self._change(queue, ask.members)
        return {}

    async def change_batch(self, ask: Ask) -> Result:
        queue = ask.queue("receive")
        self.check_there(queue)
        entries = entries_of(ask, "ChangeMessageVisibilityBatchRequestEntry")
        changes = (self._change(queue, entry) for entry in entries)
        # At the same time, so that they share a sync.
        errors = await asyncio.gather(*changes, return_exceptions=True)
        failed: list[Result] = []
        successful = []
        for entry, error in zip(entries, errors, strict=True):
            if error is None:
                successful.append({"Id": entry["Id"]})
            elif isinstance(error, FsmqError):
                failed.append(failure(entry, translated(error)))
            else:
                raise error
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
        changes, do = self._service.changes, self._service.queues.do
        name = receipt.message_id
        try:
            if seconds:
                await do(
                    changes.renew(queue, name, float(seconds), receipt.claim, though_over=True)
                )
            else:
                await do(changes.release(queue, name, 0.0, receipt.claim))
        except NoSuchQueue:
            raise no_such_queue() from None
        except (NoSuchMessage, ClaimEnded) as error:
            is_visible = self._is_visible(queue, name)
            if self._spool.settings(queue).fifo and (is_visible or isinstance(error, ClaimEnded)):
                raise expired(handle) from None
            if not is_visible:
                raise StaleReceipt(handle, _GONE) from None

    def _is_visible(self, queue: str, message_id: str) -> bool:
        tree = self._spool.tree
        with as_unavailable(f"cannot look into queue {queue!r}"):
            return tree.look(tree.path(State.READY, queue, message_id)) is not None
