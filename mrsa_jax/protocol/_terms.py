"""What the clients of a round agree on beforehand: keys, graph, thresholds, and blocks they keep.

Every signature of a round names these terms, so that it serves in no other session, round, graph
or partition. N[i] is client i's closed neighbourhood, t_i its threshold, T the size of its block.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import pathlib
import struct
from collections.abc import Iterable, Sequence

import numpy as np

from mrsa_jax._core.round_rules import whole_blocks
from mrsa_jax.protocol._primitives import DOMAIN, check_signature
from mrsa_jax.protocol.errors import PartedBlockError, UnexpectedMessageError
from mrsa_jax.secagg import SegmentPlan
from mrsa_jax.secagg._aggregator_state import check_blocks, check_plan
from mrsa_watch._base.errors import require
from mrsa_watch._register import write_private


@dataclasses.dataclass(frozen=True, eq=False)
class Terms:
    """The public terms of a round with signatures, of which each client holds its own copy.

    With `blocks`, an honest client sends its input only if the keys and shares of all its mates
    came, and hands out shares only for a list that is a union of whole blocks. Then, however the
    server lies, honest mates are in exactly the same sums, if for each block fewer than
    2 t_i - |N[i]| of the clients in N[i] collude with it.

    Attributes:
        roster: Each client's public signing key (a PKI); 32 bytes each.
        adjacency: bool[n, n], the graph of the round; clients without neighbours are not in it.
        thresholds: int[n], t_i.
        blocks: int[n], the number of each client's block; None to keep no blocks.
        session: Name of the training; rounds are counted in it.
        colluders: Clients of a neighbourhood that may collude with the server.

    Raises:
        ConfigurationError: If the roster has another length; with blocks, if mates have different
            neighbours or thresholds (`graphs.over_blocks` has neither), or a threshold is below
            floor((|N[i]| + colluders) / 2) + 1.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> terms = mj.protocol.Terms(
        ...     [bytes(32)] * 4, ~np.eye(4, dtype=bool), np.full(4, 3), np.arange(4) // 2
        ... )
        >>> terms.check_list((2, 3))
        >>> terms.check_list((0, 2, 3))
        Traceback (most recent call last):
        ...
        mrsa_jax.protocol.errors.PartedBlockError: a list parts the blocks of clients [0]
    """

    roster: Sequence[bytes]
    adjacency: np.ndarray
    thresholds: np.ndarray
    blocks: np.ndarray | None = None
    session: bytes = b""
    colluders: int = 0

    def __post_init__(self) -> None:
        n = len(self.adjacency)
        require(len(self.roster) == n, "roster", "must hold the signing key of each client",
                len(self.roster), n)  # fmt: skip
        if self.blocks is not None:
            check_blocks(self.blocks, self.adjacency, self.thresholds, self.colluders)

    @functools.cached_property
    def lasting(self) -> bytes:
        """32 bytes that stand for what no later round may change: session, roster and blocks."""
        blocks = b"" if self.blocks is None else self.blocks.astype("<i8").tobytes()
        text = repr((self.colluders, len(self.roster), self.blocks is None)).encode()
        return digest_of(self.session, *self.roster, blocks, text)

    @functools.cached_property
    def digest(self) -> bytes:
        """32 bytes that stand for all terms."""
        thresholds = self.thresholds.astype("<i8").tobytes()
        return digest_of(self.lasting, np.packbits(self.adjacency).tobytes(), thresholds)

    def mates(self, client: int) -> set[int]:
        """Return the clients of a client's block, itself among them; without blocks, itself."""
        if self.blocks is None:
            return {client}
        return set(np.flatnonzero(self.blocks == self.blocks[client]).tolist())

    def check_plan(self, plan: SegmentPlan) -> None:
        """Raise `ConfigurationError` if a sum of the plan is over a part of a block."""
        if self.blocks is not None:
            check_plan(self.blocks, plan)

    def check_list(self, survivors: Iterable[int]) -> None:
        """Raise `PartedBlockError` unless a list is a union of whole blocks, everybody's."""
        if self.blocks is not None:
            listed = np.zeros(len(self.blocks), bool)
            listed[list(survivors)] = True
            parted = np.flatnonzero(listed & ~whole_blocks(listed, self.blocks)).tolist()
            if parted:
                raise PartedBlockError(f"a list parts the blocks of clients {parted[:3]}")

    def keys_statement(self, round_index: int, client: int, keys: bytes) -> bytes:
        """Return what a client signs at step 0: these terms, round, itself and its keys."""
        return self._statement(b"keys", round_index, client) + keys

    def survivors_statement(self, round_index: int, survivors: Iterable[int]) -> bytes:
        """Return what clients sign before unmasking: these terms, round, and who is in its sum."""
        return self._statement(b"survivors", round_index, *survivors)

    def check(self, signer: int, signature: bytes, statement: bytes) -> None:
        """Raise `AuthenticationError` unless a client of the roster signed a statement."""
        check_signature(self.roster[signer], signature, statement)

    def _statement(self, purpose: bytes, *words: int) -> bytes:
        return DOMAIN + purpose + self.digest + struct.pack(f"<{len(words)}I", *words)


def digest_of(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


class Pledge:
    """What a client keeps from round to round, in a file that survives a restart.

    Its lasting terms (session, roster, blocks) may not change, and a round is taken part in once:
    mates whose block is drawn again, or who answer one round twice, can be parted.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> terms = mj.protocol.Terms([bytes(32)] * 2, ~np.eye(2, dtype=bool), np.full(2, 2))
        >>> pledge = mj.protocol.Pledge()
        >>> pledge.keep(terms, 3)
        >>> pledge.keep(terms, 3)
        Traceback (most recent call last):
        ...
        mrsa_jax.protocol.errors.UnexpectedMessageError: round 3 is not above round 3, the last one
    """

    def __init__(self, path: pathlib.Path | None = None) -> None:
        """Open a pledge.

        Args:
            path: The file, made with the first round; None to remember while the process lasts.
        """
        self._path = path
        self._kept = path.read_bytes() if path is not None and path.exists() else b""
        rule = "must be a pledge's file of 36 bytes"
        require(len(self._kept) in (0, 36), "path", rule, len(self._kept))

    def keep(self, terms: Terms, round_index: int) -> None:
        """Take part in a round: write it down before anything leaves the client.

        Raises:
            UnexpectedMessageError: If session, roster or blocks are others, or the round is not
                above all before.
        """
        if self._kept:
            if self._kept[:32] != terms.lasting:
                raise UnexpectedMessageError("session, roster or blocks are not those agreed on")
            (last,) = struct.unpack("<I", self._kept[32:])
            if round_index <= last:
                text = f"round {round_index} is not above round {last}, the last one"
                raise UnexpectedMessageError(text)
        kept = terms.lasting + struct.pack("<I", round_index)
        if self._path is not None:
            write_private(self._path, kept)
        self._kept = kept
