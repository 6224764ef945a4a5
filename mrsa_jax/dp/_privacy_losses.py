"""Privacy losses of one client's rounds, drawn: who does not see who takes part.

With the client the released sums are a mixture of Gaussians, one for each of its participations;
without it one Gaussian (others known, their coins their own). In units of the noise, the released
C y + z of a client who is in the rounds p shifts by C p: the loss of a release w is the logarithm
of the mean over p of exp(<w, C p> - |C p|^2 / 2).

- Coins with rests of b - 1 rounds: a recursion over rounds (`_coin_losses`).
- Balls in bins: the mean over the b bins of exp(u_r - |m_r|^2 / 2), u_r = <w, m_r>, m_r = C p_r;
  these b products are all that is drawn: Gaussians with the covariance of the m_r. Bins of each
  epoch are independent of those before: the losses of epochs add up.

Sources: for both pairs, and that they are the worst with strategies whose entries are not negative,
Choquette-Choo, Ganesh, Haque, Steinke, Thakurta, "Near-exact privacy amplification for matrix
mechanisms" (2024), and the work on b-min-sep sampling of 2026 (arXiv 2602.09338).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float32, Key

from mrsa_jax._arrays import on_device
from mrsa_jax._checks import check_integer, check_known, check_size
from mrsa_jax._device import at_once, chosen_form, in_context, in_order, platform
from mrsa_jax._errors import require
from mrsa_jax._selector import Selector
from mrsa_jax._streams import as_key, block_words, fold
from mrsa_jax._tracing import needs_values
from mrsa_jax.availability import Availability
from mrsa_jax.dp._coin_losses import SAMPLES, Rests, by_arrays, by_loops
from mrsa_jax.dp._histories import Histories, check_noise, checked_histories
from mrsa_jax.dp._strategies import check_strategy


@needs_values
def privacy_losses(
    selector: Selector,
    availability: Availability,
    rounds: int,
    noise_multiplier: float,
    samples: int,
    *,
    client: int = 0,
    side: str = "with",
    strategy: Any = None,
    seed: int | Key[Array, ""] = 0,
) -> Float32[np.ndarray, " samples"]:
    """Draw privacy losses of a client against who sees the released sums, not who is in them.

    For coins of their own, perhaps with rests in between (`selection.minimum_separation` of
    `selection.bernoulli` or `selection.poisson`), and for `selection.balls_in_bins`.

    Args:
        selector: Whom the server asks.
        availability: Who is online: `availability.independent`; for balls in bins, all of them.
        rounds: J >= 1.
        noise_multiplier: Standard deviation of a sum's noise, in units of the clip.
        samples: B >= 1.
        client: Whose.
        side: "with": releases with the client, losses log(with/without). "without": releases
            without it, losses log(without/with).
        strategy: C, as for `ledger`, without negative entries; with coins, its bands must be no
            wider than the minimum separation.
        seed: Integer or typed key.

    Returns:
        float32[B]; delta at epsilon is the mean of max(0, 1 - exp(epsilon - loss)), of the worse
        side. In float32: losses are good to about 1e-6 of their size and J * 3e-8, with coins.

    Raises:
        ConfigurationError: For schemes whose clients do not join by coins or bins of their own,
            a strategy that is too wide or has negative entries, or as `account`.

    Examples:
        >>> import mrsa_jax as mj
        >>> rests = mj.selection.minimum_separation(mj.selection.bernoulli(9, 0.2), 3)
        >>> losses = privacy_losses(rests, mj.availability.independent(0.1), 30, 2.0, 4000)
        >>> delta = np.maximum(0, 1 - np.exp(1 - losses)).mean()
        >>> averaged = mj.dp.account(rests, mj.availability.independent(0.1), 30, 2.0)
        >>> bool(delta < averaged.delta(1.0)[0])
        True

    Cost: with coins a normal number and an exponential for each round and sample, and a word for
    each b rounds; with bins one normal number a bin, of each epoch that draws them. On a CPU
    compiled loops do it, elsewhere XLA: the same draws, and losses that differ by rounding.
    """
    law = checked_histories(selector, availability, rounds)
    scale = check_noise(noise_multiplier)
    count = check_size(samples, "samples")
    check_known(side, "side", ("with", "without"), "a known side")
    who = check_integer(client, "client", 0, law.selector.num_clients - 1)
    matrix = None if strategy is None else check_strategy(strategy, law.rounds)
    reason = why_not_drawn(law, matrix)
    require(not reason, "selector", f"must have privacy losses that can be drawn: {reason}")
    return losses_of(law, who, scale, matrix, count, as_key(seed), with_it=side == "with")


def why_not_drawn(law: Histories, strategy: np.ndarray | None) -> str:
    """Return why a client's pair cannot be drawn; nothing where it can."""
    bins = getattr(law.selector, "num_bins", None)
    if bins is None and (law.coins is None or not getattr(law.selector, "joins_alone", False)):
        return "clients must join by coins of their own, or bins, and be online independently"
    if bins is not None:
        rates = getattr(law.availability, "dropout_rates", np.ones(1))
        if np.any(np.asarray(rates) > 0):
            return "with bins everybody must always be online"
    if strategy is not None:
        if getattr(law.selector, "fresh", False):
            return "with a strategy bins must be drawn once"
        if (strategy < 0).any():
            return "the strategy must have no negative entry"
        rows, columns = np.nonzero(strategy)
        if bins is None and (rows - columns).max() >= law.separation:
            return "the strategy's bands must not be wider than the minimum separation"
    return ""


