"""Names of queues in SQS, their URLs, their ARNs, and the receipts of claims."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from fsmq.spool.checks import CLAIM_PATTERN, check_id, is_queue
from fsmq.spool.errors import InvalidValue

from .errors import SqsError, invalid, no_such_queue

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
FIFO = ".fifo"
_ARN_PARTS = 6
_VERSION = "1"
# A receipt has its version, the claim, the time of the claim and the message. Anybody who has seen
# one can forge others, so its parts are checked.
_RECEIPT = re.compile(
    rf"{_VERSION}\|(?P<claim>{CLAIM_PATTERN})?\|(?P<at>[0-9a-f]{{1,12}})\|(?P<id>.*)", re.DOTALL
)
_RULE = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
_FIFO_RULE = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores,"
    " must end with .fifo suffix and be 1 to 80 in length."
)


@dataclass(frozen=True, slots=True)
class SqsOptions:
    """The operator's settings of this dialect.

    account, region: those in URLs and ARNs of answers; nothing is checked against them.
    url: the origin of URLs in answers; None: that of the request.
    auth: the mode of `Signatures`; None: ``key`` if the server has keys, else ``none``.
    """

    account: str = "000000000000"
    region: str = "us-east-1"
    url: str | None = None
    auth: str | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Made from the settings of a program, by field."""
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
    """Whether a name of a queue is valid both in SQS and here."""
    return _NAME.fullmatch(queue) is not None and is_queue(queue)


def check_new_name(name: str, fifo: bool) -> str:
    """Return the name of a queue to be created, if it is valid. Raises SqsError."""
    if not is_visible(name) or name.endswith(FIFO) != fifo:
        raise SqsError("InvalidParameterValueException", _FIFO_RULE if fifo else _RULE)
    return name


def queue_of_url(url: str) -> str:
    """The queue in a URL: its last segment, whatever precedes it. Raises SqsError."""
    name = url.partition("?")[0].rstrip("/").rpartition("/")[2]
    if not is_visible(name):
        raise no_such_queue()
    return name


def queue_of_arn(arn: str, parameter: str) -> str:
    """The queue in an ARN. Raises SqsError."""
    parts = arn.split(":")
    if len(parts) != _ARN_PARTS or parts[:3] != ["arn", "aws", "sqs"] or not parts[-1]:
        raise invalid(parameter, arn, "It is not the ARN of a queue.")
    return parts[-1]


# -- receipts --------------------------------------------------------------------------------------


class Receipt(NamedTuple):
    """The content of a receipt handle: a message in one claim. at_ms: when it was claimed."""

    message_id: str
    claim: str | None
    at_ms: int


def pack_receipt(queue: str, receipt: Receipt) -> str:
    """The handle of a receipt, which is bound to its queue."""
    parts = (_VERSION, receipt.claim or "", f"{receipt.at_ms:x}", receipt.message_id)
    text = "|".join(parts).encode("utf-8", "surrogateescape")
    return base64.urlsafe_b64encode(_seal(queue, text) + text).decode()


def unpack_receipt(queue: str, handle: str) -> Receipt:
    """The receipt in a handle. Raises SqsError."""
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
