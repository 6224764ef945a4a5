"""What the server can make of the padded inputs with the secrets that it has, block by block.

CCESA, Algorithm 1, Step 3, for plans of many blocks: in each the sums over the components of the
graph on its members who are summed, as far as all pads of a component come off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mrsa_jax.protocol._pads import PAIR_PAD, SELF_PAD, PadSum
from mrsa_jax.protocol._primitives import KeyPair, pad_seed
from mrsa_jax.secagg import SegmentPlan


class Unmasking:
    """The server's view of a round once Step 2 is closed; the recovered secrets are filled in.

    Attributes:
        self_seeds: b_i where recovered.
        pad_keys: s_i^SK where recovered.
    """

    def __init__(
        self,
        plan: SegmentPlan,
        round_index: int,
        neighbours: Sequence[frozenset[int]],
        summed: Iterable[int],
        lost: Iterable[int],
        padded_inputs: np.ndarray,
        public_keys: Mapping[int, bytes],
        contexts: Sequence[bytes],
    ) -> None:
        """Take over what is known.

        Args:
            plan: Blocks of the round.
            round_index: Round.
            neighbours: Adj(i) of each client.
            summed: Clients whose inputs the round sums.
            lost: The others of V2: their pads are in those inputs and nowhere else.
            padded_inputs: uint32[n, d], what came in.
            public_keys: s_i^PK of each client summed.
            contexts: What each client put into the seeds of its pair pads.
        """
        self._plan, self._round_index, self._neighbours = plan, round_index, neighbours
        everybody, missing = frozenset(summed), frozenset(lost)
        self._summed = [everybody.intersection(block.members) for block in plan]
        self._lost = [missing.intersection(block.members) for block in plan]
        self._padded_inputs, self._public_keys = padded_inputs, public_keys
        self._contexts = contexts
        self._pair_seeds: dict[tuple[int, int], bytes] = {}
        self.self_seeds: dict[int, bytes] = {}
        self.pad_keys: dict[int, KeyPair] = {}

    def components(self, number: int) -> list[list[int]]:
        """Return the components of a block's graph on those summed, by smallest member."""
        left = set(self._summed[number])
        components: list[list[int]] = []
        while left:
            start = min(left)
            left.remove(start)
            component, border = [start], [start]
            while border:
                reached = self._neighbours[border.pop()] & left
                left -= reached
                component += reached
                border += reached
            components.append(sorted(component))
        return components

    def is_open(self, number: int, component: list[int]) -> bool:
        """Return whether all pads of a component come off in a block."""
        return all(
            i in self.self_seeds and all(j in self.pad_keys for j in self._lost_near(number, i))
            for i in component
        )

    def unmasked(self, number: int, component: list[int]) -> np.ndarray:
        """Return the sum over a component in a block; its members' pairs cancel."""
        block = self._plan[number]
        zeros = np.zeros(block.stop - block.start, np.uint32)
        total = PadSum(zeros, block.modulus, number, self._round_index)
        for i in component:
            total.add_residues(self._padded_inputs[i, block.start : block.stop])
            total.add(self.self_seeds[i], SELF_PAD, -1)
            for j in self._lost_near(number, i):
                total.add(self._pair_seed(i, j), PAIR_PAD, -1 if i < j else 1)
        return total.residues()

    def _lost_near(self, number: int, client: int) -> list[int]:
        return sorted(self._lost[number] & self._neighbours[client])

    def _pair_seed(self, client: int, lost: int) -> bytes:
        """Return s_ij, agreed once for all blocks that the two share."""
        pair = (client, lost)
        if pair not in self._pair_seeds:
            secret = self.pad_keys[lost].agree(self._public_keys[client])
            self._pair_seeds[pair] = pad_seed(
                secret, client, lost, self._round_index, self._contexts[client]
            )
        return self._pair_seeds[pair]
