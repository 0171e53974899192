"""Pages offer what a key may do, and routes refuse everything else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from fsmq.spool import Spool
from fsmq.spool.log.log import LogEntry
from tests.cli.test_examples import called
from tests.harness.suite import Suite, eventually
from tests.http.keyfile import add_key

from .asked import Api, Site, buttons
from .test_logs_seen import BUTTONS as LOG_BUTTONS
from .test_logs_seen import fill

RIGHTS = ("look", "receive", "send", "admin")
# Page: the values of its buttons, and the right that each needs.
BUTTONS = {
    "": {},
    "queues": {},
    "new": {"create": "admin"},
    "q/jobs?state=in_flight": {
        "release": "receive", "hold": "receive", "bury": "receive", "remove": "receive",
        "move": "receive", "pause": "admin",
    },
    "queues?menu=jobs": {"pause": "admin", "move": "receive"},
    "q/jobs/send": {"send": "send"},
    "q/jobs/settings": {"configure": "admin", "purge": "receive", "delete": "admin"},
    "new-topic": {"create": "admin"},
    "topics/news": {"publish": "send", "subscribe": "admin", "delete": "admin"},
    "schedules/new": {"define": "admin"},
    "schedules": {"put_now": "admin", "stop": "admin"},
    "dead": {"redrive": "receive", "remove": "receive", "purge": "receive"},
    "work": {"stop": "receive"},
    "cluster": {},
}  # fmt: skip
# Pages with a form, and the path to which it is sent.
NEW = {"new": "queues", "new-topic": "topics", "schedules/new": "schedules"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("rights")
    file = folder / "keys.toml"
    keys = {
        "all": add_key(
            file, "all", *(f"--{right}={of}" for right in RIGHTS for of in ("*", "topics/*"))
        )
    }
    for right in RIGHTS:
        more = () if right == "look" else ("--look=*", "--look=topics/*")
        keys[right] = add_key(file, right, f"--{right}=*", f"--{right}=topics/*", *more)
    keys["one"] = add_key(file, "one", "--look=jobs")
    keys["some"] = add_key(file, "some", "--look=seen*")
    with Suite(folder / "root", mq_options=[f"--keys={file}", "--sync=none"]) as suite:
        api = Api(suite, keys["all"])
        api.make("jobs.dead")
        api.make("jobs")
        api.change("jobs", max_deliveries=5, dead_letter_queue="jobs.dead")
        site = Site(suite, keys)
        assert site.ask("all", "POST", "topics", {"do": "create", "topic": "news"})[0] == 303
        schedule = {"do": "define", "name": "s", "cron": "0 3 * * *", "queue": "jobs"}
        assert site.ask("all", "POST", "schedules", schedule)[0] == 303
        api.put("jobs")
        message = api.claim("jobs", "?wait=15&visibility=3600")
        api.put("jobs.dead")
        api.make("slow")
        for _ in range(3):
            api.put("slow")
        eventually(lambda: api.counts("slow") == {"ready": 3})
        _, answer = api.ask("POST", "/slow/move?to=jobs.dead&rate=0.01")
        eventually(lambda: 'value="redrive"' in site.ask("all", "GET", "dead")[1])
        yield site._replace(message=message, move=json.loads(answer)["move"])


@pytest.mark.parametrize("right", RIGHTS)
def test_a_page_has_only_buttons_that_the_key_allows(site: Site, right: str) -> None:
    for path, rights in BUTTONS.items():
        status, text = site.ask(right, "GET", path)
        for button, needed in rights.items():
            assert (button in buttons(text)) == (needed == right), (path, button, status)


def test_suggestions_name_only_visible_queues(site: Site) -> None:
    for key, wrong, near in (
        ("one", "jobss", True),
        ("one", "slows", False),
        ("all", "slows", True),
    ):
        for path in (f"q/{wrong}", f"queues?find={wrong}"):
            _, text = site.ask(key, "GET", path)
            is_offered = key == "all" or path.startswith("queues")  # q/ needs a right
            assert ("Did you mean" in text) == (near and is_offered), (key, path)


@pytest.mark.parametrize("right", RIGHTS)
def test_forged_forms_are_refused(site: Site, right: str) -> None:
    for path, rights in BUTTONS.items():
        place = path.partition("?")[0].removesuffix("/send").removesuffix("/settings")
        place = {"dead": "q/jobs.dead", "queues": "q/jobs", **NEW}.get(place, place)
        for button, needed in rights.items():
            if needed == right:
                continue
            form = {"do": button, "message": site.message, "sure": "yes", "typed": "jobs"}
            form |= {"queue": "jobs", "topic": "news", "name": "s", "cron": "0 4 * * *"}
            form["ref"] = site.move
            status, _ = site.ask(right, "POST", place, form)
            assert status == 403, (place, button)
    jobs = Api(site.suite, site.keys["all"]).look("jobs")
    assert jobs["messages"]["in_flight"] == 1
    assert jobs["settings"]["paused"] is None


def test_a_form_is_shown_only_with_its_right(site: Site) -> None:
    status, text = site.ask("send", "GET", "q/jobs/settings")
    assert (status, 'name="visibility_timeout"' in text) == (200, False)
    assert "30 seconds" in text
    for path in NEW:
        assert site.ask("send", "GET", path)[0] == 403


def test_the_health_check_needs_a_right_on_all_queues(site: Site) -> None:
    offer = "Run health check"
    assert offer in site.ask("look", "GET", "cluster")[1]
    status, text = site.ask("one", "GET", "cluster")
    assert (status, offer in text) == (200, False)
    assert "a right on <code>*</code>" in text
    assert site.ask("one", "GET", "cluster?health=yes")[0] == 403


def test_recent_actions_are_shown_only_for_visible_resources(site: Site) -> None:
    """A right on a queue is no right on the topic of the same name."""
    assert site.ask("all", "POST", "topics", {"do": "create", "topic": "jobs"})[0] == 303
    assert "<td>create</td>" in site.ask("all", "GET", "work")[1]
    assert "<td>create</td>" not in site.ask("one", "GET", "work")[1]


def test_creating_a_channel_needs_the_admin_right_on_it(tmp_path: Path) -> None:
    """A right on the log is not enough, also with repeated fields."""
    key = add_key(tmp_path / "keys.toml", "log", "--admin=logs/l")
    options = [f"--keys={tmp_path / 'keys.toml'}", "--sync=none"]
    with Suite(tmp_path / "root", mq_options=options, mover=False, reaper=False) as suite:
        site = Site(suite, {"log": key})
        assert site.ask("log", "POST", "logs", [("do", "create"), ("log", "l")])[0] == 303
        create = [("do", "create_channel"), ("channel", "c")]
        for form in (create, [*create, ("do", "delete")], [*create, ("channel", "d")]):
            assert site.ask("log", "POST", "logs/l", form)[0] == 403, form
        assert list((suite.root / "logs" / "l" / "channels").iterdir()) == []


def test_invisible_moves_do_not_displace_visible_ones(site: Site) -> None:
    api = Api(site.suite, site.keys["all"])
    for queue in ("seen", "seen.too", "unseen", "unseen.too"):
        api.make(queue)
    api.ask("POST", "/seen/move?to=seen.too")
    with Spool(site.suite.root) as spool:  # a key may have fewer in progress
        for _ in range(51):
            spool.begin_move("unseen", "unseen.too")
    assert "unseen" in site.ask("all", "GET", "work")[1]
    text = site.ask("some", "GET", "work")[1]
    assert "seen.too" in text
    assert "unseen" not in text


def test_the_menu_of_a_queue_needs_a_right_on_it(site: Site) -> None:
    status, text = site.ask("one", "GET", "queues?menu=jobs")
    assert (status, 'name="do"' in text) == (200, False)
    assert site.ask("one", "GET", "queues?menu=jobs.dead")[0] == 403


def test_read_only_pages_have_no_buttons_and_no_routes(tmp_path: Path) -> None:
    with Suite(tmp_path / "root", mq_options=["--ui=read-only", "--sync=none"]) as suite:
        api = Api(suite)
        api.make("jobs")
        api.put("jobs")
        with Spool(suite.root, sync="none") as spool:
            fill(spool)
        site = Site(suite, {"": "none"})
        eventually(lambda: "q/jobs" in site.ask("", "GET", "queues")[1])
        for path in (*BUTTONS, *LOG_BUTTONS):
            assert 'name="do"' not in site.ask("", "GET", path)[1], path
        places = ("queues", "q/jobs", "topics", "topics/news", "schedules", "work", *LOG_BUTTONS)
        for place in places:
            for typed in ("jobs", "visits"):
                status, _ = site.ask("", "POST", place, {"do": "delete", "typed": typed})
                assert status in (403, 404, 405), place
        assert (suite.root / "queues" / "jobs").is_dir()
        assert (suite.root / "logs" / "visits").is_dir()


def test_pages_can_be_switched_off(tmp_path: Path) -> None:
    with Suite(tmp_path / "root", mq_options=["--ui=off", "--sync=none"]) as suite:
        site = Site(suite, {"": "none"})
        assert site.ask("", "GET", "")[0] == 404


def test_bodies_can_be_hidden(tmp_path: Path) -> None:
    with Suite(tmp_path / "root", mq_options=["--ui-bodies=off", "--sync=none"]) as suite:
        api = Api(suite)
        api.make("jobs")
        message = api.put("jobs", b"a secret", X_Message_Attribute_Tenant="veiled")
        with Spool(suite.root, sync="none") as spool:
            entry = LogEntry("a secret", key="veiled", attributes={"tenant": "veiled"})
            spool.log("visits", create=True).publish_many([entry])
        site = Site(suite, {"": "none"})
        places = (f"m/{message}", f"m/{message}/body", f"send?again={message}")
        logs = ("logs/visits", "logs/visits/m/0", "logs/visits/m/0/body")
        for path in ("q/jobs?state=ready", *(f"q/jobs/{place}" for place in places), *logs):
            _, text = site.ask("", "GET", path)
            assert "a secret" not in text
            assert "veiled" not in text


def test_the_shell_commands_on_pages_are_valid(site: Site) -> None:
    found = set()
    for path, rights in BUTTONS.items():
        texts = [site.ask("all", "GET", path)[1]]
        place = path.partition("?")[0].removesuffix("/send").removesuffix("/settings")
        place = {"dead": "q/jobs.dead", "queues": "q/jobs", **NEW}.get(place, place)
        for button in rights:
            # Without ``sure`` the answer is a confirmation, or the action is carried out.
            form = {"do": button, "message": site.message, "queue": "jobs", "to": "jobs.dead"}
            form |= {"topic": "news", "ref": site.move, "name": "s", "cron": "0 4 * * *"}
            texts.append(site.ask("all", "POST", place, form)[1])
        for text in texts:
            for paragraph in re.findall(r'<p class="command">.*?</p>', text, re.DOTALL):
                lines = re.findall(r"<code>(.*?)</code>", paragraph, re.DOTALL)
                found |= {unescape(line) for line in lines}
    requests = {line for line in found if "curl " in line}
    commands = found - requests
    assert len(requests) > 8
    assert len(commands) > 12
    served = routes(site)
    for line in requests:
        asked = re.search(rf"curl -X (\w+) '?{site.suite.url}(/[^?' ]*)", line)
        assert asked is not None, line
        assert any(method == asked[1] and path.fullmatch(asked[2]) for method, path in served), line
    for line in commands:
        assert list(called(line.removesuffix(" …"))), line


def routes(site: Site) -> list[tuple[str, re.Pattern[str]]]:
    """Methods and paths of the API."""
    described = json.loads(Api(site.suite, site.keys["all"]).ask("GET", "/_openapi.json")[1])
    return [
        (method.upper(), re.compile(re.sub(r"{\w+}", "[^/]+", path)))
        for path, methods in described["paths"].items()
        for method in methods
    ]
