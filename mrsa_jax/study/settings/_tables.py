"""Tables of settings that several commands share: protocol, aggregation, segments.

Nothing here imports JAX.
"""

from __future__ import annotations

import bisect
import dataclasses
from typing import Annotated, Any, Literal

from mrsa_jax._core import flags
from mrsa_jax.graphs.registry import Graph
from mrsa_watch._base.errors import POSITIVE, require
from mrsa_watch._base.html import Shown

FidelityName = Literal["array", "sets"]
SplitPolicyName = Literal["ignore", "abort", "drop_block"]
ClipRuleName = Literal["fixed", "last_max", "last_rms"]
NoiseName = Literal["skellam", "discrete_gaussian"]
_IS_NORM = flags.Within(POSITIVE, rule="must be positive and finite")
_IS_FINITE = flags.Within(0.0, rule="must be 0 or positive, finite")


@dataclasses.dataclass(frozen=True)
class ProtocolConfig(Shown):
    """The graph of pads, and the policy for rounds in which clients are lost."""

    graph: str = "complete"
    """complete (SecAgg), erdos_renyi (CCESA), harary or random_regular (SecAgg+),
    over_blocks:T:K (blocks of T clients, each joined to K others), or your own
    (--plugin)."""
    connection_probability: Annotated[flags.Number, flags.IS_PART] = None
    """Probability of an edge, for --graph erdos_renyi. Default: CCESA's p* for the
    cohort, if below 1."""
    degree: flags.Count = None
    """Neighbours of each client, such as 20. It is required for --graph harary and
    random_regular. Default: the graph has none to set."""
    threshold: Annotated[flags.Shares, flags.Within(1)] = None
    """Secret shares that rebuild a secret, t, or a rule: majority (more than half of
    each client's neighbourhood) or remark4 (CCESA's one t for all). Default: majority,
    or remark4 for erdos_renyi."""
    step_dropout_rate: flags.Chance = 0.0
    """Probability that a client is lost at each of the protocol's four steps, q."""
    split_policy: SplitPolicyName = "ignore"
    """Policy if a block of clients loses a member inside a round: ignore it, abort the
    round, or drop_block, which excludes the other members too."""
    allow_unmasking_risk: bool = False
    """Accept a threshold at which the attack in CCESA's Appendix F could unmask single
    clients."""
    whole_blocks: bool = False
    """Clients enforce the blocks of the scheme against any request of the server: they
    send only if the keys and shares of their mates came, and refuse every list that
    splits a block. For --graph complete or over_blocks."""

    @property
    def is_plain(self) -> bool:
        """Whether every round's sum is learnt.

        Nobody is lost, and everybody shares pads.
        """
        usual = self.threshold in (None, "majority")
        same = Graph.parse(self.graph).row.is_complete and usual
        return same and self.step_dropout_rate == 0 and not self.whole_blocks


@dataclasses.dataclass(frozen=True)
class AggregationConfig(Shown):
    """Quantization, padding and summing of updates."""

    num_levels: flags.Several = 2**16
    """Levels of the stochastic quantizer."""
    clip: flags.Positive = 0.5
    """Each coordinate of an update is clipped to [-clip, clip]."""
    modulus_bits: flags.Bits = 32
    """Sums are taken modulo 2**modulus_bits."""
    fidelity: FidelityName = "array"
    """array: real ChaCha20 pads; sets: the same sums, bit for bit, without making the
    pads."""
    weighted: bool = False
    """Weight each client's update by its number of samples, inside the ring."""
    clip_rule: ClipRuleName = "fixed"
    """fixed; last_max, last_rms: the next round clips at a multiple of the last learnt
    mean update's largest entry, or of its root mean square (the first at --clip)."""
    clip_multiplier: flags.Positive = 4.0
    """The multiple of --clip-rule."""
    clip_floor: flags.Positive = 1e-4
    """The least clip range that --clip-rule may choose."""
    noise_multiplier: Annotated[float, _IS_FINITE] = 0.0
    """Differential privacy of each client's whole history: noise in the sum of a whole
    cohort, as a multiple of --clip-norm; 0 adds none. Each client adds its part of the
    noise before it pads. This protects it from the server and from everyone who sees
    sums or models. Clients that reveal their noise to the server reduce the noise of
    the others."""
    clip_norm: Annotated[flags.Number, _IS_NORM] = None
    """L2 norm to which each client's whole update is clipped, as noise requires, such
    as 0.5. It replaces --clip and --num-levels by a lattice that follows from
    --modulus-bits. With --segments it is used together with --clip, on the lattices of
    --group-levels. Default: no such bound."""
    noise: NoiseName = "skellam"
    """Distribution of the noise: skellam (its sums are Skellam again) or
    discrete_gaussian."""
    target_delta: flags.Inside = 1e-5
    """Delta at which each client's epsilon is reported, over all rounds; below 1 /
    number of clients."""
    quantizer: flags.Name = None
    """stochastic, or your own (--plugin). Default: stochastic."""

    @property
    def is_noisy(self) -> bool:
        """Whether clients add noise."""
        return self.noise_multiplier > 0


