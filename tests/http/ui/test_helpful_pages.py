"""Hints on pages and forms about queues that are late, paused or missing."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from urllib.error import HTTPError

from tests.harness.suite import eventually

from . import asked
from .asked import Api
from .asked import page_or_error as page

NEVER = "0 0 29 2 *"


def post(api: Api, path: str, **form: str) -> str:
    """Send a form; the page to which the answer redirects, or that of an error."""
    try:
        return asked.post(api, path, *form.items())
    except HTTPError as error:
        return error.read().decode()


def test_the_page_of_a_late_queue_names_the_cause(api: Api, queue: str) -> None:
    api.put(queue)
    assert "Late" not in page(api, f"q/{queue}")
    api.change(queue, alert_age=0.001)
    found = eventually(lambda: (text := page(api, f"q/{queue}")) and "Late" in text and text)
    tile = re.search(r"<dt>Oldest</dt><dd([^>]*)>(.*?)</dd>", found)
    assert tile
    assert "bad" in tile[1]
    assert "late" in tile[2]
    said = "waited for more than 1 ms; no consumer has claimed from it in the last hour"
    eventually(lambda: said in page(api, f"q/{queue}"))
    api.change(queue, paused=True)
    eventually(lambda: "Late" not in page(api, f"q/{queue}"))
    tile = re.search(r"<dt>Oldest</dt><dd([^>]*)>(.*?)</dd>", page(api, f"q/{queue}"))
    assert tile
    assert "paused" in tile[2]


def until(api: Api, queue: str) -> datetime:
    return datetime.fromisoformat(str(api.look(queue)["settings"]["paused"]))


def test_a_pause_can_have_any_length_and_be_extended(api: Api, queue: str) -> None:
    assert "Paused" in post(api, f"q/{queue}", do="pause", length="2h")
    wanted = datetime.now(UTC) + timedelta(hours=2)
    assert abs(until(api, queue) - wanted) < timedelta(minutes=5)
    first = api.look(queue)["settings"]["paused"]
    offered = page(api, f"q/{queue}")
    assert 'value="resume"' in offered
    assert 'name="length"' in offered
    longer = post(api, f"q/{queue}", do="pause", length="3d")
    assert "The pause has a new end" in longer
    assert until(api, queue) - wanted > timedelta(days=2)
    assert f'name="until" value="{first}"' in longer  # to undo it
    for wrong in ("soon", "0", "400d"):
        refused = post(api, f"q/{queue}", do="pause", length=wrong)
        assert 'aria-invalid="true"' in refused
        assert f'value="{wrong}"' in refused
    assert until(api, queue) - wanted > timedelta(days=2)


def test_recent_actions_show_the_end_of_a_pause(api: Api, queue: str) -> None:
    post(api, f"q/{queue}", do="pause", length="2h")
    end = str(api.look(queue)["settings"]["paused"])[:19] + "Z"

    def row() -> str:
        found = re.search(rf"<td>pause</td><td>{re.escape(queue)}</td>.*?</tr>", page(api, "work"))
        return found[0] if found else ""

    assert f'datetime="{end}"' in eventually(row)
    assert ">Position<" in page(api, "work")


def test_a_similar_name_is_suggested(api: Api, queue: str) -> None:
    wrong = queue[:-1] + ("x" if queue[-1] != "x" else "y") + "z"
    offer = re.compile(rf"Did you mean .*?/{re.escape(queue)}\">{re.escape(queue)}</a>", re.DOTALL)
    assert offer.search(page(api, f"q/{wrong}"))
    eventually(lambda: offer.search(page(api, f"queues?find={wrong}")))
    assert "Did you mean" not in page(api, "queues?find=quite-another")
    moved = post(api, f"q/{queue}", do="move", to=wrong, sure="yes")
    assert "did you mean" in moved


def test_a_schedule_for_a_missing_queue_needs_confirmation(api: Api, queue: str) -> None:
    name = f"nightly-{queue}"[:60]
    form = {"do": "define", "name": name, "cron": NEVER, "body": "x"}
    asked = post(api, "schedules", queue=f"{queue}s", **form)
    assert f"There is no queue named {queue}s: did you mean {queue}?" in asked
    assert name not in page(api, "schedules")
    assert "The schedule is defined" in post(
        api, "schedules", queue=f"{queue}s", sure="yes", **form
    )
    again = post(api, "schedules", queue=queue, **form)
    assert "there is a schedule of this name; change it" in again
    form["do"] = "change"
    assert "The schedule was changed" in post(api, "schedules", queue=queue, **form)
    api.ask("DELETE", f"/_schedules/{name}")


def test_an_error_of_a_schedule_is_shown_once(api: Api, queue: str) -> None:
    for field, value in (("cron", "61 * * * *"), ("timezone", "Mars/Base")):
        form = {"do": "define", "name": "x", "cron": NEVER, "queue": queue, field: value}
        refused = post(api, "schedules", **form)
        assert refused.count('class="problem"') == 1, field
