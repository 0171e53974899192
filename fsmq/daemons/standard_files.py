"""Standard input, output and error, where whoever started us has closed them."""

import errno
import io
import os
import sys

_NAMES = ("standard input", "standard output", "standard error")
# So that to read or to write fails as it does on what is closed; what is said on standard error
# gets lost instead.
_HOW = (os.O_WRONLY, os.O_RDONLY, os.O_RDWR)
_closed: list[str] = []


def hold_standard_files() -> None:
    """Let no other file get the numbers 0 to 2: what is printed would be written to it."""
    for number, how in enumerate(_HOW):
        try:
            os.fstat(number)
        except OSError:
            fd = os.open(os.devnull, how)
            os.dup2(fd, number)
            if fd != number:
                os.close(fd)
            _closed.append(_NAMES[number])
    # Without buffers: what could not be written must not be tried again at the end.
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.FileIO(0, "rb"))
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "wb"), write_through=True)
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "wb"), write_through=True)


def closed_file(error: OSError) -> str | None:
    """What to say of an error that comes of a closed file; None for any other."""
    if error.errno != errno.EBADF or not _closed:
        return None
    return f"{' and '.join(_closed)} {'is' if len(_closed) == 1 else 'are'} closed"
