"""``queue list``, ``queue show`` and ``mv`` take shards as one queue, unless ``--shards``."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmq import Client, Spool
from fsmq.dyno import DynoQueues, Message
from fsmq.spool.layout.uuids import uuid7
from tests.cli.helpers import Command
from tests.harness.suite import eventually


@pytest.fixture(params=["root", "server"])
def fsmq(request: pytest.FixtureRequest, root: Path) -> Command:
    return Command(root if request.param == "root" else request.getfixturevalue("suite").url)


@pytest.fixture
def name(fsmq: Command) -> str:
    """A queue with the shards a and b, and three messages in a."""
    name = f"tasks-{uuid7()}"
    opened: Client | Spool = Client(fsmq.at) if "http" in fsmq.at else Spool(fsmq.at)
    with opened as place:
        queues = DynoQueues(place, zone="a", shards=["a", "b"], strategy="local")
        queues.get(name).push([Message(one, one) for one in "123"])
        if isinstance(place, Spool):
            place.create_queue("mail@example.org")  # no shard: it has no index
    return name


def counted(fsmq: Command, *arguments: str) -> list[tuple[str, int]]:
    stats = fsmq.json("queue", "show", *arguments)
    return [
        (found["queue"], sum(found["messages"].values())) for found in stats.get("queues", [stats])
    ]


def test_shards_are_listed_as_one_queue(fsmq: Command, name: str) -> None:
    eventually(lambda: counted(fsmq, name) == [(name, 3)])
    assert counted(fsmq, name, "--shards") == [(f"{name}@a", 3), (f"{name}@b", 0)]

    def shown() -> list[tuple[str, int]]:
        found = fsmq.json("queue", "list", f"{name}*")["queues"]
        return [(q["queue"], sum(q["messages"].values())) for q in found]

    eventually(lambda: shown() == [(name, 3)])  # a server's counts may be a second old
    shards = fsmq.json("queue", "list", f"{name}*", "--shards")["queues"]
    assert [q["queue"] for q in shards] == [f"{name}@a", f"{name}@b"]
    assert name in fsmq.out("queue", "list", "--names").split()
    assert f"{name}@a" in fsmq.out("queue", "list", "--names", "--shards").split()
    if not fsmq.at.startswith("http"):
        assert "mail@example.org" in fsmq.out("queue", "list", "--names").split()
    fsmq("queue", "show", f"{name}.none", code=3)


def test_a_move_keeps_shards(fsmq: Command, name: str) -> None:
    fsmq("mv", name, f"{name}.more", "--create")
    eventually(lambda: counted(fsmq, f"{name}.more") == [(f"{name}.more", 3)])
    eventually(lambda: counted(fsmq, name) == [(name, 0)])
    assert counted(fsmq, f"{name}.more", "--shards")[0][0] == f"{name}.more@a"
    fsmq("mv", f"{name}.more", f"{name}@b")  # one queue takes all
    eventually(lambda: counted(fsmq, f"{name}@b") == [(f"{name}@b", 3)])
