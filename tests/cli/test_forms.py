"""Older forms of commands do the same as new ones; misspelt ones suggest the new ones."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from fsmq.cli.grammar import OLDER, SYNONYMS, newer
from tests.cli.helpers import Command, completed
from tests.cli.prepared import prepare

# Older form: new form. REF is a pending move.
FORMS = {
    "ls 'jobs*' --names": "queue list 'jobs*' --names",
    "stat jobs --json": "queue show jobs --json",
    "create new retention=7d --json": "queue create new retention=7d --json",
    "delete slow --yes": "queue delete slow --yes",
    "config jobs max_depth=5 --json": "queue config jobs max_depth=5 --json",
    "pause jobs --until 2h": "queue pause jobs --until 2h",
    "resume jobs --json": "queue resume jobs --json",
    "purge --yes jobs": "queue purge --yes jobs",
    "history jobs --since 2d": "queue history jobs --since 2d",
    "topics other --create --json": "topic create other --json",
    "topics --delete news --json": "topic delete news --json",
    "topics news": "topic show news",
    "topics --json": "topic list --json",
    "topic ls --json news": "topic show --json news",
    "topic ls": "topic list",
    "subscribe news audit --end --json": "topic unsubscribe news audit --json",
    "subscribe news mail --create": "topic subscribe news mail --create",
    "unsubscribe news audit": "topic unsubscribe news audit",
    "publish --log users --body x --key k": "log publish users --body x --key k",
    "publish --body x --log=users --json": "log publish users --body x --json",
    "publish news --body x": "topic publish news --body x",
    "logs users": "channel list users",
    "logs": "log list",
    "log other --create --set retain_for=1d --set max_bytes=1M": (
        "log create other retain_for=1d max_bytes=1M"
    ),
    "log users --create --json": "log create users --json",
    "log users --delete --yes": "log delete users --yes",
    "log users --to mails --from 15 --channel c": "log feed users mails --from 15 --channel c",
    "log users --verify": "log verify users",
    "log users --set retain_for=1d --json": "log config users retain_for=1d --json",
    "log users": "log show users",
    "log --json users": "log show --json users",
    "channel users c --create --from first --set order=strict": (
        "channel create users c --from first order=strict"
    ),
    "channel users mailer --delete --yes": "channel delete users mailer --yes",
    "channel users mailer --seek 3": "channel seek users mailer 3",
    "channel users mailer --pause --json": "channel pause users mailer --json",
    "channel users mailer --resume": "channel resume users mailer",
    "channel users mailer --set max_window=5 --json": (
        "channel config users mailer max_window=5 --json"
    ),
    "channel users mailer": "channel show users mailer",
    "read users --from 17 --lines": "log read users --from 17 --lines",
    "moves REF --stop": "move stop REF",
    "moves --json": "move list --json",
    "consumers letters --forget --json": "consumer forget letters --json",
    "consumers letters --json": "consumer show letters --json",
    "consumers": "consumer list",
    "keys list --keys keys.toml": "key list --keys keys.toml",
    "schedule ls": "schedule list",
    "schedule rm nightly --json": "schedule delete nightly --json",
    "schedule add poll '@every 5m' jobs --json": "schedule create poll '@every 5m' jobs --json",
    "keys new app --send a --existing --keys keys.toml": (
        "key create app --send a --existing --keys keys.toml"
    ),
    "queue stats jobs": "queue show jobs",
    "queue stat jobs": "queue show jobs",
}
# References, ids, times, stamps and ages.
_VARIABLE = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\d[T ][\d:.]+Z?|\.x[0-9a-f]+"
    r"|_seconds\W+[\d.]+|\d+\.\d{3,}|\d+ s\b"
)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A spool to copy, and the reference of its move."""
    root = tmp_path_factory.mktemp("prepared") / "mq"
    return root, prepare(root)


def done(words: str, prepared: tuple[Path, str], folder: Path) -> tuple[object, ...]:
    """The exit code and output of a command, and the files after it."""
    root, ref = prepared
    here = Path(shutil.copytree(root, folder / "mq"))
    keys = folder / "keys.toml"
    keys.touch(0o600)
    given = [ref if word == "REF" else word for word in shlex.split(words)]
    given = [str(keys) if word == "keys.toml" else word for word in given]
    ended = Command(here)(*given, code=None, stdin=b"k" * 30, FSMQ_ROOT=str(here))
    printed = (ended.stdout + ended.stderr).decode().replace(str(folder), "")
    files = sorted(str(path.relative_to(here)) for path in here.rglob("*"))
    return (
        ended.returncode,
        _normalized(printed),
        [_normalized(name) for name in files],
        keys.read_text(),
    )


