"""Settings of the protocol inside a round and of the sums it carries; nothing here imports JAX."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from mrsa_jax._checks import POSITIVE, check_number
from mrsa_jax._errors import require
from mrsa_jax._html import Shown
from mrsa_jax.graphs._registry import Graph

FidelityName = Literal["array", "sets"]
SplitPolicyName = Literal["ignore", "abort", "drop_block"]
ClipRuleName = Literal["fixed", "last_max", "last_rms"]
NoiseName = Literal["skellam", "discrete_gaussian"]


@dataclasses.dataclass(frozen=True)
class ProtocolConfig(Shown):
    """Who shares pads with whom, and what becomes of rounds in which clients are lost."""

    graph: str = "complete"
    """complete (SecAgg), erdos_renyi (CCESA), harary or random_regular (SecAgg+), or your own
    (--plugin)."""
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
        same = Graph.parse(self.graph).row.is_complete and self.threshold is None
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
    noise_multiplier: float = 0.0
    """Differential privacy of each client's whole history: noise of this many --clip-norm in the
    sum of a whole cohort. Each client adds its share to its own update before it pads, which
    protects it from the server and from all who see sums or models, none of whom is trusted;
    clients who tell the server their own noise take their shares from the others. 0: none."""
    clip_norm: float | None = None
    """L2 norm to which each client's whole update is clipped, as noise needs it: in place of --clip
    and --num-levels, on a lattice that follows from --modulus-bits; with --segments besides --clip,
    on the lattices of --group-levels, in rings of --modulus-bits. None: no such bound."""
    noise: NoiseName = "skellam"
    """skellam (its sums are Skellam again) or discrete_gaussian."""
    target_delta: float = 1e-5
    """At which each client's epsilon is told, over all rounds; below one in the clients there
    are."""

    @property
    def is_noisy(self) -> bool:
        """Whether clients add noise."""
        return self.noise_multiplier > 0


def validate_graph(config: Any) -> None:
    """Check that a graph has the numbers which it needs, and no others.

    Raises:
        ConfigurationError: Naming the first argument that breaks a rule.
    """
    chance, graph = config.connection_probability, config.graph
    setting = Graph.parse(graph).row.setting
    if chance is not None:
        own = setting == "connection_probability"
        require(own, "connection_probability", "must be left out but for erdos_renyi", graph)
        check_number(chance, "connection_probability", "must lie in (0, 1]", POSITIVE, 1.0)
    rule = "must be given for harary and random_regular, and for no other graph"
    regular = setting == "degree"
    require(regular == (config.degree is not None), "degree", rule, config.degree, graph)


def graph_of(config: Any, num_clients: int) -> Graph:
    """Return the graph of a round, with its number: CCESA's p* where the chance is left open.

    Args:
        config: Settings of the protocol, or of one round of secure aggregation.
        num_clients: Slots of the round, n.

    Raises:
        ConfigurationError: If there is no such graph, or p* is needed and above 1.
    """
    graph = Graph.parse(config.graph)
    if not graph.row.setting:
        return graph
    number = getattr(config, graph.row.setting)
    if number is None:
        number = _paper_chance(num_clients, total_dropout_rate(config))
    return Graph(graph.row, (number,))


def least_safe_threshold(graph: Graph, num_clients: int) -> int:
    """Return the least t at which CCESA's Appendix F attack fails: 2 t > |Adj(i)| + 1.

    For random degrees that of Remark 4, which fails for every client but for a negligible chance.
    """
    from mrsa_jax.secagg import share_threshold  # imports JAX

    degree = graph.degree(num_clients)
    if degree is not None:
        return (degree + 1) // 2 + 1
    assert graph.chance is not None
    return share_threshold(num_clients, graph.chance)


def total_dropout_rate(config: Any) -> float:
    """Return the chance to leave in one of the four steps."""
    lost = getattr(config, "dropped_before_unmasking", 0.0)
    return float(1.0 - (1.0 - config.step_dropout_rate) ** 4 * (1.0 - lost))


def _paper_chance(n: int, total: float) -> float:
    """Return p* of eq. (5)."""
    from mrsa_jax.secagg import connection_probability  # imports JAX

    name = "connection_probability"
    rule = "must be given: CCESA's p* needs 3 clients and a total dropout rate below 0.5"
    require(n >= 3 and total < 0.5, name, rule, n, round(total, 4))
    chance = connection_probability(n, total)
    rule = (
        f"must be given (or the clients be more, or --graph complete): CCESA's p* for {n} clients "
        f"and a total dropout rate of {total:.3g} is above 1"
    )
    require(chance <= 1, name, rule, round(chance, 4))
    return chance


_WITHOUT_NORM = "must be left out with `clip_norm`, which bounds whole updates instead"


def validate_noise(aggregation: AggregationConfig, *, varies: bool, segments: str) -> None:
    """Check noise, the bound on updates' norms, and what neither goes with.

    Args:
        aggregation: Settings of the sums.
        varies: Whether a scheme asks any number of clients.
        segments: Name of the scheme of segments, "none" without.

    Raises:
        ConfigurationError: Naming the first argument that breaks a rule.

    Examples:
        >>> validate_noise(AggregationConfig(noise_multiplier=1.0), varies=False, segments="none")
        Traceback (most recent call last):
        ...
        mrsa_jax._errors.ConfigurationError: `clip_norm` must be given with noise...
    """
    own, norm = aggregation, aggregation.clip_norm
    check_number(own.noise_multiplier, "noise_multiplier", "must be 0 or positive, finite", 0.0)
    rule = "must lie in (0, 1)"
    check_number(own.target_delta, "target_delta", rule, POSITIVE)
    require(own.target_delta < 1, "target_delta", rule, own.target_delta)
    if norm is None:
        rule = "must be given with noise: what is not bounded no noise hides"
        return require(not own.is_noisy, "clip_norm", rule, norm, own.noise_multiplier)
    check_number(norm, "clip_norm", "must be positive and finite", POSITIVE)
    # blocks of segments have their groups' lattices
    for name in ("num_levels", "clip_rule", *(("clip",) if segments == "none" else ())):
        value = getattr(own, name)
        require(value == getattr(AggregationConfig(), name), name, _WITHOUT_NORM, value)
    rule = "must be left out with `clip_norm`: a weight would multiply what the norm bounds"
    require(not own.weighted, "weighted", rule, own.weighted)
    rule = (
        "must be left out where cohorts differ in size (bernoulli, poisson): a client's share of "
        "the noise is one in a cohort's clients"
    )
    return require(not varies, "clip_norm", rule, norm)
