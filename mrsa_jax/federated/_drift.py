"""The drift of clients' updates over the rounds of a training.

Their spread and their memory.
Client i's update in round r is taken for m_r + x_ir: a part that all share, and its
own, Gaussian with standard deviation s. Of its variance a share lasts, with correlation
rho^|r - r'| between two of its rounds; the rest (minibatches, their order) is fresh in
every round. All three are estimated from a sketch: some coordinates of each layer, of
each client that trained.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float64, Int32

from mrsa_jax._core.arrays import host_array
from mrsa_jax._core.batches import at_once
from mrsa_jax._core.statistics import memory_kernel
from mrsa_jax._core.streams import Stream, host_generator
from mrsa_jax._core.traced import needs_values
from mrsa_jax.federated._mates import correlation_of_mates, is_in, same_rounds
from mrsa_watch._base.errors import is_integer, require
from mrsa_watch._base.html import finding

_MOST_COORDINATES = 64  # of a layer
_MOST_BYTES = 2**24  # of a sketch, without one coordinate of each layer
_FEWEST_LAGS = 3  # from which two numbers are fitted
_MOST_MEMORY = 1 - 1e-6  # `privacy.information` takes no more, but 1


@finding
class Drift:
    """Spread and memory of clients' updates, as measured (`measure_drift`).

    Attributes:
        spread: s, the standard deviation of a coordinate across clients around their
            round's mean, root mean square over rounds and coordinates; nan if no round
            had two clients.
        memory: rho, fitted to `correlation`; in [0, 0.999999], nan if no client came
            twice.
        lasting: Share of the variance that has this memory, in [0, 1], fitted with it;
            1 is a first-order process, R = rho^|r - r'|. nan as `memory`.
        layers: Names of the layers.
        layer_spread: float64 [L], s within each.
        layer_memory: float64 [L], rho within each.
        layer_lasting: float64 [L], the lasting share within each.
        rounds: int32 [J'], the rounds that were measured.
        round_spread: float64 [J'], s in each round; nan with fewer than two clients.
            Where it rises or falls, updates are not stationary, and s is a mean of
            unlike rounds.
        lags: int32 [M], rounds between two participations of one client, ascending.
        pairs: int64 [M], how many such pairs there were.
        correlation: float64 [M], between a client's own parts at that lag; lasting x
            rho^lag is to be seen against it. Not bounded by 1, as it is an estimate.
        layer_correlation: float64 [L, M], within each layer.
        mates_correlation: kappa, between the updates of two mates in one round, about
            what all clients of the round share; at most 1. The theorem of hidden among
            caps the share of an update that any estimate explains at (1 + (T - 1)
            kappa) / T. nan if no round had mates and others.
        num_coordinates: Coordinates of an update that were looked at.
        clients: int32 [C], those who came twice or more.
        client_spread: float64 [C], s of each one's updates alone; nan with cohorts of
            two.
        client_memory: float64 [C], rho of each one's, of the nearest of a thousand.
        client_lasting: float64 [C], the lasting share of each one's.
        resemblance: float64 [N, N], C of `privacy.hidden_among(P, covariance=C)`: the
            mean product over coordinates of two clients' mean updates, each about its
            rounds' means; zeros for clients in no round. It includes what is fresh in
            the means of few rounds. None unless asked for.
    """

    spread: float
    memory: float
    lasting: float
    layers: tuple[str, ...]
    layer_spread: np.ndarray
    layer_memory: np.ndarray
    layer_lasting: np.ndarray
    rounds: np.ndarray
    round_spread: np.ndarray
    lags: np.ndarray
    pairs: np.ndarray
    correlation: np.ndarray
    layer_correlation: np.ndarray
    mates_correlation: float
    num_coordinates: int
    clients: np.ndarray
    client_spread: np.ndarray
    client_memory: np.ndarray
    client_lasting: np.ndarray
    resemblance: np.ndarray | None = None

    def kernel(self, rounds: Any) -> Float64[np.ndarray, "rows rows"]:
        """Return R of `privacy.information`, for sums learnt in these rounds.

        Args:
            rounds: Integers, the round of each sum; several of one round hold the same
                updates.

        Returns:
            lasting x memory^|r - r'|, and exactly 1 within a round.

        Raises:
            ConfigurationError: If rounds are no list of integers, or the memory is not
                known.
        """
        when = host_array(rounds, "rounds")
        good = when.ndim == 1 and when.dtype.kind in "iu"
        require(good, "rounds", "must be a list of integers", when.shape)
        rule = "must have a memory: no client's updates were seen twice"
        require(math.isfinite(self.memory), "drift", rule, self.memory)
        return memory_kernel(when, self.memory, self.lasting)


@needs_values
def measure_drift(
    updates: Any,
    members: Any,
    *,
    rounds: Any = None,
    layers: Any = None,
    blocks: Any = None,
    resemblance: bool = False,
) -> Drift:
    """Estimate spread and memory of clients' updates, for `privacy.information`.

    Use it on given updates; `train(..., measure_drift=True)` does it itself.

    With e_ir = x_ir - (mean over the round's K_r clients), E |e_ir|^2 = s_r^2 (1 -
    1/K_r), and for two rounds of one client, whose cohorts share O clients, E e_ir
    e_ir' = s_r s_r' R_rr' (1 - 1/K_r - 1/K_r' + O / (K_r K_r')): means are taken out
    without bias. The spread is the root of the first, pooled; the correlation at a lag
    is the sum of products, each round divided by its own s_r, over the sum of those
    factors (method of moments). rho and the share a that lasts minimise the squared
    distance of a rho^lag from it, weighted by the pairs (a = 1 where fewer than three
    lags came).

    Two mates i, j of one round have E |x_ir - x_jr|^2 / 2 = s_r^2 (1 - kappa), two
    clients of different blocks s_r^2: whatever all share cancels. So kappa is 1 less
    the ratio of these mean squares, over rounds that have both kinds of pairs, each
    divided by its s_r^2.

    **Assumed**, not shown: one s, rho and a for all clients and, within a layer, all
    coordinates (isotropic); rounds alike (each is divided by its own spread, so that
    alone may change); for bits, Gaussian. Of clients who never trained twice, and lags
    that never came, nothing is known.

    Args:
        updates: `[rounds, slots, coordinates]`, the updates of a round's clients, or
            some coordinates of them.
        members: Integers `[rounds, slots]`, which client each is; negative: nobody.
        rounds: Integers `[rounds]`, ascending, when each round was; 0, 1, 2, ... if
            None.
        layers: Mapping of names to how many of the coordinates each layer has, in
            order; one layer if None.
        blocks: Integers `[clients]`, the block of each: clients of one block are mates,
            those of a negative one have none. If None, clients who were in the same
            rounds are mates.
        resemblance: Whether to measure which clients' updates are long and which
            resemble each other, of clients 0 to the last in `members` or `blocks`.

    Returns:
        What was measured; over all layers, each coordinate counts alike.

    Raises:
        ConfigurationError: If shapes do not fit, an update is not finite, a client is
            twice in a round or has no entry of `blocks`, or rounds do not ascend.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> own = np.random.default_rng(0).normal(size=(1, 6, 500))
        >>> updates, members = np.repeat(own, 4, axis=0), [range(6)] * 4
        >>> drift = mj.federated.measure_drift(updates, members)
        >>> round(drift.spread, 1), drift.memory, round(drift.lasting, 5)
        (1.0, 0.999999, 1.0)
        >>> drift.pairs.tolist()
        [18, 12, 6]

    Cost: about (participations of a client)^2 x coordinates for each client and layer.
    """
    values, who = host_array(updates, "updates"), host_array(members, "members")
    good = values.ndim == 3 and values.dtype.kind in "fiu" and min(values.shape) > 0
    require(
        good, "updates", "must be numbers [rounds, slots, coordinates]", values.shape
    )
    require(bool(np.isfinite(values).all()), "updates", "must be finite", "nan or inf")
    good = who.shape == values.shape[:2] and who.dtype.kind in "iu"
    require(good, "members", f"must be integers {list(values.shape[:2])}", who.shape)
    when = np.arange(len(who)) if rounds is None else host_array(rounds, "rounds")
    good = when.shape == (len(who),) and when.dtype.kind in "iu"
    require(good, "rounds", f"must be {len(who)} integers", when.shape)
    require(bool((np.diff(when) > 0).all()), "rounds", "must ascend")
    ordered = np.sort(who, axis=1)
    is_twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    require(not is_twice.any(), "members", "must name a client once in a round")
    is_mapping = layers is None or isinstance(layers, Mapping)
    require(
        is_mapping, "layers", "must be a mapping from names to counts, or None", layers
    )
    counts = {"all": values.shape[2]} if layers is None else dict(layers)
    rule = f"must hold positive counts that add up to {values.shape[2]} coordinates"
    are_counts = all(is_integer(count) and count > 0 for count in counts.values())
    require(
        are_counts and sum(counts.values()) == values.shape[2], "layers", rule, counts
    )
    labels = None if blocks is None else host_array(blocks, "blocks")
    rule = "must hold an integer for each client"
    good = labels is None or (
        labels.ndim == 1 and labels.dtype.kind in "iu" and who.max() < len(labels)
    )
    require(
        bool(good),
        "blocks",
        rule,
        None if labels is None else f"{labels.dtype}{list(labels.shape)}",
    )
    drift = estimated(values, who, when, counts, counts, labels)
    if not resemblance:
        return drift
    num_clients = int(who.max()) + 1 if labels is None else len(labels)
    return dataclasses.replace(drift, resemblance=_gram(values, who, num_clients))


def _gram(values: np.ndarray, members: np.ndarray, num_clients: int) -> np.ndarray:
    """Return the Gram matrix of clients' mean centred updates, per coordinate."""
    is_there = members >= 0
    clients = members[is_there]
    in_round = np.maximum(is_there.sum(axis=1), 1)[:, None]
    in_all = np.maximum(np.bincount(clients, minlength=num_clients), 1)[:, None]
    gram = np.zeros((num_clients, num_clients))
    width = at_once("columns", 8 * 3 * (members.size + num_clients))
    for start in range(0, values.shape[2], width):
        piece = values[:, :, start : start + width].astype(np.float64)
        piece *= is_there[:, :, None]
        # Centre on the mean of the round; absent slots are zero and must stay so.
        piece -= (piece.sum(axis=1) / in_round)[:, None]
        totals = np.zeros((num_clients, piece.shape[2]))
        np.add.at(totals, clients, piece[is_there])
        means = totals / in_all
        gram += means @ means.T
    return gram / values.shape[2]


class Sketch:
    """The coordinates of a training's updates that are kept, and what was kept of them.

    Args:
        key: Of the training.
        layers: Where in an update each layer lies.
        shape: Rounds to train, and slots of a round.

    Attributes:
        coordinates: int32 [S], ascending.
        values: f32 [rounds, slots, S]; at most 16 MiB, apart from one coordinate of
            each layer.
    """

    def __init__(
        self, key: Any, layers: Mapping[str, range], shape: tuple[int, int]
    ) -> None:
        """Draw the coordinates: of each layer all, as many as fit, or 64."""
        most = _MOST_BYTES // max(1, 4 * shape[0] * shape[1] * len(layers))
        most = max(1, min(_MOST_COORDINATES, most))
        generator = host_generator(key, Stream.DRIFT)
        drawn = [
            np.sort(
                generator.choice(len(places), min(most, len(places)), replace=False)
            )
            + places.start
            for places in layers.values()
        ]
        self._sizes = {name: len(places) for name, places in layers.items()}
        self._counts = {
            name: len(places) for name, places in zip(layers, drawn, strict=True)
        }
        self.coordinates: Int32[np.ndarray, " kept"] = np.concatenate(drawn).astype(
            np.int32
        )
        self.values = np.zeros((*shape, len(self.coordinates)), np.float32)

    def drift(self, members: np.ndarray, rounds: np.ndarray) -> Drift:
        """Return the drift of the first rounds, by who sent in which."""
        return estimated(
            self.values[: len(members)], members, rounds, self._counts, self._sizes
        )


def estimated(
    values: np.ndarray,
    members: np.ndarray,
    rounds: np.ndarray,
    counts: Mapping[str, int],
    sizes: Mapping[str, int],
    blocks: np.ndarray | None = None,
) -> Drift:
    """Return the drift of layers of this many coordinates, `counts` of which are known.

    Args:
        values: `[rounds, slots, S]`.
        members: `[rounds, slots]`; negative for nobody.
        rounds: `[rounds]`, when each was.
        counts: Known coordinates of each layer.
        sizes: How many each has: over all, a layer weighs as much.
        blocks: Of the clients; None for those who were in the same rounds.
    """
    is_there = members >= 0
    count = is_there.sum(axis=1)
    centred = np.where(is_there[:, :, None], values, 0).astype(np.float64)
    centred -= (centred.sum(axis=1) / np.maximum(count, 1)[:, None])[:, None]
    # Centring made absent slots non-zero: clear them again.
    centred *= is_there[:, :, None]
    number = np.asarray(list(counts.values()))
    starts = np.cumsum([0, *number])[:-1]
    shares = np.asarray(list(sizes.values()), np.float64) / sum(sizes.values())
    # Sums over the coordinates of each layer, [layers, rounds].
    squares = np.add.reduceat((centred**2).sum(axis=1), starts, axis=1).T
    squares = _with_all(squares / number[:, None], shares)
    # A mean was estimated: K - 1 degrees of freedom, none in a round of one client.
    freedom = np.where(count > 1, count - 1, np.nan)
    variances = squares / freedom
    total = np.nansum(freedom)
    spreads = np.sqrt(
        np.nansum(variances * freedom, axis=1) / (total if total else np.nan)
    )
    correlogram = _correlogram(
        centred, members, np.asarray(rounds), variances, starts, shares
    )
    lags, pairs, correlation, clients, fits = correlogram
    fitted = np.array([_fitted(lags, values, pairs) for values in correlation])
    return Drift(
        spread=float(spreads[0]),
        memory=float(fitted[0, 0]),
        lasting=float(fitted[0, 1]),
        layers=tuple(counts),
        layer_spread=spreads[1:],
        layer_memory=fitted[1:, 0],
        layer_lasting=fitted[1:, 1],
        rounds=np.asarray(rounds, np.int32),
        round_spread=np.sqrt(variances[0]),
        lags=lags,
        pairs=pairs,
        correlation=correlation[0],
        layer_correlation=correlation[1:],
        mates_correlation=correlation_of_mates(
            centred * np.sqrt(np.repeat(shares / number, number)),
            members,
            variances[0],
            same_rounds(members) if blocks is None else blocks,
        ),
        num_coordinates=values.shape[2],
        clients=clients,
        client_spread=spreads[0] * np.sqrt(fits[0]),
        client_memory=fits[1],
        client_lasting=fits[2],
    )


def _with_all(by_layer: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return means over coordinates `[1 + layers, ...]`.

    Over all, then within each layer.
    """
    return np.concatenate([np.tensordot(shares, by_layer, 1)[None], by_layer])


def _correlogram(
    centred: np.ndarray,
    members: np.ndarray,
    rounds: np.ndarray,
    variances: np.ndarray,
    starts: np.ndarray,
    shares: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the lags, the pairs at each, and the correlations `[1 + layers, lags]`.

    And the clients who came twice, with the variance of each one's updates over that of
    all, its memory and its lasting share, `[3, clients]`.
    """
    is_sound = variances > 0
    scales = np.sqrt(np.where(is_sound, variances, 1.0))
    cells, where, clients = _participations(members)
    fits, sizes = np.full((3, len(clients)), np.nan), (members >= 0).sum(axis=1)
    longest = int(rounds[-1] - rounds[0]) + 1 if len(rounds) else 1
    num_groups, length = len(variances), centred.shape[2]
    products, factors = np.zeros((2, num_groups, longest))
    pairs = np.zeros(longest, np.int64)
    weight = _kept(members)
    most = where.shape[1]
    step = at_once("columns", 8 * most * (length + (3 + num_groups) * most))
    for start in range(0, len(where), step):
        part, is_real = where[start : start + step], cells[start : start + step]
        entries = centred.reshape(-1, length)[part]
        # Products of all pairs of a client's participations, by layer: [clients, m, m].
        layers = [
            block @ block.swapaxes(1, 2) / block.shape[2]
            for block in np.split(entries, starts[1:], axis=2)
        ]
        # Places are round * slots + slot.
        at = part // members.shape[1]
        row, second = at[:, :, None], at[:, None, :]
        first = np.arange(most)
        is_pair = (
            is_real[:, :, None]
            & is_real[:, None, :]
            & (first[:, None] < first[None, :])
        )
        gaps = np.abs(rounds[row] - rounds[second])[is_pair]
        pairs += np.bincount(gaps, minlength=longest)
        share = weight[row, second][is_pair]
        for group, sums in enumerate(_with_all(np.stack(layers), shares)):
            good = (is_sound[group][row] & is_sound[group][second])[is_pair]
            # In units of both rounds' deviations, so that rounds of all spreads count
            # alike.
            scaled = (sums / scales[group][row] / scales[group][second])[is_pair]
            # Sums by lag. `factors` are what a correlation of 1 would give after
            # centring.
            products[group] += np.bincount(gaps, scaled * good, longest)
            factors[group] += np.bincount(gaps, share * good, longest)
            if group == 0:
                squares = np.diagonal(sums, axis1=1, axis2=2) / scales[0][at] ** 2
                whose = np.broadcast_to(
                    np.arange(len(part))[:, None, None], is_pair.shape
                )[is_pair]
                fits[:, start : start + step] = _of_clients(
                    squares,
                    1 / sizes[at],
                    is_real & is_sound[0][at],
                    # One cell for each client and lag.
                    whose[good] * longest + gaps[good],
                    scaled[good],
                    share[good],
                    longest,
                )
    lags = np.flatnonzero(pairs).astype(np.int32)
    correlation = products[:, lags] / np.where(
        factors[:, lags] > 1e-9, factors[:, lags], np.nan
    )
    return lags, pairs[lags], correlation, clients.astype(np.int32), fits


def _of_clients(
    squares: np.ndarray,
    inverse: np.ndarray,
    is_real: np.ndarray,
    cells: np.ndarray,
    products: np.ndarray,
    factors: np.ndarray,
    longest: int,
) -> np.ndarray:
    """Return variance ratio, memory and share of some clients, `[3, b]`.

    The ratio is that of a client's variance to all clients'.

    Of a client of variance v among K of variance s^2, centring leaves (1 - 2/K) v + s^2
    / K.

    Args:
        squares: `[b, participations]`, mean squares of centred updates over s_r^2.
        inverse: 1 / K of their rounds.
        is_real: Which of them are.
        cells: Client x longest + lag of each pair of participations.
        products: Of each pair, over s_r s_r'.
        factors: What centring leaves of it.
        longest: Lags there may be.
    """
    # Centring on a mean that includes the client keeps 1 - 2 / K of this client's
    # variance, and adds 1 / K of the mean variance (1 in these units).
    fresh_weight = np.where(is_real, 1 - 2 * inverse, 0.0).sum(axis=1)
    sizes = np.where(is_real, squares - inverse, 0.0).sum(axis=1)
    unknown = np.full(len(fresh_weight), np.nan)
    ratios = np.maximum(
        np.divide(sizes, fresh_weight, out=unknown, where=fresh_weight > 1e-9), 0
    )
    shape = len(squares), longest
    pairs, product, factor = (
        np.bincount(cells, weight, shape[0] * longest).reshape(shape)
        for weight in (np.ones(len(cells)), products, factors)
    )
    has_pairs = (factor > 1e-9) & (ratios > 0)[:, None]
    fitted = np.divide(
        product, factor * ratios[:, None], out=np.zeros(shape), where=has_pairs
    )
    pairs *= has_pairs
    tried = np.minimum(1 - np.linspace(0, 1, 1001) ** 3, _MOST_MEMORY)
    powers = tried[:, None] ** np.arange(longest)
    weight, fit = pairs @ (powers**2).T, (pairs * fitted) @ powers.T
    shares = np.clip(fit / np.maximum(weight, 1e-300), 0.0, 1.0)
    shares[(pairs > 0).sum(axis=1) < _FEWEST_LAGS] = 1.0
    # The squared error of share * rho^lag, without the part that does not depend on
    # them.
    best = (shares**2 * weight - 2 * shares * fit).argmin(axis=1)
    is_known, lasting = pairs.any(axis=1), shares[np.arange(len(best)), best]
    memory = np.where(lasting > 0, tried[best], 0.0)
    return np.stack(
        [
            ratios,
            np.where(is_known, memory, np.nan),
            np.where(is_known, lasting, np.nan),
        ]
    )


def _participations(members: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the places of each client that came twice, and which of them are real.

    Places are those of `[rounds x slots]`.

    And which clients these are.
    """
    flat = np.flatnonzero(members.reshape(-1) >= 0)
    clients, owner = np.unique(members.reshape(-1)[flat], return_inverse=True)
    sizes = np.bincount(owner)
    order = np.argsort(owner, kind="stable")
    # The rank of each place among those of its client.
    at = np.arange(len(flat)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    where = np.zeros((len(sizes), sizes.max(initial=1)), np.int64)
    where[owner[order], at] = flat[order]
    is_real = np.arange(where.shape[1]) < sizes[:, None]
    return is_real[sizes > 1], where[sizes > 1], clients[sizes > 1]


def _kept(members: np.ndarray) -> np.ndarray:
    """Return the factor by which centring two rounds scales a client's product."""
    here = is_in(members).astype(np.float64)
    inverse = 1 / np.maximum(here.sum(axis=1), 1)
    shared = here @ here.T
    return (
        1
        - inverse[:, None]
        - inverse[None, :]
        + shared * inverse[:, None] * inverse[None, :]
    )


def _fitted(
    lags: np.ndarray, correlation: np.ndarray, pairs: np.ndarray
) -> tuple[float, float]:
    """Fit rho and the share whose powers are nearest to the correlations, by pairs."""
    is_known = np.isfinite(correlation)
    if not is_known.any():
        return math.nan, math.nan
    lags, correlation, pairs = lags[is_known], correlation[is_known], pairs[is_known]
    tried = 1 - np.linspace(0, 1, 1001) ** 3  # dense near 1, where long lags tell much
    for _ in range(4):
        tried = np.minimum(tried, _MOST_MEMORY)
        powers = tried[:, None] ** lags
        shares = np.ones(len(tried))
        if len(lags) >= _FEWEST_LAGS:
            weight = (pairs * powers**2).sum(axis=1)
            product = (pairs * powers * correlation).sum(axis=1)
            shares = np.clip(product / np.maximum(weight, 1e-300), 0.0, 1.0)
        gaps = correlation - shares[:, None] * powers
        best = int(np.argmin((pairs * gaps**2).sum(axis=1)))
        # Zoom in between the neighbours of the best value; `tried` descends.
        ends = tried[min(best + 1, len(tried) - 1)], tried[max(best - 1, 0)]
        rho, share = float(tried[best]), float(shares[best])
        tried = np.linspace(*ends, 101)[::-1]
    return (rho, share) if share > 0 and rho > 0 else (0.0, 0.0)
