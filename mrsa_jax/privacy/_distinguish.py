"""Distinguishability: how well the server can tell a shift of one client's updates.

Client i adds the same shift to its update in each of its rounds, or does not. The
server, who knows everything but the others' updates, looks at all sums. If these
updates are Gaussian with spread s, the same in every round, the best test is that of
N(0, 1) against N(mu_i, 1).

Derivation. With p_i the i-th column of P, the sums less what is known of client i are
Gaussian with covariance M_i = s^2 (P P^T - p_i p_i^T) + Omega and mean 0 or shift p_i.
The likelihood ratio is monotone in the linear statistic p_i^T M_i^-1 y, whose two laws
differ by mu_i standard deviations, mu_i^2 = shift^2 p_i^T M_i^-1 p_i (Neyman and
Pearson: no test does better). With the leverage h_i = s^2 p_i^T (s^2 P P^T + Omega)^+
p_i, Sherman and Morrison's formula turns it into

    mu_i = (shift / s) sqrt(h_i / (1 - h_i)) = (shift / s) / sqrt(hidden_among_i - 1).

Source: Dong, Roth, Su, "Gaussian differential privacy" (2022), for what mu stands for;
the closed form for sums over rounds is this package's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float64

from mrsa_jax._core import gaussian as _gaussian
from mrsa_jax._core.arrays import host_array
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.noise import check_noise, check_spread
from mrsa_jax._core.traced import needs_values
from mrsa_jax.privacy._coalitions import as_history, check_coalition, without
from mrsa_jax.privacy._hidden import among, noise_root, without_members
from mrsa_jax.privacy._leverage import Request, as_floats
from mrsa_watch._base.errors import POSITIVE, check_integer, check_number, require
from mrsa_watch._base.html import finding, telling


@finding
class Distinguishability:
    """The distinguishability of each client's updates from shifted ones.

    Built by `distinguishability`. The figures below have the shape of what is passed,
    then that of `mu`.

    Attributes:
        mu: float64 `[..., clients]`: the best test is that of N(0, 1) against N(mu, 1).
            Infinite where the sums without noise give the client away; 0 for those in
            no sum, who have no figure; nan for members of the coalition, and where it
            is not known to four digits.
        shift: Length of the shift.
        spread: Standard deviation of the others' updates; None where they are known,
            and only then the figures are guarantees, of differential privacy.
    """

    cites = "distinguish"

    mu: Float64[np.ndarray, "*trials_clients"]
    shift: float
    spread: float | None

    def true_positive_rate(self, fpr: Any) -> Float64[np.ndarray, "*_"]:
        """Return the rate at which the best test finds the shift.

        Phi(Phi^-1(fpr) + mu).

        Args:
            fpr: Rates of false positives, each in (0, 1).

        Raises:
            ConfigurationError: If one is not.
        """
        return _gaussian.true_positive_rate(self.mu, self._asked(fpr, "fpr", 1.0))

    def epsilon(self, delta: Any) -> Float64[np.ndarray, "*_"]:
        """Return the least epsilon with which delta is kept; infinite where mu is.

        Args:
            delta: Each in (0, 1).

        Raises:
            ConfigurationError: If one is not.
        """
        return _gaussian.epsilon(self.mu, self._asked(delta, "delta", 1.0))

    def delta(self, epsilon: Any) -> Float64[np.ndarray, "*_"]:
        """Return Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2).

        Args:
            epsilon: Each from 0, finite.

        Raises:
            ConfigurationError: If one is not.
        """
        return _gaussian.delta(self.mu, self._asked(epsilon, "epsilon", None))

    @property
    def advantage(self) -> Float64[np.ndarray, "*trials_clients"]:
        """The largest difference of true and false positive rate, 2 Phi(mu/2) - 1."""
        return _gaussian.advantage(self.mu)

    def cap(self, privacy_target: int, alone: Any = np.inf) -> float:
        """Return a bound on any client's mu in blocks of T, after any rounds.

        T - 1 others that always move with client i add at least (T - 1) s^2 p_i p_i^T
        to the covariance of the sums (in Loewner's order), so 1/mu^2 >= 1/alone^2 +
        (T - 1) (s/shift)^2. It holds as long as their updates do not change from round
        to round.

        Args:
            privacy_target: T, clients who only take part together.
            alone: mu of the client where the others are known (`spread=None`), by the
                noise alone; infinite without noise, and then the cap is (shift/s) /
                sqrt(T - 1).

        Returns:
            The cap; infinite for T = 1 without noise.

        Raises:
            ConfigurationError: If T is below 1 or `alone` negative.
        """
        others = check_integer(privacy_target, "privacy_target", 1) - 1
        noisy = check_number(alone, "alone", "must be a number from 0", 0.0, np.inf)
        ratio = 0.0 if self.spread is None else self.spread / self.shift
        with np.errstate(divide="ignore"):
            return float(1 / np.sqrt(1 / np.float64(noisy) ** 2 + others * ratio**2))

    def _asked(self, values: Any, name: str, below: float | None) -> np.ndarray:
        array = host_array(values, name)
        rule = (
            "must hold numbers from 0, finite"
            if below is None
            else "must lie in (0, 1)"
        )
        require(array.dtype.kind in "fiu", name, rule, values)
        array = array.astype(np.float64)
        fits = np.isfinite(array) & (array >= 0)
        if below is not None:
            fits = (array > 0) & (array < below)
        require(bool(fits.all()), name, rule, *array[~fits][:1].tolist())
        return array.reshape(*array.shape, *(1,) * self.mu.ndim)

    def _rows(self) -> list[tuple[str, str]]:
        figures = self.mu[~np.isnan(self.mu)]
        summed = figures[figures > 0]
        shape = " x ".join(map(str, self.mu.shape))
        others = (
            "known" if self.spread is None else f"Gaussian with spread {self.spread:g}"
        )
        rows = [("clients", shape), ("shift", f"{self.shift:g}, the others {others}")]
        if summed.size:
            rows.append(
                ("mu", f"largest {summed.max():.4g}, median {np.median(summed):.4g}")
            )
        for count, words in (
            (int(np.isinf(figures).sum()), "exposed (mu is infinite)"),
            (figures.size - summed.size, "in no sum: no figure (mu is 0)"),
            (self.mu.size - figures.size, "in the coalition: no figure (mu is nan)"),
        ):
            if count:
                rows.append((str(count), words))
        return rows

    _repr_html_ = telling


@needs_values
def distinguishability(
    P: Any,
    shift: Any = 1.0,
    spread: Any = 1.0,
    noise: Any = 0.0,
    *,
    coalition: Any = (),
) -> Distinguishability:
    """Measure how well the server can distinguish shifted updates of a client.

    Use it to turn `hidden_among` into error rates: distinguishability if the others'
    updates are Gaussian with spread s. It is no guarantee: others may send anything
    else. With `spread=None`, the server knows the others' updates, and noise alone
    hides the client. Then the result is a guarantee of Gaussian differential privacy,
    composed over the client's rounds, and the other members of its sums do not help.

    The shift is the same in all rounds of the client, and the others' updates do not
    change over rounds. If they do, the server may average them away
    (`attacks.distinguish` takes their correlation over rounds).

    Args:
        P: Participation matrix, bools or integer weights, `[..., rounds, clients]`; a
            row for each sum that the server learnt. Leading axes are separate
            histories.
        shift: Length of the shift, positive; in d dimensions with covariance Sigma of
            the others and no noise sqrt(shift^T Sigma^-1 shift), with `spread=1`.
        spread: Standard deviation of the others' updates along the shift, positive, or
            None: they are known.
        noise: Variance of each sum's noise along the shift: a number, `[rounds]`, or
            the covariance `[rounds, rounds]`. For a matrix mechanism that releases C
            y + z, z of variance sigma^2, it is sigma^2 (C^T C)^-1: this is the sums'
            noise.
        coalition: Clients that reveal their updates to the server.

    Returns:
        `mu` of each client, with the rates and epsilon that follow. Without noise, `mu`
        is infinite exactly for exposed clients (`first_exposure`); with noise, if a
        part of the client's column is not reached by the noise and the others. It is 0
        for clients in no sum.

    Raises:
        ConfigurationError: If `shift` or `spread` is not positive and finite, the noise
            is of another size, negative or not positive semidefinite, or as
            `hidden_among`.

    Examples:
        >>> import mrsa_jax as mj
        >>> one = mj.privacy.distinguishability([[1, 1, 1, 1, 1]], shift=0.5)
        >>> one.mu.round(12).tolist()  # one sum of K: (shift / spread) / sqrt(K - 1)
        [0.25, 0.25, 0.25, 0.25, 0.25]
        >>> P = [[1, 1, 0], [1, 0, 1]]
        >>> known = mj.privacy.distinguishability(P, spread=None, noise=2.0)
        >>> # sum of shift^2 / variance over the client's rounds
        >>> (known.mu**2).round(12).tolist()
        [1.0, 0.5, 0.5]
        >>> print(str(known)[:63])
        Distinguishability(clients: 3; shift: 1, the others known; mu:
        >>> P = [[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]]
        >>> blocks = mj.privacy.distinguishability(P)
        >>> # T = 2, for any number of rounds
        >>> blocks.mu.round(12).tolist(), blocks.cap(2)
        ([1.0, 1.0, 1.0, 1.0], 1.0)

    Edge cases: what floats do not know to nine digits is computed as `hidden_among`
    does, or nan; where a covariance leaves less than 1e-11 of a client's variance
    unexplained, or is singular and reaches all but 1e-8 of its column, that is decided
    by floats and counts as exposed.

    Source: the module's derivation; epsilon and delta of mu: Dong, Roth, Su (2022),
    Corollary 1.
    """
    length = check_number(shift, "shift", "must be positive and finite", POSITIVE)
    history = as_history(P)
    if spread is None:
        mu = length * _signal(history, noise)
        mu[..., list(check_coalition(coalition, history.shape[-1]))] = np.nan
        return Distinguishability(mu, length, None)
    deviation = check_spread(spread)
    others = without(history, coalition)
    root = noise_root(noise, deviation, others)
    excess = np.asarray(among(others, root, Request(of_rest=True)), np.float64)
    if root is not None and root.ndim == 2:  # of which exact arithmetic knows nothing
        is_exposed = np.asarray(among(others, root), np.float64) - 1.0 < _EXPOSED
        excess = np.where(is_exposed, 0.0, excess)
    with np.errstate(divide="ignore"):
        mu = (length / deviation) / np.sqrt(without_members(excess, coalition))
    return Distinguishability(mu, length, deviation)


def _signal(history: Any, noise: Any) -> np.ndarray:
    """Return sqrt(p_i^T Omega^-1 p_i), some clients at a time."""
    array = np.asarray(history)
    *trials, rounds, clients = array.shape
    root = check_noise(noise, rounds)
    root = np.zeros(rounds) if root is None else root
    of = (
        _whitened
        if root.ndim == 2
        else lambda columns, root: _length(columns, np.sqrt(root))
    )
    lengths = np.empty((*trials, clients))
    step = at_once("columns", 8 * rounds * max(1, math.prod(trials)))
    for start in range(0, clients, step):
        some = slice(start, start + step)
        lengths[..., some] = of(
            np.asarray(as_floats(array[..., some], is_scaled=False)), root
        )
    return lengths


def _whitened(columns: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Return |F^+ p| of columns p.

    Infinite where one has a part that the noise does not reach.
    F = S V diag(l): S the deviations, V orthonormal, l^2 the eigenvalues of the
    correlations.
    """
    scale = np.linalg.norm(root, axis=1)
    bare = _length(columns, np.where(scale > 0, np.inf, 0.0))
    over = np.where(scale > 0, scale, 1.0)[:, None]
    axes, values, _ = np.linalg.svd(root / over)
    parts = np.einsum("jk,...ji->...ki", axes, columns / over * (scale > 0)[:, None])
    # a part of rounding's size in a direction without noise is none
    least = _ROUNDING * np.linalg.norm(parts, axis=-2, keepdims=True)
    values = np.where(values > _ROUNDING, values, 0.0)
    parts = np.where((values[:, None] == 0) & (np.abs(parts) <= least), 0.0, parts)
    return np.maximum(bare, _length(parts, values))


def _length(columns: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """Return each column's length in standard deviations.

    Infinite with one of 0 for an entry.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(columns == 0, 0.0, columns / deviations[:, None])
    return np.asarray(np.linalg.norm(ratios, axis=-2))


_EXPOSED = 1e-11  # near a hidden_among of 1, where noise has a covariance
_ROUNDING = 1e-8  # below the least singular value that `check_noise` does not set to 0
