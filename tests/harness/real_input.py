"""The main job on real input, while daemons and consumers are killed.

    python -m tests.harness.real_input                                    with a new suite
    python -m tests.harness.real_input --url URL --root R --supervisor PID with a running one

Several producers post the files of the Python standard library (0 bytes to megabytes), and a shell
moves some in; several consumers fetch, write down what they got, and delete. Meanwhile consumers,
mq, mq-mover and mq-reaper are killed with SIGKILL (`fsmq up` restarts its three). At the end every
file must have been delivered byte for byte, no message may be left, and fsck must be clean.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

from fsmq.spool.layout.uuids import uuid7
from tests.harness.suite import arbitrary_moment, eventually

QUEUE = "real-input"
PRODUCERS, CONSUMERS = 4, 4
MOVED_BY_SHELL = 10  # every tenth file
VISIBILITY_S = 3
DAEMONS = ("fsmq.daemons.mq", "fsmq.daemons.mover", "fsmq.daemons.reaper")
PATH_HEADER = "X-Message-Attribute-Path"


class Client:
    """A persistent connection that retries until the server is back."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._connection: http.client.HTTPConnection | None = None

    def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        while True:
            try:
                if self._connection is None:
                    self._connection = http.client.HTTPConnection(*self._address, timeout=40)
                self._connection.request(method, path, body, headers or {})
                response = self._connection.getresponse()
                answer = response.status, response.headers, response.read()
            except (OSError, http.client.HTTPException):
                if self._connection is not None:
                    self._connection.close()
                self._connection = None
                time.sleep(0.05)  # mq was killed and is being restarted
                continue
            if answer[0] != 503:
                return answer
            time.sleep(float(answer[1]["Retry-After"]))


def produce(url: str, files: Iterable[tuple[str, Path]]) -> None:
    """Post files. Retries use the same id, so they make no duplicates."""
    client = Client(url)
    for name, path in files:
        headers = {PATH_HEADER: quote(name), "Content-Type": "application/octet-stream"}
        target = f"/{QUEUE}/messages?id={uuid7()}"
        status, _, answer = client.request("POST", target, path.read_bytes(), headers)
        if status not in (201, 409):
            raise SystemExit(f"POST of {name}: {status} {answer!r}")


def consume(url: str, notes: Path) -> None:
    """Fetch, write name and digest to a file that survives a SIGKILL, delete; for ever."""
    client = Client(url)
    with notes.open("a", buffering=1) as log:
        while True:
            status, headers, body = client.request("GET", f"/{QUEUE}/messages?wait=2")
            if status != 200:
                continue
            message_id = headers["X-Message-Id"]
            name = headers[PATH_HEADER] or message_id
            log.write(f"{name} {len(body)} {hashlib.sha256(body).hexdigest()}\n")
            client.request("DELETE", f"/{QUEUE}/messages/{message_id}")


def real_files(count: int, extra: Path) -> list[tuple[str, Path]]:
    """Up to ``count`` files: an empty one, a large one, the rest of the standard library."""
    library = Path(sysconfig.get_path("stdlib"))
    found = sorted(p for p in library.rglob("*") if p.is_file() and "site-packages" not in p.parts)
    random.Random(7).shuffle(found)
    (extra / "empty").touch()
    (extra / "large").write_bytes(random.Random(7).randbytes(8 * 1024 * 1024))
    chosen = [extra / "empty", extra / "large", *found[: count - 2]]
    return [(f"{n:06}-{path.name}", path) for n, path in enumerate(chosen)]


def move_in(root: Path, files: Iterable[tuple[str, Path]]) -> None:
    """Put files as a shell user does: copy them under a dot-name, then mv."""
    for name, path in files:
        draft = root / "new" / f".{name}.draft"
        shutil.copyfile(path, draft)
        subprocess.run(["mv", draft, root / "new" / f"{QUEUE}:{name}"], check=True)


def child_named(pid: int, module: str) -> int | None:
    """The child of a supervisor that runs a module; None during a restart."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if module in command:
            return int(child)
    return None


class Fleet:
    """Consumer processes, some of which are killed at work."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        self._started = 0
        self.killed = 0

    def fill(self) -> None:
        while len(self._running) < CONSUMERS:
            notes = self._folder / f"consumer-{self._started}"
            arguments = [sys.executable, "-m", "tests.harness.real_input", "--consume", str(notes)]
            self._running.append(subprocess.Popen([*arguments, "--url", self._url]))
            self._started += 1

    def kill_one(self) -> None:
        victim = self._running.pop(0)
        victim.kill()
        victim.wait()
        self.killed += 1

    def stop(self) -> None:
        while self._running:
            self.kill_one()

    def notes(self) -> Iterator[tuple[str, int, str]]:
        for path in self._folder.glob("consumer-*"):
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):  # a killed consumer's last line may be torn
                    name, size, digest = line.rsplit(" ", 2)
                    yield name, int(size), digest.strip()


