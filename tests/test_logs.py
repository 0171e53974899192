"""The logs of programs: each event is one line, with any values."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.suite import HOME

START = """
import logging, pathlib, sys, threading, warnings
from fsmq.daemons.process import logs
log = logs.get_logger("fsmq.test")
"""


def run(code: str, stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[bytes]:
    """Run code that logs in a new process."""
    return subprocess.run(
        [sys.executable, "-c", START + code],
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": str(HOME), "TZ": "UTC"},
        check=False,
    )


def lines(code: str) -> list[str]:
    return run(code).stderr.decode("ascii").splitlines()


def records(code: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(code)]


def test_a_pipe_gets_json() -> None:
    [record] = records("""
logs.setup("info", "auto", "mq")
log.info("started", root=pathlib.Path("/tmp/mq"), port=8080, ratio=0.5, sync=None, ok=True)
""")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record.pop("ts"))
    assert record == {
        "level": "info",
        "program": "mq",
        "event": "started",
        "root": "/tmp/mq",
        "port": 8080,
        "ratio": 0.5,
        "sync": None,
        "ok": True,
    }


def test_a_terminal_gets_text() -> None:
    ours, theirs = pty.openpty()
    run('logs.setup("info", "auto", "mq"); log.info("started", root="/tmp/mq", port=8080)', theirs)
    os.close(theirs)
    with open(ours, "rb") as terminal:
        line = terminal.readline().decode()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} info  mq  started root=/tmp/mq port=8080\r\n", line)


def test_the_journal_gets_the_level_and_no_time_or_name(tmp_path: Path) -> None:
    code = """
import os
if {connected}:
    at = os.fstat(2)
    os.environ["JOURNAL_STREAM"] = f"{{at.st_dev}}:{{at.st_ino}}"
else:
    os.environ["JOURNAL_STREAM"] = "1:2"  # inherited from a parent with another stderr
logs.setup("debug", "auto", "mq")
log.debug("a"); log.info("started", port=8080); log.warning("odd\\nname", file="x y")
try:
    raise OSError(28, "full")
except OSError:
    log.exception("failed", queue="q")
logging.critical("end")
"""
    found = lines(code.format(connected=True))
    assert found[:3] == ["<7>a", "<6>started port=8080", '<4>odd\\nname file="x y"']
    assert found[3] == '<3>failed queue=q error="OSError: [Errno 28] full"'
    assert found[4] == "<3>Traceback (most recent call last):"
    assert found[-2:] == ["<3>OSError: [Errno 28] full", "<2>end"]
    assert all(line.startswith("<3>") for line in found[3:-1])
    assert json.loads(lines(code.format(connected=False))[0])["event"] == "a"


def test_the_format_can_be_chosen() -> None:
    assert lines('logs.setup("info", "text", "mq"); log.warning("x")')[0].endswith("warn  mq  x")


def test_less_serious_events_are_left_out() -> None:
    code = """
logs.setup({level!r}, "json", "mq")
for level in ("debug", "info", "warning", "error"):
    getattr(log, level)(level)
"""
    levels = ["debug", "info", "warning", "error"]
    for first, level in enumerate(levels):
        events = [record["event"] for record in records(code.format(level=level))]
        assert events == levels[first:]


def test_the_level_can_change_while_the_program_runs() -> None:
    code = 'logs.setup("error", "json", "mq"); log.info("a"); logs.set_level("info"); log.info("b")'
    assert [record["event"] for record in records(code)] == ["b"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_value_breaks_the_line(form: str) -> None:
    code = f"""
logs.setup("info", {form!r}, "mq")
evil = "a\\nb\\r\\x1b[31m\\x00\\u2028\\u202e\\udcff \\x85"
log.info(evil, text=evil, path=pathlib.Path(evil), data=evil.encode("utf-8", "replace"),
         many=[evil, {{evil: evil}}], error=ValueError(evil))
logging.getLogger("other").warning("%s", evil)
"""
    out = run(code).stderr
    assert out.count(b"\n") == 2
    assert not set(out.replace(b"\n", b"")) & set(range(32))
    assert "\u2028" not in out.decode()
    assert "\u202e" not in out.decode()
    if form == "json":  # halves of surrogate pairs are escaped, too: not all parsers take them
        for line in out.splitlines():
            json.dumps(json.loads(line), ensure_ascii=False).encode()


def test_text_values_are_quoted_where_needed() -> None:
    [line] = lines("""
logs.setup("info", "text", "mq")
log.info("x", a="two words", b="", c='say "hi" now', d="k=v", e=1/3, f="plain")
""")
    assert line.endswith(r'x a="two words" b="" c="say \"hi\" now" d="k=v" e=0.333333 f=plain')


def test_json_is_valid_for_unusual_values() -> None:
    [record] = records("""
logs.setup("info", "json", "mq")
log.info("x", nan=float("nan"), level="mine", event="own", data=b"\\xff", tags={1}, error=OSError())
""")
    assert record["nan"] == "nan"
    assert (record["level"], record["level_"]) == ("info", "mine")
    assert (record["event"], record["event_"]) == ("x", "own")
    assert (record["data"], record["tags"]) == ("\\xff", [1])
    assert record["error"] == "OSError"


def test_an_exception_is_part_of_its_line() -> None:
    code = """
logs.setup("info", "json", "mq")
try:
    1 / 0
except ZeroDivisionError as error:
    log.exception("failed", queue="jobs")
    log.error("failed", exc_info=error)
"""
    for record in records(code):
        assert record["error"] == "ZeroDivisionError: division by zero"
        assert record["traceback"].startswith("Traceback (most recent call last):\n")
    [first, _] = lines(code.replace('"json"', '"text"'))
    assert "\\n" in first


def test_uncaught_exceptions_and_warnings_are_logged() -> None:
    code = """
logs.setup("info", "json", "mq")
thread = threading.Thread(target=lambda: 1 / 0, name="saver")
thread.start(); thread.join()
class Ends:
    def __del__(self): raise OSError("late")
Ends()
warnings.warn("old", DeprecationWarning, stacklevel=1)
raise KeyError("gone")
"""
    done = run(code)
    thread, ignored, warning, last = [json.loads(line) for line in done.stderr.splitlines()]
    assert (thread["thread"], thread["level"]) == ("saver", "critical")
    assert (ignored["error"], ignored["level"]) == ("OSError: late", "error")
    assert "Ends.__del__" in ignored["event"]
    assert "old" in warning["event"]
    assert last["error"] == "KeyError: 'gone'"
    assert done.returncode == 1


def test_logs_of_other_libraries_have_the_same_format() -> None:
    code = """
logs.setup("info", "json", "mq")
logs.setup("info", "json", "mq.1")
logging.getLogger("aiohttp.server").error("bad %s", "request")
"""
    [record] = records(code)  # one record: the second setup replaced the first
    assert (record["event"], record["program"]) == ("bad request", "mq.1")


def test_a_closed_stderr_is_no_error() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    code = 'logs.setup("info", "json", "mq"); log.info("x"); log.info("y"); sys.exit(7)'
    assert run(code, theirs).returncode == 7
    os.close(theirs)
