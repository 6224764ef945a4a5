"""Clients of Flower's SecAgg+ that unmask whole blocks only, for any server."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from flwr.app import Context, Message
from flwr.app.message_type import MessageType
from flwr.common.secure_aggregation.secaggplus_constants import (
    RECORD_KEY_CONFIGS,
    Key,
    Stage,
)

from mrsa_watch._base.errors import MrsaError, check_integer, is_integer, require

Next = Callable[[Message, Context], Message]


class RefusedError(MrsaError, ValueError):
    """A message that the client does not answer: it could part clients of one block."""


def whole_blocks(
    blocks: Mapping[int, Hashable], colluders: int = 0
) -> Callable[[Message, Context, Next], Message]:
    """Return a mod that refuses rounds which part a block, for before `secaggplus_mod`.

    The blocks must be fixed and known to every client before the training, and not be
    chosen by the server. A client then sends its update only if the shares of all its
    mates came, and unmasks a sum only over whole blocks, everybody's. Its threshold
    must be more than half of all clients of `blocks`, as nothing else keeps the server
    from telling each client of others.

    This holds against a server that lies about who is there. Flower's keys are not
    signed: a server that replaces them reads everything, with this mod or without.

    It assumes one model for all, with the same settings, which the mod cannot check. A
    server that sends mates different models reads single updates from sums over whole
    blocks.

    In an app of the researcher who runs the server, this mod is documentation, not
    enforcement: whoever writes the app can take it out. It enforces blocks where the
    client's owner adds it.

    Args:
        blocks: The block of every node, by its number; copied.
        colluders: Clients that may help the server; each asks for a higher threshold.

    Returns:
        The mod, for `ClientApp(mods=[whole_blocks(blocks), secaggplus_mod])`. What it
        refuses is answered with an error (`RefusedError`).

    Raises:
        ConfigurationError: If there are no blocks, a node is no integer, a block is
            unequal to itself (NaN), or `colluders` is no count.

    Examples:
        >>> mod = whole_blocks({11: "a", 12: "a", 13: "b", 14: "b"})

    Source: Multi-RoundSecAgg for blocks; Bonawitz et al. (CCS 2017), Figure 4, for the
    rest.
    """
    is_table = isinstance(blocks, Mapping) and len(blocks) > 0
    require(is_table, "blocks", "must name the block of every node", blocks)
    block_of = dict(blocks)
    # any two sets of this many clients share one that is no colluder
    least = (len(block_of) + check_integer(colluders, "colluders", 0)) // 2 + 1
    members: dict[Hashable, set[int]] = {}
    for node, block in block_of.items():
        rule = "must have the numbers of nodes as keys"
        require(is_integer(node), "blocks", rule, node)
        is_equal = block == block
        require(is_equal, "blocks", "must be equal for the mates of a block", block)
        members.setdefault(block, set()).add(node)

    def is_whole(nodes: Iterable[int]) -> bool:
        listed = set(nodes)
        return listed <= block_of.keys() and all(
            members[block_of[node]] <= listed for node in listed
        )

    def problem(node: int, configs: Any) -> str:
        """Describe the fault of a message of SecAgg+; "" if there is none."""
        stage = configs.get(Key.STAGE)
        mates = members[block_of[node]]
        if stage == Stage.SETUP and not configs.get(Key.THRESHOLD, 0) >= least:
            return f"the threshold must be {least} or more"
        if stage == Stage.SHARE_KEYS:
            nodes = {int(name) for name in configs if name != Key.STAGE}
            if not mates <= nodes <= block_of.keys():
                return "keys must be those of its mates, and of known nodes"
        if stage == Stage.COLLECT_MASKED_VECTORS:
            came = {node, *configs.get(Key.SOURCE_LIST, ())}
            if not mates <= came:
                return "shares of mates are missing"
        if stage == Stage.UNMASK:
            alive = configs.get(Key.ACTIVE_NODE_ID_LIST, ())
            dead = configs.get(Key.DEAD_NODE_ID_LIST, ())
            if not is_whole(alive) or node not in alive or len(set(alive)) < 2:
                return "the sum must be over whole blocks, this client's among them"
            if len({*alive, *dead}) < len(alive) + len(dead):
                return "a node is both in the sum and lost"
        return ""

    def mod(message: Message, context: Context, call_next: Next) -> Message:
        if message.metadata.message_type == MessageType.TRAIN:
            node = message.metadata.dst_node_id
            records = message.content.config_records
            why = "no SecAgg+"
            if RECORD_KEY_CONFIGS in records and node in block_of:
                why = problem(node, records[RECORD_KEY_CONFIGS])
            if why:
                raise RefusedError(f"node {node} refuses: {why}")
        return call_next(message, context)

    return mod
