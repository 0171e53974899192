"""A real TCP proxy that loses requests and answers on demand."""

from __future__ import annotations

import socket
import ssl
import threading


class Proxy:
    """Passes bytes between clients and the server on ``port``; runs in threads.

    lose_answers: the number of next answers to lose: the request was carried out, and the
    connection is cut instead of the answer.
    lose_requests: the number of next requests to lose: the connection is cut when one arrives.
    connections: the number of connections so far.
    """

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.lose_answers = 0
        self.lose_requests = 0
        self.connections = 0
        self._server = port
        self._tls = tls
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listening: socket.socket | None = None
        self.port = 0
        self.listen()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *of: object) -> None:
        self.hang_up()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://localhost:{self.port}"

    def listen(self) -> None:
        """Accept connections (again)."""
        listening = socket.create_server(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        self._listening = listening
        threading.Thread(target=self._accept, args=[listening], daemon=True).start()

    def hang_up(self) -> None:
        """Close all connections and refuse new ones."""
        if self._listening is not None:
            # Wakes the accepting thread, which close() would not.
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self._listening = None
        with self._lock:
            for open_one in self._open:
                _shut(open_one)

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            server = socket.create_connection(("127.0.0.1", self._server))
        except OSError:
            client.close()
            return
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self.connections += 1
            self._open |= {client, server}
        back = threading.Thread(target=self._pass_answers, args=[server, client], daemon=True)
        back.start()
        self._pass_requests(client, server)
        back.join()
        with self._lock:
            self._open -= {client, server}
        client.close()
        server.close()

    def _pass_requests(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := client.recv(1 << 16):
                if self._loses("lose_requests"):
                    break
                server.sendall(data)
        except OSError:
            pass
        _shut(client)
        _shut(server)

    def _pass_answers(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(1 << 16):
                if self._loses("lose_answers"):
                    break
                client.sendall(data)
        except OSError:
            pass
        _shut(client)
        _shut(server)

    def _loses(self, what: str) -> bool:
        with self._lock:
            left: int = getattr(self, what)
            if left:
                setattr(self, what, left - 1)
            return left > 0


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
