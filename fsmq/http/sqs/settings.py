"""The settings of the dialect of Amazon SQS."""

from __future__ import annotations

from fsmq.kinds import Choice, Setting, Text

_NETWORK = "The network"

OF_SQS: tuple[Setting, ...] = (
    Setting(
        "sqs-auth",
        Choice("auto", "none", "key", "signature"),
        "auto",
        "How senders are identified in SQS's dialect: not at all (none), by a key as the access key"
        " id (key), or by signatures with its secret; auto is key with --keys, else none.",
        _NETWORK,
        ("mq",),
    ),
    Setting(
        "sqs-account",
        Text("ACCOUNT", r"[0-9]{12}", "12 digits"),
        "000000000000",
        "The account in URLs and ARNs of SQS's dialect.",
        _NETWORK,
        ("mq",),
    ),
    Setting(
        "sqs-region",
        Text("REGION", r"[a-z0-9-]{1,64}", "the name of a region"),
        "us-east-1",
        "The region in ARNs of SQS's dialect.",
        _NETWORK,
        ("mq",),
    ),
    Setting(
        "sqs-url",
        Text("URL", r"https?://[A-Za-z0-9._:\[\]-]{1,260}", "http:// or https:// and a host"),
        None,
        "The origin by which clients of SQS's dialect reach mq, for the URLs of queues.",
        _NETWORK,
        ("mq",),
        default_text="that of the request",
    ),
)
