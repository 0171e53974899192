"""What ``python -`` does: as a program, run the one that comes from stdin."""

import sys

exec(compile(sys.stdin.read(), "<stdin>", "exec"))
