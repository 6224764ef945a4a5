"""Attack the sums of a history whose models are frozen.

It is the worst case of Multi-RoundSecAgg's Fig 9: every client trains once from the
given model, and sends that update in every round in which it takes part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from mrsa_jax import attacks, federated, hetero, quantize
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.round_rules import with_weights
from mrsa_jax._core.slots import padded_slots
from mrsa_jax._core.status import Status
from mrsa_jax._core.streams import Stream, as_key, fold, round_key
from mrsa_jax.study.runs._segments import SegmentStudy
from mrsa_jax.study.settings._config import AggregationConfig

Advance = Callable[[int, int], None]


class Frozen(NamedTuple):
    """A training that is over, as its attacker takes it.

    Attributes:
        seed: Seed of local training and rounding.
        training: Its model, data, trainer and weights.
        parameters: float32[d], the frozen model.
    """

    seed: int
    training: federated.Training
    parameters: np.ndarray

    @property
    def key(self) -> Key[Array, ""]:
        """Key of the attack's draws."""
        return fold(as_key(self.seed), int(Stream.ATTACK))

    def updates(self, clients: np.ndarray, mesh: Any = None) -> np.ndarray:
        """Return the updates of some clients, float32[clients, d]."""
        training = self.training
        trainer: Any = training.trainer  # without state: that of a demo
        updates = federated.client_updates(
            self.key,
            training.model,
            self.parameters,
            training.client_data,
            trainer,
            clients,
            mesh=mesh,
        )
        return np.asarray(updates)


