"""Runs a program from stdin, as ``python -`` does."""

import sys

exec(compile(sys.stdin.read(), "<stdin>", "exec"))
