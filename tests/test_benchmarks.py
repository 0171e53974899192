"""The benchmarks run, each cheap row at a tiny size; those of Spark are in tests/pipeline/."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import floor, postgres, quota, report, rivals, wire_load
from benchmarks.bench import Bench
from benchmarks.load import Failed
from benchmarks.measure import Bar, Measure, Outcome, Plot, Series
from benchmarks.place import CannotMount, open_place
from benchmarks.plot import svg
from benchmarks.procfs import command, descendants
from benchmarks.writer import neighbour
from tests.harness import rows
from tests.harness.suite import eventually

LIBRARY_ROWS = (
    "put-many",
    "fifo-send",
    "fifo-receive",
    "fifo-large",
    "log-publish",
    "log-consume",
    "log-held",
    "log-channels",
    "log-rivals",
    "fetch-depth",
    "mover-rate",
    "mover-latency",
    "mover-timers",
    "tasks",
)
DAEMON_ROWS = ("mover-restart", "longpoll", "reaper", "memory", "ui-page")
EMODB_ROWS = ("emodb-send", "emodb-poll", "emodb-depth")
DYNAMIQ_ROWS = ("publish", "dynamiq-batch", "two-hosts")
DYNO_ROWS = ("dyno-push", "dyno-life", "dyno-depth")
SQS_ROWS = ("sqs-receive-delete",)
WRK_ROWS = ("filesystems", "post-1", "post-8", "get-64", "life-64", "cpu", "log-http", "growth")
RIVAL_ROWS = ("rivals-put", "rivals-life")
QUOTA_ROWS = () if quota.missing() else ("processes",)
_MOUNTS = Path("/proc/self/mountinfo")
needs_wrk = pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with rows.tiny(tmp_path / "place") as made:
        yield made


@pytest.mark.parametrize(
    "row",
    [
        *LIBRARY_ROWS,
        *DAEMON_ROWS,
        *EMODB_ROWS,
        *DYNAMIQ_ROWS,
        *DYNO_ROWS,
        *SQS_ROWS,
        *(pytest.param(row, marks=needs_wrk) for row in (*WRK_ROWS, *RIVAL_ROWS, *QUOTA_ROWS)),
    ],
)
def test_a_row_gives_figures(bench: Bench, row: str) -> None:
    if row in QUOTA_ROWS:  # a share of a core may do nothing in less time
        bench = dataclasses.replace(bench, seconds=1.0)
    rows.run(bench, row)


def test_a_rival_with_a_wrong_number_of_messages_gives_no_figure(tmp_path: Path) -> None:
    if reason := rivals.missing(rivals.BEANSTALKD):
        pytest.skip(reason)
    with rivals.started_beanstalkd(tmp_path, 10) as port:
        wire_load.run("beanstalkd", "put", port, connections=1, seconds=0.01, size=10)
        with pytest.raises(RuntimeError, match=r"the server holds \d+ messages, not "):
            wire_load.run("beanstalkd", "put", port, connections=1, seconds=0.01, size=10)


def test_a_rival_that_ends_early_gives_no_figure(tmp_path: Path) -> None:
    if reason := rivals.missing(rivals.BEANSTALKD):
        pytest.skip(reason)
    with pytest.raises(RuntimeError, match="beanstalkd has ended"):
        _end_a_rival(tmp_path)


def _end_a_rival(folder: Path) -> None:
    with rivals.started_beanstalkd(folder, 10):
        started = descendants(os.getpid())
        [pid] = [child for child in started if command(child).startswith("beanstalkd ")]
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_the_client_answers_the_pings_of_nats(bench: Bench) -> None:
    if reason := rivals.missing(rivals.NATS):
        pytest.skip(reason)
    # The first ping comes within two seconds.
    assert rivals.nats(bench.place, rivals.Work("put", 8, 2.5, 10))["rate"] > 0


def test_pgbench_gets_more_time_if_it_finished_no_transaction(tmp_path: Path) -> None:
    program = tmp_path / "pgbench"
    program.write_text(
        "#!/bin/sh\n"
        "echo number of transactions actually processed: $(test $1 = -T1 && echo 0 || echo 6)\n"
        "test $1 = -T1 || echo tps = 3.0\n"
    )
    program.chmod(0o755)
    assert postgres._pgbench([str(program)], 1.0) == (6, 3.0)


def test_a_nats_that_cannot_sync_before_it_answers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nats-server"
    program.write_text("#!/bin/sh\necho nats-server: v2.9.10\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "2.10 or later" in rivals.missing(rivals.NATS)
    program.write_text("#!/bin/sh\necho nats-server: v2.10.0\n")
    assert rivals.missing(rivals.NATS) == ""


@needs_wrk
def test_refused_requests_fail_a_row(bench: Bench) -> None:
    with bench.suite() as suite:
        (suite.root / "queues" / "bench").rmdir()
        with pytest.raises(Failed, match=r'"bad_statuses": [1-9]'):
            bench.load(suite, "post", 1, 10)


def test_each_program_has_its_own_interpreter(bench: Bench) -> None:
    with bench.suite(mover=True, reaper=True) as suite:
        for name in ("mq", "mover", "reaper"):
            assert f" -m fsmq.daemons.{name} " in command(suite[name].pid)


@pytest.mark.parametrize("group", [1, 8])
@pytest.mark.parametrize("has_compiler", [True, False])
def test_the_floor_leaves_its_messages_in_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_compiler: bool, group: int
) -> None:
    if not has_compiler:
        monkeypatch.setattr(floor, "_program", lambda: None)
    elif floor.language() != "C":
        pytest.skip("no C compiler")
    assert floor.stored(tmp_path, 0.01, 10, group) > 0
    sizes = {file.name: file.stat().st_size for file in (tmp_path / "new").iterdir()}
    assert sizes == {str(number): 10 for number in range(len(sizes))}
    assert sizes
    assert len(sizes) % group == 0
    assert list((tmp_path / "written").iterdir()) == []


def test_the_neighbour_writes_until_it_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with neighbour(file, 100):
        eventually(lambda: file.exists() and file.stat().st_size > 2_000_000)
    size = file.stat().st_size
    assert not _holds_open(file)
    assert file.stat().st_size == size


def _holds_open(file: Path) -> bool:
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link) == str(file):
                return True
        except OSError:
            continue
    return False


def test_a_loop_device_is_removed_when_a_row_fails() -> None:
    folders: list[Path] = []
    try:
        with pytest.raises(ZeroDivisionError):
            _fail_on_a_loop_device(folders)
    except CannotMount as error:
        pytest.skip(str(error))
    [folder] = folders
    assert str(folder) not in _MOUNTS.read_text()
    assert not folder.parent.exists()


def _fail_on_a_loop_device(folders: list[Path]) -> None:
    with open_place("loop", 1) as place:
        folders.append(place.folder)
        assert str(place.folder) in _MOUNTS.read_text()
        (place.folder / "file").write_bytes(b"x")
        raise ZeroDivisionError


def test_verdicts_follow_the_median() -> None:
    measure = Measure("a", [1.0, 3.0, 2.0], bar=Bar(">=", 2.0))
    assert (measure.median, measure.verdict) == (2.0, "met")
    assert dataclasses.replace(measure, bar=Bar("<=", 1.9)).verdict == "NOT MET"
    assert dataclasses.replace(measure, samples=[]).verdict == "skipped"


def test_new_numbers_of_a_row_replace_only_that_row(tmp_path: Path) -> None:
    shutil.copy(report.HERE / "README.md", tmp_path)
    plot = Plot("growth-x.svg", "a < b", "x", "y", [Series("s", [(1, 10), (100, 2000)])])
    posted = Outcome([Measure("posting", [2.5], bar=Bar(">=", 2.0), against="4,000/s")])
    grown = Outcome([Measure("growing", [7.0])], [plot])
    report.store({"post-64": posted, "growth": grown}, "here", tmp_path)
    report.store({"growth": Outcome([Measure("grown", [8.0])], [plot])}, "there", tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "| posting | ≥ 2.00× | 2.50× | 2.50–2.50 |  | 4,000/s | met |  |" in text
    assert "| grown |" in text
    assert "growing" not in text
    assert "![a < b](growth-x.svg)" in text
    assert text.startswith((report.HERE / "README.md").read_text().partition("<!--")[0])
    ElementTree.parse(tmp_path / "growth-x.svg")


def test_a_plot_shows_its_points_and_axes() -> None:
    plot = Plot("p.svg", "a < b", "connections", "µs", [Series("s", [(1, 10), (512, 2000)])])
    drawn = ElementTree.fromstring(svg(plot))
    said = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a < b", "connections", "µs", "s", "1", "100", "1k", "10k", "2,000"} <= set(said)
    spots = list(drawn.iter("{http://www.w3.org/2000/svg}circle"))
    assert [float(spot.attrib["cx"]) for spot in spots] == sorted(
        float(spot.attrib["cx"]) for spot in spots
    )
    # Larger values are drawn higher, that is, nearer to 0.
    assert float(spots[0].attrib["cy"]) > float(spots[1].attrib["cy"])
