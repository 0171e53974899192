"""Idempotency-Key under kills and power cuts: a key has one message, and replays get its id."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from uuid import UUID

from fsmq.spool import Spool
from fsmq.spool.layout.uuids import uuid7
from tests.harness.spool_errors import errors_in
from tests.harness.suite import eventually
from tests.power.daemons import Daemons
from tests.power.disk import Disk
from tests.power.programs import Programs
from tests.power.verbs import OverHttp, Refused

JOBS = "jobs"
CLIENTS, ROUNDS, LOAD_S = 3, 3, 0.4
REST_S = 2.0


class Poster:
    """Posts with keys, some of them repeatedly, and remembers the answers.

    told: the id of each key and the time of the answer. tried: the bodies of all keys.
    """

    def __init__(self, url: str, seed: str) -> None:
        self._url = url
        self._chance = random.Random(seed)
        self._thread = threading.Thread(target=self._run)
        self.is_stopping = False
        self.tried: dict[str, bytes] = {}
        self.told: dict[str, tuple[str, float]] = {}
        self.wrong: list[str] = []
        self._thread.start()

    def end(self) -> None:
        self.is_stopping = True
        self._thread.join()

    def _run(self) -> None:
        verbs = OverHttp(self._url)
        while not self.is_stopping:
            key = self._key()
            self.tried.setdefault(key, b"of " + key.encode())
            try:
                status, message_id = post(verbs, key, self.tried[key])
            except Refused:
                time.sleep(0.01)  # mq is down
                continue
            if status != 201 or message_id != self.told.get(key, (message_id,))[0]:
                self.wrong.append(f"{key}: {status} {message_id}, not {self.told.get(key)}")
            self.told.setdefault(key, (message_id, time.monotonic()))

    def _key(self) -> str:
        if self.tried and self._chance.random() < 0.3:
            return self._chance.choice(list(self.tried))
        made = uuid7()
        return made if self._chance.random() < 0.5 else f"key-{UUID(made).hex}"


def post(verbs: OverHttp, key: str, body: bytes) -> tuple[int, str]:
    status, told, _ = verbs.ask("POST", f"/{JOBS}/messages", body, {"Idempotency-Key": key})
    return status, told["X-Message-Id"] or ""


def test_a_key_has_one_message_and_every_replay_its_id(disk: Disk, tmp_path: Path) -> None:
    root = disk.place / "mq"
    chance = random.Random(disk.kind)
    tried: dict[str, bytes] = {}
    ids: dict[str, str] = {}
    with Programs(tmp_path / "logs") as programs:
        daemons = Daemons(programs, root, sync="auto")
        daemons.start()
        OverHttp(daemons.url).create(JOBS)
        disk.sync()
        for number in range(ROUNDS):
            posters = [Poster(daemons.url, f"{disk.kind}{number}{n}") for n in range(CLIENTS)]
            eventually(lambda posters=posters: all(len(one.told) > 2 for one in posters))
            time.sleep(LOAD_S * chance.random())
            if number % 2 == 0:
                ended = disk.cut_power().began
                programs.kill_all()
                for one in posters:
                    one.end()
                disk.remount()
                daemons.start()
            else:
                ended = float("inf")
                for name, pid in daemons.pids.items():
                    programs.kill(pid)
                    daemons.start_one(name)  # the posters continue
                for one in posters:
                    one.end()
            for one in posters:
                assert one.wrong == []
                tried |= one.tried
                ids |= {key: told for key, (told, at) in one.told.items() if at < ended}
            replay(OverHttp(daemons.url), tried, ids)
        programs.kill_all()
        daemons.close()
    inspect(root, tried, ids)
    assert disk.check() == ""


def replay(verbs: OverHttp, tried: dict[str, bytes], ids: dict[str, str]) -> None:
    """Post all again: each gets the id of its first post, answered or not."""
    for key, body in tried.items():
        status, message_id = post(verbs, key, body)
        assert (status, message_id) == (201, ids.setdefault(key, message_id))
    [other, *_] = tried
    status, _, problem = verbs.ask(
        "POST", f"/{JOBS}/messages", b"something else", {"Idempotency-Key": other}
    )
    assert status == 422, json.loads(problem)


def inspect(root: Path, tried: dict[str, bytes], ids: dict[str, str]) -> None:
    found: list[tuple[str, bytes]] = []
    with Spool(root) as spool:

        def take(wait: float) -> bool:
            messages = spool.queue(JOBS).claim(1000, wait=wait)
            found.extend((message.id, message.body) for message in messages)
            return len(found) >= len(tried)

        # Messages with foreign names stay in new/ for a moment before they are delivered.
        eventually(lambda: take(REST_S))
        take(REST_S)
    assert sorted(found) == sorted((ids[key], body) for key, body in tried.items())
    assert errors_in(root) == []
