"""Root meets a spool of another user, whose programs could not read what root creates in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmq import Spool
from fsmq.spool import UnusableSpool
from fsmq.spool.fsck import Kind, check
from fsmq.spool.layout import filesystem
from tests.cli.helpers import Command
from tests.faults.test_other_users import NOBODY, give_away
from tests.faults.user import needs_setpriv, unprivileged
from tests.harness.forkserver import environment, run
from tests.harness.suite import Suite
from tests.http.helpers import Wire
from tests.spool.test_other_users import as_its_user, shared

__all__ = ["shared"]
pytestmark = needs_setpriv


def files(root: Path) -> set[tuple[Path, int]]:
    return {(path, path.lstat().st_uid) for path in root.rglob("*")}


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("fsmq.cli", ["queue", "create", "more", "--at={root}"]),
        ("fsmq.cli", ["put", "jobs", "--body=x", "--at={root}"]),
        ("fsmq.cli", ["queue", "config", "jobs", "max_depth=5", "--at={root}"]),
        ("fsmq.cli", ["doctor", "--at={root}"]),
        ("fsmq.cli", ["probe", "--root={root}"]),
        ("fsmq.cli", ["fsck", "--repair", "--root={root}"]),
        ("fsmq.daemons.mq", ["--root={root}", "--port=0"]),
        ("fsmq.daemons.mover", ["--root={root}"]),
        ("fsmq.daemons.mover", ["--source={root}/new", "--destination={root}/queues"]),
        ("fsmq.daemons.reaper", ["--root={root}"]),
        ("fsmq.daemons.reaper", ["--source={root}/remove"]),
    ],
)
def test_root_is_refused(shared: Path, module: str, arguments: list[str]) -> None:
    shutil.rmtree(shared / "topics")  # of an older version: root must not create it, either
    before = files(shared)
    done = run(module, [one.format(root=shared) for one in arguments], environment(), b"")
    assert done.returncode == 78, done
    assert b"belongs to the user nobody" in done.stderr
    assert b"sudo -u nobody fsmq" in done.stderr
    assert files(shared) == before


def test_the_library_refuses_root(shared: Path) -> None:
    assert as_its_user(lambda: repr(Spool(shared, create=False).queues())) == "['jobs']"
    with pytest.raises(UnusableSpool, match="sudo -u nobody fsmq"):
        Spool(shared)
    os.chown(shared, 54_321, NOBODY)
    with pytest.raises(UnusableSpool, match=r"the user 54321, whose .* sudo -u '#54321' fsmq"):
        Spool(shared)


def test_root_is_not_refused_on_a_network_filesystem(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "kind_of", lambda path: "nfs4")
    with Spool(shared, watch="poll") as spool:
        assert spool.queues() == ["jobs"]


def test_a_backup_by_root_does_not_lock_out_the_next_one(shared: Path) -> None:
    where = shared.parent / "to"
    where.mkdir()
    os.chown(where, NOBODY, NOBODY)
    Command(shared)("backup", where, "--root", shared)

    def again() -> str:
        from fsmq.spool.backup import backup

        return str(backup(shared, where).messages)

    assert as_its_user(again) == "0"
    assert len(list(where.glob("2*"))) == 2


def make_roots(root: Path) -> dict[str, Kind]:
    """What root has made in a spool: its paths, and what they are."""
    (root / "queues" / "roots").mkdir(mode=0o700)
    log = root / "logs" / "users"
    (log / "segments").mkdir(mode=0o700, parents=True)
    for path in ("config/jobs.json", "queues/jobs/0-a", "new/jobs:b", "delay/jobs:c"):
        (root / path).write_bytes(b"{}")
        (root / path).chmod(0o600)
    shutil.rmtree(root / "ids")
    (root / "ids").mkdir(mode=0o755)
    messages = ("queues/jobs/0-a", "new/jobs:b", "delay/jobs:c")
    others = ("config/jobs.json", "queues/roots", "logs/users", "ids")
    return dict.fromkeys(messages, Kind.UNCLAIMABLE) | dict.fromkeys(others, Kind.OTHER_OWNER)


def test_fsck_finds_files_of_another_owner(shared: Path) -> None:
    made = make_roots(shared)
    found = {finding.path: finding for finding in check(shared, pause=0.01).findings}
    assert {path: one.kind for path, one in found.items()} == made
    reasons = {one.reason.split(": ")[1] for one in found.values()}
    assert reasons == {"it belongs to root, and the spool to nobody; chown it"}


def test_fsck_by_the_spools_user_finds_what_it_cannot_read(shared: Path) -> None:
    made = make_roots(shared)
    (shared / "queues" / "closed").mkdir()
    os.chown(shared / "queues" / "closed", NOBODY, NOBODY)
    (shared / "queues" / "closed").chmod(0)

    def look() -> str:
        findings = check(shared, pause=0.01).findings
        return repr(sorted({(finding.path, finding.kind.value) for finding in findings}))

    unreadable = [(path, "unreadable") for path in ("queues/closed", "queues/roots")]
    expected = sorted([(path, kind.value) for path, kind in made.items()] + unreadable)
    assert as_its_user(look) == repr(expected)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    """A suite without capabilities: it cannot read one of its queues, nor settings of another."""
    with unprivileged(Suite(tmp_path_factory.mktemp("roots") / "mq")) as running:
        with Wire(running.url) as wire:
            for name in ("jobs", "closed", "set"):
                assert wire.ask("PUT", f"/{name}").status == 201
        (running.root / "config" / "set.json").write_text("{}")
        give_away(running.root / "queues" / "closed", 0o700)
        give_away(running.root / "config" / "set.json")
        yield running


def test_a_server_lists_its_other_queues(suite: Suite) -> None:
    fsmq = Command(suite.url)
    with Wire(suite.url) as wire:
        assert wire.ask("GET", "/").json == {"queues": ["closed", "jobs", "set"]}
    done = fsmq("queue", "list")
    assert [line.split()[0] for line in done.stdout.decode().splitlines()[1:]] == ["jobs"]
    for name in ("closed", "set"):
        assert f"queue {name} cannot be read" in done.stderr.decode()
    assert [one["queue"] for one in fsmq.json("queue", "list")["queues"]] == ["jobs"]


def test_top_shows_the_other_queues(suite: Suite) -> None:
    fsmq = Command(suite.url)
    title, total, head, *lines = fsmq.out("top", "--once", "--interval=100ms").splitlines()
    assert [line.split()[0] for line in lines] == ["jobs"], (title, head)
    assert total.endswith("cannot be read: closed, set")
    [sample] = fsmq.lines("top", "--once", "--interval=100ms")
    assert sample["unreadable"] == ["closed", "set"]


def test_doctor_tells_of_unreadable_queues(suite: Suite) -> None:
    findings = Command(suite.url).json("doctor", code=2)["findings"]
    told = [one["text"] for one in findings if one["name"] == "unreadable"]
    assert told == ["closed cannot be read", "set cannot be read"]
    assert [one["text"] for one in findings if one["name"] == "queues"] == [
        "1 queue with 0 messages"
    ]


def test_pages_show_the_other_queues(suite: Suite) -> None:
    with Wire(suite.url) as wire:
        for path in ("/_ui/queues", "/_ui/", "/_metrics", "/_cluster"):
            answer = wire.ask("GET", path)
            assert answer.status == 200, (path, answer)
            assert path not in ("/_ui/queues", "/_metrics") or b"jobs" in answer.body, path
