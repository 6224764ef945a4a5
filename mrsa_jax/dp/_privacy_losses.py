"""Privacy losses of one client's rounds, drawn: who does not see who takes part.

With the client the released sums are a mixture of Gaussians, one for each of its
participations; without it one Gaussian (others known, their coins their own). In units
of the noise, the released C y + z of a client who is in the rounds p shifts by C p: the
loss of a release w is the logarithm of the mean over p of exp(<w, C p> - |C p|^2 / 2).

- Coins with rests of b - 1 rounds: a recursion over rounds (below).
- Balls in bins: the mean over the b bins of exp(u_r - |m_r|^2 / 2), u_r = <w, m_r>, m_r
  = C p_r; these b products are all that is drawn: Gaussians with the covariance of the
  m_r. Bins of each epoch are independent of those before: the losses of epochs add up.

Sources: for both pairs, and that they are the worst with strategies whose entries are
not negative, Choquette-Choo, Ganesh, Haque, Steinke, Thakurta, "Near-exact privacy
amplification for matrix mechanisms" (2024), and the work on b-min-sep sampling of 2026
(arXiv 2602.09338).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float32, UInt32

from mrsa_jax._core.array_types import PRNGKey
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.device import platform
from mrsa_jax._core.forms import chosen_form
from mrsa_jax._core.selector import Selector
from mrsa_jax._core.streams import Seed, as_key, block_words, fold, fold_over, key_words
from mrsa_jax._core.threads import in_context, in_order
from mrsa_jax._core.traced import needs_values
from mrsa_jax.availability import Availability
from mrsa_jax.dp._histories import Histories, check_noise, checked_histories
from mrsa_jax.dp._spending import check_strategy
from mrsa_watch._base.errors import check_integer, check_known, check_size, require

# With rests of b - 1 rounds and bands of C no wider than b, participations do not
# overlap, and the mean over them is a sum over who was asked last, round by round:
# f_(j+1) = (1 - q) f_j + q e^(l_(j+1-b)) f_(j+1-b), where f_j is the part of it in
# which the client is rested in round j, and l_i = <w, C_i> - |C_i|^2 / 2 of a
# participation in round i.
#
# In a block of b rounds, a client joins at most once, so one word states in which: its
# wait, from the round in which it is rested, is geometric. What a block's rounds add to
# f comes from the block before, so a block is a few operations on arrays `[b, samples]`
# and b additions. After it all is divided by the sum, whose logarithms add up to the
# loss. Participations count only when the last release that shows them is drawn, band -
# 1 rounds later: so much are the two shifted.
#
# Source: `_privacy_losses`.

SAMPLES = 2048
"""Of a chunk, which draws by its own key, whatever the device."""
_PART = 8  # chunks that a thread takes at once
_NEVER = -1e30  # logarithm of 0, in sums that stay finite
_FARTHEST = 6.7  # normal numbers: sqrt(2 log(2^32)) at most
_LONGEST = 1e14  # of a client's shift: its square stays far from `_NEVER`
_RANGE = 70.0  # see `Rests.needs_logarithms`


@dataclasses.dataclass(frozen=True)
class Rests:
    """Participation of a client by blocks of b rounds, in units of the noise.

    Attributes:
        tables: float32 `[blocks, b, 2 band + 3]`: for a release what each of the last
            band participations adds to it; for the participation that it is the last to
            show its weights on the last band releases, the oldest first, half of their
            squares, the chance to join and the one not to.
        chances: uint32 `[b]`: to have joined after 1, 2, ... rounds of rest, in units
            of 2^-31.
        needs_logarithms: Whether float32 might lose what matters if sums were not kept
            as logarithms.
    """

    tables: Float32[np.ndarray, "blocks b columns"]
    chances: UInt32[np.ndarray, " b"]
    needs_logarithms: bool

    @staticmethod
    def of(
        rounds: int, rest: int, coin: float, noise: float, strategy: np.ndarray | None
    ) -> Rests:
        """Return the tables of a strategy, of one band of ones without any."""
        bands = _bands(rounds, strategy) / noise
        band = bands.shape[1]
        b = min(rest, rounds + band - 1)  # longer rests change nothing
        blocks = -(-(rounds + band - 1) // b)
        tables = np.zeros((blocks * b, 2 * band + 3))
        shown_rounds = slice(band - 1, band - 1 + rounds)
        for k in range(band):
            tables[k : k + rounds, k] = bands[:, k]
        tables[shown_rounds, band : 2 * band] = bands
        tables[shown_rounds, -3] = 0.5 * np.square(bands).sum(axis=1)
        tables[:, -1] = 1.0
        tables[shown_rounds, -2:] = coin, 1.0 - coin
        logarithm = np.log1p(-coin) if coin < 1 else -np.inf
        chances = np.rint(-np.expm1(np.arange(1, b + 1) * logarithm) * 2.0**31)
        return Rests(
            tables.astype(np.float32).reshape(blocks, b, -1),
            chances.astype(np.uint32),
            _needs_logarithms(bands, rounds, b, -logarithm),
        )


def _bands(rounds: int, strategy: np.ndarray | None) -> np.ndarray:
    """Return the columns of a strategy from their diagonal on, `[rounds, band]`."""
    if strategy is None:
        return np.ones((rounds, 1))
    rows, columns = np.nonzero(strategy)
    band = int((rows - columns).max()) + 1
    padded = np.concatenate([strategy, np.zeros((band, rounds))])
    index = np.arange(rounds)
    return np.stack([padded[index + k, index] for k in range(band)], axis=1)


def _needs_logarithms(bands: np.ndarray, rounds: int, b: int, staying: float) -> bool:
    """Return whether a part too small for float32 could come to matter.

    A part below e^-87 of the sum is lost. Whoever is in the rest of the sum is rested
    within b rounds and may then wait, by (1 - q)^b, until the lost one would be, too;
    in these 2 b rounds the lost one joins at most twice, and no |l| is above the bound
    here. So of J b parts nothing grows beyond e^-17 of the sum where 2 max|l| - 2 b
    log(1 - q) + log(J b) is below 70.
    """
    most = (
        np.square(bands).sum(axis=1).max() + _FARTHEST * np.abs(bands).sum(axis=1).max()
    )
    return not 2 * most + 2 * b * staying + np.log(rounds * b) < _RANGE


def by_loops(
    rests: Rests, key: PRNGKey, chunks: int, with_it: bool
) -> Float32[np.ndarray, " samples"]:
    """Draw losses by compiled loops, parts of the chunks on each core."""
    from mrsa_jax.dp._loss_loops import draw_losses  # compiles

    keys = np.asarray(_chunk_words(key, np.arange(chunks, dtype=np.uint32)))
    losses = np.empty((chunks, SAMPLES), np.float32)

    def part(start: int) -> None:
        some = slice(start, start + _PART)
        draw_losses(
            keys[some], rests.tables, rests.chances, SAMPLES, with_it, losses[some]
        )

    for _ in in_order([functools.partial(part, at) for at in range(0, chunks, _PART)]):
        pass
    return losses.ravel() if with_it else -losses.ravel()


@jax.jit
def _chunk_words(key: Array, chunks: Array) -> Array:
    return jnp.stack(key_words(fold_over(key, chunks)), axis=-1)


@functools.partial(jax.jit, static_argnames="with_it")
def by_arrays(
    tables: Array, chances: Array, key: PRNGKey, chunks: Array, *, with_it: bool
) -> Float32[Array, "chunks samples"]:
    """Draw losses as an array program, chunks side by side.

    All sums are kept as logarithms.

    Args:
        tables: `Rests.tables`.
        chances: `Rests.chances`.
        key: One key.
        chunks: uint32, their numbers.
        with_it: Whether the client takes part.
    """
    each = jax.vmap(
        lambda chunk: _log_likelihoods(tables, chances, fold(key, chunk), with_it)
    )
    return each(chunks) if with_it else -each(chunks)


def _log_likelihoods(tables: Array, chances: Array, key: Array, with_it: bool) -> Array:
    """Return those of one chunk: a scan over blocks."""
    b, band = tables.shape[1], (tables.shape[2] - 3) // 2
    numbers = jnp.arange(b, dtype=jnp.int32)[:, None]

    def pass_round(rested: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
        ending, gain, join, stay = row
        now = jnp.logaddexp(rested, ending)
        return stay + now, join + now + gain

    def pass_block(carry: Any, block: tuple[Array, Array]) -> tuple[Any, None]:
        rested, ending, rows, last, total = carry
        number, table = block
        own_key = fold(key, number)
        released = _normals(own_key, b)
        if with_it:
            is_in = last < b
            before = jnp.where(is_in, last - b, b)
            last = jnp.where(is_in, last, 0) + _waits(own_key, chances)
            for k in range(band):
                hit = (last[None] == numbers - k) | (before[None] == numbers - k)
                released = released + jnp.where(hit, table[:, k, None], 0.0)
        rows = jnp.concatenate([rows[b:], released])
        gains = sum(table[:, band + k, None] * rows[k : k + b] for k in range(band))
        joins, stays = (jnp.maximum(jnp.log(table[:, at]), _NEVER) for at in (-2, -1))
        rounds = (ending, gains - table[:, -3, None], joins, stays)
        rested, ending = lax.scan(pass_round, rested, rounds, unroll=min(b, 8))
        rested = jnp.logaddexp(rested, ending[0])
        ending = ending.at[0].set(_NEVER)
        both = jax.nn.logsumexp(jnp.concatenate([rested[None], ending]), axis=0)
        return (rested - both, ending - both[None], rows, last, total + both), None

    nothing = jnp.zeros(SAMPLES, jnp.float32)
    start = (
        nothing,
        jnp.full((b, SAMPLES), _NEVER, jnp.float32),
        jnp.zeros((b + band - 1, SAMPLES), jnp.float32),
        jnp.full(SAMPLES, 2 * b, jnp.int32),
        nothing,
    )
    return lax.scan(
        pass_block, start, (jnp.arange(len(tables), dtype=jnp.uint32), tables)
    )[0][4]


def _normals(key: Array, b: int) -> Array:
    """Return standard normal numbers `[b, samples]`, up to 6.7.

    Two come from the words of each pair.
    """
    first, second = block_words(key, (-(-b // 2), SAMPLES))
    uniform = ((first >> 1).astype(jnp.int32).astype(jnp.float32) + 0.5) * 2.0**-31
    radius = jnp.sqrt(-2.0 * jnp.log(uniform))
    turn = lax.bitcast_convert_type(second, jnp.int32).astype(jnp.float32)
    angle = turn * jnp.float32(2 * np.pi / 2.0**32)
    pairs = jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle)], axis=1)
    return pairs.reshape(-1, SAMPLES)[:b]


def _waits(key: Array, chances: Array) -> Array:
    """Return int32 `[samples]`.

    Rested rounds before one joins, b for those who do not in b.
    """
    tosses = block_words(key, (SAMPLES,), block=1)[0] >> 1
    return jnp.sum(tosses[None] >= chances[:, None], axis=0, dtype=jnp.int32)


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
    seed: Seed = 0,
) -> Float32[np.ndarray, " samples"]:
    """Draw privacy losses against an observer of the sums, not of their members.

    For their own coins, perhaps with rests in between (`selection.minimum_separation`
    of `selection.bernoulli` or `selection.poisson`), and for `selection.balls_in_bins`.

    Args:
        selector: Whom the server asks.
        availability: Who is online: `availability.independent`; for balls in bins, all
            of them.
        rounds: J >= 1.
        noise_multiplier: Standard deviation of a sum's noise, in units of the clip.
        samples: B >= 1.
        client: Whose.
        side: "with": releases with the client, losses log(with/without). "without":
            releases without it, losses log(without/with).
        strategy: C, as for `ledger`, without negative entries; with coins, its bands
            must be no wider than the minimum separation.
        seed: Integer or typed key.

    Returns:
        float32[B]; delta at epsilon is the mean of max(0, 1 - exp(epsilon - loss)), of
        the worse side. In float32: losses are good to about 1e-6 of their size and J *
        3e-8, with coins.

    Raises:
        ConfigurationError: For schemes whose clients do not join by their own coins or
            bins, a strategy that is too wide or has negative entries, noise so small
            that float32 cannot hold the losses, or as `account`.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> rests = mj.selection.minimum_separation(mj.selection.bernoulli(9, 0.2), 3)
        >>> losses = mj.dp.privacy_losses(
        ...     rests, mj.availability.independent(0.1), 30, 2.0, 4000
        ... )
        >>> delta = np.maximum(0, 1 - np.exp(1 - losses)).mean()
        >>> averaged = mj.dp.account(rests, mj.availability.independent(0.1), 30, 2.0)
        >>> bool(delta < averaged.delta(1.0)[0])
        True

    Cost: with coins a normal number and an exponential for each round and sample, and a
    word for each b rounds; with bins one normal number a bin, of each epoch that draws
    them. On a CPU compiled loops do it, elsewhere XLA: the same draws, and losses that
    differ by rounding.
    """
    law = checked_histories(selector, availability, rounds)
    scale = check_noise(noise_multiplier)
    count = check_size(samples, "samples")
    check_known(side, "side", ("with", "without"), "a known side")
    who = check_integer(client, "client", 0, law.selector.num_clients - 1)
    matrix = None if strategy is None else check_strategy(strategy, law.rounds)
    reason = why_not_drawn(law, matrix)
    require(
        not reason, "selector", f"must have privacy losses that can be drawn: {reason}"
    )
    return losses_of(
        law, who, scale, matrix, count, as_key(seed), with_it=side == "with"
    )


def why_not_drawn(law: Histories, strategy: np.ndarray | None) -> str:
    """Return why a client's pair cannot be drawn; nothing where it can."""
    bins = getattr(law.selector, "num_bins", None)
    if bins is None and (
        law.coins is None or not getattr(law.selector, "joins_alone", False)
    ):
        return (
            "clients must join by their own coins, or bins, and be online independently"
        )
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
    key: PRNGKey,
    *,
    with_it: bool,
) -> Float32[np.ndarray, " samples"]:
    """Draw a client's losses (see `privacy_losses`)."""
    largest = 1.0 if strategy is None else np.linalg.norm(strategy, axis=0).max()
    least = law.rounds * float(largest) / _LONGEST
    rule = f"must be at least {least:.3g} for losses that float32 can hold"
    require(noise_multiplier >= least, "noise_multiplier", rule, noise_multiplier)
    chunks = -(-samples // SAMPLES)
    if getattr(law.selector, "fresh", False) and law.rounds > int(
        law.selector.num_bins
    ):
        bins, total = int(law.selector.num_bins), np.zeros(samples)
        for start in range(0, law.rounds, bins):
            epoch = dataclasses.replace(law, rounds=min(bins, law.rounds - start))
            total += losses_of(
                epoch,
                client,
                noise_multiplier,
                None,
                samples,
                fold(key, start),
                with_it=with_it,
            )
        return total.astype(np.float32)
    if hasattr(law.selector, "num_bins"):
        matrices = _bins(
            law.rounds, int(law.selector.num_bins), noise_multiplier, strategy
        )
        run = functools.partial(_bins_chunk, *matrices, with_it=with_it)
        held = len(matrices[0])
    else:
        assert law.coins is not None
        rests = Rests.of(
            law.rounds, law.separation, law.coins[client], noise_multiplier, strategy
        )
        # `_loss_loops` and `by_arrays` sum the same terms from the same draws
        if not rests.needs_logarithms and chosen_form(("loops", "xla")) == "loops":
            return by_loops(rests, key, chunks, with_it)[:samples]
        run = functools.partial(by_arrays, rests.tables, rests.chances, with_it=with_it)
        held = 4 * rests.tables.shape[1]
    together = 1 if platform() == "cpu" else at_once("selection", 4 * SAMPLES * held)

    def part(start: int) -> np.ndarray:
        return np.asarray(
            run(key, start + jnp.arange(together, dtype=jnp.uint32))
        ).ravel()

    tasks = [
        functools.partial(in_context(part), start)
        for start in range(0, chunks, together)
    ]
    return np.concatenate(list(in_order(tasks)))[:samples]


def _normal(words: Array) -> Array:
    """Return standard normal numbers of 24 bits, up to 5.4, one from each word."""
    signed = lax.bitcast_convert_type(words, jnp.int32) >> 8
    uniform = (signed.astype(jnp.float32) + 0.5) * 2.0**-23
    return jnp.float32(np.sqrt(2.0)) * lax.erf_inv(uniform)


def _bins(
    rounds: int, bins: int, noise_multiplier: float, strategy: np.ndarray | None
) -> tuple[Array, Array]:
    """Return products of bins' shifts, `[bins, bins]`, and a root of that matrix."""
    turns = (np.arange(rounds)[:, None] % bins == np.arange(bins)).astype(np.float64)
    shifts = (turns if strategy is None else strategy @ turns) / noise_multiplier
    products = shifts.T @ shifts
    values, vectors = np.linalg.eigh(products)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return on_device(products.astype(np.float32)), on_device(root.astype(np.float32))


@functools.partial(jax.jit, static_argnames=("with_it",))
def _bins_chunk(
    products: Array, root: Array, key: PRNGKey, chunks: Array, *, with_it: bool
) -> Float32[Array, "chunks samples"]:
    count = len(root)

    def one(chunk: Array) -> Array:
        first, second = block_words(fold(key, chunk), (count, SAMPLES))
        released = jnp.matmul(root, _normal(first), precision=lax.Precision.HIGHEST)
        if with_it:
            released = (
                released
                + products[:, (second[0] % jnp.uint32(count)).astype(jnp.int32)]
            )
        each = released - 0.5 * jnp.diagonal(products)[:, None]
        total = jax.nn.logsumexp(each, axis=0) - jnp.log(jnp.float32(count))
        return total if with_it else -total

    return jax.vmap(one)(chunks)
