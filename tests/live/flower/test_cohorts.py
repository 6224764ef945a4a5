"""A server that names other clients to each.

Why Flower's clients ask for t above half of all.
Stock clients sign nothing, so each believes whom the server names. A rule on the
threshold that counts the named ones alone, 2 t > n, then holds for both of two mates
and parts them: one is named few holders of its secrets and the other many, of whom some
are told that both are in the sum and the rest that neither is. Above half of all
clients, the two kinds cannot both be enough.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common import bytes_to_ndarray
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import (
    generate_shared_key,
)
from flwr.common.secure_aggregation.secaggplus_constants import (
    RECORD_KEY_CONFIGS,
    Key,
    Stage,
)
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
)
from network import Network

import mrsa_jax as mj
from mrsa_jax.live import flower

NODES = range(1, 11)
# of two: 1 and 2 are the mates to part
BLOCKS = {node: (node - 1) // 2 for node in NODES}
ALL = frozenset(NODES)
MODULUS, LEVELS, CLIP, SIZE = 2**32, 2**16, 1.0, 3


class Lies(NamedTuple):
    """What each node is told.

    Whom it is with, its threshold, who is in the sum or lost.
    """

    named: dict[int, frozenset[int]]
    thresholds: dict[int, int]
    alive: dict[int, frozenset[int]]
    dead: dict[int, frozenset[int]]

    def sources(self, node: int) -> frozenset[int]:
        """Return the others whose shares can come to a node.

        Each was named to the other.
        """
        return frozenset(j for j in self.named[node] - {node} if node in self.named[j])


class Held(NamedTuple):
    """What the server holds.

    Whose seeds and pad keys it can rebuild, and padded uploads.
    """

    seeds: dict[int, bytes]
    keys: dict[int, bytes]
    public: dict[int, bytes]
    uploads: dict[int, list[np.ndarray]]


def of_its_cohort(strong: Any) -> Any:
    """Return the mod with the weaker rule.

    T above half of the clients that are named to it.
    """
    thresholds: dict[int, int] = {}

    def mod(message: Message, context: Any, call_next: Any) -> Message:
        configs = message.content.config_records[RECORD_KEY_CONFIGS]
        node, stage = message.metadata.dst_node_id, configs[Key.STAGE]
        if stage == Stage.SETUP:
            thresholds[node] = int(configs[Key.THRESHOLD])  # type: ignore[arg-type]
            return call_next(message, context)  # type: ignore[no-any-return]
        if stage == Stage.SHARE_KEYS and 2 * thresholds[node] <= len(configs) - 1:
            raise ValueError("the threshold must be above half of the cohort")
        return strong(message, context, call_next)  # type: ignore[no-any-return]

    return mod


def played(lies: Lies, mod: Any) -> tuple[Held, Network]:
    """Play a round with stock clients behind a mod; who refuses is asked no more."""
    network = Network(NODES, size=SIZE, mod=mod)

    def ask(node: int, stage: str, **configs: Any) -> dict[str, Any] | None:
        content = RecordDict()
        content[RECORD_KEY_CONFIGS] = ConfigRecord({Key.STAGE: stage} | configs)
        message = Message(content, dst_node_id=node, message_type="train", group_id="1")
        reply = network._answer(message)
        assert reply is not None
        return (
            None
            if reply.has_error()
            else dict(reply.content.config_records[RECORD_KEY_CONFIGS])
        )

    def asked(stage: str, told: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
        answers = {node: ask(node, stage, **configs) for node, configs in told.items()}
        return {node: answer for node, answer in answers.items() if answer is not None}

    here = asked(
        Stage.SETUP,
        {
            node: {
                Key.SAMPLE_NUMBER: len(lies.named[node]),
                Key.SHARE_NUMBER: len(lies.named[node]),
                Key.THRESHOLD: lies.thresholds[node],
                Key.CLIPPING_RANGE: CLIP,
                Key.TARGET_RANGE: LEVELS,
                Key.MOD_RANGE: MODULUS,
                Key.MAX_WEIGHT: 1.0,
            }
            for node in NODES
        },
    )
    public = {
        node: [here[node][Key.PUBLIC_KEY_1], here[node][Key.PUBLIC_KEY_2]]
        for node in here
    }
    sealed = asked(
        Stage.SHARE_KEYS,
        {
            node: {str(j): public[j] for j in sorted(lies.named[node]) if j in public}
            for node in here
        },
    )
    post = {
        (i, j): text
        for i, one in sealed.items()
        for j, text in zip(
            one[Key.DESTINATION_LIST], one[Key.CIPHERTEXT_LIST], strict=True
        )
    }
    came = {node: sorted(lies.sources(node) & sealed.keys()) for node in sealed}
    uploads = asked(
        Stage.COLLECT_MASKED_VECTORS,
        {
            node: {
                Key.SOURCE_LIST: came[node],
                Key.CIPHERTEXT_LIST: [post[j, node] for j in came[node]],
            }
            for node in sealed
        },
    )
    shown = asked(
        Stage.UNMASK,
        {
            node: {
                Key.ACTIVE_NODE_ID_LIST: sorted(lies.alive[node]),
                Key.DEAD_NODE_ID_LIST: sorted(lies.dead[node]),
            }
            for node in uploads
        },
    )
    shares: dict[tuple[bool, int], list[bytes]] = {}
    for node, answer in shown.items():
        for owner, share in zip(
            answer[Key.NODE_ID_LIST], answer[Key.SHARE_LIST], strict=True
        ):
            shares.setdefault((owner in lies.alive[node], owner), []).append(share)
    rebuilt: dict[bool, dict[int, bytes]] = {True: {}, False: {}}
    for (is_seed, owner), found in shares.items():
        if len(found) >= lies.thresholds[owner]:
            rebuilt[is_seed][owner] = combine_shares(found)
    vectors = {
        node: [bytes_to_ndarray(one) for one in answer[Key.MASKED_PARAMETERS]]
        for node, answer in uploads.items()
    }
    keys = {node: one[0] for node, one in public.items()}
    return Held(rebuilt[True], rebuilt[False], keys, vectors), network


def parts_mates(lies: Lies, held: Held) -> bool:
    """Tell, by exact ranks, whether some combination that the server can open parts 1 and 2.

    A combination opens if it is zero where no seed is known, and equal at both ends of
    each pad of which no key is known. It parts the mates unless these conditions imply
    that they are equal.
    """
    names = sorted(held.uploads)
    place = {node: k for k, node in enumerate(names)}
    unit = np.eye(len(names), dtype=int)
    rows = [unit[place[node]] for node in names if node not in held.seeds]
    for i in names:
        for j in names:
            if (
                i < j
                and not {i, j} & held.keys.keys()
                and (j in lies.sources(i) or i in lies.sources(j))
            ):
                one = unit[place[i]] * (j in lies.sources(i))
                rows.append(one - unit[place[j]] * (i in lies.sources(j)))
    if not {1, 2} <= place.keys():
        return False
    apart = unit[place[1]] - unit[place[2]]
    return bool(
        mj.modular.rank(np.array([*rows, apart])) > mj.modular.rank(np.array(rows))
    )


def unpadded(lies: Lies, held: Held, members: set[int]) -> list[np.ndarray]:
    """Return the sum of some uploads without their pads, from what the server holds."""
    total = [np.zeros_like(one) for one in held.uploads[min(members)]]
    shapes = [one.shape for one in total]
    for i in members:
        pads = [(-1, held.seeds[i])]
        for j in lies.sources(i) - members:  # within, they cancel
            shared = generate_shared_key(
                bytes_to_private_key(held.keys[j]), bytes_to_public_key(held.public[i])
            )
            pads.append((-1 if i > j else 1, shared))
        total = [have + more for have, more in zip(total, held.uploads[i], strict=True)]
        for sign, seed in pads:
            stream = pseudo_rand_gen(seed, MODULUS, shapes)
            total = [have + sign * pad for have, pad in zip(total, stream, strict=True)]
    return [one % MODULUS for one in total]


def attack(few: frozenset[int], thresholds: dict[int, int]) -> Lies:
    """Return the lies.

    1, and all who are told that it is in the sum, know of `few` alone.
    """
    told_in = few - {2}
    named = {node: few if node in told_in else ALL for node in NODES}
    alive = {node: few if node in told_in else ALL - few for node in NODES} | {2: ALL}
    lost = {node: frozenset[int]() if node in few else frozenset({2}) for node in NODES}
    return Lies(named, thresholds, alive, lost)


FEW = frozenset({1, 2, 3, 4})
# above half of 4 and of 10
OF_COHORTS = {node: 3 if node in FEW - {2} else 6 for node in NODES}


@pytest.mark.long
def test_above_half_of_the_cohort_is_too_weak() -> None:
    """The server reads the sum of 1, 3 and 4 without 2, mate of 1, from stock clients' messages."""
    lies = attack(FEW, OF_COHORTS)
    held, network = played(lies, of_its_cohort(flower.whole_blocks(BLOCKS)))
    assert not any(network.lost.values())  # nobody refuses
    assert (held.seeds.keys() >= {1, 3, 4}, held.keys.keys()) == (True, {2})
    assert parts_mates(lies, held)
    weight, vector = unpadded(lies, held, {1, 3, 4})
    assert weight.tolist() == [3 * LEVELS]  # three clients, each of weight 1
    read = vector / LEVELS * 2 * CLIP - 3 * CLIP
    sent = sum(network.update(1, node) for node in (1, 3, 4))
    np.testing.assert_allclose(read, sent, atol=3 * 2 * CLIP / LEVELS)
    rows = [[node in (1, 3, 4) for node in NODES], [node > 4 for node in NODES]]
    assert mj.privacy.strong_privacy(rows) < 4  # a union of 1 with another block
    assert rows[0][0] != rows[0][1]


