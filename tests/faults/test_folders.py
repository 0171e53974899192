"""A folder of the layout is removed or moved away while programs run."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from fsmq.spool.layout.transitions import FOLDERS
from tests.faults.user import User
from tests.harness.suite import eventually

# Messages in a removed folder are lost; later ones are not.
PROMPT_S = 20.0  # the periodic listings come after 30 seconds and more


def settle(user: User) -> None:
    """Wait until all messages are delivered."""
    root = user.suite.root
    eventually(lambda: not [n for n in (root / "new").iterdir() if user.queue in n.name])


@pytest.mark.parametrize("folder", FOLDERS)
def test_service_continues_at_once_after_a_folder_was_removed(
    user: User, folder: str, root: Path
) -> None:
    for _ in range(3):
        assert user.post().status == 201
    settle(user)
    held = user.fetch(wait=15)
    shutil.rmtree(user.suite.root / folder)
    if folder == "queues":
        # The queue is gone; the fetched message waits for a new one with its name.
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
    # The end of this claim shows that the mover uses the new folders.
    if user.accepted:
        assert user.fetch(wait=15, visibility=0.2).status == 200
    user.gets_everything(PROMPT_S)
    assert time.monotonic() - began < PROMPT_S
    eventually(user.is_ready)
    eventually(lambda: not list((user.suite.root / "remove").iterdir()), PROMPT_S + 2)


def test_a_missing_target_folder_is_not_a_missing_message(user: User) -> None:
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


def test_a_queue_can_be_moved_away_and_back(user: User) -> None:
    assert user.post().status == 201
    settle(user)
    here = user.suite.root / "queues" / user.queue
    away = user.suite.root / "queues" / f"{user.queue}-away"
    here.rename(away)
    assert user.fetch().status == 404
    assert user.post().status == 404
    away.rename(here)


def test_the_folder_new_can_be_moved_away_and_back(user: User) -> None:
    """The watch moves with the folder: its replacement needs a new one."""
    new, away = user.suite.root / "new", user.suite.root / "away"
    new.rename(away)
    assert user.post().status == 201
    user.gets_everything(PROMPT_S)
    shutil.rmtree(new)
    away.rename(new)
    assert user.post().status == 201
    user.gets_everything(PROMPT_S)
