"""The settings of the pages."""

from __future__ import annotations

from fsmq.kinds import Choice, Setting

_NETWORK = "The network"

OF_UI: tuple[Setting, ...] = (
    Setting(
        "ui",
        Choice("on", "read-only", "off"),
        "on",
        "The pages at /_ui: with buttons, without, or none.",
        _NETWORK,
        ("mq",),
    ),
    Setting(
        "ui-bodies",
        Choice("on", "off"),
        "on",
        "Whether the pages show the bodies of messages.",
        _NETWORK,
        ("mq",),
    ),
)
