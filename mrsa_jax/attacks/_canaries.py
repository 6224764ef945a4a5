"""Canaries: does the noise in the ring hide a client as well as its ledger says?

A client sends a vector in each of its rounds, or nothing: four clip norms long, which
clipping must shorten to one, along a random direction or along one axis. The server
reads all decoded sums, less what it knows of them, along the canary, and applies the
best test (`attacks.distinguish`). Where the others are known only noise and rounding
hide the canary, and the separation of its scores is the ledger's mu less what rounding
adds to the noise; where they are not, it is less. Nothing is assumed of the scores when
mu is measured: more than the ledger's mu would refute the implementation or its
account.

One test along one direction does not see which client's noise is missing, nor noise
that is the same in every round, which even lowers that mu. So a second statistic takes
all directions: the covariance over rounds of what is left of the sums without the
updates, in units of the plan's variance. By plan it is the identity, and a little more
on its diagonal for the rounding.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float32, Float64, Key

from mrsa_jax import secagg
from mrsa_jax._core.arrays import as_integers, on_device
from mrsa_jax._core.batches import at_once, map_tiles
from mrsa_jax._core.noise import check_spread
from mrsa_jax._core.slots import padded_slots
from mrsa_jax._core.statistics import binomial_interval
from mrsa_jax._core.streams import Stream, as_key, fold, fold_over, round_key
from mrsa_jax._core.traced import needs_values
from mrsa_jax.attacks._distinguish import BestTest, distinguish
from mrsa_jax.dp import RingMechanism
from mrsa_watch._base.errors import check_integer, require, require_methods
from mrsa_watch._base.html import brief_tuple
from mrsa_watch._base.values import by_value

# of the clip norm: the others are known as they are, not as clipped
_INSIDE = 1.0 - 1e-6
# of a canary in clip norms: what is not clipped, or to more than one, shows
_LENGTH = 4.0
_COPIES = 6  # of the cohort's vectors: sent, rotated, rounded, drawn, coded, decoded
_GRAMS = 2**21  # entries of the covariances that are kept at once
_FAR = 64  # in steps: where noise of few steps has no mass


@brief_tuple
@by_value
class Residuals(NamedTuple):
    """Remainders of the sums without any update, over the rounds.

    Of all directions but the canary's, in units of each round's planned variance.

    Attributes:
        covariance: float64 [rounds, rounds], the mean over trials and directions; by
            plan the identity. Rounds without a sum are left out.
        errors: float64 [rounds, rounds], the standard errors of these means over the
            trials.
        slack: float64 [rounds], the most that rounding and sums that wrap round add to
            the diagonal.
        trials: Of both kinds.
    """

    covariance: Float64[np.ndarray, "rounds rounds"]
    errors: Float64[np.ndarray, "rounds rounds"]
    slack: Float64[np.ndarray, " rounds"]
    trials: int

    def margins(self, level: float = 0.999) -> Float64[np.ndarray, "rounds rounds"]:
        """Return the margin of each entry, all together with this probability.

        By Student's law of the trials' mean, and Bonferroni's bound over the entries.
        An entry that is off by more than twice its margin is found with this
        probability.
        """
        from scipy import special

        entries = self.covariance.shape[0] * (self.covariance.shape[0] + 1) / 2
        tail = (1.0 - level) / (2.0 * entries)
        return np.asarray(-special.stdtrit(self.trials - 1.0, tail) * self.errors)

    def faults(self, level: float = 0.999) -> tuple[str, ...]:
        """Name the ways in which the noise differs from the plan, as far as it shows.

        Args:
            level: Probability that nothing is reported for noise that is as planned.
        """
        margins = self.margins(level)
        scale, margin = np.diagonal(self.covariance), np.diagonal(margins)
        beyond = np.abs(self.covariance) > margins
        np.fill_diagonal(beyond, False)
        tests = {
            "less noise than planned": scale + margin < 1.0,
            "more noise than planned": scale - margin > 1.0 + self.slack,
            "noise correlated over rounds": beyond,
        }
        return tuple(fault for fault, shows in tests.items() if shows.any())


@brief_tuple
@by_value
class CanaryScores(NamedTuple):
    """Scores of the best test, without the canary and with it (of `Canaries.play`).

    Attributes:
        without: float64 [trials].
        shifted: float64 [trials].
        residuals: What is left of the sums without the updates; None where it was not
            kept.
    """

    without: Float64[np.ndarray, " trials"]
    shifted: Float64[np.ndarray, " trials"]
    residuals: Residuals | None = None

    @property
    def mu(self) -> float:
        """The distance of the two, in standard deviations of both."""
        means = self.without.mean(), self.shifted.mean()
        both = np.append(self.without - means[0], self.shifted - means[1])
        return float((means[1] - means[0]) / both.std(ddof=2))

    def interval(self, threshold: float, level: float = 0.95) -> tuple[float, float]:
        """Bound mu by the errors at a threshold, whatever the scores' law.

        A mechanism of that mu admits no test whose rates of true and false positives
        are further apart than Phi^-1(tpr) - Phi^-1(fpr) = mu, so the lower end refutes
        any smaller mu.

        Args:
            threshold: Chosen beforehand, e.g. half of the mu that is expected.
            level: Chance that both rates lie in their Clopper-Pearson intervals.
        """
        kinds = (self.without, self.shifted)
        counts = [int((scores > threshold).sum()) for scores in kinds]
        return _between(counts, list(map(len, kinds)), level)

    def smallest_found(self, allowed: float, level: float = 0.95) -> float:
        """Return the smallest mu that these trials would tell from an allowed one.

        Scores of N(0, 1) without the canary and N(mu, 1) with it then have an
        `interval`, at the threshold of half the allowed mu, whose lower end is above it
        with a probability of at least `level`.

        Args:
            allowed: What the ledger allows.
            level: Of the interval, and the least probability to find the violation.

        Returns:
            That mu, infinite where so few trials could refute nothing.
        """
        from scipy import stats

        allowed = float(allowed)
        threshold, tail = allowed / 2.0, (1.0 - level) / 2.0
        sizes = [len(self.without), len(self.shifted)]
        # no more false positives than this, and no fewer true ones, except in the two
        # tails
        most = int(stats.binom.ppf(1.0 - tail, sizes[0], stats.norm.sf(threshold)))

        def is_found(mu: float) -> bool:
            least = int(stats.binom.ppf(tail, sizes[1], stats.norm.sf(threshold - mu)))
            return _between([most, least], sizes, level)[0] > allowed

        # bisection: a larger mu is found if a smaller one is
        # 64 deviations apart no test could fail
        low, high = allowed, allowed + 64.0
        if not is_found(high):
            return float("inf")
        for _ in range(40):
            middle = (low + high) / 2.0
            low, high = (low, middle) if is_found(middle) else (middle, high)
        return high


def _between(counts: list[int], sizes: list[int], level: float) -> tuple[float, float]:
    """Bound mu by counts of false and of true positives."""
    from scipy import special

    each = 1.0 - (1.0 - level) / 2.0
    rates = [binomial_interval(*pair, each) for pair in zip(counts, sizes, strict=True)]
    (fpr_low, fpr_high), (tpr_low, tpr_high) = special.ndtri(np.asarray(rates))
    return float(tpr_low - fpr_high), float(tpr_high - fpr_low)


@dataclasses.dataclass(frozen=True)
@by_value
class Canaries:
    """The audit of one client (built by `canaries`).

    Attributes:
        client: Who is the canary.
        mechanism: How updates become noisy codes by plan; a canary is four of its clip
            norms long, of which one is to be left.
        spread: Standard deviation of each entry of the others' updates, which do not
            change over rounds; None where they are known.
    """

    client: int
    mechanism: RingMechanism
    spread: float | None

    def test(self, participation: Any) -> BestTest:
        """Return the best test for a history of sums, by the noise of their members.

        Args:
            participation: bool [J, N].

        Raises:
            ConfigurationError: If it is no such matrix or has no such client.
        """
        rows = _rows(participation)
        variances = self.mechanism.noise.variance * np.maximum(rows.sum(axis=1), 1)
        return distinguish(
            self.client,
            float(self.mechanism.quantizer.clip_norm),
            spread=self.spread,
            noise=variances,
        ).test(rows)

    @needs_values
    def play(
        self,
        seed: int | Key[Array, ""],
        participation: Any,
        num_trials: int,
        aggregator: Any = None,
    ) -> CanaryScores:
        """Simulate histories through the ring, without the canary and with it.

        Each trial draws the canary's direction (an axis in half of them), the others'
        updates, rounding and noise anew. Known others send vectors of the clip norm, so
        that clipping, rounding and ring do their work; others who are not known send
        none that is longer.

        Args:
            seed: JAX key or seed.
            participation: As of `test`.
            num_trials: Of each kind.
            aggregator: The implementation that is audited against the mechanism: a
                pytree with `init` and `aggregate` as of `secagg.ring_average`, with
                slots for the largest sum, which runs under `jit`. None: the
                `ring_average` of the mechanism.

        Returns:
            The scores, and the covariance over rounds of what is left of the sums.

        Raises:
            ConfigurationError: As `test`; if the trials are no positive integer, or
                updates have fewer than two entries.
        """
        rows = _rows(participation)
        count = check_integer(num_trials, "num_trials", 1)
        mechanism = self.mechanism
        # rounds without a sum have a weight, but nothing is played in them
        weights = self.test(rows).weights[rows.any(axis=1)]
        dim = mechanism.quantizer.dim
        require(
            dim > 1,
            "mechanism",
            "must be of updates with two entries or more",
            dim,
        )
        rows = rows[rows.any(axis=1)]
        sizes = rows.sum(axis=1)
        least = min(sizes.tolist(), default=0)
        require(
            least > 1,
            "participation",
            "must hold a sum of two clients or more in each row that is not empty",
            f"{least} clients",
        )
        width, clip = int(sizes.max()), float(mechanism.quantizer.clip_norm)
        if aggregator is None:
            aggregator = secagg.ring_average(
                mechanism.quantizer,
                width,
                dim,
                modulus_bits=mechanism.modulus_bits,
                noise=mechanism.noise,
                fidelity="sets",
            )
        require_methods(aggregator, "aggregator", "init", "aggregate")
        members, present = padded_slots(rows, width)
        variances = _variance(mechanism) * sizes
        # floats of one trial: the cohort's vectors, and the remainders of all rounds
        vectors = _COPIES * width * mechanism.quantizer.padded_dim
        tile = min(at_once("repeated", 4 * (vectors + len(rows) * dim)), count)
        setting = _Setting(
            aggregator,
            on_device(members),
            on_device(present),
            jnp.int32(self.client),
            jnp.float32(clip * _INSIDE),
            jnp.float32(clip * _LENGTH),
            None if self.spread is None else jnp.float32(self.spread),
            on_device(1.0 / np.sqrt(variances), jnp.float32),
        )
        scores, grams = [], _Moments(len(rows))
        step = min(count, -(-max(1, _GRAMS // len(rows) ** 2) // tile) * tile)
        for is_there in (False, True):
            key = fold(as_key(seed), int(Stream.ATTACK), int(is_there))
            parts = []
            for start in range(0, count, step):
                # the last ones may be too many
                keys = fold_over(key, jnp.arange(start, start + step))
                shape = (rows.shape[1], dim)
                played = _played(keys, setting, on_device(is_there), shape, tile)
                seen, gram = (
                    np.asarray(each, np.float64)[: count - start] for each in played
                )
                parts.append(seen)
                grams.add(gram)
            scores.append(np.concatenate(parts) @ weights)
        # a rounded entry has a variance of at most a quarter of a squared step
        rounding = sizes * mechanism.step**2 / 4.0
        ring = 2.0**mechanism.modulus_bits * mechanism.step
        slack = (rounding + mechanism.wrap_probability * ring**2) / variances
        return CanaryScores(scores[0], scores[1], grams.residuals(slack))


def _variance(mechanism: RingMechanism) -> float:
    """Return the variance of one client's noise.

    That of a coarse discrete Gaussian is less than its parameter.
    """
    noise = mechanism.noise.on(mechanism.step)
    if noise.kind == "skellam" or noise.variance > 16.0:
        return mechanism.noise.variance
    far = np.arange(1, _FAR)
    return float(2.0 * (far**2 * noise.mass(far)).sum()) * mechanism.step**2


class _Moments:
    """Sums of the trials' covariances less the identity, and of their squares."""

    def __init__(self, rounds: int) -> None:
        self.count, self.plan = 0, np.eye(rounds)
        self.first, self.second = np.zeros((2, rounds, rounds))

    def add(self, grams: np.ndarray) -> None:
        """Add those of some trials."""
        # about the identity, or the squares would lose their digits
        apart = grams - self.plan
        self.count += len(apart)
        self.first += apart.sum(axis=0)
        self.second += np.square(apart).sum(axis=0)

    def residuals(self, slack: np.ndarray) -> Residuals:
        """Return the mean and its standard error."""
        mean = self.first / self.count
        spread = np.maximum(self.second / self.count - mean**2, 0.0) / (self.count - 1)
        return Residuals(self.plan + mean, np.sqrt(spread), slack, self.count)


