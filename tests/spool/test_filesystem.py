"""Properties of filesystems are found by trying, and not guessed."""

from __future__ import annotations

import errno
import os
import subprocess
from collections import namedtuple
from pathlib import Path

import pytest

from fsmq.spool import Spool, UnusableSpool
from tests.harness.mounts import Mount, mount  # noqa: F401 (a fixture)

_Uname = namedtuple("_Uname", "release")


def test_a_spool_is_not_opened_if_utime_fails(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Spool(root, sync="none").close()
    before = len(os.listdir("/proc/self/fd"))

    def utime(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "utime", utime)
    with pytest.raises(UnusableSpool, match="exact"):
        Spool(root, sync="none")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("coarse", [False, True])
def test_a_spool_mounted_read_only_knows_the_times_of_its_files(
    tmp_path: Path,
    mount: Mount,  # noqa: F811
    coarse: bool,
) -> None:
    disk = mount(tmp_path / "disk")
    root = disk / "mq"
    Spool(root, sync="none").close()
    for folder in root.iterdir():
        os.utime(folder, ns=(0, 1_700_000_000_000_000_000 + (not coarse)))
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with Spool(root, sync="none", create=False, watch="poll") as spool:
        assert spool.filesystem.coarse == coarse


@pytest.mark.parametrize(
    ("release", "whole"),
    [
        ("4.19.0-26-amd64", False),
        ("5.7.19", False),
        ("5.8.0", True),
        ("6.18.44-fc", True),
        ("", False),
    ],
)
def test_old_kernels_are_not_trusted_with_syncfs(
    root: Path, monkeypatch: pytest.MonkeyPatch, release: str, whole: bool
) -> None:
    Spool(root, sync="none").close()
    monkeypatch.setattr("fsmq.spool.layout.filesystem.kind_of", lambda path: "ext4")
    monkeypatch.setattr(os, "uname", lambda: _Uname(release))
    for sync in ("auto", "syncfs"):
        with Spool(root, sync=sync) as spool:  # type: ignore[arg-type]
            assert spool.filesystem.whole_sync == whole
            assert spool.syncer.mode == (sync if whole else "fsync")
