"""The Prometheus page, read by the official parser."""

from __future__ import annotations

from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.suite import eventually_on_loop
from tests.http.helpers import ask


class Page:
    """The metrics at one moment."""

    def __init__(self, text: str) -> None:
        self.families = {f.name: f for f in text_string_to_metric_families(text)}

    def sum(self, name: str, **labels: str) -> float:
        """All samples of a name that have these labels."""
        return sum(
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def processes(self) -> set[str]:
        return {
            s.labels["process"]
            for f in self.families.values()
            for s in f.samples
            if "process" in s.labels
        }


async def page(client: ClientSession) -> Page:
    answer = await ask(client, "GET", "/_metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    return Page(answer.body.decode())


async def until(client: ClientSession, name: str, value: float, **labels: str) -> Page:
    """The first page on which a sum has reached a value: processes report once a second."""

    async def reached() -> Page | None:
        found = await page(client)
        return found if found.sum(name, **labels) >= value else None

    found: Page = await eventually_on_loop(reached)
    assert found.sum(name, **labels) == value
    return found
