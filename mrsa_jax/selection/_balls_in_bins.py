"""Balls in bins: each client draws one of b places, once or in each epoch of b rounds."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32, Key

from mrsa_jax._core.arrays import one_program, pytree, zeros
from mrsa_jax._core.factories import also_traced, unless_traced
from mrsa_jax._core.streams import client_words
from mrsa_watch._base.errors import check_integer, check_size, require


class BinsState(NamedTuple):
    """What balls in bins remembers between rounds.

    Attributes:
        counts: int32[N], rounds in whose sum each client was.
        bins: int32[N], the bin of each client, drawn in the first round, or that of an epoch.
        played: int32, rounds so far.
    """

    counts: Int32[Array, " clients *trials"]
    bins: Int32[Array, " clients *trials"]
    played: Int32[Array, "*trials"]


@pytree
class BinSelection:
    """Clients take part once in each epoch of b rounds; build it with the factory.

    Attributes:
        num_bins: int32 scalar, b.
        num_clients: N, static.
        fresh: Whether bins are drawn in each epoch, static.
    """

    num_bins: Array
    num_clients: int = dataclasses.field(metadata={"static": True})
    fresh: bool = dataclasses.field(default=False, metadata={"static": True})
    takes_trials: ClassVar[bool] = True
    depends_on_data: ClassVar[bool] = False
    joins_alone: ClassVar[bool] = True

    def typed(self) -> list[tuple[Any, ...]]:
        """Return the call that may have made it."""
        return [(balls_in_bins, self.num_clients, int(self.num_bins))]

    @property
    def separation(self) -> Array:
        """int32 scalar, least difference of two rounds of one client."""
        return jnp.int32(1) if self.fresh else self.num_bins

    def init(self) -> BinsState:
        """Return the state before the first round, in which bins are drawn."""
        nothing = zeros(self.num_clients, jnp.int32)
        return BinsState(nothing, nothing, jnp.int32(0))

    @one_program
    def select(
        self,
        key: Key[Array, "*trials"],
        state: BinsState,
        available: Bool[Array, " clients *trials"],
    ) -> tuple[Bool[Array, " clients *trials"], BinsState]:
        """Return the available clients whose bin's turn it is, perhaps nobody, and the new state.

        Takes trials as trailing axes.
        """
        drawn = client_words(key, self.num_clients) % self.num_bins.astype(jnp.uint32)
        turn = state.played % self.num_bins
        is_first = (turn if self.fresh else state.played) == 0
        bins = jnp.where(is_first[None], drawn.astype(jnp.int32), state.bins)
        cohort = available & (bins == turn[None])
        counts = state.counts + cohort.astype(jnp.int32)
        return cohort, BinsState(counts, bins, state.played + 1)


@also_traced
def balls_in_bins(num_clients: int, num_bins: int | Array, *, fresh: bool = False) -> BinSelection:
    """Return the scheme in which each client draws one of b bins, uniformly, by itself.

    In round j, from 0, those of bin j mod b are asked: an epoch of b rounds asks everybody once.
    Sums vary in size. Differential privacy is amplified by the unknown bin against who sees models
    only: more by bins that are drawn in each epoch, as then one epoch says nothing of another. Bins
    drawn once keep a minimum separation of b.

    Args:
        num_clients: N >= 1.
        num_bins: b, from 1 to 2^16; the chances of bins differ by less than 2^-16 of their size.
        fresh: Whether each epoch draws them; else the order stays that of the first.

    Returns:
        A selector; b is data.

    Raises:
        ConfigurationError: If a size is no positive integer, there are too many bins, or `fresh` is
            no bool.

    Examples:
        >>> import mrsa_jax as mj
        >>> history = mj.selection.rollout(
        ...     0, mj.selection.balls_in_bins(9, 3), mj.availability.independent(0.0), num_rounds=6)
        >>> history[:3].sum(axis=0).tolist(), bool((history[:3] == history[3:]).all())
        ([1, 1, 1, 1, 1, 1, 1, 1, 1], True)
        >>> drawn = mj.selection.rollout(
        ...     0,
        ...     mj.selection.balls_in_bins(9, 3, fresh=True),
        ...     mj.availability.independent(0.0),
        ...     num_rounds=6,
        ... )
        >>> drawn[3:].sum(axis=0).tolist(), bool((drawn[:3] == drawn[3:]).all())
        ([1, 1, 1, 1, 1, 1, 1, 1, 1], False)

    Source: none of the papers; Chua, Ghazi, Harrison, Kamath, Kumar, Leeman, Manurangsi, Sinha,
        Zhang, "Balls-and-bins sampling for DP-SGD" (2024); bins of each epoch: Feldman, Shenfeld,
        "Privacy amplification by random allocation" (2025).
    """
    n = check_size(num_clients, "num_clients")
    require(isinstance(fresh, bool), "fresh", "must be True or False", fresh)
    bins = unless_traced(check_integer, num_bins, "num_bins", 1, 2**16)
    return BinSelection(jnp.int32(bins), n, fresh)
