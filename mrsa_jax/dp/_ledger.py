"""The ledger: privacy that each client has spent in the sums that it was in."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float64

from mrsa_jax import privacy
from mrsa_jax._core.array_types import Floats, PerClient
from mrsa_jax._core.traced import needs_values
from mrsa_jax.dp._mechanism import BlockMechanism, Composed, RingMechanism
from mrsa_jax.dp._spending import (
    Correlated,
    Independent,
    Law,
    check_strategy,
    of_clients,
)
from mrsa_jax.dp._survivors import Sums
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.html import finding, telling


@finding
class Ledger:
    """Privacy that each client has spent (built by `ledger`).

    A guarantee against whoever knows all other clients' updates and sees the released
    sums: the server above all. No client's rounds are hidden from it, so nothing is
    amplified by sampling.

    Attributes:
        mu: float64 `[clients]`: with its contributions or without, a client is
            distinguished no better than N(mu, 1) from N(0, 1). 0 for those in no sum,
            infinite where noise is missing or wholly known, nan for colluding clients.
        planned_mu: The same if every sum had the noise that was planned and nobody
            colluded.
        is_exact: Whether contributions of the clip's length reach mu; if not, mu is a
            bound (the strategy's C^T D^-1 C has negative entries), or of Gaussian noise
            instead of a ring mechanism's, of which epsilon and delta are guarantees,
            and mu is none.
        short: Sums, among those learnt, with less unknown noise than planned; of
            segments, rounds with one.
        notes: What was short, missing or left out, in sentences.
    """

    cites = "account of differential privacy: choquette2023multi dong2022gaussian"

    mu: PerClient
    planned_mu: PerClient
    is_exact: bool
    short: int
    notes: tuple[str, ...]
    _sums: Sums = dataclasses.field(repr=False)
    _law: Law = dataclasses.field(repr=False)
    _composed: tuple[Composed, Composed] | None = dataclasses.field(
        default=None, repr=False
    )

    @property
    def planned(self) -> privacy.Distinguishability | Composed:
        """Planned privacy loss.

        Its `epsilon(delta)` and `delta(epsilon)` next to the realised.
        """
        return self._spent(self.planned_mu, 0)

    def _spent(
        self, mu: np.ndarray, place: int
    ) -> privacy.Distinguishability | Composed:
        if self._composed is not None:
            return self._composed[place]
        return privacy.Distinguishability(mu, 1.0, None)

    def epsilon(self, delta: Any) -> Floats:
        """Return the least epsilon with which delta is kept, of each client.

        Args:
            delta: A number or several, each in (0, 1): their shape comes before the
                clients.

        Raises:
            ConfigurationError: If one is not.
        """
        return self._spent(self.mu, 1).epsilon(delta)

    def delta(self, epsilon: Any) -> Floats:
        """Return delta at epsilon, of each client.

        Args:
            epsilon: A number or several, each from 0, finite.

        Raises:
            ConfigurationError: If one is not.
        """
        return self._spent(self.mu, 1).delta(epsilon)

    def mean_epsilon(self, delta: Any) -> float:
        """Return the mean of the clients' epsilons, colluding ones left out."""
        return float(np.nanmean(self.epsilon(delta)))

    @property
    def worst(self) -> int:
        """The client with the largest mu, the first of equals."""
        return int(np.nanargmax(self.mu))

    def trajectory(self, clients: Any = None) -> Float64[np.ndarray, "rounds clients"]:
        """Return mu after each round.

        Args:
            clients: Indices (of a log, names); all clients if None: 8 bytes for each
                entry, five times over while it is worked out.

        Returns:
            A row for each round, the last of which is `mu` of these clients.

        Raises:
            ConfigurationError: If there is no such client, or one is named twice.
        """
        rows = self._sums.rows
        some = np.arange(rows.shape[1])
        if clients is not None:
            some = self._sums.members(clients, "clients")
        path = self._law.after_each(rows[:, some].astype(np.float64))
        ends = np.searchsorted(
            self._sums.rounds, np.arange(self._sums.num_rounds), side="right"
        )
        path = np.concatenate([np.zeros((1, len(some))), path])[ends]
        path[:, np.isnan(self.mu[some])] = np.nan
        return path

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("clients", f"{len(self.mu)}"), ("rounds", f"{self._sums.num_rounds}")]
        for name, mu in (("mu", self.mu), ("planned", self.planned_mu)):
            some = mu[~np.isnan(mu)]
            rows.append(
                (name, f"largest {some.max():.4g}, median {np.median(some):.4g}")
            )
        return rows

    _repr_html_ = telling


