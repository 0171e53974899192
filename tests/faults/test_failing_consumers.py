"""Any call of a consumer fails once, done or not; then the consumer retries, and others claim.

Answers must hold: a claim has one holder, and committed messages are removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsmq.spool import Claimed as Held
from fsmq.spool import FsmqError, Spool, prepare
from fsmq.spool.consumers.consumer import Consumer
from fsmq.spool.fsck import check
from tests.harness.calls import Trap, failing, seen
from tests.harness.suite import eventually

HOLD_S = 60.0
BODIES = ("one", "two")


@pytest.fixture(params=[False, True], ids=["not done", "done"])
def is_done(request: pytest.FixtureRequest) -> bool:
    """Whether the failing call has done its work."""
    return bool(request.param)


def filled(root: Path) -> Spool:
    spool = Spool(root, sync="fsync")
    spool.create_queue("jobs")
    for body in BODIES:
        spool.queue("jobs").put(body, id=body)
    spool.deliver()
    return spool


def open_consumer(spool: Spool) -> Consumer:
    return Consumer(spool, "spark", visibility=HOLD_S)


def at_each_call(
    root: Path, is_done: bool, *, looks: bool, act: Callable[[Consumer], object], has_batch: bool
) -> Iterator[tuple[Spool, Consumer, FsmqError | None]]:
    """Act on new spools with a failure of each call; the error of the act, if any.

    has_batch: whether the consumer has claimed a batch of all messages before.
    """
    for at in range(500):
        with filled(root / str(at)) as spool, open_consumer(spool) as consumer:
            if has_batch:
                assert consumer.claim("s", 0, ["jobs"], 9) is not None
            trap = Trap(at, failing(at, is_done=is_done))
            error = None
            with seen(trap, looks=looks):
                try:
                    act(consumer)
                except FsmqError as raised:
                    error = raised
            if not trap.is_sprung:
                assert at > 3
                return
            yield spool, consumer, error
    raise AssertionError("the act did not end")


def claimed_by_another(spool: Spool) -> list[Held]:
    spool.deliver()
    return list(spool.queue("jobs").claim(9, visibility=HOLD_S))


def let_claims_end(spool: Spool) -> None:
    """End all claims."""
    spool.complete(prepare.release_many(spool.context, "jobs"))


def test_a_retried_commit_is_completed(tmp_path: Path, is_done: bool) -> None:
    for spool, consumer, error in at_each_call(
        tmp_path, is_done, looks=True, act=lambda c: c.commit("s", 1), has_batch=True
    ):
        if error is not None:
            consumer.commit("s", 1)
        assert spool.counts("jobs").total == 0
        assert consumer.batches("s", 0) == []
        assert not [*(spool.tree.root / "consumers" / "spark").glob("*.done")]
        let_claims_end(spool)
        assert claimed_by_another(spool) == []


def test_a_failed_commit_is_completed_without_a_retry(tmp_path: Path) -> None:
    with filled(tmp_path) as spool, open_consumer(spool) as consumer:
        consumer.claim("s", 0, ["jobs"], 9)
        with seen(Trap("fsync", failing(0))), pytest.raises(FsmqError):
            consumer.commit("s", 1)
        eventually(lambda: spool.counts("jobs").total == 0)


def test_a_message_that_cannot_be_removed_does_not_block_its_batch(tmp_path: Path) -> None:
    with filled(tmp_path) as spool, open_consumer(spool) as consumer:
        spool.create_queue("more")
        spool.queue("more").put(b"three", id="three")
        spool.deliver()
        batch = consumer.claim("s", 0, ["jobs", "more"], 9)
        assert batch is not None

        def refuse_one(name: str, arguments: tuple[Any, ...]) -> None:
            if name == "_rename2" and arguments[1] == "delay/jobs:one":
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        with seen(refuse_one), pytest.raises(FsmqError):
            consumer.commit("s", batch.number)
        assert [path.name for path in (tmp_path / "delay").iterdir()] == ["jobs:one"]
        eventually(lambda: spool.counts("jobs").total == 0)


def test_a_batch_that_could_not_be_stored_holds_no_message_of_others(
    tmp_path: Path, is_done: bool
) -> None:
    for spool, consumer, error in at_each_call(
        tmp_path, is_done, looks=True, act=lambda c: c.claim("s", 0, ["jobs"], 9), has_batch=False
    ):
        theirs = claimed_by_another(spool)
        if error is not None:
            assert [b for b in consumer.batches("s", 0) if b.claims] == []
        _check_holders(spool, consumer, theirs)
        consumer.close()
        with open_consumer(spool) as again:
            _check_holders(spool, again, theirs)


def _check_holders(spool: Spool, consumer: Consumer, theirs: list[Held]) -> None:
    """Check that messages of others are in no batch and are not removed."""
    ours = [
        claim.id
        for batch in consumer.batches("s", 0)
        for claims in consumer.renew_batch(batch).claims.values()
        for claim in claims
    ]
    assert not {*ours} & {message.id for message in theirs}
    consumer.commit("s", 9)
    for message in theirs:
        spool.queue("jobs").renew(message.id, HOLD_S, claim=message.claim)


def test_an_unanswered_batch_is_not_given_with_a_later_one(tmp_path: Path) -> None:
    """Else a program that knows only the later one would commit both."""
    for spool, consumer, error in at_each_call(
        tmp_path, True, looks=False, act=lambda c: c.claim("s", 0, ["jobs"], 1), has_batch=False
    ):
        if error is None:
            continue
        batch = consumer.claim("s", 0, ["jobs"], 1)
        assert batch is not None
        consumer.close()
        with open_consumer(spool) as again:
            assert again.batches("s", 0, batch.number) == [batch]


def test_a_failed_renewal_keeps_its_claims(tmp_path: Path, is_done: bool) -> None:
    """Also for a program that continues with the batch after the first one has died."""
    for spool, consumer, error in at_each_call(
        tmp_path,
        is_done,
        looks=True,
        act=lambda c: c.renew_batch(c.batches("s", 0)[0]),
        has_batch=True,
    ):
        for program in (consumer, None):
            if program is None:
                consumer.close()
                program = open_consumer(spool)
            with program:
                [batch] = program.batches("s", 0)
                assert len(program.renew_batch(batch)) == len(BODIES), error
        assert claimed_by_another(spool) == []


def test_claims_of_a_failed_renewal_are_kept_after_one_that_met_a_lock(
    tmp_path: Path,
) -> None:
    lost: list[str] = []
    with (
        filled(tmp_path) as spool,
        Consumer(spool, "spark", visibility=HOLD_S, on_lost=lambda _, ids: lost.extend(ids)) as it,
    ):
        batch = it.claim("s", 0, ["jobs"], 9)
        assert batch is not None
        syncs: list[str] = []

        def fail_to_sync_claims(name: str, arguments: tuple[Any, ...]) -> None:
            if name == "utime":
                syncs.append(name)
            if name == "fsync" and syncs:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        with seen(fail_to_sync_claims), pytest.raises(FsmqError):
            it.renew_batch(batch)
        assert len(syncs) == len(BODIES)
        fd = os.open(tmp_path / "delay" / "jobs:one", os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # like a stopped program
            assert len(it.renew_batch(batch)) == len(BODIES)
        finally:
            os.close(fd)
        for _ in range(2):
            assert len(it.renew_batch(batch)) == len(BODIES)
    assert lost == []


def test_a_fault_of_one_message_ends_no_other_claim(tmp_path: Path) -> None:
    with filled(tmp_path) as spool, open_consumer(spool) as consumer:
        batch = consumer.claim("s", 0, ["jobs"], 9)
        assert batch is not None

        def deadlines() -> dict[str, float]:
            return {path.name: path.stat().st_mtime for path in (tmp_path / "delay").iterdir()}

        before = deadlines()
        with seen(Trap("utime", failing(0))), pytest.raises(FsmqError, match="cannot renew"):
            consumer.renew_batch(batch)
        later = [name for name, deadline in deadlines().items() if deadline > before[name]]
        assert later == ["jobs:two"]


def test_a_batch_that_could_not_be_divided_is_committed_as_given(
    tmp_path: Path, is_done: bool
) -> None:
    for spool, consumer, error in at_each_call(
        tmp_path,
        is_done,
        looks=False,
        act=lambda c: c.divide(c.batches("s", 0)[0], 2),
        has_batch=True,
    ):
        if error is None:
            continue
        batch = consumer.batches("s", 0)[0]
        ours = {claim.id for claim in batch.claims["jobs"]}
        consumer.commit("s", batch.number)
        let_claims_end(spool)
        assert {message.id for message in claimed_by_another(spool)} == {*BODIES} - ours


def test_a_batch_that_could_not_be_divided_is_committed_on_a_full_disk(tmp_path: Path) -> None:
    with filled(tmp_path) as spool, open_consumer(spool) as consumer:
        batch = consumer.claim("s", 0, ["jobs"], 9)
        assert batch is not None

        def be_full(name: str, arguments: tuple[Any, ...]) -> None:
            if name == "write":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with seen(be_full):
            with pytest.raises(FsmqError):
                consumer.divide(batch, 2)
            assert consumer.commit("s", batch.number) == len(BODIES)


def test_a_divided_batch_loses_no_message(tmp_path: Path, is_done: bool) -> None:
    for spool, consumer, _ in at_each_call(
        tmp_path,
        is_done,
        looks=True,
        act=lambda c: c.divide(c.batches("s", 0)[0], 2),
        has_batch=True,
    ):
        consumer.close()
        with open_consumer(spool) as again:
            batches = [again.renew_batch(batch) for batch in again.batches("s", 0)]
            ours = [claim.id for batch in batches for claim in batch.claims["jobs"]]
            theirs = [message.id for message in claimed_by_another(spool)]
            let_claims_end(spool)
        assert len({*ours}) == len(ours)
        assert not {*ours} & {*theirs}
        assert {*ours, *theirs, *(m.id for m in claimed_by_another(spool))} == {*BODIES}


def test_the_renewer_survives_and_reports_any_error(tmp_path: Path) -> None:
    problems: list[FsmqError] = []
    fails, holds = threading.Event(), threading.Event()

    def see(name: str, arguments: tuple[object, ...]) -> None:
        if fails.is_set() and threading.current_thread().name == "fsmq-spark":
            raise OSError(5, "injected") if len(problems) % 2 else RuntimeError("a bug")

    def on_problem(error: FsmqError) -> None:
        problems.append(error)
        if len(problems) == 3:
            fails.clear()
            holds.set()
        raise RuntimeError("the callback fails, too")

    with filled(tmp_path) as spool:
        spool.configure("jobs", {"visibility_timeout": 3.0})
        with Consumer(spool, "spark", on_problem=on_problem) as consumer:
            batch = consumer.claim("s", 0, ["jobs"], 9)
            assert batch is not None
            fails.set()
            with seen(see, looks=True):  # type: ignore[arg-type]
                assert holds.wait(30)
                until = time.time() + 3.0
                eventually(
                    lambda: (
                        min(path.stat().st_mtime for path in (tmp_path / "delay").iterdir()) > until
                    )
                )
            assert [len(b) for b in consumer.batches("s", 0)] == [len(BODIES)]
    assert check(tmp_path, offline=True).findings == []
