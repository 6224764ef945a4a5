"""Fix the terms that the clients of a round agree on in advance.

Keys, graph, thresholds, and enforced blocks. Every signature of a round names these
terms and what decides the update of its signer, such as the model. So it serves in no
other session, round, graph or partition, and not under another model. N[i] is client
i's closed neighbourhood, t_i its threshold, T the size of its block.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from mrsa_jax._core.arrays import check_thresholds, host_array
from mrsa_jax._core.round_rules import block_numbers, whole_blocks
from mrsa_jax.graphs import check_adjacency
from mrsa_jax.protocol._primitives import DOMAIN, KEY_BYTES, check_signature
from mrsa_jax.protocol.errors import PartedBlockError
from mrsa_jax.secagg import SegmentPlan
from mrsa_jax.secagg.lists import check_blocks, check_plan
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.values import by_value

LAST_ROUND = 2**32 - 1
"""The largest number of a round, one word on the wire."""
HEAD_BYTES = 32
FIRST_HEAD = bytes(HEAD_BYTES)
"""The head before the first round of a chain."""


@dataclasses.dataclass(frozen=True)
@by_value
class Terms:
    """Hold the public terms of a round with signatures, one copy per client.

    With `blocks`, an honest client sends its input only if the keys and shares of all
    its mates came, and hands out shares only for a list that is a union of whole
    blocks. Then, however the server lies, honest mates are in exactly the same sums, if
    for each block fewer than 2 t_i - |N[i]| of the clients in N[i] collude with it. The
    clients also sign what decides their updates, the `context` of `protocol.Client`, so
    that all mates in a sum had one model.

    Each round also names the one before it: `before` is the `head` of that round, and
    signatures and pads depend on it. So the rounds form a chain, and whoever has the
    signatures can show that no sum between two others is missing
    (`mrsa-watch check --roster`).

    The arrays are copied when the terms are built, and nobody can write to the copies.

    Attributes:
        roster: Each client's public signing key (a PKI); 32 bytes each.
        adjacency: bool[n, n], the graph of the round; clients without neighbours are
            not in it.
        thresholds: int[n], t_i, or one for all.
        blocks: int[n], the number of each client's block, in [0, n), or T for blocks i
            // T; None to keep no blocks.
        session: Name of the training; rounds are counted in it.
        colluders: Clients of a neighbourhood that may collude with the server, 0 to n.
        before: The `head` of the last round whose survivors were signed, 32 bytes;
            zeros before the first one.

    Raises:
        ConfigurationError: If a field is of another type, shape or range; with blocks,
            if mates have different neighbours or thresholds (`graphs.over_blocks` has
            neither), or a threshold is below floor((|N[i]| + colluders) / 2) + 1.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> terms = mj.protocol.Terms(
        ...     [bytes(32)] * 4,
        ...     ~np.eye(4, dtype=bool),
        ...     np.full(4, 3),
        ...     np.arange(4) // 2,
        ... )
        >>> terms.check_list((2, 3))
        >>> terms.check_list((0, 2, 3))
        Traceback (most recent call last):
        ...
        mrsa_jax.protocol.errors.PartedBlockError: a list parts the blocks of clients...
    """

    roster: Sequence[bytes]
    adjacency: np.ndarray
    thresholds: np.ndarray
    blocks: np.ndarray | None = None
    session: bytes = b""
    colluders: int = 0
    before: bytes = FIRST_HEAD

    def __post_init__(self) -> None:
        graph = np.asarray(check_adjacency(self.adjacency))
        n = len(graph)
        roster = _checked_roster(self.roster, n)
        limits_passed = host_array(self.thresholds, "thresholds")
        limits = np.broadcast_to(check_thresholds(limits_passed, "thresholds", n), (n,))
        labels = None if self.blocks is None else block_numbers(self.blocks, n)
        require(
            isinstance(self.session, bytes), "session", "must be bytes", self.session
        )
        colluders = check_integer(self.colluders, "colluders", 0, n)
        is_head = isinstance(self.before, bytes) and len(self.before) == HEAD_BYTES
        rule = f"must be the head of the round before, {HEAD_BYTES} bytes"
        require(is_head, "before", rule, self.before)
        if labels is not None:
            check_blocks(labels, graph, limits, colluders)
        checked: dict[str, object] = {
            "roster": roster,
            "adjacency": _frozen(graph),
            "thresholds": _frozen(limits),
            "blocks": None if labels is None else _frozen(labels),
            "session": bytes(self.session),
            "colluders": colluders,
            "before": bytes(self.before),
        }
        # frozen: fields are replaced by what the checks made of them
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Build copies as the terms themselves were built: checked, and frozen."""
        return type(self), tuple(
            getattr(self, field.name) for field in dataclasses.fields(self)
        )

    @functools.cached_property
    def lasting(self) -> bytes:
        """32 bytes that stand for what no later round may change.

        Session, roster and blocks.
        """
        blocks = b"" if self.blocks is None else self.blocks.astype("<i8").tobytes()
        text = repr((self.colluders, len(self.roster), self.blocks is None)).encode()
        return digest_of(self.session, *self.roster, blocks, text)

    @functools.cached_property
    def graph_digest(self) -> bytes:
        """32 bytes that stand for the graph of the round and its thresholds."""
        thresholds = self.thresholds.astype("<i8").tobytes()
        return digest_of(np.packbits(self.adjacency).tobytes(), thresholds)

    @functools.cached_property
    def digest(self) -> bytes:
        """32 bytes that stand for all terms, and so for all rounds before."""
        return digest_of(self.lasting, self.graph_digest, self.before)

    def bound(self, context: bytes) -> bytes:
        """Return the context of pads, which then cancel in this chain alone."""
        return digest_of(context, self.before)

    def head(
        self, round_index: int, survivors: Iterable[int], context: bytes = b""
    ) -> bytes:
        """Return 32 bytes that stand for a round and for all rounds before it.

        They are `before` of the next round.

        Args:
            round_index: Round.
            survivors: The clients in its sum.
            context: As in `keys_statement`.
        """
        statement = self.survivors_statement(round_index, survivors, context)
        return hashlib.sha256(statement).digest()

    def roster_fields(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the public part that no round changes, for `mrsa-watch check --roster`.

        Args:
            names: Each client's name in the log, in the order of the roster; their
                numbers if None.

        Returns:
            Session, keys, blocks and colluders as JSON holds them.

        Raises:
            ConfigurationError: If there are not as many names, each once.
        """
        count = len(self.roster)
        listed = [str(client) for client in range(count)] if names is None else names
        are_names = len(set(listed)) == len(listed) == count
        require(are_names, "names", "must name each client once", len(listed), count)
        keys = [key.hex() for key in self.roster]
        return {
            "session": self.session.hex(),
            "colluders": self.colluders,
            "blocks": None if self.blocks is None else self.blocks.tolist(),
            "keys": dict(zip(listed, keys, strict=True)),
        }

    def mates(self, client: int) -> set[int]:
        """Return the clients of a client's block, itself among them.

        Without blocks, itself.
        """
        member = check_integer(client, "client", 0, len(self.roster) - 1)
        if self.blocks is None:
            return {member}
        return set(np.flatnonzero(self.blocks == self.blocks[member]).tolist())

    def check_plan(self, plan: SegmentPlan) -> None:
        """Raise `ConfigurationError` if a sum of the plan is over a part of a block."""
        if self.blocks is not None:
            check_plan(self.blocks, plan)

    def check_list(self, survivors: Iterable[int]) -> None:
        """Raise `PartedBlockError` unless a list is a union of whole blocks."""
        members = self._clients(survivors, "survivors")
        if self.blocks is not None:
            listed = np.zeros(len(self.blocks), bool)
            listed[members] = True
            parted = np.flatnonzero(
                listed & ~whole_blocks(listed, self.blocks)
            ).tolist()
            if parted:
                raise PartedBlockError(
                    f"a list parts the blocks of clients {parted[:3]}"
                )

    def keys_statement(
        self, round_index: int, client: int, keys: bytes, context: bytes = b""
    ) -> bytes:
        """Build the statement that a client signs at step 0.

        These terms, round, context, itself and its keys.

        Args:
            round_index: Round.
            client: Who signs.
            keys: Its two public keys.
            context: What decides its update, such as `protocol.model_digest`; nothing
                if empty.
        """
        is_pair = isinstance(keys, bytes) and len(keys) == 2 * KEY_BYTES
        require(is_pair, "keys", f"must be two public keys of {KEY_BYTES} bytes", keys)
        signer = self._clients([client], "client")
        return self._statement(b"keys", round_index, context, signer) + keys

    def survivors_statement(
        self, round_index: int, survivors: Iterable[int], context: bytes = b""
    ) -> bytes:
        """Build the statement that clients sign before unmasking.

        These terms, round, context and V3.

        Args:
            round_index: Round.
            survivors: The clients in its sum.
            context: As in `keys_statement`.
        """
        members = self._clients(survivors, "survivors")
        return self._statement(b"survivors", round_index, context, members)

    def check(self, signer: int, signature: bytes, statement: bytes) -> None:
        """Raise `AuthenticationError` unless a client signed a statement."""
        member = check_integer(signer, "signer", 0, len(self.roster) - 1)
        require(isinstance(signature, bytes), "signature", "must be bytes", signature)
        require(isinstance(statement, bytes), "statement", "must be bytes", statement)
        check_signature(self.roster[member], signature, statement)

    def _clients(self, clients: Iterable[int], argument: str) -> np.ndarray:
        """Return clients of the roster, or raise."""
        rule = f"must be clients of the roster, integers in [0, {len(self.roster)})"
        require(isinstance(clients, Iterable), argument, rule, clients)
        listed = host_array(list(clients), argument)
        if listed.size == 0:
            return np.zeros(0, np.int64)
        is_list = listed.ndim == 1 and listed.dtype.kind in "iu"
        require(is_list, argument, rule, listed.tolist())
        is_known = listed.min() >= 0 and listed.max() < len(self.roster)
        require(bool(is_known), argument, rule, listed.tolist())
        return listed

    def _statement(
        self, purpose: bytes, round_index: int, context: bytes, clients: np.ndarray
    ) -> bytes:
        number = check_integer(round_index, "round_index", 0, LAST_ROUND)
        require(isinstance(context, bytes), "context", "must be bytes", context)
        words = np.asarray([number, *clients.tolist()], "<u4").tobytes()
        return DOMAIN + purpose + digest_of(self.digest, context) + words


def _checked_roster(roster: Any, count: int) -> tuple[bytes, ...]:
    is_list = isinstance(roster, Sequence) and not isinstance(roster, str | bytes)
    require(is_list, "roster", "must be a list of signing keys", roster)
    rule = "must hold the signing key of each client"
    require(len(roster) == count, "roster", rule, len(roster), count)
    for key in roster:
        is_key = isinstance(key, bytes) and len(key) == KEY_BYTES
        require(is_key, "roster", f"must hold public keys of {KEY_BYTES} bytes", key)
    return tuple(map(bytes, roster))


def _frozen(array: np.ndarray) -> np.ndarray:
    """Copy an array into memory of type bytes, which no flag makes writable."""
    return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)


def digest_of(*parts: bytes) -> bytes:
    return hashlib.sha256(
        b"".join(hashlib.sha256(part).digest() for part in parts)
    ).digest()


_ONE_MODEL = (
    "(`protocol.model_digest`), because a server that sends mates different models "
    "reads single "
    "updates from sums over whole blocks"
)


def check_context(context: Any, terms: Terms | None) -> None:
    """Check what a client signs and puts into its pads.

    With blocks it must not be empty.
    """
    require(isinstance(context, bytes), "context", "must be bytes", context)
    if terms is not None and terms.blocks is not None:
        rule = f"must be the digest of the model that the client was sent {_ONE_MODEL}"
        require(len(context) > 0, "context", rule, context)


def checked_contexts(contexts: Any, count: int, *, keeps_blocks: bool) -> list[bytes]:
    """Return the context of each client.

    Empty for all if there are none, and no blocks.
    """
    digests = f"the digest of the model that each client was sent {_ONE_MODEL}"
    if contexts is None:
        require(not keeps_blocks, "contexts", f"must be set with `blocks`: {digests}")
        return [b""] * count
    is_list = isinstance(contexts, Iterable) and not isinstance(contexts, str | bytes)
    listed = list(contexts) if is_list else [contexts]
    is_right = (
        is_list
        and len(listed) == count
        and all(isinstance(context, bytes) for context in listed)
    )
    rule = "must be bytes, one for each client"
    require(is_right, "contexts", rule, contexts, f"{count} clients")
    rule = f"must not be empty with `blocks`: {digests}"
    require(all(listed) or not keeps_blocks, "contexts", rule, contexts)
    return [bytes(context) for context in listed]


def model_digest(model: object, /, **settings: object) -> bytes:
    """Return 32 bytes that stand for a model and what else decides an update.

    Each client computes it from what the server sent to it, and passes it as its
    `context`. The round's number need not be among the settings, because clients sign
    it anyway.

    Args:
        model: Arrays, or a pytree of them such as the parameters of flax.
        **settings: What else the server chooses, by name: learning rate, epochs, batch
            size. Numbers, texts, bytes, bools, None, and lists of them.

    Returns:
        SHA-256 of structure, types, shapes and values: equal for equal ones, on any
        machine.

    Raises:
        ConfigurationError: If the model has no array, or holds anything else, such as a
            function or an object among the fixed fields of a class; if a setting is of
            another type.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> sent = {
        ...     "kernel": np.ones((2, 3), np.float32),
        ...     "bias": np.zeros(3, np.float32),
        ... }
        >>> digest = mj.protocol.model_digest(sent, learning_rate=0.1)
        >>> digest == mj.protocol.model_digest(sent, learning_rate=0.1)
        True
        >>> silenced = sent | {"kernel": np.zeros((2, 3), np.float32)}
        >>> digest == mj.protocol.model_digest(silenced, learning_rate=0.1)
        False
        >>> digest == mj.protocol.model_digest(sent, learning_rate=0.0)
        False
    """
    leaves, structure = jax.tree.flatten(model)
    require(len(leaves) > 0, "model", "must hold at least one array", model)
    arrays = [_numbers(leaf) for leaf in leaves]
    parts = [repr(_structure_text(structure)).encode()]
    for array in arrays:
        kind = array.dtype
        parts.append(f"{kind.name} {array.shape}".encode())
        parts.append(array.astype(kind.newbyteorder("<")).tobytes())
    for name in sorted(settings):
        parts.append(f"{name} = {_plain(settings[name], name)!r}".encode())
    return digest_of(*parts)


def _structure_text(structure: jax.tree_util.PyTreeDef) -> list[Any]:
    """List the types and the fixed fields of a pytree's nodes as plain values.

    The text of JAX for a structure does not do: it shows a fixed field by its `repr`,
    which two objects may share and which leaves out the middle of a long array.
    """
    node = structure.node_data()
    if node is None:  # a leaf
        return []
    kind, fixed = node
    name = f"{kind.__module__}.{kind.__qualname__}"
    children = [_structure_text(child) for child in structure.children()]
    return [name, _plain(fixed, f"model: the fixed fields of {name}"), children]


def _numbers(leaf: object) -> np.ndarray:
    """Return an array whose bytes are all that it holds, or raise.

    Subclasses may hold more, as masked arrays do. Types such as bfloat16 are of kind V.
    """
    rule = "must hold arrays of NumPy or JAX and numbers, nothing else"
    is_plain = type(leaf) in (np.ndarray, bool, int, float, complex)
    is_known = is_plain or isinstance(leaf, np.generic | jax.Array)
    require(is_known, "model", rule, type(leaf).__name__)
    array = host_array(leaf, "model")
    kind = array.dtype
    is_numeric = kind.kind in "biufc" or (kind.kind == "V" and kind.fields is None)
    require(is_numeric, "model", rule, str(kind))
    return array


def _plain(value: object, argument: str) -> Any:
    """Return a setting whose text in Python tells it from all others."""
    if isinstance(value, list | tuple):
        return [_plain(item, argument) for item in value]
    plain = value.item() if isinstance(value, np.generic) else value
    rule = "must be a number, a text, bytes, a bool, None, or a list of them"
    require(
        type(plain) in (bool, int, float, str, bytes, type(None)), argument, rule, value
    )
    return plain