@needs_values
def ledger(
    participation: Any,
    noise_multiplier: Any = None,
    clip: Any = None,
    strategy: Any = None,
    *,
    planned: Any = None,
    colluding: Any = (),
    mechanism: Any = None,
) -> Ledger:
    """Account for the privacy that each client has spent in the sums that it was in.

    The guarantee is Gaussian differential privacy for whether a client's contributions
    (each of length at most the clip) are in the sums or replaced by zeros, against one
    who knows all else. Who took part in what may be known. **It holds only if who takes
    part does not depend on what clients' data decide**: not on losses that they report,
    on their labels, nor on being lost because of what they compute. A history alone
    cannot show that; whoever calls answers for it. `account` and studies refuse schemes
    that look at data.

    Args:
        participation: Who is in which learnt sum: a matrix of bools or integer weights
            `[rounds, clients]`; a `selection.RoundHistory` or a
            `federated.TrainingResult`, of which every sum counts, parts of rounds too;
            a `hetero.SegmentHistory`, of whose sums the clip bounds what a client moves
            in one round all together; a `privacy.ParticipationLog`, or a table that
            `privacy.read_log` takes. A client of weight w moves a sum by up to w clip.
            In a sum are those who survived to V3; those lost before add no noise
            either, those lost after it have added theirs.
        noise_multiplier: Standard deviation of a sum's noise, in units of its clip; one
            for each round if they differ. None: what a log records for each sum.
        clip: Largest length of an update, or one for each round; None: a log's, or 1.
            Without a strategy mu does not depend on it.
        strategy: C `[rounds, rounds]`, lower triangular (`toeplitz`, or one of
            jax_privacy's): the sums have noise C^-1 z, as if C y + z had been released,
            z_r with the noise multiplier. Each row of the history is a step; in one
            without a sum z_r is drawn all the same, but by nobody where clients draw it
            (`planned`).
        planned: K, where clients add the noise: each survivor adds 1/K of the planned
            variance, so a sum of n of them has n/K of it. None: it is added once to
            each sum. A block of a segment is planned with the shares of those laid out
            in it.
        colluding: Clients who tell the server their noise, and their updates: indices,
            of a log names. Their share is no noise; their own entries are nan.
        mechanism: What `ring_mechanism` returned, instead of noise, clip and `planned`,
            for sums of clients without weights: its Renyi divergences at each sum's
            survivors add up. Of segments a `hetero.segment_average` with noise and a
            norm.

    Returns:
        The ledger. It refers to the history, and does not copy a matrix.

    Raises:
        ConfigurationError: If noise or clip is not positive and finite, a matrix holds
            fractions, a strategy has another size, an entry above its diagonal or a 0
            on it, a round of several sums comes with a strategy, a client does not
            exist, or all collude; if a mechanism comes with weights, or with what it
            has itself.

    Examples:
        >>> import mrsa_jax as mj
        >>> told = mj.dp.ledger([[1, 1, 0], [1, 0, 1], [1, 1, 1]], noise_multiplier=2.0)
        >>> (told.mu**2).round(12).tolist(), told.epsilon(1e-5).round(3).tolist()
        ([0.75, 0.5, 0.5], [3.709, 2.943, 2.943])
        >>> told.trajectory([0]).ravel().round(3).tolist(), told.worst
        ([0.5, 0.707, 0.866], 0)
        >>> mj.dp.ledger(
        ...     [[1, 1, 1, 0], [1, 1, 1, 1]], 2.0, planned=4
        ... )  # each adds a quarter of it
        Ledger(clients: 4; rounds: 2; mu: largest 0.7638, median 0.7638; planned:
        largest 0.7071, median 0.7071; 1 of 2 sums have less noise than planned, at
        the least 3 of 4 shares.)

    Segments: what counts of a round is, for each client, the fewest survivors of its
    blocks' sums. A client moves the blocks' sums by at most the clip in all; mu^2
    weighs the squares of what it moves by 1 / variance of each sum, so at most the
    clip's square by that of the sum with the least noise, which is reached
    (`_composed`).

    Edge cases: fewer survivors than planned are reported (`short`, `notes`) and counted
    as they are; more add more noise. A sum that is only of colluding clients has no
    noise: with a strategy it may give away older noise, and mu is infinite. Sums of a
    log with neither noise nor clip give infinite mu as well. With a strategy that has
    negative entries `trajectory` takes a product of matrices for each round.

    Memory: 8 bytes for each of the entries of some clients' columns, 128 MiB in all at
    most on a CPU, in addition to some matrices `[rounds, rounds]` with a strategy.
    Cost: a pass over the matrix; with a strategy one product of its Gram matrix, or
    band, with it.

    Source: Dong, Roth, Su, "Gaussian differential privacy" (2022), Corollary 2; with a
    strategy Choquette-Choo et al. (2023), see `_spending`.
    """
    sums = Sums.of(participation)
    if mechanism is not None:
        rule = "must not be set with a mechanism, which has its own"
        values = noise_multiplier, clip, strategy, planned
        names = "noise_multiplier", "clip", "strategy", "planned"
        for name, value in zip(names, values, strict=True):
            require(value is None, name, rule, value)
        return _of_mechanism(sums, mechanism, colluding)
    if strategy is not None:
        sums = sums.each_round()
    members = sums.members(colluding, "colluding", leaves_one=True)
    sums = sums.without(members)
    clips, deviations = _noise_of(sums, noise_multiplier, clip)
    shares = None if planned is None else check_integer(planned, "planned", 1)
    rule = "must not be set if a log records the noise of its sums"
    require(shares is None or noise_multiplier is not None, "planned", rule, planned)
    matrix = None if strategy is None else check_strategy(strategy, sums.num_rounds)

    def law(noise: np.ndarray, is_step: np.ndarray) -> Law:
        shifts = clips / sums.divisors
        if matrix is None:
            return Independent.of(shifts, noise)
        return Correlated.of(matrix, shifts, noise, is_step)

    counts = np.count_nonzero(sums.rows, axis=1)
    planned_noise = deviations
    sizes = sums.sizes
    if sizes is None:
        sizes = np.full(len(counts), float(shares or 1))
    elif shares is not None:
        planned_noise = deviations * np.sqrt(sizes / shares)
    plan = law(planned_noise, np.ones(len(counts), np.bool_))
    mu = _of(plan, sums, members)
    notes = _notes_of_log(deviations)
    if shares is None:
        notes += _notes_of_steps(matrix, counts, "noise was drawn all the same")
        notes += _notes_of_law(plan)
        return Ledger(mu, mu, plan.is_exact, 0, notes, sums, plan)
    added = sums.added(members)
    real = law(deviations * np.sqrt(added / shares), counts > 0)
    short, words = _notes_of_shares(sums, added, sizes)
    notes += words + _notes_of_steps(matrix, counts, "nobody drew noise in them")
    notes += _notes_of_law(real)
    return Ledger(_of(real, sums, members), mu, real.is_exact, short, notes, sums, real)


