"""A search finds matching messages within a time budget, and can be continued."""

from __future__ import annotations

import pytest

from fsmq import InvalidValue, NewMessage
from fsmq.spool import Queue, Spool
from fsmq.spool.layout.names import new_id
from fsmq.spool.layout.uuids import derived_uuid7
from fsmq.spool.views import browse
from fsmq.spool.views.wanted import Wanted


@pytest.fixture
def jobs(spool: Spool) -> Queue:
    """Six ready messages: three red ones, one of them with a size, and three others."""
    jobs = spool.queue("jobs", create=True)
    jobs.put_many(
        [
            NewMessage(b"one", attributes={"color": "red", "size": "L"}),
            NewMessage(b"two two", attributes={"color": "green"}),
            NewMessage(b"three", content_type="text/plain"),
            NewMessage(b"four two", attributes={"Color": "red"}),
            NewMessage(b"two" * 3000, attributes={"color": "red"}),
            b"\xff two",
        ]
    )
    spool.deliver()
    return jobs


def bodies(jobs: Queue, **given: object) -> list[bytes]:
    found = jobs.search(**{"budget": 600.0, **given})  # type: ignore[arg-type]
    assert found.next is None
    return [message.body for message in found.messages]


def test_attributes_are_compared_as_filters_do(jobs: Queue) -> None:
    found = [body[:8] for body in bodies(jobs, attributes={"COLOR": "red"})]
    assert found == [b"one", b"four two", b"twotwotw"]
    assert bodies(jobs, attributes={"color": "red", "size": "L"}) == [b"one"]
    assert bodies(jobs, attributes={"color": "Red"}) == []


def test_a_part_of_the_body_is_found_compressed_or_not(spool: Spool, jobs: Queue) -> None:
    jobs.configure(compression="zstd")
    jobs.put(b"x" * 5000 + b"two")
    spool.deliver()
    assert len(bodies(jobs, contains="two")) == 5
    assert bodies(jobs, contains=b"\xff two") == [b"\xff two"]
    assert bodies(jobs, contains="two", attributes={"color": "green"}) == [b"two two"]


def test_old_messages_are_found(spool: Spool) -> None:
    jobs = spool.queue("jobs", create=True)
    folder = spool.tree.root / "queues" / "jobs"
    now = spool.context.clock()
    old = new_id(own=derived_uuid7(int((now - 100) * 1e9), b""))
    (folder / old).write_bytes(b"old")
    (folder / "plain").write_bytes(b"unknown age")
    jobs.put(b"young")
    spool.deliver()
    assert bodies(jobs, older_than=60) == [b"old"]
    assert bodies(jobs, older_than=200) == []


def test_a_search_continues_where_it_stopped(jobs: Queue) -> None:
    seen, after, calls = [], "", 0
    while calls == 0 or after:
        found = jobs.search(contains="two", after=after, budget=0)
        seen += [message.body for message in found.messages]
        after, calls = found.next or "", calls + 1
    assert calls == 7  # each looks at one message, the last at none
    assert len(seen) == 4
    page = jobs.search(1, contains="two")
    assert page.next == page.messages[0].id
    assert jobs.search(9, contains="two", after=page.next).messages[0].id > page.next


def test_messages_in_flight_and_delayed_are_searched(jobs: Queue) -> None:
    jobs.claim(1)
    assert bodies(jobs, state="in_flight", contains="one") == [b"one"]
    assert bodies(jobs, state="delayed", contains="one") == []


def test_invalid_conditions_are_refused(jobs: Queue) -> None:
    for wrong in ({"contains": ""}, {"contains": "x" * 1025}, {"attributes": {"a b": "c"}}):
        with pytest.raises(InvalidValue):
            jobs.search(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="more than 16"):
        jobs.search(attributes={f"a{n}": "" for n in range(17)})


class Room:
    """Memory for 20,000 bytes."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self, size: int, *, is_first: bool) -> None:
        self.taken += size
        assert self.taken <= 20_000

    def free(self, size: int) -> None:
        self.taken -= size


def test_messages_that_do_not_match_take_no_memory(spool: Spool) -> None:
    jobs = spool.queue("jobs", create=True)
    jobs.put_many([b"x" * 9000 for _ in range(20)] + [b"y" * 9000])
    spool.deliver()
    room = Room()
    found = browse.search(spool.context, "jobs", limit=30, wanted=Wanted({}, b"y"), room=room)
    assert [message.body[:1] for message in found.messages] == [b"y"]
    assert 9000 <= room.taken <= 11_000
