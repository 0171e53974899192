"""PostgreSQL as a queue: a table, FOR UPDATE SKIP LOCKED, and pgbench, on a cluster of its own."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .place import Place
from .rivals import Work

_TABLE = """
    create table queue (id bigserial primary key, body bytea not null, claimed timestamptz);
    create index waiting on queue (id) where claimed is null;
"""
# A claim sees what was committed before it began: some messages always wait, so that it finds one.
_WAITING = 1000
_FILL = "insert into queue (body) select repeat('x', {}) :: bytea from generate_series(1, {})"
_PUT = "insert into queue (body) values (:body);\n"
_LIFE = f"""{_PUT}
update queue set claimed = now() where id = (select id from queue where claimed is null
    order by id for update skip locked limit 1) returning id, body \\gset got_
delete from queue where id = :got_id;
"""
_USER = "postgres"


def missing() -> str:
    """Why it cannot run here; empty if it can."""
    if not _programs() or not shutil.which("pgbench"):
        return "skipped: PostgreSQL is not installed (Debian: apt install postgresql)"
    if os.geteuid() == 0 and not (_has_user() and shutil.which("setpriv")):
        return f"skipped: root cannot run PostgreSQL, and there is no user {_USER} or no setpriv"
    return ""


def rate(place: Place, work: Work) -> float:
    """Rounds a second, each statement a transaction of its own.

    Raises:
        subprocess.CalledProcessError: the server or the load failed.
        AssertionError: a message was lost.
    """
    with place.fresh("postgres") as folder, _server(folder) as address:
        _sql(address, _TABLE)
        if work.what == "life":
            _sql(address, _FILL.format(work.size, _WAITING))
        script = folder / "script"
        script.write_text(_PUT if work.what == "put" else _LIFE)
        command = ["pgbench", *address, "-n", "-M", "prepared", "-f", str(script)]
        command += [f"-c{work.connections}", "-j1", "-D", f"body={'x' * work.size}"]
        told = [_pgbench(command, length) for length in (work.warm_up, work.seconds) if length]
        held = int(_sql(address, "select count(*) from queue"))
    expected = sum(done for done, _ in told) if work.what == "put" else _WAITING
    assert held == expected, f"the table has {held} messages, not {expected}"
    return told[-1][1]


def _pgbench(command: list[str], seconds: float) -> tuple[int, float]:
    """The transactions, and how many that were a second; pgbench takes whole ones."""
    whole = max(1, round(seconds))
    timed = [*command, f"-T{whole}"]
    done = subprocess.run(timed, stdout=subprocess.PIPE, check=True, text=True).stdout
    [count] = re.findall(r"transactions actually processed: (\d+)", done)
    if not int(count):
        # The machine was so busy that the clients have only just connected: that is no run.
        return _pgbench(command, 2 * whole)
    [tps] = re.findall(r"tps = ([\d.]+)", done)
    return int(count), float(tps)


def _sql(address: list[str], text: str) -> str:
    command = ["psql", *address, "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[list[str]]:
    """How clients reach it: by a socket that nobody else may open."""
    data = folder / "data"
    # The name of a socket may be 107 bytes long, so it is not below the folder.
    with tempfile.TemporaryDirectory() as private:
        data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            for path in (data, private):
                shutil.chown(path, _USER)
        _as_user("initdb", "-D", str(data), "-U", _USER, "--auth=trust", "--no-sync", "-EUTF8")
        settings = f"-k {private} -c listen_addresses= -c fsync=on -c synchronous_commit=on"
        control = ["pg_ctl", "-D", str(data), "-w", "-s"]
        _as_user(*control, "-l", str(data / "log"), "-o", settings, "start")
        try:
            yield ["-h", private, "-U", _USER, "postgres"]
        finally:
            _as_user(*control, "-m", "immediate", "stop")


def _as_user(program: str, *arguments: str) -> None:
    command = [f"{_programs()}/{program}", *arguments]
    if os.geteuid() == 0:
        # The folders above belong to root, and may be closed to others.
        capability = [f"--{kind}-caps=+dac_override" for kind in ("inh", "ambient")]
        user = [f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups"]
        command = ["setpriv", *user, *capability, *command]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=os.environ | {"LC_ALL": "C"})


def _programs() -> str:
    """The folder of initdb and pg_ctl; empty if there is none. Debian has it not on the PATH."""
    if found := shutil.which("initdb"):
        return str(Path(found).resolve().parent)
    of_debian = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(of_debian, key=lambda path: int(path.parts[-3]), default=None)
    return str(newest.parent) if newest else ""


def _has_user() -> bool:
    try:
        pwd.getpwnam(_USER)
    except KeyError:
        return False
    return True
