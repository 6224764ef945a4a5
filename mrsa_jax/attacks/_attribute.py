"""Attribute inference from the sums of many rounds: a test of what a client *is*.

A passive server keeps every sum and every model. In each round it trains shadow
clients, with the attribute and without, from that round's model, and fits a linear
score of an update to half of them; the other half calibrates it. A linear score of a
sum is the sum of its members' scores, so all rounds together are a linear system in the
clients' attributes, and fresh noise averages out over rounds.

Symbols: s_i in {0, 1} of prevalence q, var = q(1 - q); score units in which the class
means are 0 and 1, with variance tau_r^2 within a class in round r; z_r = sum of the
members' scores, so E z = P s and, given s, its variance is tau_r^2 times the row's sum
of squares (D). Noise in the sums counts as the members' own, each with an equal share.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Float32, Float64, Key

from mrsa_jax._core.arrays import as_integers, on_device
from mrsa_jax._core.batches import at_once, map_tiles
from mrsa_jax._core.streams import as_key
from mrsa_jax._core.traced import needs_values
from mrsa_jax.attacks._view import check_finite_values, checked_view
from mrsa_jax.attacks.views import AttributeView
from mrsa_jax.data import ClientData
from mrsa_jax.federated import LocalTrainer
from mrsa_watch._base.errors import check_number, require
from mrsa_watch._base.values import by_value

_FEWEST = 8  # shadow clients of each kind
_LEAST_SEPARATION = 0.2  # of the class means, in standard deviations within a class
_FLOOR = 1e-3  # of a coordinate's variance, relative to the mean variance
_RIDGE = 0.1  # of PROLIN's linear model, relative to the mean eigenvalue
_PRODUCT = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)


@by_value
class AttributeScores(NamedTuple):
    """An attribute attack's estimates, and its score of every sum.

    Attributes:
        estimates: float64 [N], high for clients with the attribute; q for clients in no
            sum.
        explained: float64 [N], the share of the attribute's variance that the estimate
            explains if the calibration is right; nan for PROLIN, which predicts none.
        totals: float64 [J], the estimated number of members with the attribute.
        noise: float64 [J], tau^2; infinite for a round without a working score.
    """

    estimates: Float64[np.ndarray, " clients"]
    explained: Float64[np.ndarray, " clients"]
    totals: Float64[np.ndarray, " rounds"]
    noise: Float64[np.ndarray, " rounds"]


@dataclasses.dataclass(frozen=True)
@by_value
class Attribute:
    """The attack (built by `attribute`).

    Attributes:
        trainer: Local training of the clients, which the server knows.
        prevalence: q, the share of clients with the attribute, which the server knows.
        method: `"joint"` or `"prolin"`.
    """

    cites = "attribute inference:"  # papers by its method

    trainer: LocalTrainer
    prevalence: float
    method: Literal["joint", "prolin"]

    @needs_values
    def run(self, key: Key[Array, ""] | int, view: AttributeView) -> AttributeScores:
        """Estimate every client's attribute.

        All rounds are one program: a round trains its shadow clients side by side, as
        many as `at_once` allows, and holds their S updates of d entries. Memory beyond
        the view: about 4 x 4 S d bytes, and 8 J^2 for the joint solution.

        Args:
            key: JAX key or seed, for the shadow clients' training.
            view: Sums, models and shadow clients.

        Raises:
            ConfigurationError: If the view is of another type, shapes do not fit, a
                number is not finite, or fewer than eight shadows are of one kind.
        """
        seen = checked_view(view, AttributeView)
        weights, has_attribute = _checked(seen)
        models = on_device(seen.models, jnp.float32)
        arrays = (
            jnp.arange(len(models), dtype=jnp.uint32),
            models,
            on_device(seen.aggregates, jnp.float32),
            on_device(weights.sum(axis=1), jnp.float32),
            on_device(_noise_per_member(seen, weights), jnp.float32),
        )
        totals, noise = _scored_rounds(
            as_key(key),
            self.trainer,
            seen.shadows,
            on_device(_halves(has_attribute), jnp.float32),
            arrays,
            tile=min(len(has_attribute), at_once("clients", 4 * models.shape[1], 8)),
            is_ridge=self.method == "prolin",
        )
        of_rounds = (np.asarray(each, np.float64) for each in (totals, noise))
        return self.solve(weights, *of_rounds)

    def solve(
        self,
        participation: np.ndarray,
        totals: Float64[np.ndarray, " rounds"],
        noise: Float64[np.ndarray, " rounds"],
    ) -> AttributeScores:
        """Solve scored rounds for the clients' attributes.

        The first rounds of `run`'s scores give its answer after these rounds.

        Args:
            participation: bool or integer weights [J, N].
            totals: As in `AttributeScores`.
            noise: As in `AttributeScores`.

        Examples:
            >>> import mrsa_jax as mj
            >>> import numpy as np
            >>> model = mj.federated.logistic(10)
            >>> trainer = mj.federated.local_sgd(model, 0.1, batch_size=4)
            >>> attack = mj.attacks.attribute(trainer)
            >>> P, noise = np.eye(2, dtype=int), np.full(2, 0.25)
            >>> scores = attack.solve(P, np.ones(2), noise)
            >>> scores.estimates.round(6).tolist(), scores.explained.round(6).tolist()
            ([0.75, 0.75], [0.5, 0.5])
        """
        weights = np.asarray(as_integers(participation, "participation"), np.float64)
        works = np.isfinite(noise) & weights.any(axis=1)
        rows, values = weights[works], totals[works]
        # clients of the same rounds get the same value, which rounding would part
        columns, group, sizes = np.unique(
            rows, axis=1, return_inverse=True, return_counts=True
        )
        group = group.ravel()
        if self.method == "prolin":
            estimates = self._least_squares(columns, sizes, values)[group]
            unpredicted = np.full(len(estimates), np.nan)
            return AttributeScores(estimates, unpredicted, totals, noise)
        q = self.prevalence
        variance = q * (1 - q)
        spread = noise[works] * np.square(rows).sum(axis=1)
        covariance = variance * rows @ rows.T + np.diag(spread)
        gain = variance * columns.T @ np.linalg.pinv(covariance, hermitian=True)
        estimates = (q + gain @ (values - q * rows.sum(axis=1)))[group]
        explained = np.einsum("nr,rn->n", gain, columns)[group]
        return AttributeScores(estimates, explained, totals, noise)

    def _least_squares(
        self,
        columns: np.ndarray,
        sizes: np.ndarray,
        values: np.ndarray,
    ) -> Float64[np.ndarray, " groups"]:
        """Fit attributes from 0 to 1 to all rounds alike, as PROLIN does.

        Args:
            columns: Weights [J, groups] of each of a group of clients.
            sizes: Clients of each group.
            values: Scored sums [J].
        """
        from scipy.optimize import lsq_linear

        estimates = np.full(len(sizes), self.prevalence)
        took_part = columns.any(axis=0)
        if took_part.any():
            sums = (columns * sizes)[:, took_part]
            estimates[took_part] = lsq_linear(sums, values, bounds=(0.0, 1.0)).x
        return estimates


def attribute(
    trainer: LocalTrainer,
    *,
    prevalence: float = 0.5,
    method: Literal["joint", "prolin"] = "joint",
) -> Attribute:
    """Return an attack that infers an attribute of each client from the sums.

    Args:
        trainer: Local training, as the clients do it.
        prevalence: q in (0, 1), the share of clients with the attribute.
        method: `"joint"`: the difference of the class means over the pooled variance of
            each coordinate, and the best linear estimate from all rounds, est = q + var
            P^T (var P P^T + diag(tau^2) D)^-1 (z - q P 1). Or `"prolin"`: a linear
            model fitted to the shadows by ridge regression, and least squares over the
            rounds with attributes from 0 to 1.

    Returns:
        The attack: `.run(key, view)`, and `.solve(P, totals, noise)` for fewer rounds.

    Raises:
        ConfigurationError: If the prevalence is out of range or the method unknown.

    Examples:
        >>> import mrsa_jax as mj
        >>> model = mj.federated.logistic(10)
        >>> trainer = mj.federated.local_sgd(model, 0.1, batch_size=10)
        >>> mj.attacks.attribute(trainer).prevalence
        0.5

    Source: this package's; `"prolin"` follows the idea of Kerkouche, Acs, Fritz,
    "Client-specific Property Inference against Secure Aggregation in Federated
    Learning" (WPES 2023): linear models of single rounds, and an optimisation over
    rounds. Its training of the linear models is not repeated in detail.
    """
    rule = "must be a number between 0 and 1, without both ends"
    q = check_number(prevalence, "prevalence", rule, 1e-12, 1 - 1e-12)
    rule = "must be joint or prolin"
    require(method in ("joint", "prolin"), "method", rule, method)
    return Attribute(trainer, q, method)


def _checked(view: AttributeView) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights and the shadows' attributes; raise unless all of it fits."""
    weights = np.asarray(as_integers(view.participation, "participation"))
    rule = "must be [rounds, clients]"
    require(weights.ndim == 2, "participation", rule, weights.shape)
    shape = np.shape(view.models)
    rule = "must be [rounds, d], with a row for each round"
    fits = len(shape) == 2 and shape[0] == len(weights)
    require(fits, "models", rule, shape, weights.shape)
    sums = np.shape(view.aggregates)
    require(sums == shape, "aggregates", "must be of the models' shape", sums, shape)
    check_finite_values(models=view.models, aggregates=view.aggregates)
    has_attribute = np.asarray(view.has_attribute)
    count = (view.shadows.num_clients,)
    fits = has_attribute.shape == count and has_attribute.dtype == np.bool_
    rule = "must be bool, one for each shadow client"
    require(fits, "has_attribute", rule, has_attribute.shape, count)
    fewest = min(has_attribute.sum(), (~has_attribute).sum())
    rule = f"must hold at least {_FEWEST} shadows of each kind"
    require(fewest >= _FEWEST, "has_attribute", rule, int(fewest))
    return weights, has_attribute


