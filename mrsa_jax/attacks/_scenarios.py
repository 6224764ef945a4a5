"""Scenes of attacks: rounds with their sums and updates, and uploads on a line.

What these functions return holds the truth as well as what is seen; an attack gets the
view alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Key

from mrsa_jax import graphs, secagg
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.slots import padded_slots
from mrsa_jax._core.status import FEWEST_IN_A_SUM, Status
from mrsa_jax._core.streams import Stream, as_key, fold, round_key
from mrsa_jax._core.traced import needs_values
from mrsa_jax.attacks._view import check_not_negative
from mrsa_jax.attacks.views import AggregateView, WireView
from mrsa_jax.data import ClientData
from mrsa_jax.federated import LocalTrainer, RateSchedule, client_updates
from mrsa_jax.quantize import LatticeQuantizer, StochasticQuantizer
from mrsa_watch._base.errors import check_integer, require, require_methods
from mrsa_watch._base.html import finding


@finding
class SummedRounds:
    """Rounds of secure aggregation that a server has kept the sums of.

    Attributes:
        view: What the server knows: one row for each sum that it learnt.
        rounds: int [J'], the round of each row.
        sent: float64 [N, d], the mean of what each client sent in these rounds, as the
            aggregator's quantizer clips it; zeros for those who sent nothing (for
            scores only).
        last: float64 [N, d], what each client sent last; zeros for those who sent
            nothing.
        change: float64 [N], how much a client's updates differ from that mean: the mean
            squared distance relative to the mean's squared length; nan for those who
            sent nothing.
        parameters: f32 [d], the model after the last round.
        sum_noise: Root mean square of the entries of the sums less what was sent: the
            standard deviation of noise and rounding together, which a server knows from
            the quantizer and from the noise's law.
    """

    view: AggregateView
    rounds: np.ndarray
    sent: np.ndarray
    last: np.ndarray
    change: np.ndarray
    parameters: np.ndarray
    sum_noise: float


@needs_values
def summed_rounds(
    seed: int | Key[Array, ""],
    model: Any,
    parameters: Float32[Array, " dim"] | np.ndarray,
    client_data: ClientData,
    participation: Bool[np.ndarray, "rounds clients"],
    *,
    trainer: LocalTrainer,
    aggregator: secagg.RingAverage,
    is_frozen: bool = False,
    warm_up: int = 0,
    server_rate: float = 1.0,
    rate_schedule: RateSchedule | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SummedRounds:
    """Train over a participation history by averaging, and keep the sums and updates.

    The rounds are those of `federated.train` with the same seed, bit for bit, where
    nobody is lost within a round; this also returns the individual updates, which no
    server sees.

    Args:
        seed: JAX key or seed.
        model: Flax module.
        parameters: f32 [d], the first global model.
        client_data: All clients' samples.
        participation: bool [J, N], who is in each round's sum; zero rows are skipped.
        trainer: Local training.
        aggregator: Secure aggregation, without a rule or weights.
        is_frozen: Whether the model never moves and every client sends the same update
            in all rounds, the worst case; rounding stays fresh.
        warm_up: Rounds at the start whose sums are trained on and not kept.
        server_rate: What of the mean update the server adds; 1 is plain averaging, and
            with less the model moves less while the updates keep their size.
        rate_schedule: Factor on the learning rate by round, as for
            `federated.Training`; such as `federated.decay_at` gives.
        progress: Called with (rounds done, rounds with a sum).

    Returns:
        The sums, float64 [J', d], of the rounds from `warm_up` on that have one.

    Raises:
        ConfigurationError: If the history does not fit the data, no round is left, or
            the server's rate is negative or not finite.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> clients = mj.data.iid(0, mj.data.load("digits"), 4)
        >>> model = mj.federated.logistic(10)
        >>> history = np.array([[True, True, False, False], [False] * 4])
        >>> start = mj.federated.initial_parameters(0, model, (8, 8, 1))
        >>> quantizer = mj.quantize.stochastic(2**16, 1.0)
        >>> kept = mj.attacks.summed_rounds(
        ...     0, model, start, clients, history,
        ...     trainer=mj.federated.local_sgd(model, 0.1, batch_size=360),
        ...     aggregator=mj.secagg.ring_average(quantizer, 2, 650))
        >>> wrong = kept.view.aggregates[0] - kept.sent.sum(axis=0)
        >>> kept.rounds.tolist(), bool(np.abs(wrong).max() < 2**-14)
        ([0], True)
    """
    key, history = as_key(seed), np.asarray(participation)
    num_clients = client_data.num_clients
    is_matrix = history.ndim == 2 and history.shape[1] == num_clients
    require(
        is_matrix and history.dtype == np.bool_,
        "participation",
        f"must be bool [rounds, {num_clients}]",
        f"{history.dtype} {history.shape}",
    )
    check_integer(warm_up, "warm_up", 0)
    check_not_negative(server_rate=server_rate)
    rows = np.flatnonzero(history.any(axis=1))
    require(
        bool((rows >= warm_up).any()),
        "warm_up",
        "must leave a round with a sum",
        warm_up,
        f"{len(history)} rounds",
    )
    flat = on_device(parameters, jnp.float32)
    # what the schedule is asked for is checked before any work
    trainers: dict[int, LocalTrainer] = {}
    if rate_schedule is not None:
        require_methods(trainer, "trainer", "scaled")
        at_rate: Any = trainer
        factors = {int(row): rate_schedule(int(row)) for row in rows}
        by_factor = {value: at_rate.scaled(value) for value in {*factors.values()}}
        trainers = {row: by_factor[value] for row, value in factors.items()}
    everyone = None
    if is_frozen:
        # a frozen model is the model of the last round, and so is its learning rate
        last = trainers.get(int(rows[-1]), trainer)
        everyone = client_updates(key, model, flat, client_data, last)
    # one program for all rounds: cohorts are padded to the aggregator's slots
    state, width = aggregator.init(), int(aggregator.num_participants)
    largest = int(history.sum(axis=1).max())
    require(
        largest <= width,
        "aggregator",
        "must have a participant for each member of the largest cohort",
        width,
        largest,
    )
    record = _Record(num_clients, len(flat))
    for done, row in enumerate(rows):
        members, present = padded_slots(history[row], width)
        if everyone is not None:
            updates = everyone[members]
        else:
            updates = client_updates(
                key,
                model,
                flat,
                client_data,
                trainers.get(int(row), trainer),
                members,
                round_index=int(row),
            )
        # empty slots of the aggregator send zeros
        updates = jnp.where(on_device(present)[:, None], updates, jnp.float32(0))
        noise = round_key(key, int(row), Stream.QUANTIZATION)
        who = on_device(members), on_device(present)
        out, state = aggregator.aggregate(noise, state, updates, *who)
        if int(out.status) == Status.OK:
            if not is_frozen:
                flat = flat + jnp.float32(server_rate) * out.update
            if row >= warm_up:
                sent = _clipped(aggregator.quantizer, updates[: present.sum()])
                record.add(int(row), members[present], sent, out)
        if progress is not None:
            progress(done + 1, len(rows))
    return record.result(history, np.asarray(flat))


def _clipped(quantizer: Any, updates: Any) -> np.ndarray:
    """Return updates as a quantizer clips them; one of a user's clips nothing."""
    values = np.asarray(updates, np.float64)
    if isinstance(quantizer, LatticeQuantizer):
        norm = float(quantizer.clip_norm)
        lengths = np.linalg.norm(values, axis=1, keepdims=True)
        return values * (norm / np.maximum(lengths, norm))
    if isinstance(quantizer, StochasticQuantizer):
        return np.clip(values, float(quantizer.lower), float(quantizer.upper))
    return values


class _Record:
    """Sums of rounds so far, and first and second moments of what each client sent."""

    def __init__(self, num_clients: int, dim: int) -> None:
        self.rounds: list[int] = []
        self.sums: list[np.ndarray] = []
        self.total = np.zeros((num_clients, dim))
        self.last = np.zeros((num_clients, dim))
        self.squares = np.zeros(num_clients)
        self.counts = np.zeros(num_clients)
        self.noise = 0.0

    def add(self, row: int, members: np.ndarray, sent: np.ndarray, out: Any) -> None:
        self.rounds.append(row)
        self.sums.append(np.asarray(out.update, np.float64) * float(out.total_weight))
        # of all entries of a sum
        self.noise += float(np.square(self.sums[-1] - sent.sum(axis=0)).mean())
        self.total[members] += sent
        self.last[members] = sent
        self.squares[members] += np.square(sent).sum(axis=1)
        self.counts[members] += 1

    def result(self, history: np.ndarray, parameters: np.ndarray) -> SummedRounds:
        # clients who sent nothing keep a mean of zero
        count = np.maximum(self.counts, 1)
        sent = self.total / count[:, None]
        size = np.square(sent).sum(axis=1)
        spread = np.maximum(self.squares / count - size, 0.0)
        change = np.full(len(size), np.nan)
        np.divide(spread, size, out=change, where=size > 0)
        view = AggregateView(history[self.rounds], np.stack(self.sums))
        rounds = np.asarray(self.rounds)
        noise = float(np.sqrt(self.noise / len(rounds)))
        return SummedRounds(view, rounds, sent, self.last, change, parameters, noise)


@finding
class WireRound:
    """One round as its lines carry it.

    Attributes:
        plain: Uploads without pads.
        padded: The same uploads under pads.
        mean: f32 [d], the mean that the server learns from the padded ones.
        status: Of the round.
    """

    plain: WireView
    padded: WireView
    mean: np.ndarray
    status: Status


@needs_values
def wire_round(
    seed: int | Key[Array, ""],
    values: Float32[Array, "clients dim"] | np.ndarray,
    quantizer: StochasticQuantizer,
    *,
    modulus_bits: int = 32,
    connection_probability: float = 1.0,
) -> WireRound:
    """Send each client's vector through one round, and return the lines' contents.

    Args:
        seed: JAX key or seed, of rounding, pads and graph.
        values: f32 [n, d], n at least 2: updates or models.
        quantizer: How they become codes.
        modulus_bits: Of the ring.
        connection_probability: p of CCESA's graph of who shares pads; 1 is SecAgg.

    Returns:
        The round.

    Raises:
        ConfigurationError: If fewer than two clients send, or the sum exceeds the ring.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> values = np.full((3, 4), 0.5, np.float32)
        >>> quantizer = mj.quantize.stochastic(5, 1.0)
        >>> seen = mj.attacks.wire_round(0, values, quantizer, modulus_bits=8)
        >>> seen.mean.tolist(), seen.plain.uploads[0].tolist()
        ([0.5, 0.5, 0.5, 0.5], [3, 3, 3, 3])
    """
    key = as_key(seed)
    vectors = on_device(values, jnp.float32)
    require(
        vectors.ndim == 2 and len(vectors) >= FEWEST_IN_A_SUM,
        "values",
        "must be vectors of two clients at least",
        vectors.shape,
    )
    count = len(vectors)
    bits = check_integer(modulus_bits, "modulus_bits", 1, 32)
    require(
        count * (int(quantizer.num_levels) - 1) < 2**bits,
        "modulus_bits",
        "must leave room for the largest sum",
        bits,
        count,
    )
    keys = jax.random.split(fold(key, int(Stream.QUANTIZATION)), count)
    # rounding is drawn anew by each client
    codes = jax.vmap(quantizer.encode)(keys, vectors)
    graph_key, pad_key = jax.random.split(fold(key, int(Stream.ASSIGNMENT)))
    model = graphs.erdos_renyi(count, connection_probability)
    threshold = count // 2 + 1
    if connection_probability != 1:
        threshold = secagg.share_threshold(count, connection_probability)
    result = secagg.aggregate(
        pad_key,
        np.asarray(codes),
        np.asarray(model.sample(graph_key)),
        np.ones((5, count), np.bool_),
        threshold,
        bits,
    )
    mean = quantizer.decode(on_device(result.total), count) / jnp.float32(count)
    return WireRound(
        WireView(np.asarray(codes), 2**bits, quantizer),
        WireView(np.asarray(result.transcript.padded_inputs), 2**bits, quantizer),
        np.asarray(mean),
        Status(int(result.status)),
    )
