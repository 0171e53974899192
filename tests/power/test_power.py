"""Power cuts on real filesystems, under a mixed load, with the real daemons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.power.clients import MIXED
from tests.power.disk import CannotMount, Disk
from tests.power.programs import Programs
from tests.power.results import Results
from tests.power.rounds import Campaign

ROUNDS, LEAST = 3, 6  # for each of the configurations; acknowledged before each cut
# The most rounds until a missing sync is found. One usually suffices; in at most 1 of 10 the disk
# has written the data by itself, or there was nothing to lose.
MOST_ROUNDS = 12
FILESYSTEMS = ("ext4", "xfs")
SYNCS = ("auto", "fsync", "syncfs")
# Each filesystem with each sync, with one process or two in turn; the soak has all twelve.
CONFIGURATIONS = [
    (filesystem, sync, 1 + number % 2)
    for number, (filesystem, sync) in enumerate(product(FILESYSTEMS, SYNCS))
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    with Programs(tmp_path_factory.mktemp("logs")) as started:
        yield started


def cut(
    programs: Programs,
    folder: Path,
    filesystem: str,
    rounds: int,
    *,
    sync: str,
    processes: int = 1,
    weights: Mapping[str, int] = MIXED,
    before: Mapping[str, int] | None = None,
    without: str = "",
    is_enough: Callable[[Results], bool] = lambda results: False,
    least: int = 1,
) -> Results:
    """Run a campaign, or skip the test."""
    try:
        with Disk(folder, filesystem) as disk:
            campaign = Campaign(
                disk,
                programs,
                folder,
                sync=sync,
                processes=processes,
                weights=weights,
                before=before,
                without=without,
                seed=(filesystem, sync, processes),
                least=least,
            )
            return campaign.run(rounds, is_enough=is_enough)
    except CannotMount as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def print_total() -> Iterator[Results]:
    total = Results()
    yield total
    print(f"\npower cuts: {total}")


@pytest.mark.parametrize(("filesystem", "sync", "processes"), CONFIGURATIONS)
def test_nothing_acknowledged_is_lost(
    programs: Programs,
    tmp_path: Path,
    filesystem: str,
    sync: str,
    processes: int,
    print_total: Results,
) -> None:
    def is_enough(results: Results) -> bool:
        """After ROUNDS, once any message was delivered: all may have been removed before."""
        return bool(results.findings) or (results.rounds >= ROUNDS and results.delivered > 0)

    results = cut(
        programs,
        tmp_path,
        filesystem,
        MOST_ROUNDS,
        sync=sync,
        processes=processes,
        is_enough=is_enough,
        least=LEAST,
    )
    print_total.add(results)
    assert results.findings == []
    assert results.acknowledged >= LEAST * ROUNDS
    assert results.delivered > 0, f"no message was left to inspect: {results}"


POSTS = {"post": 1}


class Blind(NamedTuple):
    """A sync to leave out, and the load that shows it.

    An fsync of a file commits the whole journal of ext4 and xfs, with everything unsynced before
    it. So the load is only the verb, and what it needs is on stable media before.
    """

    filesystem: str
    without: str
    weights: Mapping[str, int]
    seen: set[str]
    before: Mapping[str, int] | None = None
    sync: str = "fsync"


BLIND = {
    "all, ext4": Blind("ext4", "", MIXED, {"lost", "torn"}, sync="none"),
    "all, xfs": Blind("xfs", "", MIXED, {"lost", "torn"}, sync="none"),
    "syncfs": Blind("xfs", "syncfs", MIXED, {"lost", "torn"}, sync="syncfs"),
    "messages, ext4": Blind("ext4", "message", POSTS, {"lost", "torn"}),
    "messages, xfs": Blind("xfs", "message", POSTS, {"lost", "torn"}),
    "new queues": Blind("ext4", "queues", {"create_new": 1}, {"lost"}),
    "settings": Blind("xfs", "config", {"configure_once": 1}, {"lost"}, {"configure": 1}),
    "deletes": Blind("ext4", "folders", {"delete_any": 1}, {"resurrected"}, POSTS),
    "claims": Blind("xfs", "all", {"fetch": 1}, {"held twice"}, POSTS),
    "releases": Blind("ext4", "folders", {"release": 1}, {"undone"}, {"post": 1, "fetch": 1}),
    "purges": Blind("xfs", "folders", {"empty": 1}, {"resurrected"}, {"fill": 1}),
    "dedup sends": Blind("ext4", "message", {"send_dups": 1}, {"lost", "torn"}),
    "dedup polls": Blind(
        "xfs", "all", {"poll_dups": 1}, {"undone", "held twice"}, {"send_dups": 1}
    ),
    "dedup acks": Blind(
        "ext4", "folders", {"ack_dups": 1}, {"resurrected"}, {"send_dups": 2, "poll_dups": 1}
    ),
    "moves": Blind("xfs", "all", {"order_move_once": 1}, {"undone"}, {"fill_source": 1}),
    "burials": Blind("xfs", "all", {"bury_one": 1}, {"undone"}, {"post_buriable": 1}),
    "deleted queues": Blind("ext4", "folders", {"drop": 1}, {"resurrected"}, {"fill": 1}),
}


@pytest.mark.parametrize("name", BLIND)
def test_a_missing_sync_is_found(programs: Programs, tmp_path: Path, name: str) -> None:
    blind = BLIND[name]

    def is_seen(results: Results) -> bool:
        return not blind.seen.isdisjoint(results.kinds)

    results = cut(
        programs,
        tmp_path,
        blind.filesystem,
        MOST_ROUNDS,
        sync=blind.sync,
        without=blind.without,
        weights=blind.weights,
        before=blind.before,
        is_enough=is_seen,
    )
    assert is_seen(results), f"{results} {results.kinds}"