def _noise_per_member(view: AttributeView, weights: np.ndarray) -> np.ndarray:
    """Return the variance of a sum's noise over the sum of its squared weights."""
    rule = "must be finite, from 0"
    scale = check_number(view.sum_noise, "sum_noise", rule, 0.0)
    squares = np.square(weights.astype(np.float64)).sum(axis=1)
    return scale**2 / np.maximum(squares, 1.0)


def _halves(has_attribute: np.ndarray) -> Bool[np.ndarray, "half kind shadows"]:
    """Return the shadows to fit and those to calibrate, without and with it."""
    order = np.zeros(len(has_attribute), int)
    for kind in (has_attribute, ~has_attribute):
        order[kind] = np.arange(kind.sum())
    is_even = order % 2 == 0
    kinds = np.stack([~has_attribute, has_attribute])
    return np.stack([kinds & is_even, kinds & ~is_even])


@functools.partial(jax.jit, static_argnames=("tile", "is_ridge"))
def _scored_rounds(
    key: Array,
    trainer: LocalTrainer,
    shadows: ClientData,
    halves: Float32[Array, "half kind shadows"],
    rounds: tuple[Array, Array, Array, Array, Array],
    tile: int,
    is_ridge: bool,
) -> tuple[Float32[Array, " rounds"], Float32[Array, " rounds"]]:
    """Score each round's sum by its own shadow clients.

    Args:
        key: Randomness of the shadows' training.
        trainer: Local training.
        shadows: Data of the shadow clients.
        halves: Marks of those to fit and to calibrate.
        rounds: Index, model, sum, sum of weights, and noise per member of each round.
        tile: Shadows that train side by side.
        is_ridge: Whether the score is PROLIN's.
    """

    def one_round(each: tuple[Array, ...]) -> tuple[Array, Array]:
        index, model, total, count, added = each
        round_key = jax.random.fold_in(key, index)

        def trained(shadow: tuple[Array, Array, Array]) -> Array:
            place, indices, size = shadow
            shadow_key = jax.random.fold_in(round_key, place)
            inputs, labels = shadows.inputs[indices], shadows.labels[indices]
            return trainer.update(shadow_key, model, inputs, labels, size)

        places = jnp.arange(halves.shape[2], dtype=jnp.uint32)
        items = (places, shadows.indices, shadows.sizes)
        updates = map_tiles(trained, items, tile)
        fitted = _ridge if is_ridge else _discriminant
        direction = fitted(updates, halves[0], added)
        means, variance = _moments(updates @ direction[:, None], halves[1])
        separation = means[1, 0] - means[0, 0]
        without = _PRODUCT(halves[1, 0], updates) / jnp.sum(halves[1, 0])
        scored = jnp.dot(total - count * without, direction) / separation
        of_score = variance[0] + added * jnp.sum(direction**2)
        noise = of_score / separation**2
        # a score that hardly tells the kinds apart would add its noise alone
        works = separation > _LEAST_SEPARATION * jnp.sqrt(variance[0])
        return (
            jnp.where(works, scored, jnp.float32(0)),
            jnp.where(works, noise, jnp.float32(jnp.inf)),
        )

    return lax.map(one_round, rounds)