class _Setting(NamedTuple):
    """The part of a trial that all trials share."""

    average: Any
    members: Array  # int32 [rounds, slots]
    present: Array  # bool [rounds, slots]
    client: Array
    longest: Array  # of the others' updates
    length: Array  # of the canary
    spread: Array | None
    scales: Array  # float32 [rounds], 1 / the planned deviation of a sum's entry


@functools.partial(jax.jit, static_argnames=("shape", "tile"))
def _played(
    keys: Key[Array, " trials"],
    setting: _Setting,
    is_there: Array,
    shape: tuple[int, int],
    tile: int,
) -> tuple[Float32[Array, "trials rounds"], Float32[Array, "trials rounds rounds"]]:
    """Play rounds; return the server's view along the canary, less what it knows.

    And the covariance over rounds of the remainders without any update, in all other
    directions.
    """
    average, (clients, dim) = setting.average, shape

    def one_trial(key: Array) -> tuple[Array, Array]:
        of_updates, of_axis, of_kind, of_rounds = jax.random.split(key, 4)
        drawn = jax.random.normal(of_updates, shape, jnp.float32)
        lengths = jnp.sqrt(jnp.sum(drawn * drawn, axis=1, keepdims=True))
        along = drawn[setting.client] / lengths[setting.client]
        axis = jax.nn.one_hot(
            jax.random.randint(of_axis, (), 0, dim), dim, dtype=jnp.float32
        )
        unit = jnp.where(jax.random.bernoulli(of_kind), axis, along)
        is_canary = (jnp.arange(clients) == setting.client)[:, None]
        if setting.spread is None:
            others = setting.longest * drawn / lengths
        else:
            most = setting.longest / (setting.spread * lengths)
            others = jnp.minimum(most, jnp.float32(1)) * setting.spread * drawn
        canary = jnp.where(is_there, setting.length, jnp.float32(0)) * unit
        # the canary replaces its client's vector in both kinds of trial
        sent = jnp.where(is_canary, canary[None], others)

        def one_round(
            state: Any, step: tuple[Array, ...]
        ) -> tuple[Any, tuple[Array, Array]]:
            index, members, present, scale = step
            key = round_key(of_rounds, index, Stream.QUANTIZATION)
            updates = jnp.where(present[:, None], sent[members], jnp.float32(0))
            out, state = average.aggregate(key, state, updates, members, present)
            total = out.update * out.total_weight.astype(jnp.float32)
            # the server knows the others' updates, and takes them off
            is_other = (members != setting.client) & present
            of_others = jnp.where(is_other[:, None], updates, jnp.float32(0))
            rest = total - jnp.sum(of_others, axis=0)
            seen = jnp.sum((rest if setting.spread is None else total) * unit)
            return state, (seen, scale * (rest - jnp.sum(rest * unit) * unit))

        indices = jnp.arange(setting.members.shape[0], dtype=jnp.int32)
        steps = (indices, setting.members, setting.present, setting.scales)
        seen, rest = lax.scan(one_round, average.init(), steps)[1]
        # averaged over the directions that the canary does not take
        gram = jnp.einsum("rd,sd->rs", rest, rest, precision=lax.Precision.HIGHEST)
        return seen, gram / jnp.float32(dim - 1)

    return map_tiles(one_trial, keys, tile)


