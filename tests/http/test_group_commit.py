"""Group commit: two groups at a time, each with the result of its own sync."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from fsmq.http.connection.turns import LoopTurns
from fsmq.http.running.group_commit import Commits
from fsmq.spool import NewMessage, Spool, Unavailable, prepare
from fsmq.spool.context import Prepared
from fsmq.spool.durability.sync import IN_FLIGHT, Group, Syncer
from tests.spool.helpers import tree_of


class GatedSyncer(Syncer):
    """Each sync waits for the gate and ends with the next of ``errors``."""

    def __init__(self, spool: Spool) -> None:
        super().__init__(spool.tree, "syncfs")
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)
        self.groups: list[Group] = []
        self.errors: dict[int, Exception] = {}

    def run_only(self, group: Group) -> None:
        self.groups.append(group)
        number = len(self.groups)
        self.begun.release()
        assert self.gate.wait(30)
        if number in self.errors:
            raise self.errors[number]
        super().run_only(group)


async def until_begun(syncer: GatedSyncer) -> None:
    assert await asyncio.to_thread(syncer.begun.acquire, timeout=30)


async def test_two_groups_are_synced_at_a_time(root: Path) -> None:
    with Spool(root) as spool:
        spool.create_queue("jobs")
        syncer = GatedSyncer(spool)
        commits = Commits(syncer, LoopTurns())

        def put() -> asyncio.Task[list[str]]:
            prepared = prepare.put(spool.context, "jobs", [NewMessage(b"x")])
            return asyncio.create_task(commits.complete(prepared))

        tasks = []
        for _ in range(2):
            tasks.append(put())
            await until_begun(syncer)
        tasks += [put() for _ in range(5)]
        await asyncio.sleep(0)
        assert len(syncer.groups) == 2
        syncer.gate.set()
        ids = [message_id for task in tasks for message_id in await task]
        assert [len(group.changes) for group in syncer.groups] == [1, 1, 5]
        assert all(work.files == [] for group in syncer.groups for work in group.changes)
        assert sorted(tree_of(root)["queues/jobs"]) == sorted(ids)
        commits.close()
        syncer.close()


async def test_a_large_group_is_synced_alone(root: Path) -> None:
    with Spool(root) as spool:
        spool.create_queue("jobs")
        syncer = GatedSyncer(spool)
        commits = Commits(syncer, LoopTurns())

        def put(number: int) -> asyncio.Task[list[str]]:
            prepared = prepare.put(spool.context, "jobs", [NewMessage(b"x")] * number)
            return asyncio.create_task(commits.complete(prepared))

        large = put(30)
        await until_begun(syncer)
        tasks = [put(1)]
        await asyncio.sleep(0.05)  # that no sync begins cannot be observed
        assert len(syncer.groups) == 1
        tasks.append(put(20))
        syncer.gate.set()
        await asyncio.gather(large, *tasks)
        assert [len(group.changes) for group in syncer.groups] == [1, 2]
        commits.close()
        syncer.close()


async def test_the_next_sync_begins_before_callers_of_the_last_one_continue(root: Path) -> None:
    with Spool(root) as spool:
        spool.create_queue("jobs")
        syncer = GatedSyncer(spool)
        commits = Commits(syncer, LoopTurns())
        has_begun = []

        def finish() -> None:
            # The first one keeps the loop busy, like a large group.
            if not has_begun:
                has_begun.append(syncer.begun.acquire(timeout=30))

        tasks = []
        for _ in range(IN_FLIGHT):
            work = prepare.put(spool.context, "jobs", [NewMessage(b"x")]).dirty
            tasks.append(asyncio.create_task(commits.complete(Prepared(work, finish))))
            await until_begun(syncer)
        last = prepare.put(spool.context, "jobs", [NewMessage(b"x")])
        tasks.append(asyncio.create_task(commits.sync(last)))
        await asyncio.sleep(0)
        syncer.gate.set()
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert has_begun[0]
        await asyncio.gather(*tasks)
        commits.close()
        syncer.close()


async def test_a_failing_group_fails_alone(root: Path) -> None:
    with Spool(root) as spool:
        spool.create_queue("jobs")
        syncer = GatedSyncer(spool)
        commits = Commits(syncer, LoopTurns())
        # No exception of a sync may leave a request waiting for ever.
        syncer.errors[1] = RuntimeError("unheard of")
        tasks = []
        for number in range(2):
            prepared = prepare.put(spool.context, "jobs", [NewMessage(b"x", id=f"no-{number}")])
            tasks.append(asyncio.create_task(commits.complete(prepared)))
            await until_begun(syncer)
        syncer.gate.set()
        with pytest.raises(Unavailable, match="unheard of"):
            await tasks[0]
        assert await tasks[1] == ["no-1"]
        assert tree_of(root) == {"new": [], "delay": [], "queues/jobs": ["no-1"]}
        commits.close()
        syncer.close()


async def test_close_waits_for_a_running_sync(root: Path) -> None:
    with Spool(root) as spool:
        spool.create_queue("jobs")
        syncer = GatedSyncer(spool)
        commits = Commits(syncer, LoopTurns())
        prepared = prepare.put(spool.context, "jobs", [NewMessage(b"x")])
        task = asyncio.create_task(commits.complete(prepared))
        await until_begun(syncer)
        closing = threading.Thread(target=commits.close)
        closing.start()
        syncer.gate.set()
        await asyncio.to_thread(closing.join, 30)
        assert not closing.is_alive()
        assert len(await task) == 1
        syncer.close()
