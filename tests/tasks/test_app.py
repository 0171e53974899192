"""Declarations, arguments, hooks, eager mode, the plugin for pytest, types, forks."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsmq import Bury, InvalidValue, Spool
from fsmq.spool.claimed import Claim
from fsmq.tasks import TaskFailed, Tasks, current_run
from fsmq.tasks.running import Run
from fsmq.tasks.task import Call
from fsmq.tasks.testing import TasksOf, tasks_of
from tests.harness.forkserver import environment
from tests.harness.suite import HOME

__all__ = ["tasks_of"]  # the fixture


@pytest.fixture
def eager() -> Tasks:
    return Tasks("nowhere", eager=True)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool(tmp_path / "here", sync="none") as opened:
        yield opened


def test_a_call_of_a_task_is_a_plain_call(eager: Tasks) -> None:
    @eager.task
    def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    assert double(4) == 8
    assert double.__doc__ == "Twice as much."
    assert double.name == (
        "tests.tasks.test_app.test_a_call_of_a_task_is_a_plain_call.<locals>.double"
    )


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"retries": -1}, "retries"),
        ({"retries": True}, "retries"),
        ({"backoff": "1"}, "backoff"),
        ({"timeout": 0}, "timeout"),
        ({"priority": 100}, "priority"),
        ({"queue": "a/b"}, "queue"),
        ({"unique": "yes"}, "unique"),
        ({"cron": ""}, "cron"),
        ({"retry": 1}, "retry"),
    ],
)
def test_a_wrong_option_is_named(eager: Tasks, options: Any, field: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        eager.task(**options)(lambda: None)
    assert raised.value.field == field


def test_two_tasks_of_one_name_and_cron_with_arguments_are_refused(eager: Tasks) -> None:
    eager.task(name="a")(lambda: None)
    with pytest.raises(InvalidValue, match="already"):
        eager.task(name="a")(lambda: None)
    with pytest.raises(TypeError):
        eager.task(name="b", cron="@daily")(lambda n: None)
    with pytest.raises(InvalidValue, match="unique"):
        eager.task(name="c", cron="@daily", unique=True)(lambda: None)


def test_arguments_are_checked_where_they_are_sent(spool: Spool) -> None:
    app = Tasks(spool)

    @app.task(name="mail")
    def mail(to: str, *more: object, **others: object) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument: 'to'"):
        mail.send()  # type: ignore[call-arg]
    for send in (
        lambda: mail.send(b"x"),  # type: ignore[arg-type]
        lambda: mail.send("a", to_all={1, 2}),
        lambda: mail.send("a", float("nan")),
    ):
        with pytest.raises(InvalidValue, match=r"argument (to|more|others) of mail: of type"):
            send()
    assert not spool.has_queue("tasks")


class Pickled:
    """A serializer that a program has chosen itself."""

    content_type = "application/x-pickle"
    dumps = staticmethod(pickle.dumps)
    loads = staticmethod(pickle.loads)


def test_another_serializer_is_read_only_by_an_application_that_has_it(
    tmp_path: Path, tasks_of: TasksOf
) -> None:
    given: list[object] = []
    pickling = Tasks("nowhere", serializer=Pickled(), results="results")
    plain = Tasks("nowhere")
    for app in (pickling, plain):
        app.task(name="take", retries=0)(given.append)
    take = pickling.tasks["take"]
    with tasks_of(pickling) as work_off:
        result = take.send({1, 2})  # type: ignore[attr-defined]
        work_off()
        assert (given, result.get(0)) == ([{1, 2}], None)
        with plain.at(pickling.place):
            plain.tasks["take"].send([3])  # type: ignore[attr-defined]
            work_off()  # JSON is read by all
        take.send({4})  # type: ignore[attr-defined]
    with Spool(tmp_path / "mq") as spool, plain.at(spool):
        [message] = spool.queue("tasks").claim()
        with pytest.raises(Bury, match="application/x-pickle"):
            plain.handle(message, Claim(60, asyncio.Event()))
    assert given == [{1, 2}, [3]]


@pytest.mark.parametrize(
    ("attributes", "body", "why"),
    [
        ({}, b"{}", "it is not of a task"),
        ({"Task": "none"}, b"{}", "this worker knows no task 'none'"),
        ({"Task": "take"}, b"\xff", "it cannot be read as application/json"),
        ({"Task": "take"}, b"[]", "it is not the call of a task"),
        ({"Task": "take", "Batch": "x"}, b'{"args": [], "kwargs": {}}', "it is not the call"),
    ],
)
def test_what_is_no_call_is_buried(
    tasks_of: TasksOf, attributes: dict[str, str], body: bytes, why: str
) -> None:
    app = Tasks("nowhere")
    app.task(name="take")(lambda: None)
    with tasks_of(app) as work_off:
        app.place.queue("tasks", create=True).put(body, attributes=attributes)
        work_off()
        [dead] = app.place.queue("tasks.dead").peek()
        assert why in dead.dead_letter.reason


def test_anybody_can_send_a_call(tasks_of: TasksOf) -> None:
    """As docs/howto/tasks.md says: JSON with args and kwargs, and an attribute."""
    app, given = Tasks("nowhere"), []
    app.task(name="take")(given.append)
    with tasks_of(app) as work_off:
        body = '{"args": [1], "kwargs": {}}'
        app.place.queue("tasks", create=True).put(body, attributes={"Task": "take"})
        work_off()
    assert given == [1]


def test_hooks_are_called_around_each_try(tasks_of: TasksOf) -> None:
    app = Tasks("nowhere", results="results")
    seen: list[Any] = []

    @app.before_send
    def send(call: Call[Any], attributes: dict[str, str]) -> None:
        attributes["Trace"] = f"of {call.task.name}"

    @app.before
    def before(run: Run) -> None:
        assert run.message is not None
        run.state["trace"] = run.message.attributes["Trace"]
        seen.append("before")

    @app.after
    def after(run: Run, value: object) -> None:
        seen.append(("after", value, run.state["trace"]))
        raise RuntimeError("a hook that fails")

    @app.on_error
    def on_error(run: Run, error: BaseException, final: bool) -> None:
        seen.append(("error", str(error), final, run.state["trace"]))

    @app.task(name="half", retries=1, backoff=0)
    def half(n: int) -> float:
        assert current_run() is not None
        if n < 0:
            raise Bury("negative")
        if n % 2:
            raise ValueError("odd")
        return n / 2

    with tasks_of(app) as work_off:
        even, odd = half.send(4), half.send(3)
        work_off(wait=20)
        assert even.get(0) == 2
        with pytest.raises(TaskFailed, match="odd"):
            odd.get(0)
        half.send(-1)
        work_off()
    assert current_run() is None
    assert seen == [
        "before",
        ("after", 2.0, "of half"),
        "before",
        ("error", "odd", False, "of half"),
        "before",
        ("error", "odd", True, "of half"),
        "before",
        ("error", "negative", True, "of half"),
    ]


def test_a_hook_before_a_try_can_fail_it(tasks_of: TasksOf) -> None:
    app = Tasks("nowhere", results="results")
    app.before(lambda run: 1 / 0)
    task = app.task(name="never", retries=0)(lambda: pytest.fail("it ran"))
    with tasks_of(app) as work_off:
        result = task.send()
        work_off()
        with pytest.raises(TaskFailed, match="ZeroDivisionError"):
            result.get(0)


def test_eager_mode_makes_calls_at_once(eager: Tasks) -> None:
    seen: list[object] = []

    @eager.task(unique=True)
    def keep(what: object) -> object:
        seen.append((what, current_run() is not None))
        return what

    @eager.task
    async def fails() -> None:
        raise KeyError("x")

    assert keep.send((1, 2)).get() == [1, 2]
    assert keep.send_later(1000, "later").get() == "later"
    with pytest.raises(TaskFailed, match="KeyError"):
        fails.send().get()
    with pytest.raises(InvalidValue):
        keep.send(object())
    eager.batch([keep.options(unique=False).call(1)], then=keep.call("then"))
    eager.batch([fails.call()], then=keep.call("never"))
    assert [what for what, _ in seen] == [[1, 2], "later", 1, "then"]
    assert all(inside for _, inside in seen)


def test_the_plugin_works_off_what_waits_and_gives_the_place_back(tasks_of: TasksOf) -> None:
    app = Tasks("nowhere", results="results")
    tries: list[int] = []

    @app.task(name="second", backoff=0.1)
    def second() -> int:
        tries.append(1)
        if len(tries) < 2:
            raise ValueError
        return len(tries)

    with tasks_of(app) as work_off:
        result = second.send()
        later = second.send_later(1000)
        work_off()
        assert len(tries) == 1
        work_off(wait=1)
        assert result.get(0) == 2
        assert later.id != result.id
    assert repr(app) == "<Tasks of 'nowhere'>"


def test_a_child_after_a_fork_opens_the_place_again(tmp_path: Path) -> None:
    script = f"""
    import os
    from fsmq.tasks import Tasks
    app = Tasks({str(tmp_path / "mq")!r})
    task = app.task(name="t")(lambda n: None)
    task.send(1)
    mine = app.place
    child = os.fork()
    if not child:
        task.send(2)
        os._exit(0 if app.place is not mine else 1)
    assert os.waitpid(child, 0)[1] == 0
    task.send(3)
    print(app.place.queue("tasks").counts().total, app.place is mine)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(PYTHONPATH=str(HOME)),
    )
    assert (done.stdout, done.returncode) == ("3 True\n", 0), done.stderr


