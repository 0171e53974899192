"""fsmq on a machine booted by systemd: it is installed, started, hangs, is killed and removed.

The machine has no network. Each test continues from the state that the test before it has left.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmq import __version__
from tests.harness.pages import Block, blocks
from tests.harness.suite import HOME, PATIENCE_S
from tests.systemd.machine import (
    Machine,
    booted,
    copy_clone,
    eventually,
    skip_where_impossible,
    system_python,
)

pytestmark = pytest.mark.timeout(300)
SERVICES = ("fsmq-mq@main", "fsmq-mover@main", "fsmq-reaper@main")
URL = "http://127.0.0.1:8080"
PYTHON = "/usr/local/lib/fsmq/bin/python"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive for machines without a network, built from a copy of this clone."""
    skip_where_impossible()
    clone = tmp_path_factory.mktemp("clone")
    copy_clone(clone)
    done = subprocess.run(
        ["systemd/bundle.sh"],
        cwd=clone,
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def machine(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with the unpacked bundle in /opt and a clone in /srv, nothing installed."""
    with booted(tmp_path_factory.mktemp("machine")) as machine:
        with tarfile.open(bundle) as archive:
            archive.extractall(machine.path("/opt"), filter="data")
        clone = machine.path("/srv/fsmq")
        shutil.copytree(bundle.parents[1], clone, ignore=lambda *_: ["dist"])
        # With these the clone can be installed without a network, too.
        shutil.copytree(machine.path(f"{unpacked(machine)}/wheels"), clone / "wheels")
        yield machine


def unpacked(machine: Machine) -> str:
    return f"/opt/fsmq-{__version__}"


def curl(machine: Machine, *arguments: str) -> str:
    return machine.run("curl", "--silent", "--show-error", "--fail", "--max-time", "30", *arguments)


def is_refused(machine: Machine, url: str) -> bool:
    return machine.attempt("curl", "--silent", f"{url}/").returncode == 7


def processes(machine: Machine, *states: str) -> dict[str, int]:
    """The pid of each service in the machine; 0 if its state is not one of ``states``."""
    shown = machine.run("systemctl", "show", "--property=MainPID,ActiveState", *SERVICES)
    units = [dict(line.split("=") for line in unit.split()) for unit in shown.split("\n\n")]
    return {
        service: int(unit["MainPID"]) if not states or unit["ActiveState"] in states else 0
        for service, unit in zip(SERVICES, units, strict=True)
    }


def replaced(machine: Machine, before: dict[str, int]) -> bool:
    """Whether every service has a new process that is ready."""
    now = processes(machine, "active")
    return all(now[service] not in (0, before[service]) for service in SERVICES)


def test_the_bundle_installs_without_a_network(machine: Machine) -> None:
    output = machine.run(f"{unpacked(machine)}/systemd/install.sh", env={"PYTHON": system_python()})
    assert "systemctl enable --now fsmq@main.target" in output
    assert machine.run("fsmq", "--version").strip() == f"fsmq {__version__}"
    share = machine.path("/usr/local/share")
    assert (share / "man/man1/fsmq-put.1").read_text().startswith('.TH "FSMQ PUT"')
    assert "complete" in (share / "bash-completion/completions/fsmq").read_text()
    assert (share / "zsh/site-functions/_fsmq").read_text().startswith("#compdef fsmq")
    assert (share / "fish/vendor_completions.d/fsmq.fish").exists()
    assert machine.attempt("ip", "route").stdout == ""
    assert not any(machine.is_active(service) for service in SERVICES)


def test_the_target_starts_the_suite(machine: Machine) -> None:
    machine.run("systemctl", "enable", "--now", "fsmq@main.target")
    eventually(lambda: all(machine.is_active(service) for service in SERVICES))
    # Active means that the service has reported that it is ready.
    assert machine.show("fsmq-mq@main", "StatusText") == f"listening on {URL}"
    assert machine.show("fsmq-mover@main", "StatusText") == "serving /var/lib/fsmq/main"
    assert machine.run("systemctl", "is-enabled", "fsmq@main.target").strip() == "enabled"


def test_mq_is_limited_to_half_of_the_memory(machine: Machine) -> None:
    most = int(machine.show("fsmq-mq@main", "MemoryMax"))
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert most == pytest.approx(total / 2, rel=0.01)


def test_only_the_user_fsmq_can_access_the_spool(machine: Machine) -> None:
    root = machine.path("/var/lib/fsmq/main")
    uid = int(machine.run("id", "--user", "fsmq"))
    for folder in (root, *(root / name for name in ("new", "queues", "delay", "remove"))):
        assert folder.stat().st_mode & 0o777 == 0o700, folder
        assert folder.stat().st_uid == uid, folder


def test_a_message_is_stored_delivered_and_removed(machine: Machine) -> None:
    curl(machine, "-X", "PUT", f"{URL}/jobs")
    posted = json.loads(curl(machine, "--data-binary", "hello", f"{URL}/jobs/messages"))["id"]
    assert curl(machine, f"{URL}/jobs/messages?wait=20") == "hello"
    curl(machine, "-X", "DELETE", f"{URL}/jobs/messages/{posted}")
    curl(machine, "-X", "PUT", f"{URL}/kept")
    curl(machine, "--data-binary", "stays", f"{URL}/kept/messages")


def test_log_lines_have_their_level_in_the_journal(machine: Machine) -> None:
    def entries() -> list[dict[str, str]]:
        printed = machine.run("journalctl", "--output=json", "--unit=fsmq-mq@main")
        return [json.loads(line) for line in printed.splitlines()]

    def started() -> list[dict[str, str]]:
        return [e for e in entries() if str(e["MESSAGE"]).startswith(f"started listening={URL}")]

    [entry] = eventually(started)
    assert entry["PRIORITY"] == "6"
    assert entry["SYSLOG_IDENTIFIER"] == "mq"


def test_a_service_that_hangs_is_killed_and_restarted(machine: Machine) -> None:
    # Shorter than the usual minute, but long enough for a program on a busy machine.
    quick = "[Service]\nWatchdogSec=10s\n"
    for service in SERVICES:
        name = service.replace("main", "main.service")
        machine.write(f"/etc/systemd/system/{name}.d/quick.conf", quick)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", *SERVICES)
    before = processes(machine)
    machine.run("kill", "-STOP", *map(str, before.values()))
    eventually(lambda: replaced(machine, before), 3 * PATIENCE_S)
    for service in SERVICES:
        assert machine.show(service, "NRestarts") == "1"
        assert "Watchdog timeout" in machine.run("journalctl", f"--unit={service}")
        shutil.rmtree(machine.path(f"/etc/systemd/system/{service}.service.d"))
    machine.run("systemctl", "daemon-reload")


def test_a_killed_service_is_restarted_and_requests_wait_for_it(machine: Machine) -> None:
    before = processes(machine)
    machine.run("kill", f"-{signal.SIGKILL:d}", *map(str, before.values()))
    curl(machine, "--data-binary", "meanwhile", f"{URL}/kept/messages")
    eventually(lambda: replaced(machine, before))


def test_a_restart_under_load_loses_no_request(machine: Machine) -> None:
    for queue in ("busy", "empty"):
        curl(machine, "-X", "PUT", f"{URL}/{queue}")
    command = machine.command(
        [PYTHON, "-m", "tests.http.load", URL, "busy", "empty"], {"PYTHONPATH": "/srv/fsmq"}
    )
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as load:
        assert load.stdin is not None
        assert load.stdout is not None

        def stored() -> int:
            load.stdin.write("\n")
            return int(load.stdout.readline())

        for unit in ("fsmq-mq@main.service", "fsmq@main.target", "fsmq-mq@main.service"):
            least = stored() + 50
            eventually(lambda enough=least: stored() > enough)
            before = machine.show("fsmq-mq@main", "MainPID")
            machine.run("systemctl", "restart", unit)
            eventually(lambda old=before: machine.show("fsmq-mq@main", "MainPID") != old)
        load.stdin.close()
        # The waiting fetch ends last, by its timeout or by one more restart.
        eventually(lambda: machine.is_active("fsmq-mq@main"))
        machine.run("systemctl", "restart", "fsmq-mq@main.service")
        result = json.loads(load.stdout.read())
    assert result["lost"] == []
    assert set(result["fetched"]) == {204}

    def delivered() -> bool:
        counted = json.loads(curl(machine, f"{URL}/busy"))["messages"]
        return bool(counted["ready"] == len(result["stored"]))

    eventually(delivered)


def test_a_drop_folder_is_watched(machine: Machine) -> None:
    fsmq = ("runuser", "-u", "fsmq", "--", "/usr/local/bin/fsmq")
    machine.run(*fsmq, "queue", "create", "scans", "--at", "/var/lib/fsmq/main")
    machine.run("systemctl", "enable", "--now", "fsmq-drop@scans")
    folder = machine.path("/var/lib/fsmq-drop/scans")
    assert folder.stat().st_mode & 0o7777 == 0o2770
    machine.run(
        "runuser", "-u", "fsmq", "--", "sh", "-c", "echo one > /var/lib/fsmq-drop/scans/own"
    )
    (folder / "roots").write_text("two\n")
    eventually(lambda: (folder / "done/own").exists() and (folder / "done/roots").exists())
    bodies = {curl(machine, f"{URL}/scans/messages?wait=20") for _ in range(2)}
    assert bodies == {"one\n", "two\n"}


def test_a_worker_runs_a_command_for_each_message(machine: Machine) -> None:
    curl(machine, "-X", "PUT", f"{URL}/texts")
    machine.write(
        "/etc/fsmq/worker-texts.env",
        "WORKER_COMMAND=tr a-z A-Z >> done.txt\nWORKER_OPTIONS=--concurrency=2\n",
    )
    machine.run("systemctl", "enable", "--now", "fsmq-worker@texts")
    curl(machine, "--data-binary", "hello", f"{URL}/texts/messages")
    done = machine.path("/var/lib/fsmq-worker/texts/done.txt")
    eventually(lambda: done.exists() and done.read_text() == "HELLO")
    machine.run("systemctl", "kill", "--signal=KILL", "fsmq-worker@texts")
    curl(machine, "--data-binary", " again", f"{URL}/texts/messages")
    eventually(lambda: done.read_text() == "HELLO AGAIN")


def test_the_check_of_the_spool_fails_if_it_has_a_finding(machine: Machine) -> None:
    machine.run("systemctl", "enable", "--now", "fsmq-fsck@main.timer")
    assert machine.show("fsmq-fsck@main.timer", "ActiveState") == "active"
    machine.run("systemctl", "start", "fsmq-fsck@main")
    strange = machine.path("/var/lib/fsmq/main/delay/no-colon")
    strange.write_text("")
    assert machine.attempt("systemctl", "start", "fsmq-fsck@main").returncode == 1
    assert "no-colon" in machine.run("journalctl", "--unit=fsmq-fsck@main", "--no-pager")
    strange.unlink()
    machine.run("systemctl", "start", "fsmq-fsck@main")


def test_the_backup_service_keeps_one_clean_snapshot(machine: Machine) -> None:
    machine.run("systemctl", "enable", "--now", "fsmq-backup@main.timer")
    assert machine.show("fsmq-backup@main.timer", "ActiveState") == "active"
    machine.write("/etc/fsmq/backup-main.env", "BACKUP_OPTIONS=--keep=1\n")
    for _ in range(2):
        machine.run("systemctl", "start", "fsmq-backup@main")
    [snapshot] = machine.path("/var/lib/fsmq-backup/main").glob("2*")
    assert snapshot.stat().st_mode & 0o777 == 0o700
    fsck = ["runuser", "-u", "fsmq", "--", "fsmq", "fsck", "--root"]
    assert "clean" in machine.run(*fsck, f"/var/lib/fsmq-backup/main/{snapshot.name}")


def test_a_second_instance_has_its_own_spool(machine: Machine) -> None:
    machine.write(
        "/etc/systemd/system/fsmq-mq@orders.socket.d/address.conf",
        "[Socket]\nListenStream=\nListenStream=127.0.0.1:8081\n",
    )
    machine.write("/etc/fsmq/orders.env", "FSMQ_PROCESSES=2\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "--now", "fsmq@orders.target")
    other = "http://127.0.0.1:8081"
    curl(machine, "-X", "PUT", f"{other}/second")
    curl(machine, "--data-binary", "elsewhere", f"{other}/second/messages")
    assert curl(machine, f"{other}/second/messages?wait=20") == "elsewhere"
    assert machine.path("/var/lib/fsmq/orders/queues/second").is_dir()
    assert not machine.path("/var/lib/fsmq/main/queues/second").exists()
    main = machine.show("fsmq-mq@orders", "MainPID")
    assert len(machine.run("ps", "--ppid", main, "-o", "pid=").split()) == 2


def test_a_stop_of_the_target_closes_the_socket(machine: Machine) -> None:
    machine.run("systemctl", "stop", "fsmq@orders.target")
    eventually(lambda: is_refused(machine, "http://127.0.0.1:8081"))
    eventually(lambda: not machine.is_active("fsmq-mover@orders"))
    assert machine.is_active("fsmq-mq@main")


def test_a_wrong_setting_does_not_restart_the_service_for_ever(machine: Machine) -> None:
    machine.write("/etc/fsmq/orders.env", "FSMQ_WORKERS=many\n")
    machine.attempt("systemctl", "start", "fsmq@orders.target")
    eventually(lambda: machine.show("fsmq-mq@orders", "ExecMainStatus") == "2")
    assert "expected a whole number" in machine.run("journalctl", "--unit=fsmq-mq@orders")
    assert machine.show("fsmq-mq@orders", "NRestarts") == "0"
    machine.run("systemctl", "stop", "fsmq@orders.target")
    machine.path("/etc/fsmq/orders.env").write_text("")


def test_uninstall_keeps_the_messages(machine: Machine) -> None:
    output = machine.run(f"{unpacked(machine)}/systemd/install.sh", "uninstall")
    assert "/var/lib/fsmq" in output
    assert is_refused(machine, URL)
    for pattern in (
        "/usr/local/lib/fsmq",
        "/usr/local/bin/mq",
        "/usr/local/lib/systemd/system/*fsmq*",
        "/usr/local/share/man/man1/fsmq*",
        "/usr/local/share/*/*/*fsmq*",
    ):
        assert not list(machine.root.glob(pattern.lstrip("/"))), pattern
    units = machine.path("/etc/systemd/system")
    assert not list(units.rglob("fsmq*.target"))
    enabled = units.rglob("fsmq-*@*.*")
    assert not [unit for unit in enabled if unit.is_symlink()]
    assert machine.path("/var/lib/fsmq-drop/scans/done/own").exists()
    assert machine.path("/etc/fsmq/orders.env").exists()
    assert list(machine.path("/var/lib/fsmq/main/queues/kept").iterdir())


def test_a_package_can_be_staged_under_destdir(machine: Machine) -> None:
    env = {"PYTHON": system_python(), "DESTDIR": "/srv/stage", "PREFIX": "/usr"}
    machine.run("/srv/fsmq/systemd/install.sh", env=env)
    stage = machine.path("/srv/stage")
    unit = (stage / "usr/lib/systemd/system/fsmq-mq@.service").read_text()
    assert "ExecStart=/usr/lib/fsmq/bin/mq\n" in unit
    assert os.readlink(stage / "usr/bin/mq") == "/usr/lib/fsmq/bin/mq"
    search = ("grep", "--recursive", "--files-with-matches", "/srv/stage", "/srv/stage")
    naming = machine.attempt(*search)
    assert (naming.returncode, naming.stdout) == (1, "")  # 2 would be a failed search
    # It runs once it is at its final path.
    machine.run("cp", "-r", "/srv/stage/usr/lib/fsmq", "/usr/lib/fsmq")
    assert machine.run("/usr/lib/fsmq/bin/mq", "--version").strip() == f"mq {__version__}"
    machine.run("/srv/fsmq/systemd/install.sh", "uninstall", env=env)
    assert [p for p in stage.rglob("*") if p.is_file()] == [stage / "etc/fsmq/main.env"]


def test_commands_of_the_page_work_and_keep_earlier_messages(
    bundle: Path, machine: Machine
) -> None:
    def follow(block: Block) -> str:
        script = "\n".join(["set -eux -o pipefail; cd /srv/fsmq", *block.lines, ""])
        machine.write("/srv/page.sh", script)
        return machine.run("bash", "/srv/page.sh", env={"PYTHON": system_python()})

    shutil.copy(bundle, machine.path("/srv/fsmq"))
    installs, *more, uninstalls = blocks(HOME / "docs" / "systemd.md")
    follow(installs)
    # Held for longer than the upgrades take on a busy machine.
    bodies = {curl(machine, f"{URL}/kept/messages?wait=20&visibility=3600") for _ in range(2)}
    assert bodies == {"stays", "meanwhile"}
    output = "".join(map(follow, more))
    assert "hello" in output
    assert "fsmq is upgraded" in output
    assert json.loads(curl(machine, f"{URL}/kept"))["messages"]["in_flight"] == 2
    assert '{"queue": "orders", "created": true}' in output
    assert "clean" in output
    assert machine.path("/var/lib/fsmq/orders/queues/orders").is_dir()
    follow(uninstalls)
    assert not machine.path("/usr/local/lib/fsmq").exists()
