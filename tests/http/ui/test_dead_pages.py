"""Dead letters on pages: one row for each reason, and the page of a dead-letter queue."""

from __future__ import annotations

import re
from html import unescape

import pytest

from fsmq.spool.spool import Spool
from tests.harness.suite import eventually

from .asked import Api, page, post


@pytest.fixture
def dead(api: Api, spool: Spool, queue: str) -> str:
    """A dead-letter queue with four messages for one reason and one for another."""
    name = f"{queue}.dead"
    spool.create_queue(name)
    api.change(queue, max_deliveries=3, dead_letter_queue=name)
    for body in (*(b'{"invoice": %d}' % number for number in range(9, 12)), b"another", b"last"):
        spool.queue(queue).put(body)
    eventually(lambda: api.counts(queue) == {"ready": 5})
    for number, message in enumerate(spool.queue(queue).claim(5)):
        reason = "no address" if number == 4 else f"HTTP 502 after {number + 17} ms"
        spool.queue(queue).bury(message, reason=reason)
    eventually(lambda: api.counts(name) == {"ready": 5})
    return name


def section(api: Api, dead: str) -> str:
    """The section of a queue on the page of dead letters, when it has all five."""

    def found() -> str:
        _, _, rest = page(api, "dead").partition(f">{dead}</a>")
        part = rest.partition("</section>")[0]
        return part if re.search(r">5 from ", part) else ""

    return str(eventually(found))


def rows_of(found: str) -> list[tuple[str, str]]:
    """How many messages each row has, and the reason."""
    return re.findall(
        r'<tr><td class="n"[^>]*><a href="[^"]*">([0-9]+)</a></td>.*?data-l="Reason">([^<]*?)\s*<',
        found,
        re.DOTALL,
    )


def test_dead_letters_are_grouped_by_reason(api: Api, dead: str, queue: str) -> None:
    found = section(api, dead)
    assert rows_of(found) == [("4", "HTTP # after # ms"), ("1", "no address")]
    assert found.count("each # is a number or an id that differs") == 1
    assert f'/{queue}">{queue}</a>' in found


def test_different_bodies_are_never_shown_as_one(api: Api, dead: str) -> None:
    bodies = re.findall(r"<li><a [^>]*><code>(.*?)</code>", section(api, dead))
    assert sorted(map(unescape, bodies)) == [
        "another",
        "last",
        '{"invoice": 10}',
        '{"invoice": 11}',
        '{"invoice": 9}',
    ]


def test_a_row_leads_to_its_messages(api: Api, dead: str) -> None:
    [link, _] = re.findall(r'data-l="How many"><a href="([^"]*)">', section(api, dead))
    alone = page(api, f"dead{unescape(link)[unescape(link).index('?') :]}")
    assert rows_of(alone) == [("4", "HTTP # after # ms")]
    assert re.findall(r"HTTP 502 after ([0-9]+) ms", alone) == ["17", "18", "19", "20"]
    assert "Redrive all" not in alone


def test_dead_letters_are_filtered_by_reason(api: Api, dead: str) -> None:
    section(api, dead)
    found = page(api, f"dead?queue={dead}&reason=No+addr")
    assert rows_of(found) == [("1", "no address")]
    assert "None here matches." in page(api, f"dead?queue={dead}&reason=other")


def test_actions_on_a_group_return_to_the_page_of_dead_letters(
    api: Api, dead: str, queue: str
) -> None:
    ids = re.findall('name="message" value="([^"]+)"', section(api, dead))
    assert len(ids) == 5
    form = [("do", "redrive"), ("back", "dead"), *(("message", one) for one in ids[:2])]
    asked = post(api, f"q/{dead}", *form)
    assert "Redrive 2 messages?" in asked
    assert 'name="back" value="dead"' in asked
    done = post(api, f"q/{dead}", *form, ("sure", "yes"))
    assert "Redriven: 2." in done
    assert f'See <a href="./q/{queue}">{queue}</a>' in done
    assert "<h1>Dead letters</h1>" in done
    removing = [("do", "remove"), ("back", "dead"), ("sure", "yes"), ("message", ids[2])]
    assert "<h1>Dead letters</h1>" in post(api, f"q/{dead}", *removing)


def test_a_redrive_warns_that_a_queue_is_paused(api: Api, queue: str, dead: str) -> None:
    assert "is paused" not in post(api, f"q/{dead}", ("do", "redrive"))
    api.change(queue, paused=True)
    asked = post(api, f"q/{dead}", ("do", "redrive"))
    assert f"{queue} is paused until it is resumed: messages that go there wait." in asked
    api.change(queue, paused="2100-01-01T00:00:00Z")
    asked = post(api, f"q/{dead}", ("do", "redrive"))
    assert f"{queue} is paused until 2100-01-01T00:00:00Z" in asked
    api.make(f"{queue}.other")
    elsewhere = post(api, f"q/{dead}", ("do", "redrive"), ("to", f"{queue}.other"))
    assert "is paused" not in elsewhere


def test_the_page_of_a_dead_letter_queue_shows_reasons(api: Api, queue: str, dead: str) -> None:
    found = page(api, f"q/{dead}")
    heads = re.findall(r"<th scope=\"col\"[^>]*>([A-Za-z]+)</th>", found)
    assert heads == ["Id", "From", "Reason", "Age", "Deliveries", "Size", "Body"]
    assert found.count("HTTP 502 after") == 8  # in the text and in the title of each cell
    assert re.findall(r'data-l="Deliveries">([^<]*)<', found) == ["1"] * 5
    assert "tried for ever" not in found
    assert "Redrive all" in found
    assert found.index(">Remove</button>") < found.index("<table")
    for tab in ("history", "settings"):
        assert "Redrive all" in page(api, f"q/{dead}/{tab}")
    ordinary = page(api, f"q/{queue}")
    assert "Redrive all" not in ordinary
    api.make(f"{queue}.plain")
    assert "tried for ever" in page(api, f"q/{queue}.plain")
