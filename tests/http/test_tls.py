"""TLS: HTTPS with real clients, and new certificates during connections."""

from __future__ import annotations

import signal
import socket
import ssl
import struct
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.harness.certificates import HAS_OPENSSL, make
from tests.harness.forkserver import environment, run
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Answer, Crowd, Wire
from tests.http.pair import request
from tests.http.test_errors import is_problem
from tests.http.test_limits import memory, open_sockets

KIB = 1024
MIB = 1024 * KIB
# The memory of a connection.
ITSELF = 96 * KIB

pytestmark = pytest.mark.skipif(not HAS_OPENSSL, reason="there is no openssl")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """A suite that serves HTTPS with the files ``live.crt`` and ``live.key`` beside its root."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = make(folder, "live")
    options = [f"--tls-cert={certificate}", f"--tls-key={key}", "--header-timeout=2"]
    with Suite(folder / "mq", mq_options=options) as suite:
        for queue in ("q", "first", "last"):
            (suite.root / "queues" / queue).mkdir()
        yield suite


def trusting(suite: Suite) -> ssl.SSLContext:
    """A client's context that trusts only the suite's present certificate."""
    return ssl.create_default_context(cafile=suite.root.parent / "live.crt")


class SecureWire(Wire):
    """A TLS connection whose bytes a test writes itself."""

    def __init__(
        self, suite: Suite, context: ssl.SSLContext | None = None, name: str | None = "localhost"
    ) -> None:
        super().__init__(suite.url)
        self._reader.close()
        context = context or trusting(suite)
        if name is None:
            context.check_hostname = False
        self.socket = context.wrap_socket(
            self.socket, server_hostname=name, suppress_ragged_eofs=False
        )
        self._reader = self.socket.makefile("rb")

    @property
    def certificate(self) -> bytes:
        assert isinstance(self.socket, ssl.SSLSocket)
        return self.socket.getpeercert(binary_form=True) or b""


def test_a_message_over_https(secured: Suite) -> None:
    assert secured.url.startswith("https://127.0.0.1:")
    ask = urllib.request.Request(f"{secured.url}/first/messages", data=b"hello", method="POST")
    with urllib.request.urlopen(ask, context=trusting(secured)) as answer:
        assert answer.status == 201
    get = f"{secured.url}/first/messages?wait=20"
    with urllib.request.urlopen(get, context=trusting(secured)) as answer:
        assert answer.read() == b"hello"


def test_a_kept_connection_with_large_bodies_and_long_polls(secured: Suite) -> None:
    body = bytes(range(256)) * 8192
    with SecureWire(secured) as wire, SecureWire(secured) as other:
        for _ in range(3):
            wire.request("GET", "/q/messages?wait=20")
            assert other.ask("POST", "/q/messages", {}, body).status == 201
            answer = wire.answer()
            assert answer.body == body
            assert wire.ask("DELETE", f"/q/messages/{answer.id}").status == 202
        wire.request("GET", "/q/messages?wait=2.5")  # longer than the timeout of heads
        assert wire.answer().status == 204


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_last_answer_is_followed_by_close_notify(
    secured: Suite, version: ssl.TLSVersion
) -> None:
    """Without it, the end could be a truncation attack."""
    body = bytes(range(256)) * 16384
    context = trusting(secured)
    context.minimum_version = context.maximum_version = version
    with SecureWire(secured, context) as wire:
        assert wire.ask("POST", "/last/messages", {}, body).status == 201
        wire.request("GET", "/last/messages?wait=20", {"Connection": "close"})
        assert wire.answer().body == body
        assert wire.rest() == b""


def test_close_notify_is_answered(secured: Suite) -> None:
    with SecureWire(secured) as wire:
        assert wire.ask("GET", "/q").status == 200
        assert isinstance(wire.socket, ssl.SSLSocket)
        with wire.socket.unwrap() as bare:
            assert bare.recv(1) == b""


@pytest.mark.parametrize("is_reset", [False, True], ids=["ended", "reset"])
@pytest.mark.parametrize("said", [b"", request("GET /q")], ids=["silent", "asking"])
def test_connections_without_close_notify_are_closed(
    secured: Suite, said: bytes, is_reset: bool
) -> None:
    before = open_sockets(secured)
    for _ in range(40):
        with SecureWire(secured) as wire:
            wire.send(said)
            wire.socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", is_reset, 0)
            )
    eventually(lambda: open_sockets(secured) <= before)
    assert [event for event in secured.logs("mq") if event["level"] == "error"] == []


# -- memory ----------------------------------------------------------------------------------------


def test_pipelined_bytes_stay_in_the_kernel(secured: Suite) -> None:
    """Beyond the counted bytes of each connection; TLS itself does not read ahead."""
    number, counted = 60, 128 * KIB
    before = memory(secured)
    with ExitStack() as stack:
        for _ in range(number):
            wire = stack.enter_context(SecureWire(secured))
            wire.request("GET", "/q/messages?wait=20")
            wire.request("POST", "/q/messages", {"Content-Length": str(16 * MIB)})
            wire.socket.settimeout(0.1)  # nobody reads it, so it is not sent
            with pytest.raises(TimeoutError):
                wire.send(b"x" * 16 * MIB)
        assert memory(secured) - before < number * (counted + ITSELF)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Suite]:
    """mq alone, with little memory for bodies and short timeouts."""
    certificate, key = make(tmp_path, "live")
    options = [f"--tls-cert={certificate}", f"--tls-key={key}", "--sync=none"]
    options += [f"--max-body-memory={4 * MIB}", "--write-timeout=4"]
    with Suite(tmp_path / "mq", mq_options=options, mover=False, reaper=False) as suite:
        (suite.root / "queues" / "q").mkdir()
        yield suite


def test_unread_answers_are_counted_and_cut_off(small: Suite) -> None:
    """Of all sizes: encrypted bytes wait as well."""
    for number in range(40):
        (small.root / "queues" / "q" / f"m{number}").write_bytes(b"x" * 500 * KIB)
    with ExitStack() as stack, SecureWire(small) as wire:
        for _ in range(40):
            stack.enter_context(slow_reader(small, request("GET /q/messages")))
        refused = eventually(lambda: is_refused(wire.ask("GET", "/q/messages")))
        assert is_problem(refused, 503, "overloaded")
        eventually(lambda: wire.ask("GET", "/q/messages").status == 200)


def is_refused(answer: Answer) -> Answer | None:
    return answer if answer.status == 503 else None


def slow_reader(suite: Suite, head: bytes) -> ssl.SSLSocket:
    """A client for which the kernel takes little of an answer."""
    bare = socket.socket()
    bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 500)
    bare.connect(("127.0.0.1", suite.port))
    slow = trusting(suite).wrap_socket(bare, server_hostname="localhost")
    slow.sendall(head)
    return slow


def test_unread_answers_of_half_closed_connections_are_cut_off_in_time(tmp_path: Path) -> None:
    """They are not idle, so that others do not take their places and nobody watches them."""
    most, slow = 12, 4
    certificate, key = make(tmp_path, "live")
    options = [f"--tls-cert={certificate}", f"--tls-key={key}", f"--max-connections={most}"]
    options += ["--write-timeout=1", "--header-timeout=300", "--sync=none"]
    with (
        Suite(tmp_path / "mq", mq_options=options, mover=False, reaper=False) as suite,
        ExitStack() as stack,
    ):
        queue = suite.root / "queues" / "q"
        queue.mkdir()
        (queue / "m").write_bytes(b"x" * 8 * MIB)
        before = open_sockets(suite)
        for _ in range(slow):
            client = stack.enter_context(slow_reader(suite, request("GET /q/peek")))
            client.recv(1)  # it is being answered
            socket.socket.shutdown(client, socket.SHUT_WR)  # without close_notify
        with Crowd(suite.port, 2 * most) as silent:
            eventually(lambda: silent.left() <= most)
            assert open_sockets(suite) <= most + _OWN_SOCKETS
        eventually(lambda: open_sockets(suite) <= before)


# -- records ---------------------------------------------------------------------------------------

# A ClientHello of TLS 1.3 that leaves the choice of a key share to the server, which asks for
# another hello with one.
_EXTENSIONS = (
    (43, b"\x02\x03\x04"),  # the version
    (10, b"\x00\x02\x00\x1d"),  # the group x25519
    (13, b"\x00\x02\x04\x03"),  # the algorithm of signatures
)
_NO_SHARE = (51, b"\x00\x00")
_SHARE = (51, b"\x00\x24\x00\x1d\x00\x20" + b"\x09" * 32)


def sized(data: bytes, bytes_of_length: int = 2) -> bytes:
    return len(data).to_bytes(bytes_of_length, "big") + data


def record(data: bytes) -> bytes:
    return b"\x16\x03\x01" + sized(data)


def hello(share: tuple[int, bytes]) -> bytes:
    extensions = [kind.to_bytes(2, "big") + sized(data) for kind, data in (*_EXTENSIONS, share)]
    head = b"\x03\x03" + b"r" * 32 + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00"
    return b"\x01" + sized(head + sized(b"".join(extensions)), 3)


def is_shut(bare: socket.socket) -> bool:
    """Whether the server closes, perhaps after an alert."""
    try:
        while bare.recv(4096):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """mq that closes nothing because of a timeout."""
    folder = tmp_path_factory.mktemp("patient")
    certificate, key = make(folder, "live")
    options = [f"--tls-cert={certificate}", f"--tls-key={key}", "--header-timeout=300"]
    with Suite(folder / "mq", mq_options=options, mover=False, reaper=False) as suite:
        (suite.root / "queues" / "q").mkdir()
        yield suite


@pytest.mark.parametrize("step", [1, 1000], ids=["in bytes", "at once"])
@pytest.mark.parametrize("is_second", [False, True], ids=["first", "second"])
def test_a_hello_that_is_larger_than_its_record_is_refused(
    patient: Suite, step: int, is_second: bool
) -> None:
    """OpenSSL allocates all of it, 128 KiB, when it knows its length."""
    large = record(b"\x01" + (131_000).to_bytes(3, "big") + b"\x03\x03" + b"r" * 20)
    with socket.create_connection(("127.0.0.1", patient.port), 20) as bare:
        bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if is_second:
            bare.sendall(record(hello(_NO_SHARE)))
            assert b"\xcf\x21\xad\x74" in bare.recv(4096)
        with suppress(ConnectionError):  # it is closed once the beginning has come
            for at in range(0, len(large), step):
                bare.sendall(large[at : at + step])
        assert is_shut(bare)


def test_a_server_may_ask_for_a_second_hello(patient: Suite) -> None:
    with socket.create_connection(("127.0.0.1", patient.port), 20) as bare:
        bare.sendall(record(hello(_NO_SHARE)))
        assert b"\xcf\x21\xad\x74" in bare.recv(4096)
        bare.sendall(b"\x14\x03\x03\x00\x01\x01" + record(hello(_SHARE)))
        answer = bare.recv(16 * KIB)
        assert (answer[:3], answer[5]) == (b"\x16\x03\x03", 2)  # its hello


# Python has no function for updates of keys. In a program of its own, which has loaded one OpenSSL.
_UPDATES = """
import ctypes, re, socket, ssl, sys
context = ssl._create_unverified_context()
secure = context.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20))
libraries = set(re.findall(r"/\\S*libssl\\S*", open("/proc/self/maps").read()))
update = ctypes.CDLL(*libraries).SSL_key_update
update.argtypes = [ctypes.c_void_p, ctypes.c_int]
# Behind the head of the object and a reference to the socket.
place = id(secure._sslobj) + 3 * ctypes.sizeof(ctypes.c_void_p)
connection = ctypes.c_void_p.from_address(place).value

