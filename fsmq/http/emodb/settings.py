"""The settings of the dialect of EmoDB."""

from __future__ import annotations

from fsmq.kinds import Setting, Whole

_NETWORK = "The network"

OF_EMODB: tuple[Setting, ...] = (
    Setting(
        "admin-port",
        Whole(0, 65_535, "port"),
        None,
        "The port where EmoDB's clients check the server's health; 0 for none.",
        _NETWORK,
        ("mq",),
        default_text="port + 1, if emodb is switched on and port is not 0",
    ),
)