def check_unset(config: Any, rule: str, *names: str) -> None:
    """Raise unless these settings of a configuration have their defaults."""
    for name in names:
        value = getattr(config, name)
        require(value == getattr(type(config)(), name), name, rule, value)


def validate_graph(config: Any) -> None:
    """Check that a graph has the numbers which it needs, and no others.

    Raises:
        ConfigurationError: Naming the first argument that breaks a rule.
    """
    chance, graph = config.connection_probability, config.graph
    setting = Graph.parse(graph).row.setting
    if chance is not None:
        name, rule = (
            "connection_probability",
            "must not be set unless `graph` is erdos_renyi",
        )
        require(setting == name, name, rule, graph)
    rule = "must be given for harary and random_regular, and for no other graph"
    regular = setting == "degree"
    require(
        regular == (config.degree is not None), "degree", rule, config.degree, graph
    )


def graph_of(config: Any, num_clients: int) -> Graph:
    """Return the graph of a round, with its number.

    CCESA's p* where the chance is left open.

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

    For random degrees that of Remark 4, which fails for every client except with
    negligible probability.
    """
    from mrsa_jax.secagg import share_threshold  # imports JAX

    degree = graph.degree(num_clients)
    if degree is not None:
        return (degree + 1) // 2 + 1
    assert graph.chance is not None
    return share_threshold(num_clients, graph.chance)


def check_reachable(threshold: int | str, num_clients: int) -> None:
    """Refuse a threshold above the number of clients, of whom each has one share."""
    if isinstance(threshold, str):
        return
    rule = (
        "must be at most the number of clients in a round, or no secret could be "
        "rebuilt"
    )
    require(threshold <= num_clients, "threshold", rule, threshold, num_clients)


def check_threshold(config: Any, threshold: int | str, least: int) -> None:
    """Refuse a threshold below the least safe one, unless that is allowed.

    Both rules are safe.
    """
    if isinstance(threshold, str):
        return
    rule = (
        f"must be at least {least}, or CCESA's Appendix F attack could unmask single "
        "clients "
        "(--allow-unmasking-risk accepts that)"
    )
    require(
        threshold >= least or config.allow_unmasking_risk, "threshold", rule, threshold
    )


def total_dropout_rate(config: Any) -> float:
    """Return the chance to leave in one of the four steps."""
    lost = getattr(config, "dropped_before_unmasking", 0.0)
    return float(1.0 - (1.0 - config.step_dropout_rate) ** 4 * (1.0 - lost))


def _paper_chance(n: int, total: float) -> float:
    """Return p* of eq. (5)."""
    from mrsa_jax.secagg import connection_probability  # imports JAX

    name = "connection_probability"
    rule = (
        "must be given: CCESA's p* needs 3 clients and a total dropout rate below 0.5"
    )
    require(n >= 3 and total < 0.5, name, rule, n, round(total, 4))
    chance = connection_probability(n, total)
    rule = (
        "must be given (or the clients be more, or --graph complete): CCESA's p* for "
        f"{n} clients "
        f"and a total dropout rate of {total:.3g} is above 1"
    )
    require(chance <= 1, name, rule, round(chance, 4))
    return chance


_WITHOUT_NORM = "must not be set with `clip_norm`, which bounds whole updates instead"


def validate_noise(
    aggregation: AggregationConfig, *, varies: bool, segments: str
) -> None:
    """Check noise, the bound on updates' norms, and what neither goes with.

    Args:
        aggregation: Settings of the sums.
        varies: Whether a scheme asks any number of clients.
        segments: Name of the scheme of segments, "none" without.

    Raises:
        ConfigurationError: Naming the first argument that breaks a rule.

    Examples:
        >>> noisy = AggregationConfig(noise_multiplier=1.0)
        >>> validate_noise(noisy, varies=False, segments="none")
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `clip_norm` must be given with noise...
    """
    sums, norm = aggregation, aggregation.clip_norm
    if norm is None:
        rule = "must be given with noise: what is not bounded no noise hides"
        return require(
            not sums.is_noisy, "clip_norm", rule, norm, sums.noise_multiplier
        )
    # blocks of segments have their groups' lattices
    clip = ("clip",) if segments == "none" else ()
    check_unset(sums, _WITHOUT_NORM, "num_levels", "quantizer", "clip_rule", *clip)
    rule = (
        "must not be set with `clip_norm`: a weight would multiply what the norm bounds"
    )
    require(not sums.weighted, "weighted", rule, sums.weighted)
    rule = (
        "must not be set if cohorts differ in size (bernoulli, poisson): a client's "
        "share of "
        "the noise is one in a cohort's clients"
    )
    return require(not varies, "clip_norm", rule, norm)


SegmentsName = Annotated[
    Literal["none", "sc", "mc", "hc", "groups"],
    flags.Cites(**dict.fromkeys(("sc", "mc", "hc", "groups"), "heterosag")),
]
CombineName = Annotated[
    Literal["mean", "median", "trimmed", "geometric", "krum"],
    flags.Cites(
        **dict.fromkeys(("median", "trimmed"), "robust rule: yin2018byzantine"),
        geometric="robust rule: pillutla2022robust",
        krum="robust rule: blanchard2017machine",
    ),
]
_IS_LEVELS = flags.Within(2, 2**23, "must lie in [2, 2**23]")
_IS_TRIM = flags.Within(0.0, 0.5 - 2**-54, "must lie in [0, 0.5)")
AttackName = Literal[
    "none", "wrong_pads", "gaussian", "sign_flip", "scaling", "collusion"
]


