"""Standard input, output and error, if the parent process has closed them."""

import errno
import io
import os
import sys

_NAMES = ("standard input", "standard output", "standard error")
# Modes in which reading and writing fail as on a closed file; standard error is discarded instead.
_HOW = (os.O_WRONLY, os.O_RDONLY, os.O_RDWR)
_closed: list[str] = []


def hold_standard_files() -> None:
    """Keep other files from getting the numbers 0 to 2: output would be written to them."""
    for number, how in enumerate(_HOW):
        try:
            os.fstat(number)
        except OSError:
            fd = os.open(os.devnull, how)
            os.dup2(fd, number)
            if fd != number:
                os.close(fd)
            _closed.append(_NAMES[number])
    # Unbuffered, so that output that could not be written is not tried again at exit.
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.FileIO(0, "rb"))
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "wb"), write_through=True)
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "wb"), write_through=True)


def closed_file(error: OSError) -> str | None:
    """The text for an error that comes from a closed file; None for any other."""
    if error.errno != errno.EBADF or not _closed:
        return None
    return f"{' and '.join(_closed)} {'is' if len(_closed) == 1 else 'are'} closed"