def losses_of(
    law: Histories,
    client: int,
    noise_multiplier: float,
    strategy: np.ndarray | None,
    samples: int,
    key: Key[Array, ""],
    *,
    with_it: bool,
) -> Float32[np.ndarray, " samples"]:
    """Draw a client's losses (see `privacy_losses`)."""
    chunks = -(-samples // SAMPLES)
    if getattr(law.selector, "fresh", False) and law.rounds > int(law.selector.num_bins):
        bins, total = int(law.selector.num_bins), np.zeros(samples)
        for start in range(0, law.rounds, bins):
            epoch = dataclasses.replace(law, rounds=min(bins, law.rounds - start))
            total += losses_of(epoch, client, noise_multiplier, None, samples, fold(key, start),
                               with_it=with_it)  # fmt: skip
        return total.astype(np.float32)
    if hasattr(law.selector, "num_bins"):
        own = _bins(law.rounds, int(law.selector.num_bins), noise_multiplier, strategy)
        run = functools.partial(_bins_chunk, *own, with_it=with_it)
        held = len(own[0])
    else:
        assert law.coins is not None
        rests = Rests.of(law.rounds, law.separation, law.coins[client], noise_multiplier, strategy)
        if not rests.needs_logarithms and chosen_form(("loops", "xla")) == "loops":
            return by_loops(rests, key, chunks, with_it)[:samples]
        run = functools.partial(by_arrays, rests.tables, rests.chances, with_it=with_it)
        held = 4 * rests.tables.shape[1]
    together = 1 if platform() == "cpu" else at_once("selection", 4 * SAMPLES * held)

    def part(start: int) -> np.ndarray:
        numbers = start + jnp.arange(together, dtype=jnp.uint32)
        return np.asarray(run(key, numbers)).ravel()

    starts = range(0, chunks, together)
    tasks = [functools.partial(in_context(part), start) for start in starts]
    return np.concatenate(list(in_order(tasks)))[:samples]


def _normal(words: Array) -> Array:
    """Return standard normal numbers of 24 bits, up to 5.4, one from each word."""
    signed = lax.bitcast_convert_type(words, jnp.int32) >> 8
    uniform = (signed.astype(jnp.float32) + 0.5) * jnp.float32(2.0**-23)
    return jnp.float32(np.sqrt(2.0)) * lax.erf_inv(uniform)


# ---- bins


def _bins(
    rounds: int, bins: int, noise_multiplier: float, strategy: np.ndarray | None
) -> tuple[Array, Array]:
    """Return products of the shifts of bins, `[bins, bins]`, and a root of that matrix."""
    turns = (np.arange(rounds)[:, None] % bins == np.arange(bins)).astype(np.float64)
    shifts = (turns if strategy is None else strategy @ turns) / noise_multiplier
    products = shifts.T @ shifts
    values, vectors = np.linalg.eigh(products)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return on_device(products.astype(np.float32)), on_device(root.astype(np.float32))


@functools.partial(jax.jit, static_argnames=("with_it",))
def _bins_chunk(
    products: Array, root: Array, key: Key[Array, ""], chunks: Array, *, with_it: bool
) -> Float32[Array, "chunks samples"]:
    count = len(root)

    def one(chunk: Array) -> Array:
        first, second = block_words(fold(key, chunk), (count, SAMPLES))
        shown = jnp.matmul(root, _normal(first), precision=lax.Precision.HIGHEST)
        if with_it:
            shown = shown + products[:, (second[0] % jnp.uint32(count)).astype(jnp.int32)]
        each = shown - 0.5 * jnp.diagonal(products)[:, None]
        total = jax.nn.logsumexp(each, axis=0) - jnp.log(jnp.float32(count))
        return total if with_it else -total

    return jax.vmap(one)(chunks)
