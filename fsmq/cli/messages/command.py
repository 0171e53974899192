"""The command of a worker, which it runs for each message: its environment, and its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from fsmq.cli.place.claimable import as_message
from fsmq.wire import moment

# Between SIGTERM and SIGKILL of a command whose message was removed.
_GRACE_S = 10.0


def end(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> None:
    """Send a signal to a command and its children."""
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        pass


def end_at_last(process: subprocess.Popen[bytes]) -> None:
    """Kill a command that goes on after SIGTERM."""
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        end(process, signal.SIGKILL)


def facts(claimed: Any) -> Mapping[str, str]:
    """The environment of a command."""
    message = as_message(claimed)
    found = {
        "FSMQ_ID": message.id,
        "FSMQ_QUEUE": message.queue,
        "FSMQ_DELIVERIES": "" if message.deliveries is None else str(message.deliveries),
        "FSMQ_PRIORITY": str(message.priority),
        "FSMQ_CREATED_AT": "" if message.created_at is None else moment(message.created_at),
        "FSMQ_CONTENT_TYPE": message.content_type or "",
        "FSMQ_MESSAGE_KEY": getattr(claimed, "key", None) or "",
    }
    for name, value in message.attributes.items():
        plain = re.sub(r"[^A-Za-z0-9]", "_", name).upper()
        found[f"FSMQ_ATTRIBUTE_{plain}"] = value.replace("\0", "")
    return found
