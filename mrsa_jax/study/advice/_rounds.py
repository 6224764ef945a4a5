"""What the chosen T costs in rounds of training: by C, and by Theorem 2's bound."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from mrsa_jax.federated import ConvexConstants, convergence_bound, rounds_to_reach
from mrsa_jax.study.advice._options import Option, Setting
from mrsa_jax.study.settings._commands import ONE_RATE
from mrsa_watch._base.errors import ConfigurationError, require
from mrsa_watch._base.html import counted


@dataclasses.dataclass(frozen=True)
class RoundsPrice:
    """Rounds of training that a scheme needs for some of random selection.

    Attributes:
        scheme: As flags and files write it.
        target: Weak T that it keeps.
        compared: Label of random selection.
        rounds: Rounds of random selection.
        by_cardinality: Rounds of which as many are executed on average, by C. Theorem
            2's bound as printed gives the same, whatever its constants.
        is_of_blocks: Whether the scheme draws whole blocks of T clients.
        by_bound_most: Theorem 2's bound corrected for drawing blocks gives at most this
            many over many rounds, whatever its constants: if the clients of a block
            have equal data and all else is negligible. None of other schemes, and of
            clients who differ in their dropout rates or are lost inside rounds.
        by_bound: By that bound with given constants; None without, or beyond 10^7.
        gap: The bound on the loss above its least, after the rounds of random
            selection; None without constants.
    """

    scheme: str
    target: int
    compared: str
    rounds: int
    by_cardinality: float
    is_of_blocks: bool
    by_bound_most: float | None = None
    by_bound: int | None = None
    gap: float | None = None


def prices_in_rounds(
    setting: Setting,
    options: Sequence[Option],
    constants: ConvexConstants | None,
    local_steps: int,
) -> tuple[RoundsPrice, ...]:
    """Return what each scheme that keeps a T costs in rounds, against random selection.

    Args:
        setting: The clients, and the rounds of random selection.
        options: All schemes; without random selection nothing is compared.
        constants: Of Theorem 2, or None.
        local_steps: E, with constants.

    Raises:
        ConfigurationError: If there are constants, and the theorem is not about such
            clients.
    """
    # the rounds that Theorem 2 is about; it also assumes a uniform choice of blocks
    is_covered = len(set(setting.dropout_rates)) == 1 and setting.loss_rate == 0
    is_covered &= setting.availability == "independent"
    require(is_covered or constants is None, "convergence", ONE_RATE)
    plain = next((option for option in options if option.scheme == "uniform"), None)
    if plain is None or plain.cohort_size is None or not plain.cardinality > 0:
        return ()
    executed = plain.cardinality / plain.cohort_size * setting.rounds
    sizes = plain.num_clients, plain.cohort_size, 1
    gap = None
    if constants is not None:
        gap = convergence_bound(
            *sizes,
            setting.rounds,
            plain.cardinality,
            constants,
            local_steps=local_steps,
        )
    prices = []
    for option in options:
        k = option.cohort_size
        # a scheme that sums nobody has no price
        if option.weak_lower == 1 or k is None or not option.cardinality > 0:
            continue
        by_cardinality = executed * k / option.cardinality
        price = RoundsPrice(
            option.scheme,
            option.weak_lower,
            plain.label,
            setting.rounds,
            by_cardinality,
            option.block_size == option.weak_lower,
        )
        n, t = option.num_clients, option.block_size
        if is_covered and price.is_of_blocks:
            # beta of blocks over that of clients: 4 T (N - K) / (K (N - T)) over T = 1
            most = 1.0 if n == k else t * (n - 1) / (n - t)
            price = dataclasses.replace(price, by_bound_most=by_cardinality * most)
            if constants is not None and gap is not None:
                needed = _needed(
                    gap, (n, k, t), option.cardinality, constants, local_steps
                )
                price = dataclasses.replace(price, by_bound=needed, gap=gap)
        prices.append(price)
    return tuple(prices)


def _needed(
    gap: float,
    sizes: tuple[int, int, int],
    cardinality: float,
    constants: ConvexConstants,
    local_steps: int,
) -> int | None:
    """Return the rounds until the bound is at most a gap; None beyond the most."""
    if not gap > 0:  # all constants are 0
        return 1
    try:
        return rounds_to_reach(
            gap, *sizes, cardinality, constants, local_steps=local_steps
        )
    except ConfigurationError:
        return None


def rounds_words(prices: Sequence[RoundsPrice], chosen: Option) -> list[str]:
    """Say what the chosen scheme costs in rounds, and what blocks of its T cost."""
    about = [price for price in prices if price.scheme == chosen.scheme]
    about += [
        price
        for price in prices
        if price.target == chosen.weak_lower
        and price.is_of_blocks
        and price not in about
    ]
    words = []
    for price in about:
        words.append(
            f"For {price.rounds:,} rounds of {price.compared}, {price.scheme} needs "
            f"about {_whole(price.by_cardinality)} rounds, by C."
        )
        if price.by_bound_most is None:
            continue
        words.append(
            "Theorem 2's bound, for blocks drawn uniformly, gives the same as printed; "
            f"corrected, it gives at most about {_whole(price.by_bound_most)}."
        )
        if price.gap is not None:
            needed = "more than 10,000,000 rounds"
            if price.by_bound is not None:
                needed = counted(f"{price.by_bound:,}", "round")
            words.append(
                f"With the given constants, its corrected bound is {price.gap:.3g} for "
                f"{price.compared} and reached by {price.scheme} after {needed}."
            )
    return words


def _whole(rounds: float) -> str:
    # rounding of C must not add a round
    return f"{math.ceil(rounds * (1 - 1e-9)):,}"
