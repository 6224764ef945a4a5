"""Privacy losses of one client's rounds, drawn: who does not see who takes part.

With the client the released sums are a mixture of Gaussians, one for each of its participations;
without it one Gaussian (others known, their coins their own). In units of the noise, the released
C y + z of a client who is in the rounds p shifts by C p: the loss of a release w is the logarithm
of the mean over p of exp(<w, C p> - |C p|^2 / 2).

- Coins with rests of b - 1 rounds: with bands of C no wider than b, participations do not overlap,
  and the mean is a sum over who was asked last, round by round: f_(j+1) = (1 - q) f_j +
  q e^(l_(j+1-b)) f_(j+1-b), where f_j is the part of it in which the client is rested in round j,
  and l_i = <w, C_i> - |C_i|^2 / 2 of a participation in round i.
- Balls in bins: the mean over the b bins of exp(u_r - |m_r|^2 / 2), u_r = <w, m_r>, m_r = C p_r;
  these b products are all that is drawn: Gaussians with the covariance of the m_r.

Sources: for both pairs, and that they are the worst with strategies whose entries are not negative,
Choquette-Choo, Ganesh, Haque, Steinke, Thakurta, "Near-exact privacy amplification for matrix
mechanisms" (2024), and the work on b-min-sep sampling of 2026 (arXiv 2602.09338).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float32, Key

from mrsa_jax._checks import check_integer, check_known, check_size
from mrsa_jax._device import at_once, in_context, in_order, platform
from mrsa_jax._errors import require
from mrsa_jax._selector import Selector
from mrsa_jax._streams import as_key, block_words, fold
from mrsa_jax._tracing import needs_values
from mrsa_jax.availability import Availability
from mrsa_jax.dp._histories import Histories, check_noise, checked_histories
from mrsa_jax.dp._strategies import check_strategy

_SAMPLES = 2048  # of a chunk, which draws by a key of its own, whatever the device
_NEVER = -1e30  # logarithm of 0, in sums that stay finite


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
        side. Sums of J terms in float32: losses are good to about 1e-6 of their size, and of 1.

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

    Cost: with coins a word, a normal and a logarithm for each round and sample; with bins one
    normal a bin.
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
    if hasattr(law.selector, "num_bins"):
        own = _bins(law.rounds, int(law.selector.num_bins), noise_multiplier, strategy)
        run = functools.partial(_bins_chunk, *own, with_it=with_it)
    else:
        assert law.coins is not None
        bands = _Bands.of(law.rounds, noise_multiplier, strategy)
        coin = jnp.float32(law.coins[client])
        sizes = {"rounds": law.rounds, "rest": law.separation, "with_it": with_it}
        run = functools.partial(_coins_chunk, coin, bands, **sizes)
    chunks = -(-samples // _SAMPLES)
    together = 1 if platform() == "cpu" else at_once("selection", 4 * _SAMPLES)

    def part(start: int) -> np.ndarray:
        numbers = start + jnp.arange(together, dtype=jnp.uint32)
        return np.asarray(run(key, numbers)).ravel()

    starts = range(0, chunks, together)
    tasks = [functools.partial(in_context(part), start) for start in starts]
    return np.concatenate(list(in_order(tasks)))[:samples]


# ---- coins


class _Bands(NamedTuple):
    """The strategy's columns, in units of the noise; J + band - 1 steps end all of them.

    Attributes:
        shifts: float32 `[steps, band]`: what a participation k rounds ago adds to a release.
        weights: float32 `[steps, band]`: of the last releases, as they stand in a ring, in l_i of
            the participation i = j - band + 1, which round j is the last to show.
        halves: float32 `[steps]`: |C_i|^2 / 2.
    """

    shifts: Array
    weights: Array
    halves: Array

    @staticmethod
    def of(rounds: int, noise_multiplier: float, strategy: np.ndarray | None) -> _Bands:
        """Return the bands of a strategy, of one entry without any."""
        table = np.ones((rounds, 1))
        if strategy is not None:
            rows, columns = np.nonzero(strategy)
            band = int((rows - columns).max()) + 1
            padded = np.concatenate([strategy, np.zeros((band, rounds))])
            index = np.arange(rounds)
            table = np.stack([padded[index + k, index] for k in range(band)], axis=1)
        table = table / noise_multiplier
        steps = rounds + table.shape[1] - 1
        shifts, weights = np.zeros((2, steps, table.shape[1]))
        for k in range(table.shape[1]):
            shifts[k : k + rounds, k] = table[:, k]
            shown = np.arange(rounds) + table.shape[1] - 1
            weights[shown, (np.arange(rounds) + k) % table.shape[1]] = table[:, k]
        halves = 0.5 * np.square(weights).sum(axis=1)
        return _Bands(*(jnp.asarray(a.astype(np.float32)) for a in (shifts, weights, halves)))


@functools.partial(jax.jit, static_argnames=("rounds", "rest", "with_it"))
def _coins_chunk(
    coin: Array,
    bands: _Bands,
    key: Key[Array, ""],
    chunks: Array,
    *,
    rounds: int,
    rest: int,
    with_it: bool,
) -> Float32[Array, "chunks samples"]:
    def one(chunk: Array) -> Array:
        own = fold(key, chunk)
        return _coins_losses(coin, bands, own, rounds=rounds, rest=rest, with_it=with_it)

    return jax.vmap(one)(chunks)


def _coins_losses(
    coin: Array, bands: _Bands, key: Array, *, rounds: int, rest: int, with_it: bool
) -> Array:
    """Return the losses of one chunk: a scan over rounds.

    The last b rounds' log(q f_i) + l_i, as far as they are known, stand in a ring. After round J
    nobody joins.
    """
    steps, band = bands.shifts.shape
    joins, stays = (jnp.maximum(jnp.log(x), _NEVER) for x in (coin, 1.0 - coin))
    limit = jnp.minimum(coin * 2.0**31, 2.0**31 - 128.0).astype(jnp.uint32)
    always = coin >= 1.0

    def step(carry: Any, row: tuple[Array, _Bands]) -> tuple[Any, None]:
        rested, ring, shown, age = carry
        j, own = row
        is_open = j < rounds
        first, second = block_words(fold(key, j), (_SAMPLES,))
        release = _normal(first)
        if with_it:
            heads = (always | ((second >> jnp.uint32(1)) < limit)) & is_open
            age = jnp.where((age + 1 >= rest) & heads, 0, age + 1)
            for k in range(band):
                release = release + jnp.where(age == k, own.shifts[k], 0.0)
        ring = ring.at[j % rest].set(jnp.where(is_open, joins, _NEVER) + rested)
        if band > 1:  # written once, or it is worked out anew for each entry of the band
            shown = lax.optimization_barrier(
                shown.at[j % band].set(lax.optimization_barrier(release))
            )
        else:
            shown = release[None]
        gain = sum(own.weights[k] * shown[k] for k in range(band)) - own.halves
        ring = ring.at[(j + rest - (band - 1)) % rest].add(gain)
        ending = ring[(j + 1) % rest]  # asked b - 1 rounds ago, rested from the next on
        return (_log_add(jnp.where(is_open, stays, 0.0) + rested, ending), ring, shown, age), None

    start = (
        jnp.zeros(_SAMPLES, jnp.float32),
        jnp.full((rest, _SAMPLES), _NEVER, jnp.float32),
        jnp.zeros((band, _SAMPLES), jnp.float32),
        jnp.full(_SAMPLES, rest + band, jnp.int32),
    )
    numbers = jnp.arange(steps, dtype=jnp.int32)
    (rested, ring, _, _), _ = lax.scan(step, start, (numbers, bands))
    # those who rest at the end; the place that the last step ended is counted among the rested
    resting = ring.at[steps % rest].set(_NEVER)
    total = jax.nn.logsumexp(jnp.concatenate([rested[None], resting]), axis=0)
    return total if with_it else -total


def _log_add(a: Array, b: Array) -> Array:
    return jnp.maximum(a, b) + jnp.log1p(jnp.exp(-jnp.abs(a - b)))


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
    return jnp.asarray(products.astype(np.float32)), jnp.asarray(root.astype(np.float32))


@functools.partial(jax.jit, static_argnames=("with_it",))
def _bins_chunk(
    products: Array, root: Array, key: Key[Array, ""], chunks: Array, *, with_it: bool
) -> Float32[Array, "chunks samples"]:
    count = len(root)

    def one(chunk: Array) -> Array:
        first, second = block_words(fold(key, chunk), (count, _SAMPLES))
        shown = jnp.matmul(root, _normal(first), precision=lax.Precision.HIGHEST)
        if with_it:
            shown = shown + products[:, (second[0] % jnp.uint32(count)).astype(jnp.int32)]
        each = shown - 0.5 * jnp.diagonal(products)[:, None]
        total = jax.nn.logsumexp(each, axis=0) - jnp.log(jnp.float32(count))
        return total if with_it else -total

    return jax.vmap(one)(chunks)
