"""Names: of queues as SQS has them, their URLs, their ARNs, and the receipts of claims."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from fsmq.spool.checks import check_id, is_queue
from fsmq.spool.errors import InvalidValue
from fsmq.spool.layout.claim_names import PATTERN

from .errors import SqsError, invalid, no_such_queue

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
FIFO = ".fifo"
_ARN_PARTS = 6
_VERSION = "1"
# What a receipt says: its version, the claim, its moment and the message. Whoever has seen one can
# make others, so nothing of it is taken on trust.
_RECEIPT = re.compile(
    rf"{_VERSION}\|(?P<claim>{PATTERN})?\|(?P<at>[0-9a-f]{{1,12}})\|(?P<id>.*)", re.DOTALL
)
_RULE = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
_FIFO_RULE = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores,"
    " must end with .fifo suffix and be 1 to 80 in length."
)


@dataclass(frozen=True, slots=True)
class SqsOptions:
    """What the operator says about this dialect.

    account, region: as URLs and ARNs tell them; nothing is checked against them.
    url: the origin of the URLs that are told; None: that of the request.
    auth: what tells who asks, as `Signatures` has it; None: ``key`` where there are keys, else
        ``none``.
    """

    account: str = "000000000000"
    region: str = "us-east-1"
    url: str | None = None
    auth: str | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """What the settings of a program say, by field."""
        auth = settings["sqs_auth"]
        return cls(
            settings["sqs_account"],
            settings["sqs_region"],
            settings["sqs_url"],
            None if auth == "auto" else auth,
        )

    def arn(self, queue: str) -> str:
        """The ARN of a queue."""
        return f"arn:aws:sqs:{self.region}:{self.account}:{queue}"

    def topic_arn(self, topic: str) -> str:
        """The ARN of a topic."""
        return f"arn:aws:sns:{self.region}:{self.account}:{topic}"


def is_visible(queue: str) -> bool:
    """Whether clients of SQS can name a queue, and it is a name here, too."""
    return _NAME.fullmatch(queue) is not None and is_queue(queue)


def check_new_name(name: str, fifo: bool) -> str:
    """Return a name for a queue that is to be created. Raises SqsError."""
    if not is_visible(name) or name.endswith(FIFO) != fifo:
        raise SqsError("InvalidParameterValueException", _FIFO_RULE if fifo else _RULE)
    return name


def queue_of_url(url: str) -> str:
    """The queue that a URL names: its last segment, whatever stands before it. Raises SqsError."""
    name = url.partition("?")[0].rstrip("/").rpartition("/")[2]
    if not is_visible(name):
        raise no_such_queue()
    return name


def queue_of_arn(arn: str, parameter: str) -> str:
    """The queue that an ARN names. Raises SqsError."""
    parts = arn.split(":")
    if len(parts) != _ARN_PARTS or parts[:3] != ["arn", "aws", "sqs"] or not parts[-1]:
        raise invalid(parameter, arn, "It is not the ARN of a queue.")
    return parts[-1]


# -- receipts --------------------------------------------------------------------------------------


class Receipt(NamedTuple):
    """What a receipt handle stands for: a message in one claim. at_ms: when that was made."""

    message_id: str
    claim: str | None
    at_ms: int


def pack_receipt(queue: str, receipt: Receipt) -> str:
    """The handle of a receipt, which is bound to its queue."""
    parts = (_VERSION, receipt.claim or "", f"{receipt.at_ms:x}", receipt.message_id)
    text = "|".join(parts).encode("utf-8", "surrogateescape")
    return base64.urlsafe_b64encode(_seal(queue, text) + text).decode()


def unpack_receipt(queue: str, handle: str) -> Receipt:
    """What a handle stands for. Raises SqsError."""
    try:
        raw = base64.b64decode(handle.encode("ascii"), b"-_", validate=True)
        text = raw[4:]
        found = _RECEIPT.fullmatch(text.decode("utf-8", "surrogateescape"))
        if found is None or raw[:4] != _seal(queue, text):
            raise ValueError
        return Receipt(check_id(queue, found["id"]), found["claim"], int(found["at"], 16))
    except (ValueError, InvalidValue):
        shown = handle[:1024]
        words = f'The input receipt handle "{shown}" is not a valid receipt handle.'
        raise SqsError("ReceiptHandleIsInvalid", words) from None


def _seal(queue: str, text: bytes) -> bytes:
    return zlib.crc32(queue.encode() + b"|" + text).to_bytes(4, "big")
