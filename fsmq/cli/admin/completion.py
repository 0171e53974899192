"""``fsmq completion``: what a shell needs to complete verbs, options, queues and ids."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_FSMQ_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete fsmq.

    bash has to be 4.4 or later. zsh looks for the script as "${fpath[1]}/_fsmq", fish as
    ~/.config/fish/completions/fsmq.fish. Names of queues come from the place that --at or FSMQ_AT
    names.

    \b
    Examples:
      eval "$(fsmq completion bash)"
      fsmq completion bash > /etc/bash_completion.d/fsmq
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "fsmq", _VARIABLE).source())
