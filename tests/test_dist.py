"""The files of a release, installed into empty environments: `make dist` and `make release`."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsmq._version import __version__
from tests.cli.helpers import commands
from tests.harness.pages import blocks
from tests.harness.ports import held
from tests.harness.suite import HOME, eventually

pytestmark = pytest.mark.timeout(600)
OLDEST, NEWEST = 11, 14
MB = 1_000_000
# The limits of an installation, without pip.
LIBRARY_MB, SERVER_MB = 60, 100


def _works(python: str) -> bool:
    """Whether this Python can make environments; a shim of pyenv may have no Python."""
    command = [python, "-c", "import ensurepip, venv"]
    return subprocess.run(command, capture_output=True).returncode == 0


def pythons() -> list[str]:
    """One Python of each supported version that is installed here, the running one first."""
    found = [sys.executable]
    for minor in range(OLDEST, NEWEST + 1):
        if minor == sys.version_info.minor:
            continue
        name = f"python3.{minor}"
        places = [shutil.which(name), *Path.home().glob(f".pyenv/versions/*/bin/{name}")]
        found += [str(place) for place in places if place and _works(str(place))][:1]
    return found


def _script(name: str, folder: Path = HOME, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script of packaging/."""
    environ = {**os.environ, "PYTHON": sys.executable, **variables}
    command = [folder / "packaging" / name]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files of a release."""
    folder = tmp_path_factory.mktemp("dist") / "files"
    environ = {**os.environ, "DIST": str(folder)}
    done = subprocess.run(["make", "dist"], cwd=HOME, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def wheel(dist: Path) -> Path:
    return dist / f"fsmq-{__version__}-py3-none-any.whl"


class Environment:
    """A virtual environment that does not see the packages of this one."""

    def __init__(self, python: str, folder: Path) -> None:
        self._folder = folder
        subprocess.run([python, "-m", "venv", folder], check=True)
        self._empty = self._size()
        # No modules, settings or programs of the running environment.
        self.environ = {"HOME": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        for name, value in os.environ.items():  # the source of packages
            if name.startswith(("PIP_", "SSL_", "REQUESTS_")) or name.lower().endswith("_proxy"):
                self.environ[name] = value

    def _size(self) -> int:
        files = (path for path in self._folder.rglob("*") if not path.is_symlink())
        return sum(path.stat().st_size for path in files if path.is_file())

    @property
    def installed(self) -> int:
        """The size of the installed packages, in bytes."""
        return self._size() - self._empty

    def run(self, *command: str | Path, **variables: str) -> str:
        """Run a command that has to succeed; its output."""
        environ = self.environ | variables
        done = subprocess.run(
            command,
            env=environ,
            cwd=self._folder,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def install(self, package: str) -> None:
        self.run("pip", "install", "--quiet", "--disable-pip-version-check", package)

    @contextmanager
    def up(self, *command: str, **variables: str) -> Iterator[None]:
        """Run `fsmq up`, ready for requests, until the end of the ``with``."""
        log = self._folder / "up.log"
        with log.open("w") as file:
            program = subprocess.Popen(
                command, env=self.environ | variables, cwd=self._folder, stdout=file, stderr=file
            )
            try:
                eventually(
                    lambda: program.poll() is not None or "fsmq is up" in log.read_text(), 60
                )
                assert program.poll() is None, log.read_text()
                yield
            finally:
                program.terminate()
                program.wait()
        assert program.returncode == 0, log.read_text()


@pytest.fixture
def port() -> Iterator[int]:
    holder, number = held()
    with holder:
        yield number


def ask(url: str, method: str = "GET", body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, data=body, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return bytes(answer.read())


@pytest.mark.parametrize("python", pythons(), ids=lambda python: Path(python).name)
def test_library_and_command_need_few_packages(python: str, wheel: Path, tmp_path: Path) -> None:
    there = Environment(python, tmp_path / "env")
    there.install(str(wheel))
    at = f"--at={tmp_path / 'mq'}"
    there.run("fsmq", "queue", "create", "jobs", at)
    identity = there.run("fsmq", "put", "jobs", "--body=hello", at).strip()
    assert there.run("fsmq", "get", "jobs", at) == "hello"
    there.run("fsmq", "ack", "jobs", identity, at)
    program = "import sys, fsmq; print(fsmq.Spool(sys.argv[1]).queue('jobs').claim())"
    assert there.run("python", "-c", program, str(tmp_path / "mq")) == "[]\n"
    assert there.installed <= LIBRARY_MB * MB


@pytest.mark.parametrize("python", pythons(), ids=lambda python: Path(python).name)
def test_the_commands_of_the_readme_install_and_start_fsmq(
    python: str, wheel: Path, tmp_path: Path, port: int
) -> None:
    there = Environment(python, tmp_path / "env")
    shutil.copy(wheel, tmp_path / "env")
    [block, *_] = [b for b in blocks(HOME / "README.md") if "pip install" in "".join(b.lines)]
    install, up = (shlex.split(line, comments=True) for line in block.lines[1:])
    assert up[:2] == ["fsmq", "up"]
    there.run(*install)
    assert there.installed <= SERVER_MB * MB
    with there.up("fsmq", "up", f"--root={tmp_path / 'mq'}", f"--port={port}"):
        url = f"http://127.0.0.1:{port}"
        ask(f"{url}/jobs", "PUT")
        ask(f"{url}/jobs/messages?id=first", "POST", b"hello")
        assert ask(f"{url}/jobs/messages") == b"hello"
        ask(f"{url}/jobs/messages/first", "DELETE")
        found = json.loads(there.run("fsmq", "queue", "show", "jobs", "--json", f"--at={url}"))
        assert found["messages"]["ready"] == found["messages"]["in_flight"] == 0
        assert b"<html" in ask(f"{url}/_ui/")


def test_each_command_has_a_manual_page(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    folder = next(tmp_path.glob("*.data")) / "data/share/man/man1"
    pages = {page.stem for page in folder.iterdir()}
    names = {f"fsmq-{name.replace(' ', '-')}" for name, _ in commands(groups=True)}
    assert pages == {"fsmq", *names}
    assert {"fsmq-queue", "fsmq-queue-create", "fsmq-put"} <= pages
    for page in folder.iterdir():
        assert "Examples:\n  " in page.read_text(), page.name
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    for page in folder.iterdir():
        done = subprocess.run(
            ["groff", "-Kutf8", "-man", "-Tutf8", "-ww", page], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, ""), page.name
        assert "\b\n" not in done.stdout
        assert "..." not in page.read_text().split(".SH SYNOPSIS")[0], page.name


def test_the_source_archive_is_complete(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(dist / f"fsmq-{__version__}.tar.gz") as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(
        ["git", "ls-files"], cwd=HOME, capture_output=True, text=True, check=True
    )
    # Files that are of use in a clone only.
    files = {name for name in listed.stdout.split() if not name.startswith((".ci/", ".git"))}
    assert files <= packed


IMAGE = f"fsmq-{__version__}-image"


def test_the_steps_of_the_image_work(dist: Path, tmp_path: Path, port: int) -> None:
    """In an environment, because there may be no program that builds images."""
    with tarfile.open(dist / f"{IMAGE}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / IMAGE
    lines = (folder / "Dockerfile").read_text().replace("/wheels/", f"{folder}/").splitlines()
    rows = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    [install] = [rest for word, rest in rows if word == "RUN" and "pip install" in rest]
    there = Environment(sys.executable, tmp_path / "env")
    there.run("sh", "-c", install)
    settings = dict(
        pair.split("=", 1) for word, rest in rows if word == "ENV" for pair in rest.split()
    )
    settings |= {"FSMQ_ROOT": str(tmp_path / "mq"), "FSMQ_PORT": str(port)}
    rights = ("--send=*", "--receive=*", "--admin=*")
    keys = str(tmp_path / "keys.toml")
    there.run("fsmq", "key", "create", "app", f"--keys={keys}", *rights)
    [command] = [json.loads(rest) for word, rest in rows if word == "CMD"]
    [check] = [
        json.loads(rest.removeprefix("CMD ")) for word, rest in rows if word == "HEALTHCHECK"
    ]
    check[-1] = check[-1].replace(":8080", f":{port}")
    with there.up(*command, **settings, FSMQ_KEYS=keys):
        eventually(
            lambda: subprocess.run(check, env=there.environ, capture_output=True).returncode == 0
        )


def test_checksums_are_right(dist: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, capture_output=True
    )
    assert done.returncode == 0
    assert len((dist / "SHA256SUMS").read_text().splitlines()) == len(list(dist.iterdir())) - 1


# -- the release -----------------------------------------------------------------------------------


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone that is ready to be released."""
    folder = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", HOME, folder], check=True)
    log = folder / "CHANGELOG.md"
    today = time.strftime("%Y-%m-%d")
    log.write_text(
        re.sub(r"^## .*$", f"## {__version__} ({today})", log.read_text(), count=1, flags=re.M)
    )
    git(folder, "config", "user.name", "a developer")
    git(folder, "config", "user.email", "developer@example.org")
    git(folder, "commit", "--quiet", "--all", "--allow-empty", "--message", "release")
    return folder