def answer_after(updates):
    for _ in range(updates):
        if not update(connection, 1):
            return b""
        secure.do_handshake()
    secure.sendall(b"GET /q HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    return secure.recv(4096)[:12]

print(answer_after(100).decode())
try:
    print(answer_after(10_000).decode())
except OSError:
    print()
"""


@pytest.mark.skipif(
    sys.implementation.name != "cpython" or bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="an object of the module ssl has another form",
)
def test_many_records_without_content_end_a_connection(patient: Suite) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _UPDATES, str(patient.port)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "HTTP/1.1 200\n\n"


def test_a_client_may_name_any_server(patient: Suite) -> None:
    """Such as one with characters beyond ASCII; nothing is logged."""
    name = "caf\u00e9.example".encode()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl._create_unverified_context()
    asking = context.wrap_bio(incoming, outgoing, server_hostname="x" * len(name))
    with pytest.raises(ssl.SSLWantReadError):
        asking.do_handshake()
    with socket.create_connection(("127.0.0.1", patient.port), 20) as bare:
        bare.sendall(outgoing.read().replace(b"x" * len(name), name))
        answer = bare.recv(16 * KIB)
        assert (answer[:3], answer[5]) == (b"\x16\x03\x03", 2)  # its hello
    assert [event for event in patient.logs("mq") if "level" not in event] == []


def test_many_small_records_are_read(patient: Suite) -> None:
    with SecureWire(patient) as wire:
        for sign in request("GET /q", "X-Long: " + "x" * 2000):
            wire.send(bytes([sign]))
        assert wire.answer().status == 200


# -- versions and certificates ---------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")  # the old versions are tested
def test_versions_and_protocols(secured: Suite) -> None:
    context = trusting(secured)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with SecureWire(secured, context) as wire:
        assert isinstance(wire.socket, ssl.SSLSocket)
        assert wire.socket.version() == "TLSv1.3"
        assert wire.socket.selected_alpn_protocol() == "http/1.1"
    context = trusting(secured)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with SecureWire(secured, context) as wire:
        assert isinstance(wire.socket, ssl.SSLSocket)
        cipher = wire.socket.cipher()
        assert cipher is not None
        assert cipher[0].startswith("ECDHE-")
        assert "GCM" in cipher[0] or "CHACHA20" in cipher[0]
    context = trusting(secured)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
        SecureWire(secured, context)


def test_a_handshake_has_a_time_limit(secured: Suite) -> None:
    for sent in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", secured.port), 30) as silent:
            silent.sendall(sent)
            started = time.monotonic()
            try:
                while silent.recv(4096):
                    pass
            except ConnectionResetError:
                pass
            assert time.monotonic() - started < 9  # without its option mq waits for 10 seconds


def test_a_handshake_counts_as_a_connection(tmp_path: Path) -> None:
    most = 12
    certificate, key = make(tmp_path, "live")
    options = [f"--tls-cert={certificate}", f"--tls-key={key}", f"--max-connections={most}"]
    options.append("--header-timeout=300")  # they are not ended by a timeout
    suite = Suite(tmp_path / "mq", mq_options=options, mover=False, reaper=False)
    with suite, Crowd(suite.port, 10 * most) as silent:
        eventually(lambda: silent.left() <= most)
        for _ in range(2 * most):  # other clients are served: the oldest silent one is closed
            with SecureWire(suite) as wire:
                assert wire.ask("GET", "/_health/live").status == 200
        assert open_sockets(suite) <= most + _OWN_SOCKETS
        assert silent.left() < most


# The listening socket, those of the loop, and sockets that are being closed.
_OWN_SOCKETS = 8


@pytest.mark.parametrize("name", ["localhost", None], ids=["with a name", "without a name"])
def test_a_new_certificate_without_a_restart(secured: Suite, name: str | None) -> None:
    folder = secured.root.parent
    with SecureWire(secured) as kept, SecureWire(secured) as waiting:
        assert kept.ask("GET", "/q").status == 200
        waiting.request("GET", "/q/messages?wait=20")
        certificate, key = make(folder, "next")
        certificate.rename(folder / "live.crt")
        key.rename(folder / "live.key")
        hang_up(secured, "certificate loaded")
        with SecureWire(secured, name=name) as fresh:  # which trusts the new one only
            assert fresh.certificate != kept.certificate
            assert fresh.ask("GET", "/q").status == 200
        assert kept.ask("POST", "/q/messages", {}, b"still here").status == 201
        assert waiting.answer().body == b"still here"


def test_a_bad_certificate_or_key_changes_nothing(secured: Suite) -> None:
    folder = secured.root.parent
    good = {path: path.read_bytes() for path in (folder / "live.crt", folder / "live.key")}
    other, _ = make(folder, "other")
    for content, said in (
        (other.read_bytes(), "is not the key of the certificate"),
        (b"no certificate", "are not a certificate and its key"),
    ):
        (folder / "live.crt").write_bytes(content)
        event = hang_up(secured, "the certificate stays as it was")
        assert said in event["error"]
        for path, kept in good.items():
            path.write_bytes(kept)
        with SecureWire(secured) as wire:
            assert wire.ask("GET", "/q").status == 200


def hang_up(suite: Suite, expect: str) -> dict[str, str]:
    def said() -> list[dict[str, str]]:
        return [event for event in suite.logs("mq") if event["event"] == expect]

    before = len(said())
    suite["mq"].signal(signal.SIGHUP)
    eventually(lambda: len(said()) > before)
    return said()[-1]


def test_files_that_mq_refuses_to_start_with(tmp_path: Path) -> None:
    certificate, key = make(tmp_path, "a")
    _, other_key = make(tmp_path, "b")
    _, locked = make(tmp_path, "c", "-passout", "pass:secret")
    shown = tmp_path / "shown.key"
    shown.write_bytes(key.read_bytes())
    shown.chmod(0o644)
    for files, code, said in (
        ((certificate, tmp_path / "none"), 78, "none: cannot be read: No such file"),
        ((tmp_path / "none", key), 78, "none: cannot be read: No such file"),
        ((certificate, other_key), 78, "is not the key of the certificate"),
        ((certificate, locked), 78, "without a password"),
        ((certificate, shown), 78, "chmod o-rwx"),
        ((certificate, None), 2, "come together"),
    ):
        options = [f"--tls-cert={files[0]}"] + ([f"--tls-key={files[1]}"] if files[1] else [])
        options += [f"--root={tmp_path}/mq", "--port=0"]
        started = run("fsmq.daemons.mq", options, environment(), b"")
        told = started.stderr.decode()
        assert started.returncode == code, (files, told)
        assert said in told.replace("\n", " "), (files, told)
    assert not (tmp_path / "mq").exists()
