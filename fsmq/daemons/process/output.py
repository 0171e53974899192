"""The output of children, line by line, with the name of the child before each line."""

import os
import sys

_CHUNK = 65_536
_LONGEST_LINE = 65_536
_COLOURS = (36, 33, 35, 32, 34, 31)


class Prefixer:
    """Copies a child's output to our stderr, one whole line at a time.

    On a terminal the name is coloured (unless ``NO_COLOR`` is set). Elsewhere lines of JSON, which
    name their program themselves, are copied as they are.
    """

    def __init__(self, name: str, width: int, index: int) -> None:
        """Make the pipe.

        Args:
            name: what is put before each line.
            width: the columns it is padded to.
            index: the number of the child, which chooses the colour.
        """
        self._terminal = _is_terminal()
        label = f"{name:{width}} | "
        if self._terminal and not os.environ.get("NO_COLOR"):
            label = f"\x1b[{_COLOURS[index % len(_COLOURS)]}m{label}\x1b[0m"
        self._label = label.encode()
        self._rest = b""
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)

    def fileno(self) -> int:
        """Return the end to read from, to wait for."""
        return self._reader

    def started(self) -> None:
        """Close our copy of the end to write to, once the child has its own."""
        os.close(self.writer)

    def copy(self) -> bool:
        """Copy the whole lines that have arrived; return whether more may come."""
        try:
            chunk = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return True
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        self._write(lines)
        return bool(chunk)

    def close(self) -> None:
        """Copy what is left, a line without an end included, and close the pipe."""
        self.copy()  # a pipe holds no more than one chunk by default
        if self._rest:
            self._write([self._rest])
        os.close(self._reader)

    def _write(self, lines: list[bytes]) -> None:
        text = b"".join(self._labelled(line) + b"\n" for line in lines)
        try:
            sys.stderr.buffer.write(text)
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            pass  # nobody reads our output: the daemons go on

    def _labelled(self, line: bytes) -> bytes:
        if not self._terminal and line.startswith(b"{"):
            return line
        return self._label + line


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False
