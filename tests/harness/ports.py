"""Ports that nobody else is given between two servers of a test."""

from __future__ import annotations

import socket


def held(port: int = 0) -> tuple[socket.socket, int]:
    """Bind a port of 127.0.0.1, any free one by default: (what holds it until it is closed, it).

    One server after another may listen there, as ours all say that an address may be used again.

    Raises:
        OSError: somebody else has it.
    """
    holder = socket.socket()
    # With this on both sides two may be bound as long as one of them does not listen.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind(("127.0.0.1", port))
    except OSError:
        holder.close()
        raise
    return holder, int(holder.getsockname()[1])
