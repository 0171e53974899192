"""The descriptions of native routes are complete and agree with the fast path."""

from __future__ import annotations

from pathlib import Path

from fsmq.http.fast_path.fast_path import FastPath
from fsmq.http.fast_path.request import FastRoute
from tests.harness.described import native_routes
from tests.http.inside import Inside


def fast_paths(fast_path: FastPath | None) -> list[FastPath]:
    """A fast path and the ones that it delegates to."""
    return [] if fast_path is None else [fast_path, *fast_paths(fast_path.beside)]


def fast_routes(fast_path: FastPath) -> list[tuple[tuple[str, str], FastRoute]]:
    """The routes of a fast path: method, and the path behind the queue."""
    heads = fast_path._heads
    return [
        one
        for name in ("_routes", "_of_channels")
        for one in getattr(heads, name, {}).items()
        if isinstance(one[0], tuple)
    ]


def test_the_fast_path_needs_the_rights_of_the_routes(root: Path) -> None:
    """The rights of Amazon's actions are tested in tests/http/sqs/test_keys.py."""
    checked = set()
    with Inside(root, dialects=("emodb", "dynamiq")) as inside:
        server = inside.server
        routes = {
            (dialect.name, route.method, route.operation.id): route
            for dialect in (server._native, *server._others)
            for route in dialect.router.routes()
        }
        for fast_path in fast_paths(server._fast_path):
            for (method, place), fast in fast_routes(fast_path):
                route = routes[fast_path._through, method, fast.operation.id]
                assert route.need is not None
                assert [right.partition(":")[0] for right in route.need.rights] == [fast.right]
                if fast_path._through == "native":
                    assert route.operation is fast.operation
                    assert route.pattern.replace("{offset}", "{id}").endswith(f"}}/{place}")
                checked.add(fast_path._through)
    assert checked == {"native", "emodb", "dynamiq"}


def test_every_change_describes_its_repetition() -> None:
    for method, pattern, operation, _ in native_routes():
        is_change = method not in ("GET", "HEAD") or operation.id.startswith("claim")
        assert bool(operation.again) is is_change, (method, pattern)


def test_every_query_parameter_describes_its_values() -> None:
    for _, pattern, operation, _ in native_routes():
        for name, parameter in operation.query.items():
            assert parameter.values or name.startswith("attribute."), (pattern, name)
