"""Canaries: does the noise in the ring hide a client as well as its ledger says?

A client sends a vector of the clip norm along a random direction in each of its rounds, or nothing;
the server reads all decoded sums, less what it knows of them, along that direction, and applies the
best test (`attacks.distinguish`). Where the others are known only noise and rounding hide the
canary, and the separation of its scores is the ledger's mu less what rounding adds to the noise;
where they are not, it is less. Nothing is assumed of the scores when mu is measured: more than the
ledger's mu would refute the implementation or its account.
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
from mrsa_jax._arrays import as_integers
from mrsa_jax._binomial import binomial_interval
from mrsa_jax._checks import check_integer
from mrsa_jax._device import at_once, map_tiles
from mrsa_jax._errors import require
from mrsa_jax._html import brief, telling
from mrsa_jax._slots import padded_slots
from mrsa_jax._streams import Stream, as_key, fold, fold_over, round_key
from mrsa_jax._tracing import needs_values
from mrsa_jax.attacks._distinguish import BestTest, distinguish
from mrsa_jax.dp import RingMechanism
from mrsa_jax.privacy._noise import check_spread

_INSIDE = 1.0 - 1e-6  # of the clip norm: rounding must not clip a canary
_COPIES = 6  # of the cohort's vectors: sent, rotated, rounded, drawn, coded, decoded


class CanaryScores(NamedTuple):
    """Scores of the best test, without the canary and with it (of `Canaries.play`).

    Attributes:
        without: float64 [trials].
        shifted: float64 [trials].
    """

    without: Float64[np.ndarray, " trials"]
    shifted: Float64[np.ndarray, " trials"]

    def __repr__(self) -> str:
        """Return what the arrays are."""
        return brief(self)

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        return telling(self)

    @property
    def mu(self) -> float:
        """How far the two are apart, in standard deviations of both."""
        both = np.concatenate([each - each.mean() for each in self])
        return float((self.shifted.mean() - self.without.mean()) / both.std(ddof=2))

    def interval(self, threshold: float, level: float = 0.95) -> tuple[float, float]:
        """Return what mu can be by the errors at a threshold, whatever the scores' law.

        A mechanism of that mu admits no test whose rates of true and false positives are further
        apart than Phi^-1(tpr) - Phi^-1(fpr) = mu, so the lower end refutes any smaller mu.

        Args:
            threshold: Chosen beforehand, e.g. half of the mu that is expected.
            level: Chance that both rates lie in their Clopper-Pearson intervals.
        """
        from scipy import special

        each = 1.0 - (1.0 - level) / 2.0
        rates = [
            binomial_interval(int((scores > threshold).sum()), len(scores), each)
            for scores in (self.without, self.shifted)
        ]
        (fpr_low, fpr_high), (tpr_low, tpr_high) = special.ndtri(np.asarray(rates))
        return float(tpr_low - fpr_high), float(tpr_high - fpr_low)


@dataclasses.dataclass(frozen=True, eq=False)
class Canaries:
    """The audit of one client (built by `canaries`).

    Attributes:
        client: Who is the canary.
        mechanism: How updates become noisy codes; its clip norm is the canary's length.
        spread: Standard deviation of each entry of the others' updates, which do not change over
            rounds; None where they are known.
    """

    client: int
    mechanism: RingMechanism
    spread: float | None

    def test(self, participation: Any) -> BestTest:
        """Return the best test for a history of sums, by the noise of those who were in each.

        Args:
            participation: bool [J, N].

        Raises:
            ConfigurationError: If it is no such matrix or has no such client.
        """
        rows = _rows(participation)
        share = self.mechanism.noise.variance
        variances = share * np.maximum(rows.sum(axis=1), 1)
        attack = distinguish(
            self.client,
            float(self.mechanism.quantizer.clip_norm),
            spread=self.spread,
            noise=variances,
        )
        return attack.test(rows)

    @needs_values
    def play(self, seed: int | Key[Array, ""], participation: Any, num_trials: int) -> CanaryScores:
        """Return scores of simulated histories through the ring, without the canary and with it.

        Each trial draws the direction, the others' updates, rounding and noise anew. Known others
        send vectors of the clip norm, so that clipping, rounding and ring do their work.

        Args:
            seed: JAX key or seed.
            participation: As of `test`.
            num_trials: Of each kind.

        Raises:
            ConfigurationError: As `test`; if the trials are no positive integer.
        """
        rows, count = _rows(participation), check_integer(num_trials, "num_trials", 1)
        test, mechanism = self.test(rows), self.mechanism
        rows, weights = rows[rows.any(axis=1)], test.weights[rows.any(axis=1)]
        rule = "must hold a sum of two clients or more in each row that is not empty"
        least = int(rows.sum(axis=1).min(initial=rows.shape[1])) if len(rows) else 0
        require(least > 1, "participation", rule, f"{least} clients")
        width = int(rows.sum(axis=1).max())
        average = secagg.ring_average(
            mechanism.quantizer,
            width,
            mechanism.quantizer.dim,
            modulus_bits=mechanism.modulus_bits,
            noise=mechanism.noise,
            fidelity="sets",
        )
        members, present = padded_slots(rows, width)
        in_flight = 4 * _COPIES * width * mechanism.quantizer.padded_dim
        tile = min(at_once("repeated", in_flight), count)
        setting = _Setting(
            average, jnp.asarray(members), jnp.asarray(present), jnp.int32(self.client),
            jnp.float32(float(mechanism.quantizer.clip_norm) * _INSIDE),
            None if self.spread is None else jnp.float32(self.spread),
        )  # fmt: skip
        found = []
        for is_there in (False, True):
            key = fold(as_key(seed), int(Stream.ATTACK), int(is_there))
            keys = fold_over(key, jnp.arange(count))
            seen = _played(keys, setting, jnp.asarray(is_there), rows.shape[1], tile)
            values = np.asarray(seen, np.float64) @ weights
            found.append(values)
        return CanaryScores(*found)


class _Setting(NamedTuple):
    """What all trials share."""

    average: Any
    members: Array  # int32 [rounds, slots]
    present: Array  # bool [rounds, slots]
    client: Array
    length: Array
    spread: Array | None


@functools.partial(jax.jit, static_argnames=("clients", "tile"))
def _played(
    keys: Key[Array, " trials"], setting: _Setting, is_there: Array, clients: int, tile: int
) -> Float32[Array, "trials rounds"]:
    """Return what the server sees along the canary in each round, less what it knows."""
    average, dim = setting.average, setting.average.quantizer.dim

    def one_trial(key: Array) -> Array:
        of_updates, of_rounds = jax.random.split(key)
        drawn = jax.random.normal(of_updates, (clients, dim), jnp.float32)
        lengths = jnp.sqrt(jnp.sum(drawn * drawn, axis=1, keepdims=True))
        unit = drawn[setting.client] / lengths[setting.client]
        is_canary = (jnp.arange(clients) == setting.client)[:, None]
        if setting.spread is None:
            others, known = setting.length * drawn / lengths, True
        else:
            others, known = setting.spread * drawn, False
        canary = jnp.where(is_there, setting.length, jnp.float32(0)) * unit
        sent = jnp.where(is_canary, canary[None], others)

        def one_round(state: Any, step: tuple[Array, Array, Array]) -> tuple[Any, Array]:
            index, members, present = step
            own = round_key(of_rounds, index, Stream.QUANTIZATION)
            updates = jnp.where(present[:, None], sent[members], jnp.float32(0))
            out, state = average.aggregate(own, state, updates, members, present)
            total = out.update * out.total_weight.astype(jnp.float32)
            if known:
                is_other = (members != setting.client) & present
                total -= jnp.sum(jnp.where(is_other[:, None], updates, jnp.float32(0)), axis=0)
            return state, jnp.sum(total * unit)

        indices = jnp.arange(setting.members.shape[0], dtype=jnp.int32)
        steps = (indices, setting.members, setting.present)
        return lax.scan(one_round, average.init(), steps)[1]

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
        mechanism: Of `dp.ring_mechanism`: what is clipped, rounded and added, in which ring.
        spread: Standard deviation of the entries of the others' updates, positive; None where
            they are known, which is what differential privacy promises against.

    Returns:
        The audit: `.test(P)` for the best test and the mu that it should have, `.play(seed, P,
        trials)` for scores of simulated rounds and the mu that they show.

    Raises:
        ConfigurationError: If an argument is out of range or no mechanism.

    Examples:
        >>> from mrsa_jax import dp
        >>> mechanism = dp.ring_mechanism("skellam", 1.0, 1.0, dim=16, num_clients=4,
        ...                               modulus_bits=20)
        >>> history = np.ones((2, 4), bool)
        >>> audit = canaries(0, mechanism)
        >>> round(audit.test(history).mu, 6)  # two rounds of noise multiplier 1: sqrt(2)
        1.414214
        >>> lower, upper = audit.play(0, history, 400).interval(0.7)
        >>> lower < 1.414214 < upper
        True

    Source: Andrew, Kairouz, Oh, Oprea, McMahan, Suriyakumar, "One-shot empirical privacy
        estimation for federated learning" (2024), for canaries along random directions; Nasr et
        al., "Tight auditing of differentially private machine learning" (2023), for the bound by
        two rates.
    """
    number = check_integer(client, "client", 0)
    rule = "must be a mechanism, e.g. of `dp.ring_mechanism`"
    require(isinstance(mechanism, RingMechanism), "mechanism", rule, mechanism)
    return Canaries(number, mechanism, None if spread is None else check_spread(spread))
