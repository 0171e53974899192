"""Each route of the native dialect is described whole, and the lane says the same."""

from __future__ import annotations

from pathlib import Path

from fsmq.http.lane.lane import Lane
from fsmq.http.lane.request import Verb
from tests.harness.described import native_routes
from tests.http.inside import Inside


def lanes(lane: Lane | None) -> list[Lane]:
    """A lane, and those that are asked after it."""
    return [] if lane is None else [lane, *lanes(lane.beside)]


def verbs(lane: Lane) -> list[tuple[tuple[str, str], Verb]]:
    """What a lane takes: by method, and by what the path says behind the queue."""
    heads = lane._heads
    return [
        one
        for name in ("_verbs", "_of_channels")
        for one in getattr(heads, name, {}).items()
        if isinstance(one[0], tuple)
    ]


def test_the_lane_asks_for_the_right_of_the_route(root: Path) -> None:
    """Amazon's actions are no routes: tests/http/sqs/test_keys.py asks for their rights."""
    checked = set()
    with Inside(root, dialects=("emodb", "dynamiq")) as inside:
        server = inside.server
        routes = {
            (dialect.name, route.method, route.operation.id): route
            for dialect in (server._native, *server._others)
            for route in dialect.router.routes()
        }
        for lane in lanes(server._lane):
            for (method, place), verb in verbs(lane):
                route = routes[lane._through, method, verb.operation.id]
                assert route.need is not None
                assert [right.partition(":")[0] for right in route.need.rights] == [verb.right]
                if lane._through == "native":
                    assert route.operation is verb.operation
                    assert route.pattern.replace("{offset}", "{id}").endswith(f"}}/{place}")
                checked.add(lane._through)
    assert checked == {"native", "emodb", "dynamiq"}


def test_what_changes_anything_says_what_a_second_try_finds() -> None:
    for method, pattern, operation, _ in native_routes():
        is_change = method not in ("GET", "HEAD") or operation.id.startswith("claim")
        assert bool(operation.again) is is_change, (method, pattern)


def test_every_parameter_of_a_query_says_its_values() -> None:
    for _, pattern, operation, _ in native_routes():
        for name, parameter in operation.query.items():
            assert parameter.values or name.startswith("attribute."), (pattern, name)
