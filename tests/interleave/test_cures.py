"""The tests can fail: without a mechanism that keeps a promise, the explorer finds it broken."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from fsmq.spool.consumers.claims import Claimed
from fsmq.spool.context import Context
from fsmq.spool.durability.drafts import Draft, Staged
from fsmq.spool.layout.transitions import NEW, State, Transition
from fsmq.spool.layout.tree import Tree
from fsmq.spool.verbs import claim, put, receive, release
from fsmq.spool.verbs.latch import Latched
from fsmq.spool.verbs.moves import links_of_move
from fsmq.spool.verbs.moves import move as moving
from fsmq.spool.verbs.queues import purge
from fsmq.spool.views.census import _Folder
from tests.interleave import gate
from tests.interleave.explore import Explorer, Plan

Patch = pytest.MonkeyPatch


def act_on_names(patch: Patch) -> None:
    """Act on whatever file has the name of the message that was read."""

    def move(
        latched: Latched,
        context: Context,
        how: Transition,
        queue: str,
        own: str,
        to: str | None = None,
        *,
        is_checked: bool = False,
    ) -> os.stat_result | None:
        tree = context.tree
        return (
            tree.stat(tree.path(how.target, to or queue, own))
            if tree.move(how, queue, own, to)
            else None
        )

    patch.setattr(Latched, "move", move)
    patch.setattr(
        claim,
        "_move_to_delay",
        lambda context, latched, path, to, *of: context.tree.rename(path, to),
    )
    patch.setattr(Latched, "stamp", lambda latched, context, path, ns: context.tree.stamp(path, ns))


def give_back_any_claim(patch: Patch) -> None:
    """Release an undelivered claim though another holds the message by now."""
    give_back = release.release_uncounted

    def give_back_any(context: Context, queue: str, own: str, mtime_ns: int) -> None:
        found = context.tree.stat(context.tree.path(State.DELAY, queue, own))
        give_back(context, queue, own, found.st_mtime_ns if found is not None else mtime_ns)

    for module in (release, receive):
        patch.setattr(module, "release_uncounted", give_back_any)


def look_once_at_what_is_hidden(patch: Patch) -> None:
    """A purge misses messages that are claimed after it has listed hidden ones."""

    def came(hidden: purge._Hidden) -> set[str]:
        hidden.is_complete = True
        return set()

    patch.setattr(purge._Hidden, "came", came)


def know_claims_by_ids(patch: Patch) -> None:
    """A consumer takes any message with an id for the one that it has claimed."""
    patch.setattr(Claimed, "is_file", lambda *of: True)


def take_any_claim_for_ones_own(patch: Patch) -> None:
    """A consumer buries or counts a message without a check that it holds it."""
    patch.setattr(Claimed, "is_held", lambda *of: True)


def stamp_what_was_written(patch: Patch) -> None:
    """A put sets its delay through the descriptor, wherever the file is by now.

    Without locks of bytes, which exclude movers.
    """
    patch.setattr("fsmq.spool.durability.put_numbers.HAS_BYTES", False)

    def write(staging: put.Staging, draft: Draft) -> None:
        number = None if draft.own else staging._number
        path = staging._tree.folder(NEW, draft.dot_name(staging._queue, number))
        fd = staging._tree.create(path)
        staging.dirty.files.append(fd)
        staging._written.append(Staged(draft, path, os.fstat(fd).st_ino))
        draft.write(fd)
        if draft.delay_ms is not None:
            context = staging._context
            deadline_ms = context.now_ms() + draft.delay_ms
            mtime_ns = context.stamps.encode(draft.message_id, deadline_ms, 0)
            os.utime(fd, ns=(mtime_ns, mtime_ns))

    patch.setattr(put.Staging, "_write", write)


def believe_a_cleared_listing(patch: Patch) -> None:
    """A census uses its listing though events were dropped meanwhile."""

    def install(folder: _Folder, names: list[str]) -> None:
        for name in names:
            folder._note(name, True)
        for is_there, name in folder._meanwhile or ():
            folder._note(name, is_there)
        folder._meanwhile = None
        folder.is_listed = True

    patch.setattr(_Folder, "install", install)


def move_to_any_queue(patch: Patch) -> None:
    """A move neither locks its target nor checks that it still exists."""

    def move_one(context: Context, how: Transition, source: str, own: str, target: str) -> bool:
        return context.tree.move(how, source, own, target)

    patch.setattr(moving, "move_one", move_one)
    patch.setattr(links_of_move, "settings_held", lambda *of, **more: nullcontext())


CURES: Sequence[tuple[Callable[[Patch], None], Plan]] = (
    (act_on_names, Plan("claim known", "remove, put, deliver")),
    (act_on_names, Plan("redeliver", "remove, put, deliver, claim")),
    (give_back_any_claim, Plan("claim and hang up", "lapse, claim")),
    (give_back_any_claim, Plan("claim and fail to sync", "lapse, claim")),
    (look_once_at_what_is_hidden, Plan("purge", "claim")),
    (know_claims_by_ids, Plan("keep batch", "lapse, claim, remove, put")),
    (know_claims_by_ids, Plan("commit batch", "lapse, claim, remove, put")),
    (take_any_claim_for_ones_own, Plan("bury batch", "remove, put, deliver, claim")),
    (take_any_claim_for_ones_own, Plan("retry batch", "lapse, claim")),
    (stamp_what_was_written, Plan("put delayed", "restart mover, claim")),
    (believe_a_cleared_listing, Plan("census", "drop events")),
    (move_to_any_queue, Plan("make moves", "delete the other queue")),
)


@pytest.mark.parametrize(
    ("take_out", "plan"), CURES, ids=[f"{cure.__name__}-{plan.verb}" for cure, plan in CURES]
)
def test_without_its_mechanism_a_promise_is_broken(
    scratch: Path, monkeypatch: Patch, take_out: Callable[[Patch], None], plan: Plan
) -> None:
    take_out(monkeypatch)
    with Explorer(scratch).running() as explorer:
        done = explorer.explore(plan)
    assert done.findings
    assert len(done.findings) < done.schedules, "at some calls the mechanism makes no difference"


def test_a_slow_machine_has_the_same_findings(scratch: Path, monkeypatch: Patch) -> None:
    """The interval of polls depends on the duration of the last listing."""
    look_once_at_what_is_hidden(monkeypatch)
    names, sleep = Tree.ready_names, time.sleep

    def slowly(tree: Tree, queue: str) -> list[str] | None:
        sleep(0.01)
        return names(tree, queue)

    found = []
    for is_slow in (False, True):
        if is_slow:
            monkeypatch.setattr(Tree, "ready_names", slowly)
        with Explorer(scratch / str(is_slow)).running() as explorer:
            found.append(explorer.explore(Plan("purge", "claim")))
    assert found[0] == found[1]


def test_nothing_is_explored_without_events(scratch: Path, monkeypatch: Patch) -> None:
    """A purge would work without events, and give other results."""

    def refuse(*arguments: object, **named: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with Explorer(scratch).running() as explorer:
        monkeypatch.setattr(gate._Notifier, "__init__", refuse)
        with pytest.raises(gate.NoEvents, match=r"fs\.inotify\.max_user_instances"):
            explorer.explore(Plan("purge", "claim"))
