"""The group of all verbs: loads one when it is used, lists them by section, prints errors."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import click

from fsmq.cli.failures import Exit, Failure, failure, report
from fsmq.cli.grammar import SYNONYMS, Noun
from fsmq.daemons.misuse import misuse
from fsmq.daemons.standard_files import closed_file, hold_standard_files
from fsmq.parts import MissingExtra
from fsmq.spool import FsmqError, NoSuchLog
from fsmq.words import asked, similar

_MOST = 3  # commands that a misspelt one may have meant
_TYPED = "fsmq.typed"  # the key of a context's `meta` for the words of an older form


_AFTER_THE_COMMAND = {
    option: f"give it after the command, as in: fsmq queue list {option}"
    for option in ("--at", "--root", "--json")
}


class Fsmq(click.Group):
    """A group whose commands are named by ``module:function``, so that each starts quickly."""

    def __init__(
        self,
        *of: Any,
        commands_by_section: Mapping[str, Mapping[str, str | Noun]],
        newer: Callable[[Sequence[str]], list[str]] = list,
        **more: Any,
    ) -> None:
        """Take the commands. newer: what to read for words that are an older form."""
        super().__init__(*of, **more)
        self._sections = commands_by_section
        self._newer = newer
        self._where = {
            name: where for verbs in commands_by_section.values() for name, where in verbs.items()
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the order of the help text."""
        return list(self._where)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a verb; None if there is none of that name."""
        where = self._where.get(cmd_name)
        if where is None:
            return None
        if isinstance(where, Noun):
            return Fsmq(cmd_name, commands_by_section={"Commands": where.verbs}, help=where.help)
        module, _, attribute = where.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; the error for a misspelt one suggests similar ones."""
        [verb, *rest] = words = self._newer(args)
        if words != args:
            ctx.meta[_TYPED] = args
        if verb not in self._where and SYNONYMS.get(verb) in self._where:
            verb = SYNONYMS[verb]
        # A shell that completes what is behind a misspelt verb gets nothing, and no error.
        if ctx.resilient_parsing or verb in self._where or verb.startswith("-"):
            return super().resolve_command(ctx, [verb, *rest])
        problem, near = f"there is no command {verb!r}", self._meant(verb)
        raise Failure(
            f"{problem}; {near}" if near else problem,
            Exit.USAGE,
            f"{ctx.command_path} --help lists them",
        )

    def _meant(self, verb: str) -> str:
        """``did you mean queue create?`` for a verb that is much like known ones."""
        typed: dict[str, list[str]] = {name: [name] for name in self._where}
        for noun, where in self._where.items():
            for name in where.verbs if isinstance(where, Noun) else ():
                typed.setdefault(name, []).append(f"{noun} {name}")
        near = (words for name in similar(verb, typed, _MOST) for words in typed[name])
        return asked(list(islice(near, _MOST)))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs under their headings."""
        for section, verbs in self._sections.items():
            commands = ((name, self.get_command(ctx, name)) for name in verbs)
            shown = ((name, c) for name, c in commands if c is not None and not c.hidden)
            rows = [(name, c.get_short_help_str(limit=200)) for name, c in shown]
            with formatter.section(section):
                formatter.write_dl(rows)

    def main(self, *args: Any, **more: Any) -> Any:
        """Run the command line of this process."""
        hold_standard_files()
        return super().main(*args, **more)

    def make_context(self, info_name: str | None, *args: Any, **more: Any) -> click.Context:
        """Read the command line up to the verb; a mistake in it is a failure like any other."""
        try:
            return super().make_context(info_name, *args, **more)
        except click.UsageError as error:
            raise misuse(error, info_name or "fsmq", _AFTER_THE_COMMAND) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb; an exception becomes a message and an exit code."""
        try:
            return super().invoke(ctx)
        except FsmqError as error:
            self._check_verb(ctx, error)
            raise failure(error, ctx) from error
        except MissingExtra as error:
            raise Failure(error.problem, Exit.UNUSABLE, error.advice) from error
        except KeyboardInterrupt:
            ctx.exit(Exit.INTERRUPTED)
        except click.UsageError as error:
            raise misuse(error, ctx.command_path) from error
        except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError):
            raise
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            problem = closed_file(error) or f"{where}{error.strerror or error}"
            raise Failure(problem, Exit.UNAVAILABLE, "nothing more was done") from error
        except Exception:
            traceback.print_exc()
            report("this is a bug of fsmq: please report it with the lines above")
            ctx.exit(Exit.INTERNAL)

    def _check_verb(self, ctx: click.Context, error: FsmqError) -> None:
        """Raise Failure if ``log crate`` was read as the older form that names a log."""
        noun, *names = ctx.meta.get(_TYPED, [""])
        is_name = isinstance(error, NoSuchLog) and [error.log] == names[:1]
        if noun == ctx.info_name and is_name and self._meant(names[0]):
            self.resolve_command(ctx, names)
