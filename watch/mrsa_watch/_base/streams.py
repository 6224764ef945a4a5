"""Standard streams that fail.

Results are kept, and the exit status reports the failure.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

BROKEN_PIPE = 141  # status in a shell of a program that SIGPIPE ended
# For encodings that lack them: lines of tables and frames, and signs between numbers.
_PLAIN = str.maketrans(
    dict(zip("─━│┃╭╮╰╯–▁▂▃▄▅▆▇█", "--||++++-_.-=+*%#", strict=True))
    | {"±": "+-", "…": "..."}
)
# how the handler of those letters is registered
_PLAIN_LETTERS = "mrsa_watch.plain_letters"


class Outlet:
    """A standard stream whose failure is remembered, not raised.

    Results are saved all the same.
    What its encoding has no letter for is written in others, or by number.

    Attributes:
        failure: The first; None while there is none.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.failure: OSError | ValueError | None = None
        if stream is None:  # closed before the program began
            self.failure = OSError(errno.EBADF, "it is closed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(self._writable(text)))
        return len(text)

    def flush(self) -> None:
        self._try(lambda: self._stream.flush())

    def isatty(self) -> bool:
        return self._stream is not None and bool(self._stream.isatty())

    def _try(self, act: Callable[[], object]) -> None:
        if self.failure is not None:
            return
        try:
            act()
        except (
            OSError,
            ValueError,
        ) as error:  # a stream that has been closed is a wrong value
            self.failure = error

    def _writable(self, text: str) -> str:
        if text.isascii():
            return text
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        return text.encode(encoding, _PLAIN_LETTERS).decode(encoding)


def _plain_letters(error: UnicodeError) -> tuple[str, int]:
    """Replace what an encoding has no letters for."""
    assert isinstance(error, UnicodeEncodeError)
    letters = error.object[error.start : error.end].translate(_PLAIN)
    return letters.encode("ascii", "backslashreplace").decode(), error.end


codecs.register_error(_PLAIN_LETTERS, _plain_letters)


@contextlib.contextmanager
def outlets() -> Iterator[Outlet]:
    """Put both standard streams behind an `Outlet` each, and return that of output."""
    before = sys.stdout, sys.stderr
    out = Outlet(before[0])
    sys.stdout, sys.stderr = cast("Any", (out, Outlet(before[1])))
    try:
        yield out
    finally:
        sys.stdout, sys.stderr = before


@contextlib.contextmanager
def bare_interrupts() -> Iterator[None]:
    """Raise an interrupt as it is, which Python 3.11 wraps while a class is made."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise


def run_with_outlets(run: Callable[[], int], say_error: Callable[[str], None]) -> int:
    """Run a command behind outlets and return its exit status.

    Args:
        run: The command; returns its status.
        say_error: Prints an error.

    Returns:
        The command's status; if that is 0, 141 where nobody reads the output any more,
        and 1 where it could not be printed.
    """
    with outlets() as out:
        status = run()
        out.flush()
        # `| head` has read enough: no news
        if isinstance(out.failure, BrokenPipeError):
            return status or BROKEN_PIPE
        if out.failure is not None:
            why = getattr(out.failure, "strerror", None) or out.failure
            say_error(f"what was found could not be printed: standard output: {why}")
            return status or 1
        return status