@pytest.mark.long
def test_above_half_of_all_it_does_not_part_mates() -> None:
    """The same lies are refused.

    With thresholds that are not, and cohorts to match, they fail.
    """
    mod = flower.whole_blocks(BLOCKS)
    held, network = played(attack(FEW, OF_COHORTS), mod)
    assert network.lost[1, "setup"] == {1, 3, 4}
    assert not parts_mates(attack(FEW, OF_COHORTS), held)
    enough = dict.fromkeys(NODES, 6)
    for few in (FEW, FEW | {5, 6}, FEW | {5, 6, 7, 8}):
        lies = attack(few, enough)
        held, network = played(lies, mod)
        assert not network.lost[1, "setup"]
        assert not parts_mates(lies, held)


# ---- Random lies, by sets alone.


def guessed(rng: np.random.Generator, is_weak: bool) -> Lies:
    """Draw lies of the attack's kind.

    Few or nearly all are named, and two lists are told.
    """
    everyone = sorted(set(BLOCKS.values()))

    def union(blocks: Any) -> frozenset[int]:
        return frozenset(node for node in NODES if BLOCKS[node] in blocks)

    named, thresholds = {}, {}
    few = union(
        {0, *rng.choice(everyone[1:], rng.integers(1, 3), replace=False).tolist()}
    )
    lost_to = rng.random()  # how often a node is told that the first block is lost
    for node in NODES:
        kinds = (few | union([BLOCKS[node]]), ALL, ALL - union([rng.choice(everyone)]))
        kind = rng.choice(
            3, p=[0.8, 0.1, 0.1] if node in few - {2} else [0.1, 0.6, 0.3]
        )
        named[node] = kinds[kind] | union([BLOCKS[node]])
        thresholds[node] = (len(named[node]) if is_weak else len(NODES)) // 2 + 1
    lies = Lies(named, thresholds, {}, {})
    for node in NODES:
        shared = lies.sources(node) | {node}
        whole = union([b for b in everyone if union([b]) <= shared])
        lost = (
            union([0])
            if node not in few and rng.random() < lost_to
            else frozenset[int]()
        )
        lies.alive[node], lies.dead[node] = whole - lost, lost & shared
    return lies


