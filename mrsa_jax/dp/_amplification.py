"""Amplification under blocks of T.

Epsilon of the same chances to take part, in blocks or one by one.
Who sees only the models is less sure who took part, and that amplifies privacy, if
clients join one by one. In a block of T the other members move with the client: if they
send the same, a release shows N(T, s^2) or N(T - 1, s^2) where the block is in it, and
both are apart from the N(0, s^2) of the rounds without it, however the coin fell. So
against who knows the others, blocks lose nearly what they lose against the server. The
pair of mixtures that this makes is one that some data have: what it loses, the scheme
loses at the least, and the mean over histories is what it loses at most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64, Int

from mrsa_jax import availability, privacy, selection
from mrsa_jax._core.arrays import integer_or_vector
from mrsa_jax._core.traced import needs_values
from mrsa_jax.dp._account import account
from mrsa_jax.dp._coins import least_epsilon, privacy_loss_distribution
from mrsa_watch._base.errors import check_chance, require
from mrsa_watch._base.html import brief, number, telling
from mrsa_watch._base.values import by_value

_CELLS = 100  # of a release, in a standard deviation of the noise
# standard deviations beyond the means; what is further out is left to both sides
_REACH = 9.0
_STEP = 1e-3  # of privacy losses, rounded so that epsilon is never too large


@dataclasses.dataclass(frozen=True)
@by_value
class Amplification:
    """Costs and benefits of blocks (built by `amplification`), an entry for each T.

    Attributes:
        privacy_targets: T.
        server: epsilon against the server, who sees who takes part, exactly; at most so
            much is lost to others.
        blocks: epsilon against who sees models only, at the least: if the others of the
            block send the same, and are known; 0 for a delta that floats do not reach.
        one_by_one: epsilon against who sees models only, if each client joined alone,
            by a coin of the same chance: amplified by sampling.
        chances: of each client to be in a round.
        cardinality: Mean clients per round, rounds that are skipped included.
        hidden_among: Among how many clients the worst is hidden from the server without
            any noise, in one history.
        rounds: J.
        noise_multiplier: Standard deviation of each sum's noise, in units of the clip.
        delta: At which epsilon is.
    """

    __repr__ = brief
    _repr_html_ = telling

    privacy_targets: Int[np.ndarray, " targets"]
    server: Float64[np.ndarray, " targets"]
    blocks: Float64[np.ndarray, " targets"]
    one_by_one: Float64[np.ndarray, " targets"]
    chances: Float64[np.ndarray, " targets"]
    cardinality: Float64[np.ndarray, " targets"]
    hidden_among: Float64[np.ndarray, " targets"]
    rounds: int
    noise_multiplier: float
    delta: float

    def _rows(self) -> list[tuple[str, ...]]:
        """Return names of the columns, and a row for each T."""
        against = (self.server, self.blocks, self.one_by_one, self.cardinality)
        rows = zip(self.privacy_targets, *against, strict=True)
        names = (
            "T",
            "epsilon, server",
            "models, blocks",
            "models, one by one",
            "mean clients",
        )
        return [names, *(tuple(map(number, row)) for row in rows)]


@needs_values
def amplification(
    num_clients: int,
    cohort_size: int,
    privacy_targets: Sequence[int],
    rounds: int,
    noise_multiplier: float,
    delta: float = 1e-5,
    *,
    dropout_rate: float = 0.0,
) -> Amplification:
    """Compare amplification under blocks of T with clients who join one by one.

    Batch partitioning that draws uniformly among the available blocks, so that a
    client's rounds are independent and laws are known: nothing but `hidden_among` is
    simulated. Each sum has all of its noise: clients who join one by one have it added
    for them.

    Args:
        num_clients: N, a multiple of each T.
        cohort_size: K, a multiple of each T.
        privacy_targets: Each T.
        rounds: J.
        noise_multiplier: Standard deviation of the noise of each sum, in units of the
            clip.
        delta: In (0, 1).
        dropout_rate: Chance of a client to be offline in a round.

    Returns:
        The figures, which `plotting.plot_amplification` shows.

    Raises:
        ConfigurationError: If there is no T, dp_accounting is missing, or as `account`
            and `selection.batch_partitioning`.

    Examples:
        >>> import mrsa_jax as mj
        >>> told = mj.dp.amplification(12, 6, [1, 3], 20, 2.0)
        >>> told.server.round(1).tolist(), told.blocks.round(1).tolist()
        ([8.4, 8.4], [5.7, 7.6])
        >>> told.hidden_among.round(6).tolist()
        [1.0, 3.0]
    """
    targets = np.atleast_1d(integer_or_vector(privacy_targets, "privacy_targets"))
    require(targets.size > 0, "privacy_targets", "must hold at least one")
    away = check_chance(dropout_rate, "dropout_rate")
    online = availability.independent(away)
    rows = []
    for target in targets.tolist():
        scheme = selection.batch_partitioning(
            num_clients, cohort_size, target, "uniform"
        )
        server = account(scheme, online, rounds, noise_multiplier, delta, clients=[0])
        chances = scheme.chances(np.full(num_clients, away))
        assert chances is not None
        chance = float(chances[0])
        alone = account(
            selection.bernoulli(num_clients, chance),
            availability.independent(0.0),
            rounds,
            noise_multiplier,
            delta,
            clients=[0],
            adversary="models",
        )
        lost = alone.lower[0]
        if target > 1:
            pair = block_losses(chance, target, float(noise_multiplier))
            lost = least_epsilon(pair.self_compose(rounds), delta, rounds)
        hidden = privacy.hidden_among(selection.rollout(0, scheme, online, rounds))
        size = selection.expected_cardinality(num_clients, cohort_size, target, away)
        rows.append(
            (
                server.epsilon[0],
                lost,
                alone.epsilon[0],
                chance,
                size,
                np.asarray(hidden).min(),
            )
        )
    server, blocks, alone, chances, sizes, hidden = np.array(rows, np.float64).T
    return Amplification(
        targets,
        server,
        blocks,
        alone,
        chances,
        sizes,
        hidden,
        rounds,
        float(noise_multiplier),
        float(delta),
    )


def block_losses(chance: float, target: int, noise_multiplier: float) -> Any:
    """Bound a round's privacy losses of a client whose block sends the same from below.

    Releases are distinguished by cells only, which nobody who sees them whole does
    worse than.

    Args:
        chance: Of the block to be in the round.
        target: T, clients of the block.
        noise_multiplier: Standard deviation of the noise.

    Returns:
        A `PrivacyLossDistribution` of dp_accounting.
    """
    from scipy import stats

    ends = np.arange(-_REACH, target / noise_multiplier + _REACH, 1.0 / _CELLS)

    def masses(others: int) -> np.ndarray:
        means = np.array([0.0, others / noise_multiplier])
        # from the nearer side, so that no cell's mass is a difference of numbers near 1
        middle = means[:, None] < 0.5 * (ends[1:] + ends[:-1])
        below = np.diff(stats.norm.cdf(ends - means[:, None]))
        above = -np.diff(stats.norm.sf(ends - means[:, None]))
        parts = np.where(middle, above, below)
        return np.asarray((1.0 - chance) * parts[0] + chance * parts[1])

    def logarithms(cells: np.ndarray) -> dict[int, float]:
        # at least the rounding of the sum: the logarithm of less is hundreds away, and
        # the distribution, which dp_accounting composes cell by cell, as long
        rest = max(1.0 - float(cells.sum()), 1e-16)
        return dict(enumerate(np.log(np.append(cells, rest)).tolist()))

    return privacy_loss_distribution().from_two_probability_mass_functions(
        logarithms(masses(target - 1)),
        logarithms(masses(target)),
        pessimistic_estimate=False,
        value_discretization_interval=_STEP,
        symmetric=False,
    )
