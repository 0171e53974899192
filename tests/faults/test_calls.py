"""Single calls of all programs fail for a while."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fsmq.spool.durability.sync import IN_FLIGHT
from fsmq.spool.layout.names import seal_of, staged_entry
from tests.faults.inject import RENAMES, SYNCS, WHOLE_DISK, injected
from tests.faults.user import User, refused
from tests.harness.suite import Suite, eventually


@pytest.fixture(scope="module", params=["fsync", "syncfs"])
def suite(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Suite]:
    root = tmp_path_factory.mktemp("faults") / "mq"
    with Suite(root, mq_options=[f"--sync={request.param}"]) as running:
        yield running


def in_new(user: User) -> list[str]:
    return [n.name for n in (user.suite.root / "new").iterdir() if user.queue in n.name]


def test_a_failed_sync_promises_nothing(user: User) -> None:
    assert user.post().status == 201
    held = user.fetch(wait=15)
    assert user.post().status == 201
    eventually(lambda: in_new(user) == [])
    with injected(user.suite, f"{SYNCS}:error=EIO") as fault:
        answer = user.post()
        assert refused(answer)
        assert "I/O error" in answer.json["detail"]
        assert refused(user.post(id="own"))
        assert in_new(user) == []
        assert refused(user.renew(held.id, 20))
        assert refused(user.fetch(wait=15))
        assert refused(user.delete(held.id))
        assert not user.is_ready()
        assert fault.hits >= 6
    assert user.is_ready()
    assert user.post(id="own").status == 201
    # Its deletion may have been done.
    assert user.delete(held.id).status in (202, 404)
    user.accepted.pop(held.id, None)


def test_a_failed_sync_is_not_retried_for_the_same_file(user: User) -> None:
    # strace counts calls by thread: the first one of each thread fails.
    with injected(user.suite, f"{SYNCS}:error=EIO:when=1", programs=["mq"]) as fault:
        assert refused(user.post(b"once", id="same"))
        assert in_new(user) == []
        tries = 1
        while (answer := user.post(b"once again", id="same")).status != 201:
            assert refused(answer)
            assert in_new(user) == []
            tries += 1
            assert tries <= IN_FLIGHT
        assert fault.hits == tries
    answer = user.fetch(wait=15)
    assert answer.body == b"once again"


def test_a_failed_write_leaves_no_file(user: User) -> None:
    body = b"x" * 50_000
    bad = user.suite.root / "new" / staged_entry(user.queue, "bad", seal_of(body))
    with injected(user.suite, "write:error=EIO", programs=["mq"], paths=[bad]) as fault:
        assert refused(user.post(body, id="bad"))
        assert in_new(user) == []
        assert user.post(body, id="good").status == 201
        assert fault.hits == 1
    assert user.post(body, id="bad").status == 201


def test_a_failed_rename_loses_no_message(user: User) -> None:
    assert user.post().status == 201
    held = user.fetch(wait=15, visibility=2)
    assert user.post().status == 201
    eventually(lambda: in_new(user) == [])
    with injected(user.suite, f"{RENAMES}:error=EIO") as fault:
        assert refused(user.post())
        assert in_new(user) == []
        assert refused(user.fetch())
        assert refused(user.delete(held.id))
        assert not user.is_ready()
        # The mover fails when the claim ends.
        eventually(lambda: any("cannot deliver" in e["event"] for e in user.suite.logs("mover")))
        assert fault.hits >= 4
    assert user.is_ready()


def test_an_unreadable_message_is_delivered_later(user: User) -> None:
    assert user.post().status == 201
    assert user.post().status == 201
    eventually(lambda: in_new(user) == [])
    with injected(user.suite, "pread64:error=EIO", programs=["mq"]) as fault:
        assert refused(user.fetch(visibility=1))
        assert fault.hits >= 1


def test_a_message_that_cannot_be_unlinked_is_removed_later(user: User) -> None:
    assert user.post().status == 201
    assert user.post().status == 201
    held = user.fetch(wait=15)
    with injected(user.suite, "unlinkat:error=EIO") as fault:
        assert user.delete(held.id).status == 202
        assert user.fetch(wait=15).status == 200
        assert not user.is_ready()
        eventually(lambda: any("cannot unlink" in e["event"] for e in user.suite.logs("reaper")))
        assert fault.hits >= 2
    eventually(lambda: not list((user.suite.root / "remove").iterdir()))
    assert user.is_ready()


def test_service_returns_after_all_calls_failed(user: User) -> None:
    """All calls on the root fail in all programs."""
    for _ in range(5):
        assert user.post().status == 201
    held = user.fetch(wait=15, visibility=1)
    with injected(user.suite, f"{WHOLE_DISK}:error=EIO", paths=[user.suite.root]) as fault:
        for _ in range(5):
            assert refused(user.post())
            assert refused(user.fetch())
            assert refused(user.delete(held.id))
        assert refused(user.ask("PUT", "/another"))
        assert refused(user.ask("GET", f"/{user.queue}"))
        assert refused(user.ask("GET", "/"))
        assert refused(user.ask("DELETE", f"/{user.queue}"))
        assert not user.is_ready()
        assert user.ask("GET", "/_health/live").status == 200
        assert fault.hits > 15
    assert user.post().status == 201
    eventually(user.is_ready)
