"""Every dialect and library has the same messages, claims, rights and limits."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from fsmq.http.dialects import CHOICES
from fsmq.spool import Spool
from tests.harness.suite import Suite, eventually
from tests.http.conformance.speaker import Claimed, Speaker
from tests.http.conformance.speakers import SPEAKERS
from tests.http.keyfile import add_key

BODY = 'text with "quotes", <tags> & ünïcödé'
AS_JSON = json.dumps(BODY, ensure_ascii=False)  # as other dialects see messages of EmoDB
SHORT_S = 1


class Guarded(NamedTuple):
    """A suite, its spool, a key with all rights, and one for another queue."""

    suite: Suite
    spool: Spool
    key: str
    other: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("conformance")
    file = folder / "keys.toml"
    topics = ("--send=topics/*", "--admin=topics/*")
    key = add_key(file, "all", "--send=*", "--receive=*", "--admin=*", *topics)
    other = add_key(file, "other", "--send=elsewhere", "--receive=elsewhere")
    options = [f"--keys={file}"]
    with (
        Suite(folder / "mq", mq_options=options, reaper=False) as suite,
        Spool(folder / "mq", delivers=False) as spool,
    ):
        yield Guarded(suite, spool, key, other)


class Queue:
    """A queue and a client of one dialect."""

    def __init__(self, guarded: Guarded, speaker: Speaker, name: str) -> None:
        self.speaker = speaker
        self.name = name
        self._of_spool = [guarded.spool.queue(folder) for folder in speaker.folders(name)]
        speaker.make(name)

    def set(self, **settings: Any) -> None:
        for each in self._of_spool:
            each.configure(**settings)

    def counts(self) -> tuple[int, int]:
        """The numbers of ready messages and of those in flight."""
        counts = [each.counts() for each in self._of_spool]
        return sum(one.ready for one in counts), sum(one.in_flight for one in counts)

    def put(self, body: str = BODY) -> None:
        before, _ = self.counts()
        assert self.speaker.ask(self.speaker.put(self.name, body)).status < 300
        eventually(lambda: self.counts()[0] > before)

    def claim(self, visibility: int = 60) -> Claimed:
        if "visibility" in self.speaker.lacks:
            self.set(visibility_timeout=visibility)
        [found] = self.speaker.take(self.name, visibility)
        return found

    def ack(self, claimed: Claimed) -> None:
        assert self.speaker.ask(self.speaker.ack(self.name, claimed.handle)).status < 300

    def deadline(self) -> float:
        [message] = [one for each in self._of_spool for one in each.peek(state="in_flight")]
        assert message.deadline is not None
        return message.deadline


@pytest.fixture(params=SPEAKERS, ids=[one.name for one in SPEAKERS])
def queue(guarded: Guarded, request: pytest.FixtureRequest) -> Queue:
    speaker: Speaker = request.param(guarded.suite.url, guarded.key, guarded.spool)
    name = "".join(c if c.isalnum() else "-" for c in request.node.originalname.lower())
    return Queue(guarded, speaker, f"{speaker.name}-{name}")


def needs(queue: Queue, feature: str) -> None:
    """Skip the test if the dialect lacks a feature."""
    if (reason := queue.speaker.lacks.get(feature)) is not None:
        pytest.skip(reason)


def test_every_dialect_has_a_speaker() -> None:
    assert {one.name for one in SPEAKERS} >= {"native", *CHOICES}


def test_a_message_is_claimed_as_it_was_put(queue: Queue) -> None:
    queue.put()
    claimed = queue.claim()
    assert claimed.body == BODY
    assert queue.counts() == (0, 1)
    assert queue.speaker.take(queue.name) == []
    queue.ack(claimed)
    assert queue.counts() == (0, 0)


def test_all_dialects_see_the_same_messages(queue: Queue, guarded: Guarded) -> None:
    needs(queue, "sharing")
    for kind in SPEAKERS:
        if "sharing" in kind.lacks:
            continue
        speaker = kind(guarded.suite.url, guarded.key, guarded.spool)
        queue.put()
        [found] = speaker.take(queue.name)
        assert found.body in (BODY, AS_JSON)
        assert speaker.ask(speaker.ack(queue.name, found.handle)).status < 300
    assert queue.counts() == (0, 0)


def test_a_message_is_redelivered_when_its_claim_ends(queue: Queue) -> None:
    queue.put()
    first = queue.claim(SHORT_S)
    again = eventually(lambda: queue.speaker.take(queue.name))
    assert [one.body for one in again] == [first.body]
    queue.ack(again[0])
    assert queue.counts() == (0, 0)


def test_a_renewal_extends_the_claim(queue: Queue) -> None:
    needs(queue, "renewal")
    queue.put()
    claimed = queue.claim(30)
    before = queue.deadline()
    renew = queue.speaker.renew(queue.name, claimed.handle, 3600)
    assert queue.speaker.ask(renew).status < 300
    assert before + 1800 < queue.deadline() <= time.time() + 3601
    queue.ack(claimed)


def test_a_key_without_the_right_is_refused(queue: Queue, guarded: Guarded) -> None:
    needs(queue, "keys")
    queue.put()
    claimed = queue.claim()
    speaker, before = queue.speaker, queue.counts()
    asked = [speaker.put(queue.name, BODY), speaker.claim(queue.name, 60, 0)]
    asked.append(speaker.ack(queue.name, claimed.handle))
    if "renewal" not in speaker.lacks:
        asked.append(speaker.renew(queue.name, claimed.handle, 1))
    for key in (guarded.other, "no-such-key"):
        stranger = type(speaker)(speaker.url, key, guarded.spool)
        assert {stranger.ask(one).status // 100 for one in asked} == {4}
        assert queue.counts() == before
    queue.ack(claimed)


def test_a_large_body_is_refused(queue: Queue) -> None:
    queue.set(max_message_bytes=100)
    asked = queue.speaker.put(queue.name, "x" * 200)
    assert queue.speaker.ask(asked).status // 100 == 4
    queue.put("x" * 50)
    assert queue.counts() == (1, 0)


def test_a_paused_queue_gives_nothing(queue: Queue) -> None:
    queue.put()
    queue.set(paused=True)
    assert queue.speaker.take(queue.name) == []
    queue.set(paused=False)
    assert eventually(lambda: queue.speaker.take(queue.name))


def test_a_limit_of_claims_is_kept(queue: Queue) -> None:
    queue.set(max_in_flight=1)
    queue.put("1")
    queue.put("2")
    claimed = queue.claim()
    assert queue.speaker.take(queue.name) == []
    queue.ack(claimed)
    assert eventually(lambda: queue.speaker.take(queue.name))


def test_a_claim_waits_for_a_message(queue: Queue) -> None:
    needs(queue, "waiting")
    with queue.speaker.line() as line:
        line.begin(queue.speaker.claim(queue.name, 60, 20))
        eventually(line.is_read)
        assert queue.speaker.ask(queue.speaker.put(queue.name, BODY)).status < 300
        [claimed] = queue.speaker.claimed(line.answer())
    assert claimed.body == BODY


def test_a_client_that_hangs_up_claims_nothing(queue: Queue) -> None:
    needs(queue, "waiting")
    needs(queue, "hanging up")
    with queue.speaker.line() as line:
        line.begin(queue.speaker.claim(queue.name, 3600, 20))
        eventually(line.is_read)
    queue.put()
    [claimed] = eventually(lambda: queue.speaker.take(queue.name))
    assert claimed.body == BODY


def test_many_requests_on_one_connection(queue: Queue) -> None:
    with queue.speaker.line() as line:
        for number in range(5):
            line.begin(queue.speaker.put(queue.name, str(number)))
        assert all(line.answer().status < 300 for _ in range(5))
    eventually(lambda: queue.counts() == (5, 0))
    assert {queue.claim().body for _ in range(5)} == set("01234")