_TYPED = """
from fsmq.tasks import AsyncTasks, Tasks

app = Tasks("x")

@app.task
def add(a: int, b: int = 0) -> float: raise OSError

@app.task(retries=2, unique=lambda text: text)
async def shout(text: str) -> bytes: raise OSError

other = AsyncTasks("http://x")

@other.task(timeout=3)
def size(text: str) -> int: raise OSError

reveal_type(add(1))
reveal_type(add.send(1, b=2).get())
reveal_type(shout.send("a").get())
reveal_type(shout.call("a"))
reveal_type(shout.send_later(3, "a"))
async def f() -> None:
    reveal_type(await shout("a"))
    reveal_type(await (await size.send("a")).get(1))
add.send("x")
add.send_later(1)
app.task(retries="x")
"""


@pytest.mark.slow
def test_signatures_are_kept_for_type_checkers(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(_TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"]
    command += [f"--cache-dir={HOME / '.mypy_cache'}", str(tmp_path / "typed.py")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=HOME,
        timeout=280,
        env={**os.environ, "MYPYPATH": str(HOME)},
    )
    told = [line.partition(": ")[2] for line in done.stdout.splitlines() if "typed.py" in line]
    shown = [line.split('"')[1] for line in told if line.startswith("note: Revealed")]
    names: Callable[[str], str] = lambda text: text.replace("builtins.", "")  # noqa: E731
    assert [names(one) for one in shown] == [
        "float",
        "float",
        "bytes",
        "fsmq.tasks.task.Call[bytes]",
        "fsmq.tasks.results.Result[bytes]",
        "bytes",
        "int",
    ]
    errors = [line for line in told if line.startswith("error")]
    assert len(errors) == 3, errors
