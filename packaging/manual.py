"""The build hook that puts a manual page of each command into the wheel, under share/man/man1.

`man fsmq-put` finds them where an environment is active: it looks beside the folders of PATH.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import click
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class _All(click.Group):
    """A group with the commands that another one loads when they are used."""

    def __init__(self, group: click.Group) -> None:
        with click.Context(group) as ctx:
            found = {name: group.get_command(ctx, name) for name in group.list_commands(ctx)}
        commands = {
            name: _All(command) if isinstance(command, click.Group) else command
            for name, command in found.items()
            if command is not None and not command.hidden
        }
        super().__init__(group.name, commands, params=group.params, help=group.help)
        for command in (self, *commands.values()):
            command.short_help = command.get_short_help_str(limit=200)
            command.help = _formatted(command.help or "")


def _formatted(text: str) -> str:
    """The help of a command for roff, which would fill the lines that click leaves as they are."""
    paragraphs = inspect.cleandoc(text).replace("\\", "\\e").split("\n\n")
    return "\n\n".join(
        f".nf\n{rest}\n.fi" if (rest := paragraph.removeprefix("\b\n")) != paragraph else paragraph
        for paragraph in (re.sub(r"^(?=[.'])", r"\\&", one, flags=re.M) for one in paragraphs)
    )


def write_pages(folder: Path, version: str) -> None:
    """Write a page of each command of fsmq into a folder, which is made."""
    from click_man.core import write_man_pages

    from fsmq.cli import main

    folder.mkdir(parents=True, exist_ok=True)
    write_man_pages("fsmq", _All(main), version=version, target_dir=str(folder))


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # of a clone; there `make dist` has them
            return
        sys.path.insert(0, self.root)
        folder = Path(self.root, "build", "man1")
        write_pages(folder, self.metadata.version)
        build_data["shared_data"][str(folder)] = "share/man/man1"
