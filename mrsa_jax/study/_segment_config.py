"""Settings of unequal quantizers and segments (HeteroSAg); nothing here imports JAX."""

from __future__ import annotations

import dataclasses
from typing import Literal

from mrsa_jax._checks import POSITIVE, check_number
from mrsa_jax._errors import require
from mrsa_jax._html import config_repr
from mrsa_jax._status import FEWEST_IN_A_SUM

__all__ = ["SegmentConfig", "column_sizes", "smallest_column", "validate_segments"]

SegmentsName = Literal["none", "sc", "mc", "hc", "groups"]
CombineName = Literal["mean", "median", "trimmed", "geometric", "krum"]
AttackName = Literal["none", "wrong_pads", "gaussian", "sign_flip", "scaling", "collusion"]


@dataclasses.dataclass(frozen=True)
class SegmentConfig:
    """Groups of clients with quantizers of their own, which sum updates segment by segment."""

    _repr_html_ = config_repr

    segments: SegmentsName = "none"
    """none: all clients sum whole updates with --num-levels; sc, mc, hc: HeteroSAg's single,
    multiple or hybrid chain over as many groups as --group-levels has; groups: each group by
    itself (no privacy between groups)."""
    group_levels: tuple[int, ...] = (2, 4, 8, 10, 12)
    """Levels of each group's quantizer, slowest group first. The fewer, the more it matters that
    --clip is no wider than the updates."""
    subgroups: tuple[int, ...] = ()
    """Into how many subgroups each group is cut (SC+, MC+, HC+); one each when left out."""
    hybrid_threshold: int | None = None
    """T of --segments hc: the most segments that the server learns of any one group."""
    client_rates: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0, 4.0)
    """Upload rates in Mbit/s, spread evenly over the clients; a round's cohort is ranked by rate
    and cut into equal groups, slowest first."""
    allow_small_groups: bool = False
    """Accept groups (or subgroups) with fewer than two clients, whose sums are no sums."""
    combine: CombineName = "mean"
    """mean; or what bears some bad sums: median, trimmed (mean), geometric (median), krum."""
    trim: float = 0.25
    """Share that --combine trimmed leaves out at each end."""
    attack: AttackName = "none"
    """What Byzantine clients do: wrong_pads, gaussian (the paper's model of it), sign_flip,
    scaling (by 10), collusion."""
    num_byzantine: int = 0
    """Byzantine clients: the first ones."""

    @property
    def is_plain(self) -> bool:
        """Whether there are no segments and no groups."""
        return self.segments == "none"

    @property
    def num_columns(self) -> int:
        """Return Z, groups or subgroups."""
        return sum(self.subgroups) if self.subgroups else len(self.group_levels)


def column_sizes(config: SegmentConfig, cohort_size: int, block_size: int = 1) -> list[int]:
    """Return how many of a cohort are in each group.

    Groups hold whole blocks of `block_size` clients where there is one for each group.
    """
    number = len(config.group_levels)
    unit = block_size if cohort_size // block_size >= number else 1
    size, rest = divmod(cohort_size // unit, number)
    return [unit * (size + (group < rest)) for group in range(number)]


def smallest_column(config: SegmentConfig, cohort_size: int, block_size: int = 1) -> int:
    """Return the fewest clients of a group or subgroup."""
    cuts = config.subgroups or (1,) * len(config.group_levels)
    sizes = column_sizes(config, cohort_size, block_size)
    return min(size // cut for size, cut in zip(sizes, cuts, strict=True))


def validate_segments(
    config: SegmentConfig,
    cohort_size: int,
    num_clients: int,
    *,
    weighted: bool,
    graph: str,
    policy: str,
    varies: bool,
) -> None:
    """Check the settings against each other and the population.

    Args:
        config: The settings.
        cohort_size: K.
        num_clients: N.
        weighted: Whether the mean is to be weighted by samples.
        graph: Name of the share graph.
        policy: What is done about blocks that lose a member.
        varies: Whether a scheme asks any number of clients.

    Raises:
        ConfigurationError: Naming the first argument that breaks a rule.
    """
    if config.is_plain:
        return _validate_plain(config)
    _validate_groups(config, cohort_size)
    _validate_rules(config, num_clients)
    require(not varies, "segments", "must be none where cohorts differ in size (bernoulli)",
            config.segments)  # fmt: skip
    rule = "must be left out with segments: their mean has no weights"
    require(not weighted, "weighted", rule, weighted)
    require(graph == "complete", "graph", "must be complete with segments", graph)
    require(policy == "ignore", "split_policy", "must be ignore with segments", policy)
    return None


def _validate_plain(config: SegmentConfig) -> None:
    needs = "must be left out without --segments sc, mc, hc or groups"
    for name in ("subgroups", "hybrid_threshold", "combine", "attack", "num_byzantine"):
        value = getattr(config, name)
        require(value == getattr(SegmentConfig(), name), name, needs, value)


def _validate_groups(config: SegmentConfig, cohort_size: int) -> None:
    levels, cuts = config.group_levels, config.subgroups
    chained = config.segments != "groups"
    least = 2 if chained else 1
    require(len(levels) >= least, "group_levels", f"must hold {least} or more", levels)
    for level in levels:
        require(2 <= level <= 2**23, "group_levels", "must lie in [2, 2**23]", level)
    ascending = list(levels) == sorted(levels)
    require(ascending, "group_levels", "must not descend from slower to faster groups", levels)
    fits = not cuts or (len(cuts) == len(levels) and min(cuts) >= 1)
    rule = "must be one number, at least 1, for each of `group_levels`"
    require(fits, "subgroups", rule, cuts, levels)
    threshold, columns = config.hybrid_threshold, config.num_columns
    rule = "must be given for hc, and for no other scheme"
    given = threshold is not None
    require(given == (config.segments == "hc"), "hybrid_threshold", rule, config.segments)
    good = threshold is None or 1 <= threshold < columns
    require(good, "hybrid_threshold", f"must lie in [1, {columns - 1}]", threshold)
    smallest = smallest_column(config, cohort_size)
    require(
        smallest >= FEWEST_IN_A_SUM or config.allow_small_groups,
        "group_levels",
        "must leave two clients of a cohort or more in each group or subgroup, or a sum is one "
        "client's update (a larger --cohort-size, fewer groups, or --allow-small-groups)",
        f"{smallest} of {cohort_size} in the smallest of {columns}",
    )
    require(smallest >= 1, "group_levels", "must not be more than the cohort's clients", columns)
    rates = config.client_rates
    require(len(rates) >= 1, "client_rates", "must hold at least one rate", rates)
    for rate in rates:
        check_number(rate, "client_rates", "must be positive", POSITIVE)


def _validate_rules(config: SegmentConfig, num_clients: int) -> None:
    good = 0 <= config.trim < 0.5
    require(good, "trim", "must lie in [0, 0.5)", config.trim)
    attackers, attacked = config.num_byzantine, config.attack != "none"
    rule = "must be at least 1 with an attack, and 0 without"
    require((attackers >= 1) == attacked, "num_byzantine", rule, attackers, config.attack)
    rule = f"must be fewer than the {num_clients} clients"
    require(attackers < num_clients, "num_byzantine", rule, attackers)
