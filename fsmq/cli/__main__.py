"""``python -m fsmq.cli`` is `fsmq`."""

from fsmq.cli import main

main(prog_name="fsmq")