def attack_whole(
    frozen: Frozen,
    participation: np.ndarray,
    aggregator: Any,
    progress: Advance,
    *,
    rounds: np.ndarray | None = None,
    mesh: Any = None,
) -> np.ndarray:
    """Solve for the updates from sums of whole updates, by least squares.

    Each round's sum goes through the aggregator (fresh stochastic rounding each time),
    and the server solves P X = sums, where P holds the weights of the sums.

    Args:
        frozen: The training.
        participation: bool[J, N], or a row for each sum that was learnt.
        aggregator: As in training, but without a rule, as only learnt sums are asked of
            it; the ring sums may be of fidelity `sets`, bit-equal to `array`.
        progress: Called with (rounds done, rounds to do).
        rounds: int[J], the round of each row if it is not the row's index: a client's
            rounding is the same in all sums of a round.
        mesh: As in training.

    Returns:
        float64[N], relative squared error of each client's reconstructed update (eq.
        (35)); nan for clients whose true update is zero.

    Source: Multi-RoundSecAgg (AAAI version), Appendix H.2, eq. (33) to (35).
    """
    weights: Any = frozen.training.weights
    clients = participation.shape[1]
    rows = np.flatnonzero(participation.any(axis=1))
    largest = int(participation.sum(axis=1).max(initial=1))
    width = int(getattr(aggregator, "num_participants", largest))
    # one cohort at a time, by the program that has trained the rounds; the last cohort
    # is filled up with the first clients
    # rounded up by negating twice, without floats
    cohorts = np.arange(-(-clients // width) * width).reshape(-1, width) % clients
    parts = [frozen.updates(cohort, mesh) for cohort in cohorts]
    # without the repeated clients of the last cohort
    updates = np.concatenate(parts)[:clients]
    state = aggregator.init()
    sums = []
    learnt = []
    for done, row in enumerate(rows, 1):
        members, present = padded_slots(participation[row], width)
        index = int(row if rounds is None else rounds[row])
        # the round's key, so a client rounds alike in all sums of a round
        noise = round_key(frozen.key, index, Stream.QUANTIZATION)
        if present.sum() == 1:
            # a client apart from the others in its round's graph: its input is the sum
            member = int(members[0])
            codes = aggregator.quantizer.encode(
                fold(noise, member), jax.device_put(updates[member])
            )
            weight = 1.0 if weights is None else float(weights[member])
            total = aggregator.quantizer.decode(codes, 1)
            learnt.append(row)
            sums.append(np.asarray(total, np.float64) * weight)
            continue
        extras: dict[str, Any] = {}
        if weights is not None:
            extras["weights"] = np.where(present, weights[members], 0)
        out, state = aggregator.aggregate(
            noise,
            state,
            jax.device_put(updates[members]),
            on_device(members),
            on_device(present),
            **extras,
        )
        if int(out.status) == Status.OK:
            learnt.append(row)
            # the mean times the weight is the sum, for which P has the weights
            sums.append(np.asarray(out.update, np.float64) * float(out.total_weight))
        progress(done, len(rows))
    if not sums:
        return np.full(clients, np.nan)
    P = with_weights(participation[learnt], weights)
    estimates = attacks.least_squares(P, np.stack(sums))
    return np.asarray(attacks.reconstruction_error(updates, np.asarray(estimates)))


def attack_segments(
    frozen: Frozen,
    study: SegmentStudy,
    cohorts: np.ndarray,
    history: hetero.SegmentHistory,
    aggregation: AggregationConfig,
    progress: Advance,
) -> np.ndarray:
    """Solve for the updates from sums of segments, as `attack_whole` from whole ones.

    Each segment has a separate least squares, over its sums of unequally quantized
    updates.

    Args:
        frozen: The training.
        study: The scheme's groups and segments.
        cohorts: bool[J, N], the clients that the server asked.
        history: The learnt sums by segment.
        aggregation: Settings of the sums.
        progress: Called with (rounds done, rounds to do).

    Returns:
        float64[N], relative squared error of each client's update over all segments;
        nan for clients whose true update is zero.
    """
    layout, clip = study.layout, aggregation.clip
    noise = study.noise(aggregation)
    truth = frozen.updates(np.arange(cohorts.shape[1])).astype(np.float32, copy=False)
    sent: np.ndarray = truth
    if aggregation.clip_norm is not None:
        # clients shorten what they send, but are judged by their whole update
        norm = jnp.float32(aggregation.clip_norm)
        sent = np.stack([quantize.shortened(on_device(row), norm) for row in truth])
    sums = [
        np.zeros((len(rows), stop - start), np.float32)
        for rows, (start, stop) in zip(
            history.participation, history.bounds, strict=True
        )
    ]
    rounds = np.unique(np.concatenate(history.rounds)).tolist()
    for done, index in enumerate(rounds, 1):
        members = study.members(cohorts[index])
        key = round_key(frozen.key, index, Stream.QUANTIZATION)
        encoded, *_ = hetero.encode(
            key, sent[members], layout, (-clip, clip), members, noise
        )
        codes = np.asarray(encoded)
        slot_of = np.full(cohorts.shape[1], -1)
        slot_of[members] = np.arange(len(members))
        for segment, (start, stop) in enumerate(history.bounds):
            for place in np.flatnonzero(history.rounds[segment] == index):
                clients = np.flatnonzero(history.participation[segment][place])
                block = layout.blocks[int(history.blocks[segment][place])]
                # int64: the type of single codes may not hold their sum
                total = codes[slot_of[clients], start:stop].sum(axis=0, dtype=np.int64)
                if noise is not None:
                    # the representative of the residue that is nearest to the middle
                    # of the codes' range, as the server takes it
                    middle = len(clients) * (block.num_levels - 1) // 2
                    low = middle - block.modulus // 2
                    total = (total - low) % block.modulus + low
                step = 2 * clip / (block.num_levels - 1)
                # code c of a client stands for c * step - clip
                sums[segment][place] = total * step - clip * len(clients)
        progress(done, len(rounds))
    estimates = np.zeros(truth.shape, np.float64)
    for (start, stop), rows, totals in zip(
        history.bounds, history.participation, sums, strict=True
    ):
        if len(rows):
            estimates[:, start:stop] = np.asarray(attacks.least_squares(rows, totals))
    return np.asarray(attacks.reconstruction_error(truth, estimates))
