"""Settings of the protocol inside a round and of the sums it carries; nothing here imports JAX."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from mrsa_jax._checks import POSITIVE, check_number
from mrsa_jax._errors import require
from mrsa_jax._html import Shown

FidelityName = Literal["array", "sets"]
GraphName = Literal["complete", "erdos_renyi", "harary", "random_regular"]
SplitPolicyName = Literal["ignore", "abort", "drop_block"]
ClipRuleName = Literal["fixed", "last_max", "last_rms"]


@dataclasses.dataclass(frozen=True)
class ProtocolConfig(Shown):
    """Who shares pads with whom, and what becomes of rounds in which clients are lost."""

    graph: GraphName = "complete"
    """complete (SecAgg), erdos_renyi (CCESA), harary or random_regular (SecAgg+)."""
    connection_probability: float | None = None
    """Chance of an edge, for --graph erdos_renyi; None: CCESA's p* for the cohort, if below 1."""
    degree: int | None = None
    """Neighbours of each client, for --graph harary and random_regular."""
    threshold: int | None = None
    """Shares that rebuild a secret, t. None: more than half of each client's neighbourhood;
    Remark 4's for erdos_renyi."""
    step_dropout_rate: float = 0.0
    """Chance to leave at each of the protocol's four steps, q."""
    split_policy: SplitPolicyName = "ignore"
    """When a block of clients loses a member inside a round: ignore it, abort the round, or
    drop_block, its other members too."""
    allow_unmasking_risk: bool = False
    """Accept a threshold at which CCESA's Appendix F attack could unmask single clients."""

    @property
    def is_plain(self) -> bool:
        """Whether every round's sum is learnt: nobody is lost, and everybody shares pads."""
        same = self.graph == "complete" and self.threshold is None
        return same and self.step_dropout_rate == 0


@dataclasses.dataclass(frozen=True)
class AggregationConfig(Shown):
    """How updates are quantized, padded and summed."""

    num_levels: int = 2**16
    """Levels of the stochastic quantizer."""
    clip: float = 0.5
    """Updates are clipped to [-clip, clip]."""
    modulus_bits: int = 32
    """Sums are taken modulo 2**modulus_bits."""
    fidelity: FidelityName = "array"
    """array: real ChaCha20 pads; sets: the same sums, bit for bit, without making the pads."""
    weighted: bool = False
    """Weight each client's update by its number of samples, inside the ring."""
    clip_rule: ClipRuleName = "fixed"
    """fixed; last_max, last_rms: the next round clips at a multiple of the last learnt mean
    update's largest entry, or of its root mean square (the first at --clip)."""
    clip_multiplier: float = 4.0
    """That multiple."""
    clip_floor: float = 1e-4
    """The least that it may come to."""


def validate_graph(config: Any) -> None:
    """Check that a graph has the numbers which it needs, and no others.

    Raises:
        ConfigurationError: Naming the first argument that breaks a rule.
    """
    chance, graph = config.connection_probability, config.graph
    if chance is not None:
        own = graph == "erdos_renyi"
        require(own, "connection_probability", "must be left out but for erdos_renyi", graph)
        check_number(chance, "connection_probability", "must lie in (0, 1]", POSITIVE, 1.0)
    regular = graph in ("harary", "random_regular")
    rule = "must be given for harary and random_regular, and for no other graph"
    require(regular == (config.degree is not None), "degree", rule, config.degree, graph)
