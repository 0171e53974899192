"""Ports that stay reserved between two servers of a test."""

from __future__ import annotations

import socket


def held(port: int = 0) -> tuple[socket.socket, int]:
    """Reserve a port of 127.0.0.1, by default a free one: a socket that holds it, and its number.

    Servers can listen there one after another, because all of them reuse addresses.

    Raises:
        OSError: another program uses the port.
    """
    holder = socket.socket()
    # Two sockets with this option may be bound to one address as long as only one listens.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind(("127.0.0.1", port))
    except OSError:
        holder.close()
        raise
    return holder, int(holder.getsockname()[1])
