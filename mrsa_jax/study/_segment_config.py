"""Settings of unequal quantizers and segments (HeteroSAg); nothing here imports JAX."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from mrsa_jax._flags import Cites
from mrsa_jax._html import Shown

SegmentsName = Annotated[
    Literal["none", "sc", "mc", "hc", "groups"],
    Cites(**dict.fromkeys(("sc", "mc", "hc", "groups"), "heterosag")),
]
CombineName = Annotated[Literal["mean", "median", "trimmed", "geometric", "krum"], Cites(
    **dict.fromkeys(("median", "trimmed"), "robust rule: yin2018byzantine"),
    geometric="robust rule: pillutla2022robust",
    krum="robust rule: blanchard2017machine",
)]  # fmt: skip
AttackName = Literal["none", "wrong_pads", "gaussian", "sign_flip", "scaling", "collusion"]


@dataclasses.dataclass(frozen=True)
class SegmentConfig(Shown):
    """Groups of clients with quantizers of their own, which sum updates segment by segment."""

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
        return sum(self.cuts)

    def column_sizes(self, cohort_size: int, block_size: int = 1) -> list[int]:
        """Return how many of a cohort are in each group.

        Groups hold whole blocks of `block_size` clients where there is one for each group.
        """
        number = len(self.group_levels)
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
