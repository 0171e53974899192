"""Replaced keys and certificates are loaded without a signal."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fsmq.daemons.process.filewatch import folders_of
from tests.harness.certificates import HAS_OPENSSL, make
from tests.harness.missing import environment
from tests.harness.suite import Suite, eventually
from tests.http.helpers import Wire
from tests.http.keyfile import add_key, bearer
from tests.http.test_loop import HELD_S, watch_over


class Keyed:
    """A suite whose keys are in ``secrets/keys.toml`` beside its root."""

    def __init__(self, suite: Suite, file: Path) -> None:
        self.suite, self.file = suite, file

    def status(self, token: str) -> int:
        with Wire(self.suite.url) as wire:
            return wire.ask("GET", "/jobs/messages", bearer(token)).status

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [e for e in self.suite.logs("mq") if e["event"] == event]

    def await_log(self, event: str, count: int) -> dict[str, Any]:
        """Wait until an event was logged so often; the last line."""
        eventually(lambda: len(self.logged(event)) >= count)
        assert len(self.logged(event)) == count
        return self.logged(event)[-1]


LOADED, KEPT = "keys loaded", "the keys stay as they were"


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[Callable[[Path], Keyed]]:
    """Start mq with a key file."""
    running: list[Suite] = []

    def start(file: Path, *options: str) -> Keyed:
        more = [f"--keys={file}", *options]
        running.append(Suite(tmp_path / "mq", mq_options=more, mover=False, reaper=False))
        running[-1].__enter__()
        (running[-1].root / "queues" / "jobs").mkdir()
        return Keyed(running[-1], file)

    yield start
    for suite in running:
        suite.close()


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    return folder


def with_a_key(file: Path) -> str:
    """A key file with one new key, and that key."""
    return add_key(file, "worker", "--receive=jobs")


def test_a_key_file_that_is_renamed_into_place(keyed: Callable[..., Keyed], secrets: Path) -> None:
    old = with_a_key(secrets / "keys.toml")
    mq = keyed(secrets / "keys.toml", "--processes=2")
    assert mq.status(old) == 204
    new = with_a_key(secrets / "next")
    os.rename(secrets / "next", secrets / "keys.toml")
    mq.await_log(LOADED, 2)  # each process says so
    assert (mq.status(new), mq.status(old)) == (204, 401)


def test_a_broken_key_file_is_logged_once_and_ignored(
    keyed: Callable[..., Keyed], secrets: Path
) -> None:
    file = secrets / "keys.toml"
    old = with_a_key(file)
    mq = keyed(file)
    (secrets / "next").write_text("no toml")
    (secrets / "next").chmod(0o600)
    os.rename(secrets / "next", file)
    assert "is not a TOML file" in mq.await_log(KEPT, 1)["error"]
    assert mq.status(old) == 204
    # Other changes in the folder do not matter.
    for name in ("a", "b"):
        (secrets / name).touch()
        assert mq.status(old) == 204
    new = with_a_key(secrets / "next")
    (secrets / "next").chmod(0o644)
    os.rename(secrets / "next", file)
    assert "chmod" in mq.await_log(KEPT, 2)["error"]
    # There is no event for this change.
    file.chmod(0o600)
    mq.await_log(LOADED, 1)
    assert (mq.status(new), mq.status(old)) == (204, 401)
    assert len(mq.logged(KEPT)) == 2


def test_a_key_file_that_is_written_in_place_or_removed(
    keyed: Callable[..., Keyed], secrets: Path
) -> None:
    file = secrets / "keys.toml"
    old = with_a_key(file)
    mq = keyed(file)
    new = add_key(file, "more", "--receive=jobs")
    mq.await_log(LOADED, 1)
    assert (mq.status(new), mq.status(old)) == (204, 204)
    shutil.rmtree(secrets)
    assert "cannot be read" in mq.await_log(KEPT, 1)["error"]
    assert mq.status(old) == 204
    secrets.mkdir()
    last = with_a_key(file)
    mq.await_log(LOADED, 2)
    assert (mq.status(last), mq.status(old)) == (204, 401)
    newest = add_key(file, "newest", "--receive=jobs")
    mq.await_log(LOADED, 3)
    assert mq.status(newest) == 204


def test_a_folder_of_keys_that_is_replaced(
    keyed: Callable[..., Keyed], secrets: Path, tmp_path: Path
) -> None:
    old = with_a_key(secrets / "keys.toml")
    mq = keyed(secrets / "keys.toml")
    assert mq.status(old) == 204
    (tmp_path / "next").mkdir()
    new = with_a_key(tmp_path / "next" / "keys.toml")
    # The watch is on the old folder.
    os.rename(secrets, tmp_path / "old")
    os.rename(tmp_path / "next", secrets)
    mq.await_log(LOADED, 1)
    assert (mq.status(new), mq.status(old)) == (204, 401)
    newest = add_key(secrets / "keys.toml", "newest", "--receive=jobs")
    mq.await_log(LOADED, 2)
    assert mq.status(newest) == 204


def test_a_secret_of_kubernetes(keyed: Callable[..., Keyed], secrets: Path) -> None:
    """keys.toml → ..data/keys.toml, and ..data → a folder, which is replaced by another."""

    def swap(number: int) -> str:
        folder = secrets / f"..{number}"
        folder.mkdir()
        token = with_a_key(folder / "keys.toml")
        (secrets / "..data_tmp").symlink_to(folder.name)
        os.rename(secrets / "..data_tmp", secrets / "..data")
        if number:
            shutil.rmtree(secrets / f"..{number - 1}")
        return token

    tokens = [swap(0)]
    (secrets / "keys.toml").symlink_to("..data/keys.toml")
    mq = keyed(secrets / "keys.toml")
    for number in (1, 2, 3):
        tokens.append(swap(number))
        mq.await_log(LOADED, number)
        assert (mq.status(tokens[-1]), mq.status(tokens[-2])) == (204, 401)
    assert not mq.logged(KEPT)
    assert mq.suite.terminate("mq") == 0
    levels = {event.get("level") for event in mq.suite.logs("mq")}
    assert levels <= {"info", "warning"}


def test_without_watchdog_a_signal_reloads_the_keys(
    keyed: Callable[..., Keyed], secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(["watchdog"]).items():
        monkeypatch.setenv(name, value)
    with_a_key(secrets / "keys.toml")
    mq = keyed(secrets / "keys.toml")
    assert mq.logged("files that change are noticed late: send SIGHUP")
    new = add_key(secrets / "keys.toml", "more", "--receive=jobs")
    assert mq.status(new) == 401
    mq.suite["mq"].signal(signal.SIGHUP)
    mq.await_log(LOADED, 1)
    assert mq.status(new) == 204


@pytest.mark.skipif(not HAS_OPENSSL, reason="there is no openssl")
def test_a_certificate_that_is_renamed_into_place(tmp_path: Path, secrets: Path) -> None:
    certificate, key = make(secrets, "live")
    first = certificate.read_bytes()
    options = [f"--tls-cert={certificate}", f"--tls-key={key}"]
    with Suite(tmp_path / "mq", mq_options=options, mover=False, reaper=False) as suite:
        (tmp_path / "first").write_bytes(first)

        def trusts(file: Path) -> bool:
            context = ssl.create_default_context(cafile=file)
            with Wire(suite.url) as wire:
                try:
                    context.wrap_socket(wire.socket, server_hostname="localhost").close()
                except ssl.SSLCertVerificationError:
                    return False
            return True

        def logged(event: str) -> list[dict[str, Any]]:
            return [e for e in suite.logs("mq") if e["event"] == event]

        assert trusts(tmp_path / "first")
        make(secrets, "next")
        # The key only, which does not belong to the old certificate.
        os.rename(secrets / "next.key", key)
        eventually(lambda: logged("the certificate stays as it was"))
        assert trusts(tmp_path / "first")
        os.rename(secrets / "next.crt", certificate)
        eventually(lambda: logged("certificate loaded"))
        assert trusts(certificate)
        assert not trusts(tmp_path / "first")
        assert len(logged("the certificate stays as it was")) == 1


def test_the_folders_on_the_way_to_a_file(tmp_path: Path) -> None:
    here = Path(os.path.realpath(tmp_path))
    (here / "a" / "b").mkdir(parents=True)
    (here / "a" / "b" / "file").touch()
    (here / "way").symlink_to("a/b")
    (here / "a" / "link").symlink_to(here / "way" / "file")
    (here / "a" / "self").symlink_to("self")
    assert folders_of(here / "a" / "b" / "file") == {f"{here}/a/b"}
    assert folders_of(here / "way" / ".." / "b" / "file") == {f"{here}", f"{here}/a/b"}
    assert folders_of(here / "a" / "link") == {f"{here}/a", f"{here}", f"{here}/a/b"}
    assert folders_of(here / "a" / "self") == {f"{here}/a"}
    assert folders_of(here / "none" / "file") == set()


def test_a_file_of_thousands_of_keys_does_not_block_the_loop(tmp_path: Path) -> None:
    keys = [
        f'[keys.k{number}]\nhash = "sha256:{number:064x}"\nsend = ["q{number}.*", "r{number}.?"]\n'
        for number in range(4000)
    ]
    file = tmp_path / "keys.toml"
    add_key(file, "first", "--look=*")
    with contextmanager(watch_over)(tmp_path, f"--keys={file}") as (suite, watch):
        keyed = Keyed(suite, file)
        with file.open("a") as opened:
            watch.clear()
            opened.write("\n".join(keys))
        keyed.await_log(LOADED, 1)
        assert watch.longest <= HELD_S
