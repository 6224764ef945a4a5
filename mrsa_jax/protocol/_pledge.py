"""Remember rounds, so that no two of them together part a client's block."""

from __future__ import annotations

import contextlib
import os
import pathlib
import struct
import threading
from collections.abc import Iterator

from mrsa_jax.protocol._terms import LAST_ROUND, Terms
from mrsa_jax.protocol.errors import UnexpectedMessageError
from mrsa_watch._base.errors import check_integer, require, writing
from mrsa_watch._base.locks import locked
from mrsa_watch._register import write_private

# of the lasting terms, and of the last round
_DIGEST_BYTES, _SIZE = 32, 36
# All pledges of a process, and by the file's own lock all processes, keep one after the
# other.
_ALONE = threading.Lock()


class Pledge:
    """Remember a client's terms and last round, in a file that survives a restart.

    Its lasting terms (session, roster, blocks) may not change, and a round is taken
    part in once: mates whose block is drawn again, or who answer one round twice, can
    be parted.

    A file serves all processes of a client: each round is checked against what the file
    holds at that moment, under a lock (the file `path` with `.lock` added, which
    stays). The locks are those of the system, so the disk must support them.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> terms = mj.protocol.Terms(
        ...     [bytes(32)] * 2, ~np.eye(2, dtype=bool), np.full(2, 2)
        ... )
        >>> pledge = mj.protocol.Pledge()
        >>> pledge.keep(terms, 3)
        >>> pledge.keep(terms, 3)
        Traceback (most recent call last):
        ...
        mrsa_jax.protocol.errors.UnexpectedMessageError: round 3 is not above round 3...
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        """Open a pledge.

        Args:
            path: The file, made with the first round; None to remember while the
                process lasts.

        Raises:
            ConfigurationError: If there is a file that is no pledge, an empty one
                included.
        """
        is_path = path is None or isinstance(path, str | os.PathLike)
        require(is_path, "path", "must be a path or None", path)
        # absolute, with links followed: one file has one lock, wherever the process
        # goes
        self._path = None if path is None else pathlib.Path(path).resolve()
        self._kept = b""
        self._kept = self._read()

    def keep(self, terms: Terms, round_index: int) -> None:
        """Take part in a round: write it down before anything leaves the client.

        Raises:
            ConfigurationError: If an argument is of another type, the round is no
                integer in [0, 2**32), or the file is gone or damaged.
            UnexpectedMessageError: If session, roster or blocks are others, or the
                round is not above all before.
            StoreError: If the file cannot be written; the round is not taken part in.
        """
        require(isinstance(terms, Terms), "terms", "must be a `protocol.Terms`", terms)
        number = check_integer(round_index, "round_index", 0, LAST_ROUND)
        with _ALONE, self._locked():
            # The file may be older than what is remembered, as after a backup was put
            # back.
            for pledge in (self._kept, self._read()):
                _check(pledge, terms, number)
            pledge = terms.lasting + struct.pack("<I", number)
            if self._path is not None:
                with writing(self._path, "path"):
                    write_private(self._path, pledge)
            self._kept = pledge

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the file's lock, as soon as no other process does."""
        if self._path is None:
            yield
            return
        beside = self._path.with_name(self._path.name + ".lock")
        with writing(beside, "path"):
            file = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            locked(file, waits=True)
            yield
        finally:
            os.close(file)

    def _read(self) -> bytes:
        """Read the pledge: 36 bytes, or nothing before the first round."""
        if self._path is None:
            return self._kept
        rule = f"must be a pledge's file of {_SIZE} bytes"
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            rule = "must still hold the pledge, whose file is gone"
            require(not self._kept, "path", rule, str(self._path))
            return b""
        except OSError as error:
            require(False, "path", f"{rule} that can be read", str(error))
            raise
        require(len(content) == _SIZE, "path", rule, len(content))
        return content


def _check(pledge: bytes, terms: Terms, number: int) -> None:
    """Refuse a round that what is kept forbids."""
    if not pledge:
        return
    if pledge[:_DIGEST_BYTES] != terms.lasting:
        raise UnexpectedMessageError(
            "session, roster or blocks are not those agreed on"
        )
    (last,) = struct.unpack("<I", pledge[_DIGEST_BYTES:])
    if number <= last:
        raise UnexpectedMessageError(
            f"round {number} is not above round {last}, the last one"
        )