def _normalized(text: str) -> str:
    return re.sub(" +", " ", _VARIABLE.sub("…", text))


@pytest.mark.parametrize("older", FORMS)
def test_an_older_form_does_the_same(
    older: str, prepared: tuple[Path, str], tmp_path: Path
) -> None:
    for name in ("older", "new"):
        (tmp_path / name).mkdir()
    first = done(older, prepared, tmp_path / "older")
    assert first == done(FORMS[older], prepared, tmp_path / "new")
    assert first[0] in (0, 1)


def test_every_older_form_is_tested() -> None:
    for form, by_option in OLDER.items():
        for option, command in by_option.items():
            verb = " ".join(filter(str.islower, form.split()))
            asked = [option.partition(" ")[0]] if option.startswith("--") else []
            assert any(
                old.startswith(f"{verb} ") or old == verb
                for old, new in FORMS.items()
                if f"{new} ".startswith(f"{command} ")
                and all(one in re.split("[ =]", old) for one in asked)
            ), (form, option)
    tried = {word for old in FORMS for word in old.split()[1:2]}
    assert tried >= SYNONYMS.keys()


def test_new_forms_are_not_rewritten() -> None:
    for words in FORMS.values():
        assert newer(shlex.split(words)) == shlex.split(words)
    # The new form refuses contradictions.
    assert newer(["log", "users", "--create", "--delete"]) == ["log", "create", "users", "--delete"]
    # Words after -- are no options.
    assert newer(["publish", "news", "--", "--log"]) == ["topic", "publish", "news", "--", "--log"]


def test_a_misspelt_command_suggests_the_new_one(root: Path) -> None:
    fsmq = Command(root)
    fsmq("queue", "create", "jobs")
    for words, problem, command in (
        ("crate jobs", "there is no command 'crate'; did you mean queue create", "fsmq"),
        ("verfy", "there is no command 'verfy'; did you mean log verify?", "fsmq"),
        ("queue lst", "there is no command 'lst'; did you mean list?", "fsmq queue"),
        ("log lst", "there is no command 'lst'; did you mean list?", "fsmq log"),
        ("log crate users", "there is no command 'crate'; did you mean create?", "fsmq log"),
        (
            "channel crate users c",
            "there is no command 'crate'; did you mean create",
            "fsmq channel",
        ),
        (
            "queue show --jsn jobs",
            "there is no option --jsn; did you mean --json?",
            "fsmq queue show",
        ),
        ("create", "missing argument 'QUEUE'", "fsmq queue create"),
        ("pause jobs --until 5x", "--until takes 2030-01-31T12:00:00Z, or a", "fsmq queue pause"),
        ("config jobs retention=5x", "retention: '5x' is not a span", "fsmq queue config"),
        ("log users --create --delete", "there is no option --delete", "fsmq log create"),
    ):
        first, second = fsmq(*words.split(), code=2).stderr.decode().splitlines()
        assert first.startswith(f"fsmq: {problem}"), words
        assert second in (f"      {command} --help says more", f"      {command} --help lists them")
    missing = fsmq("log", "users", code=3).stderr.decode()
    assert (
        missing == "fsmq: there is no log named 'users'\n      create it: fsmq log create users\n"
    )


def test_help_lists_no_older_form_and_names_the_new_one(root: Path) -> None:
    fsmq = Command(root)
    listed = re.findall(r"^  (\w+) ", fsmq.out("--help"), re.MULTILINE)
    assert not {form.split()[0] for form in OLDER if " " not in form} & {*listed}
    assert fsmq.out("create", "--help") == fsmq.out("queue", "create", "--help")
    assert fsmq.out("create", "--help").startswith("Usage: fsmq queue create ")
    assert fsmq.out("log", "users", "--help").startswith("Usage: fsmq log show ")


def test_a_shell_completes_both_forms(root: Path) -> None:
    fsmq = Command(root)
    fsmq("queue", "create", "jobs")
    for words in (["queue", "show"], ["stat"]):
        assert completed("bash", ["fsmq", *words, "jo"], fsmq) == ["plain,jobs"]
    assert completed("bash", ["fsmq", "queue", "pa"], fsmq) == ["plain,pause"]
    assert "plain,queue" in completed("bash", ["fsmq", ""], fsmq)
    assert "plain,stat" not in completed("bash", ["fsmq", ""], fsmq)
