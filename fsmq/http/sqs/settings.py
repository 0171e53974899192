"""The settings of the dialect of Amazon SQS."""

from __future__ import annotations

from fsmq.kinds import Choice, Setting, Text

_NETWORK = "The network"

OF_SQS: tuple[Setting, ...] = (
    Setting(
        "sqs-auth",
        Choice("auto", "none", "key", "signature"),
        "auto",
        "Who asks in SQS's dialect: nobody looks, the access key id is a key, or it names one and"
        " the request is signed with that; auto is key where there are --keys, else none.",
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
        "Where clients of SQS's dialect reach mq, for the URLs of queues.",
        _NETWORK,
        ("mq",),
        default_text="as the request says",
    ),
)
