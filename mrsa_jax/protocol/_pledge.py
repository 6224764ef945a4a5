"""Remember rounds, so that no two of them together part a client's block."""

from __future__ import annotations

import contextlib
import os
import pathlib
import struct
import threading
from collections.abc import Iterator

from mrsa_jax.protocol._terms import FIRST_HEAD, LAST_ROUND, Terms
from mrsa_jax.protocol.errors import UnexpectedMessageError
from mrsa_watch._base.errors import check_integer, require, writing
from mrsa_watch._base.locks import locked
from mrsa_watch._register import write_private

# a digest and a number: the lasting terms and the last round, or a head and its round
_DIGEST_BYTES, _SIZE = 32, 36
_RECEIPT = "<I32s"
# All pledges of a process, and by the file's own lock all processes, keep one after the
# other.
_ALONE = threading.Lock()


class Pledge:
    """Remember a client's terms and last round, in a file that survives a restart.

    Its lasting terms (session, roster, blocks) may not change, and a round is taken
    part in once: mates whose block is drawn again, or who answer one round twice, can
    be parted.

    It keeps a receipt of each round whose list it signed: the round's number and head
    (`Terms.head`), 36 bytes, in the file `path` with `.receipts` added. With blocks, it
    takes part in the chain of these rounds alone: the next round names the receipt as
    `before`, and no later one begins the chain again. Whoever has a receipt notices
    that a log lacks its round (`mrsa-watch check --receipts`).

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
                included, or one that holds no receipts.
        """
        is_path = path is None or isinstance(path, str | os.PathLike)
        require(is_path, "path", "must be a path or None", path)
        # absolute, with links followed: one file has one lock, wherever the process
        # goes
        self._path = None if path is None else pathlib.Path(path).resolve()
        self._kept = b""
        self._kept = self._read()
        self._receipts = b""
        self._receipts = self._read_receipts()

    @property
    def receipts(self) -> list[tuple[int, bytes]]:
        """Rounds and their heads, in the order in which they were signed."""
        return list(struct.iter_unpack(_RECEIPT, self._receipts))

    def receive(self, round_index: int, head: bytes) -> None:
        """Keep the receipt of a round whose list was signed.

        Raises:
            ConfigurationError: If the round is no integer in [0, 2**32), or the head
                has not 32 bytes.
            StoreError: If the file cannot be written.
        """
        number = check_integer(round_index, "round_index", 0, LAST_ROUND)
        is_head = isinstance(head, bytes) and len(head) == _DIGEST_BYTES
        require(is_head, "head", f"must have {_DIGEST_BYTES} bytes", head)
        with _ALONE, self._locked():
            self._receipts = self._read_receipts() + struct.pack(_RECEIPT, number, head)
            if self._path is not None:
                path = self._beside(".receipts")
                with writing(path, "path"):
                    write_private(path, self._receipts)

    def keep(self, terms: Terms, round_index: int) -> None:
        """Take part in a round: write it down before anything leaves the client.

        Raises:
            ConfigurationError: If an argument is of another type, the round is no
                integer in [0, 2**32), or the file is gone or damaged.
            UnexpectedMessageError: If session, roster or blocks are others, the round is
                not above all before, or, with blocks, the chain is not that of the
                receipts.
            StoreError: If the file cannot be written; the round is not taken part in.
        """
        require(isinstance(terms, Terms), "terms", "must be a `protocol.Terms`", terms)
        number = check_integer(round_index, "round_index", 0, LAST_ROUND)
        with _ALONE, self._locked():
            # The file may be older than what is remembered, as after a backup was put
            # back.
            for pledge in (self._kept, self._read()):
                _check(pledge, terms, number)
            self._receipts = self._read_receipts()
            if terms.blocks is not None and self._receipts:
                _check_chain(*self.receipts[-1], terms.before, number)
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
        beside = self._beside(".lock")
        with writing(beside, "path"):
            file = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            locked(file, waits=True)
            yield
        finally:
            os.close(file)

    def _beside(self, ending: str) -> pathlib.Path:
        assert self._path is not None
        return self._path.with_name(self._path.name + ending)

    def _read_receipts(self) -> bytes:
        """Read the receipts, nothing before the first one."""
        if self._path is None:
            return self._receipts
        path = self._beside(".receipts")
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return b""
        rule = f"must have receipts of {_SIZE} bytes in {path.name}"
        require(len(content) % _SIZE == 0, "path", rule, len(content))
        return content

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


def _check_chain(last: int, head: bytes, before: bytes, number: int) -> None:
    """Refuse a round of another chain than that of the last receipt."""
    if before == FIRST_HEAD:
        raise UnexpectedMessageError(
            f"the chain of rounds may not begin again after round {last}"
        )
    # between neighbouring numbers there is no round that this client may have missed
    if number == last + 1 and before != head:
        raise UnexpectedMessageError(
            f"round {number} does not name round {last} as the one before it"
        )