def _of_mechanism(sums: Sums, mechanism: Any, colluding: Any) -> Ledger:
    """Return the ledger of sums that a ring mechanism made."""
    if sums.segments is not None:
        mechanism = BlockMechanism.of(mechanism)
    else:
        rule = "must be what `dp.ring_mechanism` returns"
        require(isinstance(mechanism, RingMechanism), "mechanism", rule, mechanism)
    rows = sums.rows
    plain = rows.dtype == np.bool_ or bool(((rows == 0) | (rows == 1)).all())
    plain = plain and bool((sums.divisors == 1).all())
    require(plain, "participation", "must hold no weights with a ring mechanism")
    members = sums.members(colluding, "colluding", leaves_one=True)
    sums = sums.without(members)
    rows = sums.rows
    added = sums.added(members)
    shares = mechanism.num_clients
    sizes = np.full(len(rows), shares) if sums.sizes is None else sums.sizes
    # a client's noise over what it adds at most: a share of the sum's
    multiplier = np.sqrt(shares * mechanism.noise.variance) / mechanism.sensitivity
    clips = np.ones(len(rows))
    plan = Independent.of(clips, multiplier * np.sqrt(sizes / shares))
    real = Independent.of(clips, multiplier * np.sqrt(added / shares))
    short, words = _notes_of_shares(sums, added, sizes)
    text = (
        "mu is of Gaussian noise of the same variance, epsilon of the mechanism's own."
    )
    composed = (
        Composed.of(mechanism, rows, sizes, members),
        Composed.of(mechanism, rows, added, members),
    )
    mu, planned_mu = (_of(law, sums, members) for law in (real, plan))
    return Ledger(mu, planned_mu, False, short, (*words, text), sums, real, composed)


