"""The log that a gate follows, while its caller may add the same sums by hand."""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Hashable, Iterator
from fractions import Fraction

from mrsa_watch._base.errors import ConfigurationError, require
from mrsa_watch._base.files import user_path
from mrsa_watch._follow import Tail
from mrsa_watch._gate_names import Clients, Cohort
from mrsa_watch.logs import LineParser, SumLine


class GateLog:
    """A log that is read as it grows.

    Args:
        path: The log.
        salt: Of its pseudonyms, or the file that holds it, if clients are named as they
            are.

    Attributes:
        clients: Those that the log names; before its header, those of a log of plain
            names.

    Raises:
        ConfigurationError: If there is no such file.
    """

    def __init__(
        self, path: pathlib.Path, salt: bytes | str | pathlib.Path | None
    ) -> None:
        require(path.is_file(), "path", "must be a participation log", str(path))
        self._salt = _salt_of(salt)
        self._tail = Tail(path)
        self._parser = LineParser(str(path))
        self._fault: ConfigurationError | None = None
        self.clients = Clients()
        self._has_header = False
        self._added: Counter[Hashable] = Counter()  # by hand, and not read yet
        self._ahead: Counter[Hashable] = Counter()  # read, and not added by hand yet

    def sums(self) -> Iterator[SumLine]:
        """Yield the sums whose lines have become complete since the last call.

        Raises:
            ConfigurationError: If the file did not only grow; if its pseudonyms are of
                another salt, or a line breaks a rule of the format, then and at every
                later call.
        """
        if self._fault is not None:
            raise self._fault
        for line in self._tail.lines():
            try:
                read = self._parser.feed(line)
                self._take_header()
            except ConfigurationError as error:
                # the lines below may not be judged without this one
                self._fault = error
                raise
            if read is not None:
                yield read

    def _take_header(self) -> None:
        """Learn from the first header what the log's names are."""
        if self._parser.headers and not self._has_header:
            self._has_header = True
            self.clients = Clients(self._salt, self._parser.headers[0].pseudonyms)

    def has_read(self, cohort: Cohort, part: str | None) -> bool:
        """Return whether a sum that is added by hand was read from the log before."""
        return _is_met(_mark(cohort, part), self._ahead, self._added)

    def was_added(self, cohort: Cohort, part: str | None) -> bool:
        """Return whether a sum that is read from the log was added by hand before."""
        return _is_met(_mark(cohort, part), self._added, self._ahead)

    def forget_ahead(self) -> None:
        """Take no sum that was read so far for one that is added by hand later."""
        self._ahead.clear()


def _mark(cohort: Cohort, part: str | None) -> Hashable:
    """Return a mark that two accounts of one sum have in common."""
    weights = cohort.weights or [Fraction(1)] * len(cohort.names)
    return part, frozenset(zip(cohort.names, weights, strict=True))


def _is_met(
    mark: Hashable, waiting: Counter[Hashable], others: Counter[Hashable]
) -> bool:
    """Return whether a sum was waited for; if not, it waits on the other side."""
    # a sum is taken once: by the side that comes first, and met by the other
    if waiting[mark]:
        waiting[mark] -= 1
        return True
    others[mark] += 1
    return False


def _salt_of(salt: bytes | str | pathlib.Path | None) -> bytes | None:
    """Return a salt, or that of a file."""
    if salt is None or isinstance(salt, bytes):
        return salt
    reason = "it is empty"
    try:
        content = user_path(salt, "salt").read_bytes()
    except OSError as error:
        content = b""
        reason = str(error.strerror)
    require(
        bool(content), "salt", "must be a file that holds a salt", f"{salt} ({reason})"
    )
    return content