def git(folder: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def test_a_release_creates_its_files_and_its_tag(clone: Path) -> None:
    done = _script("release.sh", clone, TESTS="echo CI=$CI")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CI=1" in done.stdout
    assert f"git push origin v{__version__}" in done.stdout
    assert git(clone, "tag", "--points-at", "HEAD").split() == [f"v{__version__}"]
    assert git(clone, "status", "--porcelain") == ""
    assert len(list((clone / "dist" / "release").iterdir())) == 4
    again = _script("release.sh", clone, TESTS="true")
    assert again.returncode == 1
    assert "exists already" in again.stderr


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        ("echo x >> README.md", "not committed"),
        ("sed -i 's/^## .*/## 0.0.9 (2026-01-01)/' CHANGELOG.md; git commit -qam x", "no heading"),
        ('sed -i \'s/"[0-9.]*"/"1.0.dev1"/\' fsmq/_version.py; git commit -qam x', "is not X.Y.Z"),
        ("true", "tests fail"),
    ],
)
def test_an_unready_release_is_refused(clone: Path, damage: str, error: str) -> None:
    subprocess.run(damage, shell=True, cwd=clone, check=True)
    done = _script("release.sh", clone, TESTS="echo tests fail >&2; exit 1")
    assert done.returncode == 1
    assert error in done.stderr
    assert git(clone, "tag") == ""
    assert not (clone / "dist").exists()