@dataclasses.dataclass(frozen=True)
class SegmentConfig(Shown):
    """Groups of clients with their own quantizers, which sum updates by segment."""

    segments: SegmentsName = "none"
    """none: all clients sum whole updates with --num-levels; sc, mc, hc: HeteroSAg's
    single, multiple or hybrid chain over as many groups as --group-levels has; groups:
    each group by itself (no privacy between groups)."""
    group_levels: Annotated[tuple[int, ...], _IS_LEVELS] = (2, 4, 8, 10, 12)
    """Levels of each group's quantizer, slowest group first. With fewer levels, it
    matters more that --clip is no wider than the updates."""
    subgroups: Annotated[tuple[int, ...], flags.shown()] = ()
    """Number of subgroups of each group (SC+, MC+, HC+), such as 1 2 2 2 1. Default:
    one each."""
    hybrid_threshold: flags.Count = None
    """T of --segments hc: the most segments that the server learns of any one group,
    such as 2. It is required for hc. Default: not used."""
    client_rates: Annotated[tuple[float, ...], flags.IS_POSITIVE] = (
        1.0,
        2.0,
        3.0,
        4.0,
        4.0,
    )
    """Upload rates in Mbit/s, spread evenly over the clients. The cohort of a round is
    sorted by rate and cut into equal groups, slowest first."""
    allow_small_groups: bool = False
    """Accept groups (or subgroups) with fewer than two clients, whose sums are no sums.
    """
    combine: CombineName = "mean"
    """mean; or a rule that tolerates some bad sums: median, trimmed (mean), geometric
    (median) or krum."""
    trim: Annotated[float, _IS_TRIM] = 0.25
    """Fraction that --combine trimmed excludes at each end."""
    attack: AttackName = "none"
    """What Byzantine clients do: wrong_pads, gaussian (the paper's model of it),
    sign_flip, scaling (by 10), collusion."""
    num_byzantine: int = 0
    """Number of Byzantine clients: the first ones."""
    group_sizes: Annotated[tuple[int, ...], flags.shown()] = ()
    """Clients of a cohort in each group, slowest group first, such as 3 6 6. Default:
    as equal as can be."""
    rate_boundaries: Annotated[
        tuple[float, ...], flags.IS_POSITIVE, flags.shown("MBITS [MBITS ...]")
    ] = ()
    """Mbit/s at which one group ends and the next begins, one fewer than groups, such
    as 1.5 3.5. Groups are then in proportion to the clients with such rates. Default:
    --group-sizes."""
    byzantine_clients: Annotated[tuple[int, ...], flags.shown()] = ()
    """The Byzantine clients by number, instead of --num-byzantine. Default: the first
    ones."""
    attack_strength: Annotated[flags.Number, flags.IS_POSITIVE] = None
    """Strength of --attack: the factor of sign_flip (default 1) and scaling (10), the
    standard deviation of gaussian (0.1), the deviations of collusion (1.5). Default:
    the attack's."""
    weigh_sums: bool = True
    """Count a sum by its clients in the rule of --combine. Otherwise each counts once,
    as in the paper."""

    @property
    def is_plain(self) -> bool:
        """Whether there are no segments and no groups."""
        return self.segments == "none"

    @property
    def attackers(self) -> tuple[int, ...]:
        """Return the Byzantine clients."""
        return self.byzantine_clients or tuple(range(self.num_byzantine))

    @property
    def num_columns(self) -> int:
        """Return Z, groups or subgroups."""
        return sum(self.cuts)

    def column_sizes(self, cohort_size: int, block_size: int = 1) -> list[int]:
        """Return the sizes of a cohort's groups.

        Unless sizes or boundaries are set, groups hold whole blocks of `block_size`
        clients if there is one for each group.
        """
        if self.group_sizes:
            return list(self.group_sizes)
        number = len(self.group_levels)
        if self.rate_boundaries:
            counts = [0] * number
            # dealt out in turn, as rates are to all clients
            each, rest = divmod(cohort_size, len(self.client_rates))
            for place, rate in enumerate(self.client_rates):
                group = bisect.bisect_right(self.rate_boundaries, rate)
                counts[group] += each + (place < rest)
            return counts
        unit = block_size if cohort_size // block_size >= number else 1
        size, rest = divmod(cohort_size // unit, number)
        return [unit * (size + (group < rest)) for group in range(number)]

    @property
    def cuts(self) -> tuple[int, ...]:
        """Into how many subgroups each group is cut."""
        return self.subgroups or (1,) * len(self.group_levels)

    def smallest_column(self, cohort_size: int) -> int:
        """Return the fewest clients of a group or subgroup."""
        sizes = self.column_sizes(cohort_size)
        return min(size // cut for size, cut in zip(sizes, self.cuts, strict=True))