def opened(lies: Lies) -> Held:
    """Return what `played` does, without messages.

    Whose secrets enough nodes show shares of.
    """
    known: list[dict[int, int]] = [dict.fromkeys(NODES, 0), dict.fromkeys(NODES, 0)]
    able = {node for node in NODES if len(lies.named[node]) >= lies.thresholds[node]}
    uploads = {
        node
        for node in able
        if len(lies.sources(node) & able) + 1 >= lies.thresholds[node]
        and all(
            j in (lies.sources(node) & able) | {node}
            for j in NODES
            if BLOCKS[j] == BLOCKS[node]
        )
    }
    for node in uploads:
        reached = (lies.sources(node) & able) | {node}
        fits = (
            len(lies.alive[node]) >= max(2, lies.thresholds[node])
            and node in lies.alive[node]
        )
        if fits and lies.alive[node] | lies.dead[node] <= reached:
            for found, owners in zip(
                known, (lies.alive[node], lies.dead[node]), strict=True
            ):
                for owner in owners:
                    found[owner] += 1
    seeds, keys = (
        {node: b"" for node in NODES if found[node] >= lies.thresholds[node]}
        for found in known
    )
    return Held(seeds, keys, {}, {node: [] for node in uploads})


@pytest.mark.long
def test_sets_say_what_messages_do() -> None:
    rng, strong = np.random.default_rng(0), flower.whole_blocks(BLOCKS)
    sizes = set()
    for k in range(6):
        lies = guessed(rng, is_weak=k % 2 == 0)
        held, _ = played(lies, of_its_cohort(strong) if k % 2 == 0 else strong)
        by_sets = opened(lies)
        assert held.uploads.keys() == by_sets.uploads.keys()
        assert held.seeds.keys() == by_sets.seeds.keys()
        assert held.keys.keys() == by_sets.keys.keys()
        sizes |= {len(held.uploads), len(held.seeds)}
    assert len(sizes) > 2


@pytest.mark.long
def test_random_lies_part_mates_under_the_weaker_rule_alone() -> None:
    parted = {}
    for is_weak in (True, False):
        rng = np.random.default_rng(1)
        games = [guessed(rng, is_weak) for _ in range(2_000)]
        found = [(lies, opened(lies)) for lies in games]
        # ranks only where something is open that could part them
        open_ones = [(lies, held) for lies, held in found if held.seeds and held.keys]
        parted[is_weak] = sum(parts_mates(lies, held) for lies, held in open_ones)
        assert len(open_ones) > 10
    assert parted[True] > 3
    assert parted[False] == 0
