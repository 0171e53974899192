"""Key files and ``fsmq key``: what is accepted, and the errors of what is refused."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fsmq.cli import main
from fsmq.http.guard.keys import KeysError, load, parse
from tests.http.keyfile import add_key
from tests.spool.helpers import files_no_longer_than

HASH = "sha256:" + "0" * 64


def run(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, ["key", *arguments], input=typed)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


def test_a_new_key_is_shown_once_and_only_its_hash_is_kept(file: Path) -> None:
    result = run("create", "worker", f"--keys={file}", "--receive=jobs.*", "--send=a", "--send=b")
    assert result.exit_code == 0
    token = result.stdout.strip()
    assert token.startswith("fsmq_")
    assert len(token) >= 48
    text = file.read_text()
    assert token not in text
    assert hashlib.sha256(token.encode()).hexdigest() in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    key = load(file).find(token)
    assert key is not None
    assert key.name == "worker"
    assert key.grants.hold("receive", "jobs.a")
    assert key.grants.hold("send", "b")
    assert not key.grants.hold("send", "jobs.a")
    assert not key.grants.hold("admin", "a")
    assert load(file).find(token + "x") is None


def test_keys_differ(file: Path) -> None:
    assert len({add_key(file, f"k{n}", "--send=*") for n in range(20)}) == 20
    assert len(load(file).keys) == 20


def test_a_new_key_leaves_the_rest_of_the_file_unchanged(file: Path) -> None:
    file.write_text("# by hand\n[anonymous]\nsend = ['a']")
    file.chmod(0o640)
    add_key(file, "x", "--admin=*")
    assert file.read_text().startswith("# by hand\n[anonymous]\nsend = ['a']\n\n[keys.")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert load(file).anonymous.hold("send", "a")


def test_half_a_key_is_never_added(file: Path) -> None:
    """It may lack its last line, `not_after`, or make the whole file invalid."""
    add_key(file, "first", "--send=*")
    before = file.read_text()
    with files_no_longer_than(len(before) + 40):
        result = run("create", "second", f"--keys={file}", "--send=*", "--not-after=2099-12-31")
    assert result.exit_code == 78
    assert file.read_text() == before


def test_a_name_cannot_be_used_twice(file: Path) -> None:
    add_key(file, "x", "--send=*")
    before = file.read_text()
    result = run("create", "x", f"--keys={file}", "--send=*")
    assert result.exit_code == 78
    assert "already" in result.stderr
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["x"], "without rights"),
        (["", "--send=*"], "is not a name for a key"),
        (["a b", "--send=*"], "is not a name for a key"),
        (['a"]', "--send=*"], "is not a name for a key"),
        (["x", "--send="], "not a pattern"),
        (["x", "--send=a/b"], "not a pattern"),
        (["x", '--send="'], "not a pattern"),
        (["x", "--send=[ab]"], "not a pattern"),
        (["x", "--send=*", "--not-after=soon"], "soon"),
    ],
)
def test_invalid_arguments_create_no_key(file: Path, arguments: list[str], error: str) -> None:
    result = run("create", f"--keys={file}", *arguments)
    assert result.exit_code in (2, 78)
    assert error in result.stderr
    assert not file.exists()


def test_a_short_key_is_refused(file: Path) -> None:
    result = run("create", "x", f"--keys={file}", "--send=*", "--existing", typed="local_admin\n")
    assert result.exit_code == 78
    assert "20 to 1024" in result.stderr
    assert "local_admin" not in result.output
    assert not file.exists()


def test_keys_are_listed(file: Path) -> None:
    add_key(file, "a", "--send=x", "--receive=*", "--not-after=2999-12-31")
    add_key(file, "b", "--admin=topics/*", "--not-after=2001-01-01")
    result = run("list", f"--keys={file}")
    assert result.stdout.splitlines() == [
        "a: send x; receive *; not after 2999-12-31 00:00:00Z",
        "b: admin topics/*; over since 2001-01-01 00:00:00Z",
    ]


def test_a_listing_of_an_invalid_file_is_an_error(file: Path) -> None:
    file.write_text("[keys.x]\nhash = 3\n")
    file.chmod(0o600)
    result = run("list", f"--keys={file}")
    assert result.exit_code == 78
    assert f"{file}: keys.x.hash: expected sha256:" in result.stderr


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("keys = 3", "keys: expected a table"),
        ("[key.x]\n", "key: unknown"),
        ("[keys]\nx = 3", "keys.x: expected a table"),
        ("[keys.x]\nsend = ['*']", "keys.x.hash: expected"),
        ("[keys.x]\nhash = 'fsmq_the_key_itself'", "keys.x.hash: expected"),
        (f"[keys.x]\nhash = '{HASH.upper()}'", "keys.x.hash: expected"),
        (f"[keys.x]\nhash = '{HASH}'\nsends = ['*']", "keys.x.sends: unknown"),
        (f"[keys.x]\nhash = '{HASH}'\nsend = '*'", "keys.x.send: expected a list"),
        (f"[keys.x]\nhash = '{HASH}'\nsend = [3]", "keys.x.send: '3' is not a pattern"),
        (f"[keys.x]\nhash = '{HASH}'\nsend = ['a/b']", "keys.x.send: 'a/b' is not a pattern"),
        (f"[keys.x]\nhash = '{HASH}'\nnot_after = '2030-01-01'", "not_after: expected a date"),
        (f"[keys.x]\nhash = '{HASH}'\nnot_after = 2030-01-01T00:00:00", "needs its offset"),
        (
            f"[keys.x]\nhash = '{HASH}'\n[keys.y]\nhash = '{HASH}'",
            "keys.y.hash: is also that of keys.x",
        ),
        (f"[keys.'a b']\nhash = '{HASH}'", "is not a name for a key"),
        ("[anonymous]\nhash = '*'", "anonymous.hash: unknown"),
        ("[anonymous]\nsend = '*'", "anonymous.send: expected a list"),
    ],
)
def test_an_invalid_file_is_refused(text: str, error: str) -> None:
    with pytest.raises(KeysError) as refused:
        parse(text)
    assert error in str(refused.value)
    assert "the_key_itself" not in str(refused.value)


def test_patterns_of_queues_do_not_match_topics() -> None:
    ring = parse("[anonymous]\nsend = ['*']\nreceive = ['topics/a*', '?']\nadmin = ['topics/*']")
    holds = ring.anonymous.hold
    assert holds("send", "any")
    assert not holds("send", "topics/any")
    assert holds("receive", "topics/abc")
    assert not holds("receive", "topics/b")
    assert not holds("receive", "abc")
    assert not holds("admin", "any")


def test_receive_includes_look_but_not_the_reverse(file: Path) -> None:
    add_key(file, "viewer", "--look=a*")
    add_key(file, "worker", "--receive=b*")
    viewer, worker = (key.grants for key in load(file).keys)
    assert viewer.hold("look", "a1")
    assert not viewer.hold("receive", "a1")
    assert worker.hold("look", "b1")
    assert not worker.hold("look", "a1")
    assert [key.grants.names for key in load(file).keys] == [
        {"look": ("a*",)},
        {"receive": ("b*",)},
    ]


def test_patterns_match_whole_names() -> None:
    holds = parse("[anonymous]\nsend = ['a.b', 'c-?']").anonymous.hold
    assert holds("send", "a.b")
    assert not holds("send", "axb")
    assert not holds("send", "a.b\n")
    assert holds("send", "c-1")
    assert not holds("send", "c-")


def test_a_key_ends_at_its_date(file: Path) -> None:
    text = f"[keys.x]\nhash = '{HASH}'\nnot_after = "
    [day] = parse(text + "2030-01-02").keys
    [moment] = parse(text + "2030-01-02T01:00:00+01:00").keys
    assert day.not_after == moment.not_after == 1893542400
    assert not day.is_over(1893542399.9)
    assert day.is_over(1893542400)
    assert not day.is_over(time.time()) or time.time() > 1893542400


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o666, 0o644])
def test_a_file_that_others_can_use_is_refused(file: Path, mode: int) -> None:
    add_key(file, "x", "--send=*")
    file.chmod(mode)
    with pytest.raises(KeysError, match=r"chmod o-rwx,g-w"):
        load(file)


def test_a_group_may_read_the_file(file: Path) -> None:
    add_key(file, "x", "--send=*")
    file.chmod(0o440)
    assert len(load(file).keys) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(file: Path) -> None:
    add_key(file, "x", "--send=*")
    os.chown(file, 12345, -1)
    with pytest.raises(KeysError, match="belongs to the user 12345"):
        load(file)


def test_a_missing_or_special_file_is_refused(file: Path) -> None:
    with pytest.raises(KeysError, match="No such file"):
        load(file)
    file.mkdir()
    with pytest.raises(KeysError, match=r"regular file|directory"):
        load(file)
    file.rmdir()
    os.mkfifo(file, 0o600)
    with pytest.raises(KeysError, match="regular file"):  # without waiting for a writer
        load(file)


def test_a_key_that_signs_has_its_secret_in_the_file(file: Path) -> None:
    result = run("create", "app", f"--keys={file}", "--send=*", "--aws", "--not-after=2099-12-31")
    printed = dict(line.split("=", 1) for line in result.stdout.split())
    access_key, secret = printed["AWS_ACCESS_KEY_ID"], printed["AWS_SECRET_ACCESS_KEY"]
    assert access_key.startswith("AKFS")
    assert len(access_key) == 20
    ring = load(file)
    key = ring.signer(access_key)
    assert key is not None
    assert key.secret == secret
    assert ring.find(secret) == key  # in the native dialect it is an ordinary key
    assert secret not in repr(key)
    listed = run("list", f"--keys={file}").stdout
    assert listed == f"app: send *; signs as {access_key}; not after 2099-12-31 00:00:00Z\n"
    existing = run(
        "create", "old", f"--keys={file}", "--send=*", "--aws", "--existing", typed="y" * 40
    )
    [line] = existing.stdout.split()
    again = load(file).signer(line.removeprefix("AWS_ACCESS_KEY_ID="))
    assert again is not None
    assert (again.name, again.secret) == ("old", "y" * 40)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ('access_key = "AKFSAAAAAAAAAAAAAAAA"', "keys.a.secret"),
        ('secret = "0123456789012345678901"', "keys.a.access_key"),
        ('access_key = "lower"\nsecret = "0123456789012345678901"', "keys.a.access_key"),
        ('access_key = "AKFSAAAAAAAAAAAAAAAA"\nsecret = "0123456789"', "keys.a.secret"),
    ],
)
def test_an_incomplete_pair_is_refused_and_the_secret_not_shown(pair: str, message: str) -> None:
    with pytest.raises(KeysError) as error:
        parse(f'[keys.a]\nhash = "{HASH}"\n{pair}\n')
    assert message in str(error.value)
    assert "0123456789" not in str(error.value)


def test_two_keys_cannot_have_one_access_key() -> None:
    pair = 'access_key = "AKFSAAAAAAAAAAAAAAAA"\nsecret = "0123456789012345678901"\n'
    other = HASH.replace("0", "1")
    with pytest.raises(KeysError, match=r"keys\.b\.access_key: is also that of keys\.a"):
        parse(f'[keys.a]\nhash = "{HASH}"\n{pair}[keys.b]\nhash = "{other}"\n{pair}')
