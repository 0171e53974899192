"""The group of all verbs: loads one when it is used, lists them by section, prints errors."""

from __future__ import annotations

import difflib
import importlib
import traceback
from collections.abc import Mapping
from typing import Any

import click

from fsmq.cli.failures import GIVEN, Exit, Failure, failure, report
from fsmq.daemons.standard_files import closed_file, hold_standard_files
from fsmq.parts import MissingExtra
from fsmq.spool import FsmqError


class Fsmq(click.Group):
    """A group whose commands are named by ``module:function``, so that each starts quickly."""

    def __init__(
        self, *of: Any, commands_by_section: Mapping[str, Mapping[str, str]], **more: Any
    ) -> None:
        super().__init__(*of, **more)
        self._sections = commands_by_section
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
        module, _, attribute = where.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; the error for a misspelt one names those it may have meant."""
        if args and args[0] not in self._where and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self._where, 3)
            hint = f"Did you mean {' or '.join(near)}?" if near else "fsmq --help lists them."
            ctx.fail(f"There is no command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs under their headings."""
        for section, verbs in self._sections.items():
            commands = ((name, self.get_command(ctx, name)) for name in verbs)
            shown = ((name, c) for name, c in commands if c is not None and not c.hidden)
            rows = [(name, c.get_short_help_str(70)) for name, c in shown]
            with formatter.section(section):
                formatter.write_dl(rows)

    def main(self, *args: Any, **more: Any) -> Any:
        """Run the command line of this process."""
        hold_standard_files()
        return super().main(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb; what it raises becomes a message and an exit code."""
        try:
            return super().invoke(ctx)
        except FsmqError as error:
            raise failure(error, ctx.meta.get(GIVEN)) from error
        except MissingExtra as error:
            raise Failure(error.problem, Exit.UNAVAILABLE, error.advice) from error
        except KeyboardInterrupt:
            ctx.exit(Exit.INTERRUPTED)
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
