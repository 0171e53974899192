"""Power cuts under queues with pauses, limits and a retry backoff.

After a cut every message is stored, no limit is exceeded or blocks for ever, and released messages
wait for their backoff.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from fsmq.spool import Message, Queue, Spool
from fsmq.spool.layout.names import seal_of, split_staged
from tests.harness.spool_errors import errors_in
from tests.harness.suite import PATIENCE_S, eventually
from tests.power.burying import in_claim, path_of
from tests.power.daemons import Daemons
from tests.power.disk import Disk
from tests.power.ops import ACCURACY_S
from tests.power.programs import Programs
from tests.power.verbs import OverHttp, Refused

LIMITED, RATED, PAUSED, RETRIED = "limited", "rated", "paused", "retried"
MOST, RATE, BURST, BACKOFF_S = 3, 60.0, 4, 300.0
SETTINGS: dict[str, dict[str, object]] = {
    LIMITED: {"max_in_flight": MOST},
    RATED: {"max_rate": RATE, "max_burst": BURST},
    PAUSED: {},
    RETRIED: {"retry_backoff": BACKOFF_S, "retry_jitter": 0},
}
HOLD_S, LONG_S = 0.5, 600.0
CLIENTS, ROUNDS, LOAD_S = 3, 2, 0.4


class Told(NamedTuple):
    """The times of an answered request: monotonic start and end, and start in Unix seconds."""

    called: float
    answered: float
    wall: float


class Client:
    """Acts at random and remembers answers by body. The first client also pauses a queue."""

    def __init__(self, url: str, number: int, seed: str) -> None:
        self.is_stopping = False
        self.posted: dict[str, str] = {}  # queues, answered or not
        self.stored: dict[str, Told] = {}
        self.acked: dict[str, Told | None] = {}
        self.released: dict[str, Told | None] = {}
        self.fetched: list[tuple[str, Told]] = []  # the queue of each answer with messages
        self.paused: list[tuple[bool, Told | None]] = []
        self._name, self._pauses = f"{seed}-{number}", number == 0
        self._verbs = OverHttp(url)
        self._chance = random.Random(self._name)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self.is_stopping = True
        self._thread.join()

    def _run(self) -> None:
        while not self.is_stopping:
            try:
                self._act()
            except Refused:
                time.sleep(0.01)  # mq is down

    def _act(self) -> None:
        action = self._chance.random()
        queue = self._chance.choice(list(SETTINGS))
        if action < 0.5:
            self._post(queue)
        elif action < 0.9 or not self._pauses:
            self._fetch(queue)
        else:
            self._pause()

    def _post(self, queue: str) -> None:
        body = f"{self._name}-{len(self.posted)}"
        self.posted[body] = queue
        told, status, _ = self._ask("POST", f"/{queue}/messages", body.encode())
        if status == 201:
            self.stored[body] = told

    def _fetch(self, queue: str) -> None:
        hold = LONG_S if queue == RETRIED else HOLD_S
        told, _, found = self._ask("GET", f"/{queue}/messages?count=2&visibility={hold}")
        if found["messages"]:
            self.fetched.append((queue, told))
        for message in found["messages"]:
            self._work(queue, message)

    def _work(self, queue: str, message: Any) -> None:
        path, claim = path_of(queue, message["id"]), in_claim(message["claim"])
        action = self._chance.random()
        if action < 0.5:
            self.acked[message["body"]] = None
            told, status, _ = self._ask("DELETE", path, headers=claim)
            if status == 202:
                self.acked[message["body"]] = told
            elif status in (404, 409):
                del self.acked[message["body"]]  # its claim has ended: nothing was done
        elif action < 0.8 and queue == RETRIED:
            self.released[message["body"]] = None
            told, status, _ = self._ask("PATCH", f"{path}?release=0", headers=claim)
            if status == 204:
                self.released[message["body"]] = told

    def _pause(self) -> None:
        wanted = self._chance.random() < 0.5
        self.paused.append((wanted, None))
        told, status, _ = self._ask("PATCH", f"/{PAUSED}", json.dumps({"paused": wanted}).encode())
        if status == 200:
            self.paused[-1] = (wanted, told)

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[Told, int, Any]:
        called, wall = time.monotonic(), time.time()
        status, _, answer = self._verbs.ask(method, path, body, headers)
        is_json = method == "GET" and status == 200
        found = json.loads(answer) if is_json else {"messages": []}
        return Told(called, time.monotonic(), wall), status, found


class Known:
    """The answers before power cuts, of all clients and rounds."""

    def __init__(self) -> None:
        self.posted: dict[str, str] = {}
        self.stored: set[str] = set()
        self.touched: set[str] = set()  # it may have been removed
        self.gone: set[str] = set()
        self.waiting: dict[str, float] = {}  # until when (Unix seconds)
        self.may_be_paused: set[bool] = {False}

    def add(self, client: Client, cut: float) -> None:
        for body, told in client.acked.items():
            self.touched.add(body)
            if told is not None and told.answered < cut:
                self.gone.add(body)
        self.posted |= client.posted
        self.stored |= {body for body, told in client.stored.items() if told.answered < cut}
        for body, told in client.released.items():
            if told is not None and told.answered < cut:
                self.waiting[body] = told.wall + BACKOFF_S
        for wanted, told in client.paused:
            is_certain = told is not None and told.answered < cut
            self.may_be_paused = {wanted} if is_certain else {*self.may_be_paused, wanted}

    def of(self, queue: str) -> set[str]:
        """The messages that must be in a queue."""
        return {body for body in self.stored - self.touched if self.posted[body] == queue}

    def forget(self, queue: str) -> None:
        """Record that all messages of a queue have been removed."""
        self.gone |= {body for body, posted_to in self.posted.items() if posted_to == queue}
        self.touched |= self.gone


def check_pauses(clients: list[Client], cut: float) -> None:
    """No client gets a message while the queue is certainly paused."""
    changes = clients[0].paused
    for (is_paused, begun), (_, ended) in zip(changes, [*changes[1:], (False, None)], strict=True):
        if not is_paused or begun is None:
            continue
        until = cut if ended is None else ended.called
        for queue, told in (one for client in clients for one in client.fetched):
            if queue == PAUSED:
                assert not (begun.answered < told.called and told.answered < until)


def is_complete(path: Path) -> bool:
    """Whether this is the dot-name of a whole message, which will be promoted."""
    staged = split_staged(path.name)
    try:
        return staged is not None and seal_of(path.read_bytes()) == staged[1]
    except FileNotFoundError:
        return False


class Look:
    """Inspects and drains the queues after a cut."""

    def __init__(self, root: Path, url: str, known: Known, mounted: float) -> None:
        self._root, self._known, self._mounted = root, known, mounted
        self._http = OverHttp(url)

    def run(self) -> None:
        new = self._root / "new"  # wait until unfinished puts are completed
        eventually(lambda: not any(is_complete(path) for path in new.iterdir()))
        self._check_pause()
        self._check_backoff()
        for queue in (LIMITED, RATED, PAUSED):
            self._drain(queue)
            self._known.forget(queue)

    def _check_pause(self) -> None:
        status, _, shown = self._http.ask("GET", f"/{PAUSED}")
        paused = bool(json.loads(shown)["settings"]["paused"])
        assert status == 200
        assert paused in self._known.may_be_paused
        if paused:
            assert self._http.fetch(PAUSED, 10, HOLD_S) == []
        self._configure(PAUSED, {"paused": False})
        self._known.may_be_paused = {False}

    def _check_backoff(self) -> None:
        known, must = self._known, self._known.of(RETRIED)
        found = self._stored(RETRIED)
        assert must <= found.keys()
        assert found.keys() <= {b for b, q in known.posted.items() if q == RETRIED} - known.gone
        waiting = {body: known.waiting[body] for body in known.waiting.keys() & found.keys()}
        for body, until in waiting.items():
            message = found[body]
            assert message.state == "delayed"
            assert message.deliveries == 1
            assert (message.deadline or 0.0) > until - ACCURACY_S
        for body in waiting:  # a release without a delay ends the wait
            path = path_of(RETRIED, found[body].id)
            assert self._http.ask("PATCH", f"{path}?release=0")[0] == 204
        came: dict[str, int] = {}
        eventually(lambda: waiting.keys() <= came.keys() or self._add_delivered(came))
        assert {came[body] for body in waiting} <= {2}
        assert self._http.purge(RETRIED) == 200
        known.forget(RETRIED)
        known.waiting.clear()

    def _add_delivered(self, came: dict[str, int]) -> None:
        messages = self._claim(f"/{RETRIED}/messages?count=1000&visibility={LONG_S}")
        came |= {message["body"]: message["deliveries"] for message in messages}

    def _claim(self, path: str) -> Any:
        status, _, found = self._http.ask("GET", path)
        return json.loads(found)["messages"] if status == 200 else []

    def _drain(self, queue: str) -> None:
        """Check that each message is delivered once, and that the limits hold."""
        known, must = self._known, self._known.of(queue)
        came: Counter[str] = Counter()
        end = time.monotonic() + PATIENCE_S
        while not must <= came.keys() or any(self._counts(queue).values()):
            assert time.monotonic() < end, (queue, must - came.keys(), self._counts(queue))
            messages = self._claim(f"/{queue}/messages?count=10&wait=1&visibility={LONG_S}")
            if queue == LIMITED:
                assert self._counts(queue)["in_flight"] <= MOST
            came.update(message["body"] for message in messages)
            for message in messages:
                claim = in_claim(message["claim"])
                path = path_of(queue, message["id"])
                assert self._http.ask("DELETE", path, headers=claim)[0] == 202
            if queue == RATED:
                passed = time.monotonic() - self._mounted
                assert came.total() <= BURST + RATE * passed + 1
        assert set(came.values()) <= {1}
        assert known.gone.isdisjoint(came)
        assert came.keys() <= {body for body, to in known.posted.items() if to == queue}

    def _stored(self, queue: str) -> dict[str, Message]:
        with Spool(self._root, delivers=False) as spool:
            states = ("new", "ready", "in_flight", "delayed")
            opened = Queue(spool, queue)
            return {m.body.decode(): m for s in states for m in opened.peek(1000, state=s)}

    def _counts(self, queue: str) -> dict[str, int]:
        counts: dict[str, int] = json.loads(self._http.ask("GET", f"/{queue}")[2])["messages"]
        return counts

    def _configure(self, queue: str, settings: dict[str, object]) -> None:
        status, _, told = self._http.ask("PATCH", f"/{queue}", json.dumps(settings).encode())
        assert status == 200, told


def test_limits_hold_after_power_cuts(disk: Disk, tmp_path: Path) -> None:
    root = disk.place / "mq"
    chance = random.Random(disk.kind)
    known = Known()
    with Programs(tmp_path / "logs") as programs:
        daemons = Daemons(programs, root, sync="auto", processes=2)
        daemons.start()
        http = OverHttp(daemons.url)
        for queue, settings in SETTINGS.items():
            http.create(queue)
            assert http.ask("PATCH", f"/{queue}", json.dumps(settings).encode())[0] == 200
        disk.sync()
        for number in range(ROUNDS):
            seed = f"{disk.kind}{number}"
            clients = [Client(daemons.url, n, seed) for n in range(CLIENTS)]
            eventually(lambda clients=clients: has_done_enough(clients))
            time.sleep(LOAD_S * chance.random())
            cut = disk.cut_power().began
            programs.kill_all()
            for client in clients:
                client.end()
            check_pauses(clients, cut)
            disk.remount()
            for client in clients:
                known.add(client, cut)
            mounted = time.monotonic()
            daemons.start()
            Look(root, daemons.url, known, mounted).run()
            disk.sync()
        programs.kill_all()
        daemons.close()
    assert errors_in(root) == []
    assert disk.check() == ""


def has_done_enough(clients: list[Client]) -> bool:
    came = {queue for client in clients for queue, _ in client.fetched}
    is_released = any(told for client in clients for told in client.released.values())
    return came == SETTINGS.keys() and is_released and any(t for _, t in clients[0].paused)