def _rows(participation: Any) -> np.ndarray:
    rows = np.asarray(as_integers(participation, "participation"))
    require(rows.ndim == 2, "participation", "must be [rounds, clients]", rows.shape)
    plain = bool(((rows == 0) | (rows == 1)).all())
    require(plain, "participation", "must hold no weights: noise in the ring has none")
    return rows.astype(bool)


def canaries(client: Any, mechanism: Any, *, spread: Any = None) -> Canaries:
    """Return an audit by canaries of one client under a mechanism's noise.

    Args:
        client: Index of the client that is the canary.
        mechanism: Mechanism of `dp.ring_mechanism`, which clips, rounds and adds noise
            in a ring.
        spread: Standard deviation of the entries of the others' updates, positive; None
            if they are known, the case that differential privacy covers.

    Returns:
        The audit: `.test(P)` for the best test and the mu that it should have,
        `.play(seed, P, trials)` for scores of simulated rounds, the mu that they show,
        and the noise that remains without the updates (`.residuals.faults()`).

    Raises:
        ConfigurationError: If an argument is out of range or no mechanism.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> mechanism = mj.dp.ring_mechanism("skellam", 1.0, 1.0, dim=16, num_clients=4,
        ...                               modulus_bits=20)
        >>> history = np.ones((2, 4), bool)
        >>> audit = mj.attacks.canaries(0, mechanism)
        >>> round(audit.test(history).mu, 6)  # two rounds of noise multiplier 1
        1.414214
        >>> scores = audit.play(0, history, 400)
        >>> lower, upper = scores.interval(0.7)
        >>> lower < 1.414214 < upper, scores.residuals.faults()
        (True, ())
        >>> round(scores.smallest_found(1.414214), 1)
        2.0

    Source: Andrew, Kairouz, Oh, Oprea, McMahan, Suriyakumar, "One-shot empirical
    privacy estimation for federated learning" (2024), for canaries along random
    directions; Nasr et al., "Tight auditing of differentially private machine learning"
    (2023), for the bound by two rates.
    """
    number = check_integer(client, "client", 0)
    require(
        isinstance(mechanism, RingMechanism),
        "mechanism",
        "must be a mechanism, e.g. of `dp.ring_mechanism`",
        mechanism,
    )
    return Canaries(number, mechanism, None if spread is None else check_spread(spread))