def run(url: str, root: Path, supervisor: int, count: int, kills: int, out: Path) -> None:
    """Do the job; raises SystemExit with an error."""
    started = time.monotonic()
    files = real_files(count, out)
    by_shell = files[::MOVED_BY_SHELL]
    by_http = [file for file in files if file not in set(by_shell)]
    client = Client(url)
    client.request("PUT", f"/{QUEUE}")
    settings = json.dumps({"visibility_timeout": VISIBILITY_S}).encode()
    client.request("PATCH", f"/{QUEUE}", settings)
    fleet = Fleet(url, out)
    fleet.fill()
    producers = [
        threading.Thread(target=produce, args=(url, by_http[n::PRODUCERS]), daemon=True)
        for n in range(PRODUCERS)
    ]
    producers.append(threading.Thread(target=move_in, args=(root, by_shell), daemon=True))
    for producer in producers:
        producer.start()
    print(f"{len(by_http)} files go in by HTTP, {len(by_shell)} by mv", flush=True)
    killed = _kill_at_random(supervisor, fleet, producers, kills)
    for producer in producers:
        producer.join()
    expected = {quote(name): _digest(path) for name, path in files}
    _wait_until_out(expected, fleet)
    _wait_until_empty(client, root)
    duplicates = _check(expected, fleet)
    fleet.stop()
    size = sum(path.stat().st_size for _, path in files)
    print(
        f"{len(files)} files ({size / 1e6:.1f} MB) came out byte for byte in"
        f" {time.monotonic() - started:.1f} s, {duplicates} of them more than once;"
        f" SIGKILLed: {killed} daemons, {fleet.killed - CONSUMERS} consumers at work",
        flush=True,
    )
    subprocess.run([sys.executable, "-m", "fsmq.cli", "fsck", f"--root={root}"], check=True)


def _kill_at_random(
    supervisor: int, fleet: Fleet, producers: list[threading.Thread], kills: int
) -> int:
    """Kill the three daemons in turn, and consumers, during the work."""
    chance = random.Random(11)
    killed = 0
    while killed < kills:
        arbitrary_moment(chance, 0.2, 0.6)
        victim = child_named(supervisor, DAEMONS[killed % len(DAEMONS)])
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
            killed += 1
        if chance.random() < 0.5:
            fleet.kill_one()
            fleet.fill()
    return killed


def _digest(path: Path) -> tuple[int, str]:
    body = path.read_bytes()
    return len(body), hashlib.sha256(body).hexdigest()


def _wait_until_out(expected: dict[str, tuple[int, str]], fleet: Fleet) -> None:
    eventually(lambda: expected.keys() <= {name for name, _, _ in fleet.notes()}, 120)


def _wait_until_empty(client: Client, root: Path) -> None:
    folders = [root / "new", root / "delay", root / "remove", root / "queues" / QUEUE]
    eventually(lambda: not any(any(folder.iterdir()) for folder in folders), 60)


def _check(expected: dict[str, tuple[int, str]], fleet: Fleet) -> int:
    seen: dict[str, int] = {}
    for name, size, digest in fleet.notes():
        if expected.get(name) != (size, digest):
            raise SystemExit(f"{name} came out as something else: {size} bytes, {digest}")
        seen[name] = seen.get(name, 0) + 1
    return sum(1 for times in seen.values() if times > 1)


@contextmanager
def own_suite(folder: Path) -> Iterator[tuple[str, Path, int]]:
    """Run `fsmq up` on a new root; its URL, root and process id."""
    root = folder / "mq"
    command = [sys.executable, "-m", "fsmq.cli", "up", f"--root={root}", "--port=0"]
    with (folder / "log").open("wb") as log:
        suite = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert suite.stdout is not None
        line = suite.stdout.readline()
        if "fsmq is up: " not in line:
            raise SystemExit(f"the suite did not start: {(folder / 'log').read_text()}")
        yield line.split("fsmq is up: ")[1].strip(), root, suite.pid
    finally:
        suite.terminate()
        suite.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--url")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--supervisor", type=int)
    parser.add_argument("--consume", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.consume:
        consume(options.url, options.consume)
    with tempfile.TemporaryDirectory(prefix="fsmq-real-input-") as name:
        out = Path(name)
        if options.url:
            run(options.url, options.root, options.supervisor, options.files, options.kills, out)
            return
        with own_suite(out) as (url, root, pid):
            run(url, root, pid, options.files, options.kills, out)


if __name__ == "__main__":
    main()
