"""The settings of the dialect of EmoDB."""

from __future__ import annotations

from fsmq.kinds import Setting, Whole

_NETWORK = "The network"

OF_EMODB: tuple[Setting, ...] = (
    Setting(
        "admin-port",
        Whole(0, 65_535, "port"),
        0,
        "The port where EmoDB's clients check the server's health; 0 for none.",
        _NETWORK,
        ("mq",),
    ),
)
