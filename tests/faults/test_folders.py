"""A folder of the layout is removed, or moved away, under the programs."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from fsmq.spool.layout.transitions import FOLDERS
from tests.faults.user import User
from tests.harness.suite import eventually

# What is removed with everything in it is gone; what comes afterwards is not.
PROMPT_S = 20.0  # folders are listed for safety's sake only after 30 seconds and more


def settle(user: User) -> None:
    """Wait until nothing is on its way any more."""
    root = user.suite.root
    eventually(lambda: not [n for n in (root / "new").iterdir() if user.queue in n.name])


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_comes_after_a_folder_was_removed_is_served_at_once(
    user: User, folder: str, root: Path
) -> None:
    for _ in range(3):
        assert user.post().status == 201
    settle(user)
    held = user.fetch(wait=15)
    shutil.rmtree(user.suite.root / folder)
    if folder == "queues":
        # With its folder the queue is gone; what was fetched waits in another for its like.
        user.accepted = {held.id: held.body}
        assert user.post().status == 404
        assert user.fetch().status == 404
        assert user.ask("PUT", f"/{user.queue}").status == 201
        assert user.post().status == 201
    if folder == "delay":
        user.accepted.pop(held.id)
        held = user.fetch(wait=15)
    assert held.status == 200
    assert user.delete(held.id).status == 202
    began = time.monotonic()
    assert user.post().status == 201
    if folder == "config":
        settings = b'{"visibility_timeout": 5}'
        assert user.ask("PATCH", f"/{user.queue}", settings).status == 200
    if folder == "topics":
        assert user.ask("PUT", f"/_topics/{user.queue}").status == 201
    if folder == "moves":
        assert user.ask("PUT", f"/{user.queue}-2").status == 201
        assert user.ask("POST", f"/{user.queue}/move?to={user.queue}-2").status == 202
        user.accepted.clear()
    # A claim whose timer has to end; so the mover knows the new folders.
    if user.accepted:
        assert user.fetch(wait=15, visibility=0.2).status == 200
    user.gets_everything(PROMPT_S)
    assert time.monotonic() - began < PROMPT_S
    eventually(user.is_ready)
    eventually(lambda: not list((user.suite.root / "remove").iterdir()), PROMPT_S + 2)


def test_a_message_without_a_place_to_go_is_not_gone(user: User) -> None:
    """Nothing is said to be missing because the folder is where it would go."""
    assert user.post().status == 201
    assert user.post().status == 201
    settle(user)
    shutil.rmtree(user.suite.root / "delay")
    held = user.fetch()
    assert held.status == 200
    shutil.rmtree(user.suite.root / "remove")
    assert user.delete(held.id).status == 202
    shutil.rmtree(user.suite.root / "remove")
    assert user.ask("DELETE", f"/{user.queue}").status == 200
    user.accepted.clear()


def test_a_queue_that_was_moved_away_comes_back(user: User) -> None:
    assert user.post().status == 201
    settle(user)
    here = user.suite.root / "queues" / user.queue
    away = user.suite.root / "queues" / f"{user.queue}-away"
    here.rename(away)
    assert user.fetch().status == 404
    assert user.post().status == 404
    away.rename(here)


def test_new_moved_away_and_back(user: User) -> None:
    """The watch went with the folder: the one in its place needs its own."""
    new, away = user.suite.root / "new", user.suite.root / "away"
    new.rename(away)
    assert user.post().status == 201
    user.gets_everything(PROMPT_S)
    shutil.rmtree(new)
    away.rename(new)
    assert user.post().status == 201
    user.gets_everything(PROMPT_S)
