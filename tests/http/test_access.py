"""Keys and rights over HTTP, and changes of the key file."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.harness.described import native_routes
from tests.harness.forkserver import environment, run
from tests.harness.suite import Suite, eventually, eventually_on_loop
from tests.http import helpers
from tests.http.helpers import Wire, ask
from tests.http.keyfile import add_key, bearer
from tests.http.test_errors import is_problem

# The objects of rights by the names in paths, if each is "jobs".
NAMES = {"queue": "jobs", "topic": "topics/jobs", "log": "logs/jobs", "channel": "logs/jobs/jobs"}
# Both parsers: an unknown header is not taken by the fast path.
WAYS: tuple[dict[str, str], ...] = ({}, {"X-Other": "1"})
RIGHTS = ("send", "receive", "look", "admin")


class Guarded:
    """A suite with keys."""

    def __init__(self, suite: Suite, file: Path, keys: dict[str, str]) -> None:
        self.suite, self.file, self.keys = suite, file, keys

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [e for e in self.suite.logs("mq") if e["event"] == event]

    def reload(self, expect: str, processes: int = 1, because: str = "") -> None:
        """Send SIGHUP and wait until each process has said how that went, and for which error.

        Each process also watches the file and may log the state before.
        """
        before = len(self.logged(expect))
        self.suite["mq"].signal(signal.SIGHUP)

        def told() -> int:
            return sum(because in e.get("error", "") for e in self.logged(expect)[before:])

        eventually(lambda: told() >= processes)


def make_file(file: Path) -> dict[str, str]:
    made = {right: add_key(file, right, f"--{right}=jobs") for right in RIGHTS}
    for what, name in NAMES.items():
        for right in RIGHTS:
            key = f"{right}-{what}"
            made[f"{right}:{{{what}}}"] = add_key(file, key, f"--{right}={name}")
    everything = [f"--{right}={name}" for right in RIGHTS for name in NAMES.values()]
    made["everything"] = add_key(file, "everything", *everything)
    made["all"] = add_key(file, "all", "--send=*", "--receive=*", "--admin=*")
    made["team"] = add_key(file, "team", "--send=team.*", "--receive=team.?", "--admin=team.*")
    made["over"] = add_key(file, "over", "--send=*", "--not-after=2020-01-01")
    made["old"] = add_key(file, "old", "--send=jobs", existing="a key that EmoDB knew for years")
    return made


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    file = folder / "keys.toml"
    keys = make_file(file)
    suite = Suite(folder / "mq", mq_options=[f"--keys={file}"])
    suite["mq"].is_forked = False  # a test looks at its command line
    with suite:
        for queue in ("jobs", "other", "team.a"):
            (suite.root / "queues" / queue).mkdir()
        yield Guarded(suite, file, keys)


@pytest.fixture
async def visitor(guarded: Guarded) -> AsyncIterator[ClientSession]:
    async with ClientSession(guarded.suite.url) as session:
        yield session


def opens(key: str, need: str) -> bool:
    """Whether a right such as ``receive:{queue}`` includes the right that is needed."""
    right, _, what = need.partition(":")
    given, _, on = key.partition(":")
    return on == what and (right in ("any", given) or (given, right) == ("receive", "look"))


async def test_each_right_allows_its_routes_and_no_others(
    visitor: ClientSession, guarded: Guarded
) -> None:
    """The rights are those of the OpenAPI document and of docs/security.md."""
    keys = {name: key for name, key in guarded.keys.items() if ":" in name}
    checked = 0
    for route in native_routes():
        needed, asks_more = (
            (route.need.rights, bool(route.need.more)) if route.need else ((), False)
        )
        path = re.sub(r"\{offset\}", "1", route.pattern)
        path = re.sub(r"\{\w+\}", "jobs", path)
        for way in WAYS if needed else ():
            for name, key in keys.items():
                answer = await ask(visitor, route.method, path, headers={**bearer(key), **way})
                if not all(opens(name, need) for need in needed):
                    assert answer.status == 403, (route.method, path, name)
                elif not asks_more:
                    assert answer.status not in (401, 403), (route.method, path, name)
            key = guarded.keys["everything"]
            answer = await ask(visitor, route.method, path, headers={**bearer(key), **way})
            assert answer.status not in (401, 403), (route.method, path)
            checked += 1
            (guarded.suite.root / "queues" / "jobs").mkdir(exist_ok=True)  # it may be deleted
    assert checked >= 80


async def test_a_key_sees_only_its_topics(visitor: ClientSession, guarded: Guarded) -> None:
    keys = guarded.keys
    for topic in ("jobs", "secret"):
        await ask(visitor, "PUT", f"/_topics/{topic}", headers=bearer(keys["everything"]))
    seen = await ask(visitor, "GET", "/_topics", headers=bearer(keys["send:{topic}"]))
    assert seen.json == {"topics": ["jobs"]}
    for topic, status in (("jobs", 200), ("secret", 403)):
        shown = await ask(visitor, "GET", f"/_topics/{topic}", headers=bearer(keys["send:{topic}"]))
        assert shown.status == status


async def test_metrics_show_only_the_queues_of_a_key(
    visitor: ClientSession, guarded: Guarded
) -> None:
    async def told(key: str) -> str:
        answer = await ask(visitor, "GET", "/_metrics", headers=bearer(guarded.keys[key]))
        assert answer.status == 200
        return answer.body.decode()

    await ask(visitor, "POST", "/other/messages", headers=bearer(guarded.keys["all"]))
    assert 'queue="other"' in (of_all := await told("all"))
    seen = ""
    async with asyncio.timeout(30):
        while 'queue="jobs"' not in seen:  # a survey is a second old, or more
            seen = await told("send")
    assert 'queue="jobs"' in seen
    assert 'queue="other"' not in seen
    for of_everybody in ("fsmq_journal_lines_total{", "fsmq_filesystem_free_bytes "):
        assert of_everybody in of_all
        assert of_everybody not in seen
    assert (await ask(visitor, "GET", "/_metrics")).status == 401
    assert (await ask(visitor, "GET", "/_health/live")).status == 200


async def test_a_missing_key(visitor: ClientSession) -> None:
    for method in ("GET", "POST", "DELETE"):
        answer = await ask(visitor, method, "/jobs/messages")
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    answer = await ask(visitor, "GET", "/")
    assert is_problem(answer, 401, "unauthorized")


@pytest.mark.parametrize(
    "value",
    [
        "Bearer fsmq_wrong",
        "Bearer ",
        "Bearer",
        "Bearer " + "x" * 5000,
        "Basic YWxsOmFsbA==",
        "Bearer \xff\xfe",
        "Bearer anonymous",
    ],
)
async def test_an_unknown_key(guarded: Guarded, value: str) -> None:
    with Wire(guarded.suite.url) as wire:
        answer = wire.ask("GET", "/jobs/messages", {"Authorization": value})
        assert is_problem(answer, 401, "unauthorized")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert wire.ask("GET", "/", bearer(guarded.keys["all"])).status == 200


async def test_two_authorization_headers_are_refused(guarded: Guarded) -> None:
    with Wire(guarded.suite.url) as wire:
        good = f"Authorization: Bearer {guarded.keys['all']}\r\n"
        wire.send(f"GET / HTTP/1.1\r\nHost: localhost\r\n{good}{good}\r\n")
        assert is_problem(wire.answer(), 401, "unauthorized")


async def test_an_expired_key(visitor: ClientSession, guarded: Guarded) -> None:
    answer = await ask(visitor, "POST", "/jobs/messages", headers=bearer(guarded.keys["over"]))
    assert is_problem(answer, 401, "unauthorized")
    assert answer.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
    assert "over" in answer.json["detail"]


async def test_a_refusal_names_the_missing_right(visitor: ClientSession, guarded: Guarded) -> None:
    answer = await ask(visitor, "GET", "/other/messages", headers=bearer(guarded.keys["receive"]))
    assert is_problem(answer, 403, "forbidden")
    assert "receive on 'other'" in answer.json["detail"]
    assert guarded.keys["receive"] not in answer.body.decode()


async def test_a_key_cannot_tell_if_a_queue_of_others_exists(
    visitor: ClientSession, guarded: Guarded
) -> None:
    for queue in ("other", "not-there"):
        answer = await ask(visitor, "GET", f"/{queue}", headers=bearer(guarded.keys["send"]))
        assert is_problem(answer, 403, "forbidden")


async def test_patterns_of_queue_names(visitor: ClientSession, guarded: Guarded) -> None:
    key = bearer(guarded.keys["team"])
    for method, path, status in (
        ("GET", "/team.a/messages", 204),
        ("GET", "/team.ab/messages", 403),
        ("GET", "/team./messages", 403),
        ("GET", "/teama/messages", 403),
        ("PUT", "/team.new", 201),
        ("POST", "/team.new/messages", 201),
        ("GET", "/xteam.a/messages", 403),
    ):
        assert (await ask(visitor, method, path, headers=key)).status == status, path


async def test_only_queues_of_the_key_are_listed(visitor: ClientSession, guarded: Guarded) -> None:
    async def listed(key: str) -> list[str]:
        answer = await ask(visitor, "GET", "/", headers=bearer(guarded.keys[key]))
        return [q for q in answer.json["queues"] if q != "team.new"]

    assert await listed("all") == ["jobs", "other", "team.a"]
    assert await listed("send") == ["jobs"]
    assert await listed("team") == ["team.a"]


async def test_any_right_allows_to_see_the_counts(visitor: ClientSession, guarded: Guarded) -> None:
    for right in RIGHTS:
        answer = await ask(visitor, "GET", "/jobs", headers=bearer(guarded.keys[right]))
        assert answer.status == 200
        answer = await ask(visitor, "GET", "/other", headers=bearer(guarded.keys[right]))
        assert answer.status == 403


async def test_a_dead_letter_queue_needs_the_admin_right_on_it(
    visitor: ClientSession, guarded: Guarded
) -> None:
    def wanted(queue: str) -> dict[str, Any]:
        return {"max_deliveries": 1, "dead_letter_queue": queue}

    key = bearer(guarded.keys["team"])
    answer = await ask(visitor, "PATCH", "/team.a", json=wanted("other"), headers=key)
    assert is_problem(answer, 403, "forbidden")
    answer = await ask(visitor, "PATCH", "/team.a", json=wanted("team.dead"), headers=key)
    assert answer.status == 200


async def test_a_key_from_another_system(visitor: ClientSession, guarded: Guarded) -> None:
    answer = await ask(visitor, "POST", "/jobs/messages", headers=bearer(guarded.keys["old"]))
    assert answer.status == 201


async def test_a_refused_body_leaves_the_connection_in_step(guarded: Guarded) -> None:
    with Wire(guarded.suite.url) as wire:
        assert wire.ask("POST", "/jobs/messages", {}, b"GET / HTTP/1.1\r\n\r\n").status == 401
        assert wire.ask("GET", "/", bearer(guarded.keys["all"])).status == 200


async def test_keys_change_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    keys = {"stays": add_key(file, "stays", "--receive=*"), "goes": ""}
    kept = file.read_text()
    keys["goes"] = add_key(file, "goes", "--receive=*")
    options = [f"--keys={file}", "--processes=2"]
    with Suite(tmp_path / "mq", mq_options=options, mover=False, reaper=False) as suite:
        (suite.root / "queues" / "jobs").mkdir()
        guarded = Guarded(suite, file, keys)

        async def statuses(*tokens: str) -> list[int] | None:
            # Each connection can reach another process.
            found = set()
            for _ in range(12):
                async with ClientSession(suite.url) as session:
                    found.add(tuple([(await try_key(session, token)).status for token in tokens]))
            return list(found.pop()) if len(found) == 1 else None  # they do not agree

        assert await statuses(keys["stays"], keys["goes"]) == [204, 204]
        with Wire(suite.url) as waits, Wire(suite.url) as waits_no_more:
            waits.request("GET", "/jobs/messages?wait=20", bearer(keys["stays"]))
            waits_no_more.request("GET", "/jobs/messages?wait=20", bearer(keys["goes"]))
            eventually(lambda: waits.is_read() and waits_no_more.is_read())
            file.write_text(kept)
            added = add_key(file, "comes", "--receive=*")
            guarded.reload("keys loaded", processes=2)

            async def are_loaded() -> bool:
                return await statuses(keys["stays"], keys["goes"], added) == [204, 401, 204]

            await eventually_on_loop(are_loaded)  # the log line can be about the file before
            # Only waiting requests of a removed key are ended.
            assert waits_no_more.answer().status == 204
            assert waits_no_more.ask("GET", "/jobs/messages", bearer(keys["goes"])).status == 401
            (suite.root / "queues" / "jobs" / "by-hand").write_bytes(b"for the one that waits")
            assert waits.answer().body == b"for the one that waits"

        for broken in ("[keys.x]\nhash = 'sha256:00'\n", "no toml", "\xff"):
            file.write_bytes(broken.encode("latin-1"))
            guarded.reload("the keys stay as they were", processes=2, because=str(file))
            assert await statuses(keys["stays"], keys["goes"], added) == [204, 401, 204]
        file.chmod(0o644)
        guarded.reload("the keys stay as they were", processes=2, because="chmod o-rwx")
        file.unlink()
        guarded.reload("the keys stay as they were", processes=2)
        assert await statuses(keys["stays"], keys["goes"], added) == [204, 401, 204]


async def try_key(session: ClientSession, token: str) -> helpers.Answer:
    return await ask(session, "GET", "/jobs/messages", headers=bearer(token))


async def test_rights_without_a_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    token = add_key(file, "worker", "--receive=public.*")
    with file.open("a") as more:
        more.write('\n[anonymous]\nsend = ["public.*"]\n')
    options = [f"--keys={file}"]
    with Suite(tmp_path / "mq", mq_options=options, reaper=False) as suite:
        (suite.root / "queues" / "public.in").mkdir()
        (suite.root / "queues" / "secret").mkdir()
        async with ClientSession(suite.url) as session:
            posted = await ask(session, "POST", "/public.in/messages", data=b"x")
            assert posted.status == 201
            assert (await ask(session, "GET", "/")).json == {"queues": ["public.in"]}
            assert (await ask(session, "GET", "/public.in/messages")).status == 401
            assert (await ask(session, "POST", "/secret/messages")).status == 401
            wrong = await ask(session, "POST", "/public.in/messages", headers=bearer("wrong" * 9))
            assert wrong.status == 401  # a syntax error is logged and does not remove keys
            got = await ask(session, "GET", "/public.in/messages?wait=9", headers=bearer(token))
            assert got.body == b"x"


async def test_no_key_is_ever_logged_or_shown(guarded: Guarded) -> None:
    for token in (guarded.keys["send"], "wrong-" * 9):
        with Wire(guarded.suite.url) as wire:
            wire.ask("GET", "/jobs/messages", bearer(token))
            wire.ask("GET", f"/jobs/messages?APIKey={token}", bearer(token))
            wire.ask("GET", "/jobs/messages", {"X-BV-API-Key": token})
    shown = b"".join(log.read_bytes() for log in guarded.suite.log_folder.iterdir())
    shown += Path(f"/proc/{guarded.suite['mq'].pid}/cmdline").read_bytes()
    for token in (*guarded.keys.values(), "wrong-" * 9):
        assert token.encode() not in shown
        assert token not in guarded.file.read_text()


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "::ffff:0.0.0.0"])
def test_without_keys_mq_refuses_to_listen_on_all_addresses(tmp_path: Path, address: str) -> None:
    options = [f"--root={tmp_path}/mq", "--port=0", f"--address={address}"]
    refused = run("fsmq.daemons.mq", options, environment(), b"")
    told = refused.stderr.decode()
    if "cannot listen" in told:
        pytest.skip("this host has no IPv6")
    assert refused.returncode == 78
    for way_out in ("--keys FILE", "--address=127.0.0.1", "--let-anyone-in=yes"):
        assert way_out in told
    assert not (tmp_path / "mq").exists()


def test_let_anyone_in_serves_all_addresses_without_keys(tmp_path: Path) -> None:
    options = ["--address=0.0.0.0", "--let-anyone-in=yes"]
    with (
        Suite(tmp_path / "mq", mq_options=options, mover=False, reaper=False) as suite,
        Wire(f"http://127.0.0.1:{suite.port}") as wire,
    ):
        assert wire.ask("GET", "/").status == 200


def test_with_keys_mq_listens_on_all_addresses(tmp_path: Path) -> None:
    token = add_key(tmp_path / "keys.toml", "all", "--send=*")
    options = ["--address=0.0.0.0", f"--keys={tmp_path}/keys.toml"]
    with (
        Suite(tmp_path / "mq", mq_options=options, mover=False, reaper=False) as suite,
        Wire(f"http://127.0.0.1:{suite.port}") as wire,
    ):
        assert wire.ask("GET", "/", bearer(token)).status == 200
        assert wire.ask("GET", "/").status == 401