def _moments(
    values: Float[Array, "shadows entries"], kinds: Float32[Array, "kind shadows"]
) -> tuple[Float[Array, "kind entries"], Float[Array, " entries"]]:
    """Return the means of both kinds and the variance within a kind, pooled."""
    counts = jnp.sum(kinds, axis=1)
    means = _PRODUCT(kinds, values) / counts[:, None]
    residuals = values - _PRODUCT(kinds.T, means)
    is_in = jnp.sum(kinds, axis=0)
    squares = _PRODUCT(is_in, residuals**2)
    return means, squares / (jnp.sum(counts) - jnp.float32(2))


def _discriminant(updates: Array, kinds: Array, added: Array) -> Float[Array, " dim"]:
    """Return the difference of both kinds' means over the variance within and added."""
    means, variance = _moments(updates, kinds)
    floor = jnp.float32(_FLOOR) * jnp.mean(variance)
    variance += added + floor + jnp.finfo(jnp.float32).tiny
    return (means[1] - means[0]) / variance


def _ridge(updates: Array, kinds: Array, added: Array) -> Float[Array, " dim"]:
    """Return the coefficients of a ridge regression of the kind on noisy updates."""
    is_in = jnp.sum(kinds, axis=0)
    count = jnp.sum(is_in)
    mean = _PRODUCT(is_in, updates) / count
    centred = (updates - mean[None, :]) * is_in[:, None]
    targets = (kinds[1] - jnp.sum(kinds[1]) / count) * is_in
    # (X'X + c)^-1 X' y = X' (XX' + c)^-1 y: the smaller of both systems
    is_dual = updates.shape[0] < updates.shape[1]
    rows = centred if is_dual else centred.T
    gram = _PRODUCT(rows, rows.T)
    penalty = jnp.float32(_RIDGE) * jnp.trace(gram) / count
    penalty += count * added + jnp.finfo(jnp.float32).tiny
    system = gram + penalty * jnp.eye(gram.shape[0])
    if is_dual:
        return _PRODUCT(centred.T, jnp.linalg.solve(system, targets))
    return jnp.linalg.solve(system, _PRODUCT(centred.T, targets))
