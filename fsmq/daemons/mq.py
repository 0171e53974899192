"""mq: answers HTTP, and makes every message durable before it confirms it.

This module is its command line; `serving` does the work, and imports the HTTP library.
"""

import sys

from fsmq.daemons.listening import bind
from fsmq.daemons.process import logs
from fsmq.daemons.process.exits import EXIT_CONFIGURATION
from fsmq.daemons.process.notify import listen_fds
from fsmq.daemons.process.start import raise_file_limit, tell_misspelt
from fsmq.daemons.process.supervise import module_child, run
from fsmq.daemons.settings.options import MqOptions, program
from fsmq.parts import MissingExtra, require

log = logs.get_logger(__name__)
_GRACE_S = 5.0


@program("mq", MqOptions)
def main(options: MqOptions) -> int:
    """Answer HTTP on a spool.

    A message is on stable media before its POST is answered. mq-mover has to run on the same spool
    for messages to be delivered, and mq-reaper for removed ones to be unlinked; fsmq up runs all
    three.

    \b
    Examples:
      mq --root /var/lib/fsmq
      mq --root /var/lib/fsmq --address 0.0.0.0 --keys keys.toml
    """
    logs.setup(options.log_level, options.log_format, options.process_name)
    tell_misspelt()
    raise_file_limit()
    try:
        require("mq", "server")
    except MissingExtra as error:
        log.error("cannot start", error=error)
        return EXIT_CONFIGURATION
    if options.processes > 1 and options.process_index is None:
        return _run_many(options)
    # Imported here, because the supervisor and --help do not need it.
    from fsmq.daemons.serving import serve

    return serve(options)


def _run_many(options: MqOptions) -> int:
    """Run several processes on one port; they share only the tree."""
    arguments = sys.argv[1:]
    kept = listen_fds()
    fds = [listening.fileno() for listening in kept]
    if kept:
        arguments.append(f"--listening={','.join(map(str, fds))}")
    elif options.port == 0:
        # Bound but not listening: it gets no connection, and keeps the port for the children.
        kept = [bind(options.address, 0)]
        arguments.append(f"--port={kept[0].getsockname()[1]}")
    children = [
        module_child(
            f"mq-{index}", "fsmq.daemons.mq", [*arguments, f"--process-index={index}"], fds
        )
        for index in range(options.processes)
    ]
    try:
        return run(children, prefix=False, grace=options.shutdown_timeout + _GRACE_S)
    finally:
        for one in kept:
            one.close()


if __name__ == "__main__":
    main(prog_name="mq")