def _of(law: Law, sums: Sums, members: np.ndarray) -> np.ndarray:
    mu = of_clients(law, sums.rows)
    mu[members] = np.nan
    return mu


def _noise_of(sums: Sums, multiplier: Any, clip: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return each sum's clip and the deviation of its noise.

    0 where a log records none.
    """

    def recorded(name: str) -> np.ndarray:
        column = getattr(sums.log, name, None)
        if column is None:
            return np.zeros(len(sums.rows))
        return np.nan_to_num(np.array(column, np.float64))

    lengths = recorded("clip")
    deviations = recorded("noise")
    clips = np.where(lengths > 0, lengths, 1.0)
    if clip is not None:
        clips = sums.numbers(clip, "clip")
    if multiplier is not None:
        return clips, sums.numbers(multiplier, "noise_multiplier") * clips
    if clip is None:
        deviations = np.where(lengths > 0, deviations, 0.0)
    rule = "must be given: no log records noise and a clip"
    require(bool(deviations.any()), "noise_multiplier", rule)
    return clips, deviations


def _notes_of_log(deviations: np.ndarray) -> tuple[str, ...]:
    bare = int((deviations == 0).sum())
    text = (
        f"{bare} of {len(deviations)} sums have no noise, or no clip, "
        "that the log records."
    )
    return (text,) if bare else ()


def _notes_of_steps(matrix: Any, counts: np.ndarray, words: str) -> tuple[str, ...]:
    empty = int((counts == 0).sum())
    text = (
        f"{empty} of {len(counts)} rounds have no sum and are steps of the strategy: "
        f"{words}."
    )
    return (text,) if empty and matrix is not None else ()


def _notes_of_law(law: Law) -> tuple[str, ...]:
    text = "mu is an upper bound: the strategy's C^T D^-1 C has negative entries."
    return () if law.is_exact else (text,)


def _notes_of_shares(
    sums: Sums, added: np.ndarray, sizes: np.ndarray
) -> tuple[int, tuple[str, ...]]:
    """Count the sums with less noise than planned, and describe them."""
    is_learnt = sums.rows.any(axis=1)
    added = added[is_learnt]
    sizes = sizes[is_learnt]
    rounds = sums.rounds[is_learnt]
    is_short = added < sizes
    if not is_short.any():
        return 0, ()
    short = int(is_short.sum())
    count = len(added)
    what = "sums have"
    if sums.segments is not None:
        short = len(np.unique(rounds[is_short]))
        count = len(np.unique(rounds))
        what = "rounds have a block with"
    least = int(np.argmin(added / sizes))
    text = (
        f"{short} of {count} {what} less noise than planned, at the least "
        f"{added[least]} of {sizes[least]:.0f} shares."
    )
    return short, (text,)
