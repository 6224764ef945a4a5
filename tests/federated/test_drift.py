"""Spread and memory of updates.

Misuse, processes whose figures are known, and trainings.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.federated import measure_drift
from mrsa_jax.federated._drift import Sketch
from mrsa_jax.federated._models import layers_of

_UPDATES = np.zeros((2, 3, 4))
_MEMBERS = [[0, 1, 2], [0, 1, 3]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"updates": np.zeros((2, 3))},
            r"`updates` must be numbers \[rounds, slots",
        ),
        ({"updates": np.zeros((2, 3, 0))}, r"`updates` must be numbers"),
        ({"updates": np.full((2, 3, 4), np.nan)}, r"`updates` must be finite"),
        ({"updates": "text"}, r"`updates` must be numbers"),
        ({"members": [[0, 1, 2]]}, r"`members` must be integers \[2, 3\]"),
        ({"members": [[0.0, 1, 2], [0, 1, 3]]}, r"`members` must be integers"),
        (
            {"members": [[0, 1, 0], [0, 1, 3]]},
            r"`members` must name a client once in a round",
        ),
        ({"rounds": [0]}, r"`rounds` must be 2 integers"),
        ({"rounds": [1, 1]}, r"`rounds` must ascend"),
        (
            {"layers": {"a": 3}},
            r"`layers` must hold positive counts that add up to 4 coord",
        ),
        ({"layers": {"a": 4, "b": 0}}, r"`layers` must hold positive counts"),
        ({"layers": 4}, r"`layers` must be a mapping from names to counts"),
        ({"layers": {"a": 2.5, "b": 1.5}}, r"`layers` must hold positive counts"),
    ],
)
def test_rejects_what_makes_no_sense(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        measure_drift(**({"updates": _UPDATES, "members": _MEMBERS} | arguments))


# ---- what is defined, by plain loops


def _by_loops(
    updates: np.ndarray, members: np.ndarray, rounds: np.ndarray
) -> dict[int, float]:
    """Return the correlogram as `measure_drift` defines it, pair by pair."""
    cohorts = [
        {int(c): row for c, row in zip(who, own, strict=True) if c >= 0}
        for who, own in zip(members, updates, strict=True)
    ]
    means = [np.mean(list(cohort.values()), axis=0) for cohort in cohorts]
    parts = [
        {c: row - mean for c, row in cohort.items()}
        for cohort, mean in zip(cohorts, means, strict=True)
    ]
    spreads = [
        math.sqrt(sum(np.mean(own**2) for own in part.values()) / (len(part) - 1))
        for part in parts
    ]
    sums: dict[int, list[float]] = {}
    for a in range(len(parts)):
        for b in range(a + 1, len(parts)):
            one, other = set(parts[a]), set(parts[b])
            factor = 1 - 1 / len(one) - 1 / len(other)
            factor += len(one & other) / len(one) / len(other)
            for client in one & other:
                product = (
                    np.mean(parts[a][client] * parts[b][client])
                    / spreads[a]
                    / spreads[b]
                )
                total = sums.setdefault(int(rounds[b] - rounds[a]), [0.0, 0.0])
                total[0] += product
                total[1] += factor
    return {lag: top / bottom for lag, (top, bottom) in sums.items()}


def test_correlogram_is_what_it_is_said_to_be() -> None:
    generator = np.random.default_rng(0)
    members = np.stack([generator.permutation(7)[:5] for _ in range(6)])
    members[2, 3:] = -1  # a smaller cohort
    rounds = np.array([0, 1, 3, 4, 9, 11])
    updates = generator.normal(size=(6, 5, 8)) * np.arange(1, 7)[:, None, None]
    updates[2, 3:] = 1e6  # nobody's
    drift = measure_drift(updates, members, rounds=rounds)
    right = _by_loops(updates, members, rounds)
    assert dict(
        zip(drift.lags.tolist(), drift.correlation, strict=True)
    ) == pytest.approx(right)
    assert drift.rounds.tolist() == rounds.tolist()
    assert drift.layer_correlation[0] == pytest.approx(drift.correlation)
    first = updates[0] - updates[0].mean(axis=0)
    assert drift.round_spread[0] == pytest.approx(math.sqrt((first**2).sum() / 4 / 8))
    assert drift.num_coordinates == 8


@pytest.mark.smoke
def test_layers_by_hand_and_by_their_sizes() -> None:
    """A layer of three parameters of which one is known, and one of one.

    Weights 3 to 1.
    """
    updates = np.array([[[1.0, 4.0], [-1.0, -4.0]], [[1.0, -4.0], [-1.0, 4.0]]])
    members = np.array([[0, 1], [0, 1]])
    drift = measure_drift(updates, members, layers={"a": 1, "b": 1})
    assert drift.layers == ("a", "b")
    assert drift.layer_spread == pytest.approx([math.sqrt(2), math.sqrt(32)])
    assert drift.layer_correlation == pytest.approx(np.array([[1.0], [-1.0]]))
    assert drift.layer_memory == pytest.approx([0.999999, 0.0])
    assert drift.layer_lasting == pytest.approx([1.0, 0.0])
    assert drift.spread == pytest.approx(math.sqrt(17))
    assert drift.correlation == pytest.approx([(2 - 32) / 34])
    sketch = Sketch(_key(), {"a": range(3), "b": range(3, 4)}, (2, 2))
    assert sketch.coordinates.tolist() == [0, 1, 2, 3]
    sketch.values[:, :, :3], sketch.values[:, :, 3] = (
        updates[:, :, :1],
        updates[:, :, 1],
    )
    whole = sketch.drift(members, np.array([0, 1]))
    assert whole.spread == pytest.approx(math.sqrt((3 * 2 + 32) / 4))
    assert whole.correlation == pytest.approx([(3 * 2 - 32) / (3 * 2 + 32)])


def _key() -> Any:
    import jax

    return jax.random.key(0)


def test_nothing_is_said_of_what_never_came() -> None:
    once = measure_drift(np.ones((2, 2, 3)), [[0, 1], [2, 3]])
    assert math.isnan(once.memory)
    assert once.lags.size == once.pairs.size == once.correlation.size == 0
    assert once.spread == 0
    assert math.isnan(once.lasting)
    with pytest.raises(mj.ConfigurationError, match="`drift` must have a memory"):
        once.kernel([0, 1])
    with pytest.raises(
        mj.ConfigurationError, match="`rounds` must be a list of integers"
    ):
        once.kernel(0.5)
    alone = measure_drift(np.ones((3, 1, 3)), [[0], [0], [1]])
    assert math.isnan(alone.spread)
    assert math.isnan(alone.memory)
    assert np.isnan(alone.round_spread).all()
    nobody = measure_drift(np.ones((1, 2, 3)), [[-1, -1]])
    assert math.isnan(nobody.spread)


def _process(
    seed: int, rho: float, clients: int, rounds: int, coordinates: int
) -> tuple[np.ndarray, np.random.Generator]:
    generator = np.random.default_rng(seed)
    fresh = generator.normal(size=(rounds, clients, coordinates))
    own = [fresh[0]]
    for row in fresh[1:]:
        own.append(rho * own[-1] + math.sqrt(1 - rho**2) * row)
    return np.stack(own), generator


@pytest.mark.parametrize("rho", [0.0, 0.4, 0.9, 0.99])
@pytest.mark.parametrize("cohort", [2, 6, 20])
def test_a_known_process_is_found_again(rho: float, cohort: int) -> None:
    """Intervals from eight processes.

    The mean within 5 of its standard errors, and a hair.
    """
    found = []
    for seed in range(8):
        own, generator = _process(seed, rho, 20, 80, 60)
        members = np.stack([generator.permutation(20)[:cohort] for _ in range(80)])
        # what all clients' updates share
        shared = generator.normal(size=(80, 1, 60)) * 3
        updates = np.take_along_axis(own, members[:, :, None], axis=1) * 0.2 + shared
        drift = measure_drift(updates, members)
        found.append((drift.spread, *drift.kernel([0, 1, 3])[0, 1:]))
        assert rho < 0.9 or drift.memory == pytest.approx(rho, abs=0.05)
        assert rho < 0.9 or drift.lasting > 0.8
    means, errors = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / math.sqrt(8)
    # a spread within a round of 60 x 1 degrees of freedom is a little biased as a
    # divisor
    assert (
        np.abs(means - [0.2, rho, rho**3]) < 5 * errors + [0.002, 0.012, 0.012]
    ).all()


def test_a_fresh_part_is_told_from_the_one_that_lasts() -> None:
    lasting, generator = _process(0, 0.95, 20, 80, 60)
    members = np.stack([generator.permutation(20)[:8] for _ in range(80)])
    own = math.sqrt(0.3) * lasting + math.sqrt(0.7) * generator.normal(
        size=lasting.shape
    )
    drift = measure_drift(np.take_along_axis(own, members[:, :, None], axis=1), members)
    assert drift.spread == pytest.approx(1, abs=0.02)
    assert drift.memory == pytest.approx(0.95, abs=0.015)
    assert drift.lasting == pytest.approx(0.3, abs=0.04)
    kernel = drift.kernel([0, 4, 4, 5])
    assert (np.diagonal(kernel) == 1).all()
    assert kernel[1, 2] == 1
    assert kernel[0, 3] == pytest.approx(drift.lasting * drift.memory**5)
    assert np.linalg.eigvalsh(kernel).min() > -1e-12


def test_a_spread_that_falls_does_not_change_memory() -> None:
    own, generator = _process(0, 0.8, 20, 80, 60)
    members = np.stack([generator.permutation(20)[:8] for _ in range(80)])
    updates = np.take_along_axis(own, members[:, :, None], axis=1)
    falling = updates * 0.95 ** np.arange(80)[:, None, None]
    one, other = measure_drift(updates, members), measure_drift(falling, members)
    assert other.memory == pytest.approx(one.memory, abs=1e-9)
    assert other.round_spread[-1] < 0.1 * other.round_spread[0]


# ---- of trainings

_MODEL = mj.federated.mlp(10, hidden_sizes=(5,))
_FIELDS = ("parameters", "accuracy", "loss", "status", "participation", "components")


@functools.cache
def _data() -> tuple[mj.data.Dataset, mj.data.ClientData]:
    dataset = mj.data.load("digits", seed=0)
    small = dataclasses.replace(
        dataset,
        train_inputs=dataset.train_inputs[:60],
        train_labels=dataset.train_labels[:60],
    )
    return small, mj.data.dirichlet_by_class(0, small, 6, concentration=2.0)


def _train(
    seed: Any = 0, trainer: Any = None, measure_drift: bool = False, **more: Any
) -> Any:
    small, clients = _data()
    history = np.random.default_rng(1).permuted(
        np.tile(np.arange(6) < 3, (8, 1)), axis=1
    )
    history[[2, 5]] = False
    dim = mj.federated.num_parameters(_MODEL, (8, 8, 1))
    run: Any = mj.federated.train_many if isinstance(seed, list) else mj.federated.train
    training = mj.federated.Training(
        _MODEL,
        clients,
        history,
        mj.federated.local_sgd(_MODEL, 0.3, batch_size=8)
        if trainer is None
        else trainer,
        mj.secagg.ring_average(mj.quantize.stochastic(2**16, 0.5), 3, dim),
        test=(small.test_inputs[:50], small.test_labels[:50]),
        evaluate_every=3,
        measure_drift=measure_drift,
    )
    return run(seed, training, **more)


def _assert_same(one: Any, other: Any) -> None:
    for name in (*_FIELDS, "evaluated_rounds"):
        np.testing.assert_array_equal(
            getattr(one, name), getattr(other, name), err_msg=name
        )


def _assert_same_drift(one: Any, other: Any, **close: float) -> None:
    for field in dataclasses.fields(one):
        theirs, ours = getattr(one, field.name), getattr(other, field.name)
        if field.name == "layers" or theirs is None:
            assert theirs == ours
        else:
            np.testing.assert_allclose(
                theirs, ours, rtol=close.get("rtol", 0), err_msg=field.name
            )


@pytest.mark.long
@pytest.mark.parametrize("form", ["loops", "xla"])
def test_measuring_changes_no_bit_of_a_training(
    form: str, tmp_path: pathlib.Path
) -> None:
    with mj.use_form(form):
        plain, measured = _train(), _train(measure_drift=True)
        assert plain.drift is None
        _assert_same(plain, measured)
        drift = measured.drift
        assert drift.rounds.tolist() == [0, 1, 3, 4, 6, 7]
        assert drift.layers == ("Dense_0", "Dense_1")
        assert drift.num_coordinates == 60 + 64
        if form == "loops":
            return
        folder = mj.federated.checkpoints(tmp_path, every=2)

        def stop(done: int, total: int) -> None:
            if done == 4:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            _train(measure_drift=True, checkpoints=folder, progress=stop)
        resumed = _train(measure_drift=True, checkpoints=folder)
        _assert_same(resumed, measured)
        _assert_same_drift(resumed.drift, drift)
        with pytest.raises(mj.ConfigurationError, match="measure_drift differs"):
            _train(checkpoints=folder)


@pytest.mark.long
def test_what_is_kept_are_the_updates_of_those_who_sent() -> None:
    """Every parameter of a small model is kept, so the first round is that of `client_updates`."""
    _, clients = _data()
    model = mj.federated.logistic(10)
    assert layers_of(model, (8, 8, 1)) == {"Dense_0": range(650)}
    tiny = dataclasses.replace(clients, inputs=clients.inputs[:, :2, :3])
    own = mj.federated.local_sgd(model, 0.3, batch_size=8)
    alive = np.zeros((1, 5, 6), bool)
    alive[:, :, :5] = True
    alive[:, 3:, 2] = False  # lost before its update arrives
    average = mj.secagg.ring_average(
        mj.quantize.stochastic(2**16, 0.5),
        5,
        70,
        rule=mj.secagg.graph_rule(mj.graphs.complete(5), 6, threshold=2),
        fidelity="sets",
    )
    training = mj.federated.Training(
        model, tiny, alive[:, 0], own, average, survivors=alive, measure_drift=True
    )
    result = mj.federated.train(0, training)
    start = mj.federated.initial_parameters(0, model, (2, 3, 1))
    sent = np.asarray(
        mj.federated.client_updates(0, model, start, tiny, own, [0, 1, 3, 4])
    )
    right = np.sqrt(np.var(sent, axis=0, ddof=1)[_kept(0, 70)].mean())
    assert result.drift.spread == pytest.approx(right, rel=1e-5)
    assert result.drift.num_coordinates == 64


def _kept(seed: int, dim: int) -> np.ndarray:
    from mrsa_jax._core.streams import as_key

    return Sketch(as_key(seed), {"all": range(dim)}, (1, 5)).coordinates


@pytest.mark.long
def test_many_measure_each_its_own() -> None:
    alone = [_train(seed, measure_drift=True).drift for seed in (0, 1)]
    for form, beside in (("loops", 2), ("xla", 2)):
        with mj.use_form(form):
            many = _train([0, 1], measure_drift=True, side_by_side=beside)
        for one, other in zip(many, alone, strict=True):
            _assert_same_drift(one.drift, other, rtol=1e-4)


@pytest.mark.long
def test_of_a_diverged_training_the_rounds_before_it() -> None:
    trainer = mj.federated.local_sgd(_MODEL, 3e38, batch_size=1, num_epochs=9)
    result = _train(trainer=trainer, measure_drift=True)
    assert result.diverged_round == 0
    assert result.drift.rounds.size == 0
    assert math.isnan(result.drift.spread)


def test_the_sketch_is_bounded() -> None:
    layers = {f"{i}": range(1000 * i, 1000 * (i + 1)) for i in range(10)}
    for shape, each in (((10, 10), 64), ((1000, 40), 10), ((10**4, 10**2), 1)):
        sketch = Sketch(_key(), layers, shape)
        assert sketch.coordinates.shape == (10 * each,)
        assert np.bincount(sketch.coordinates // 1000).tolist() == [each] * 10
        assert sketch.values.nbytes <= 2**24 or each == 1


def test_each_client_s_drift_is_found() -> None:
    """Updates of a lasting and a fresh part, whose spread, memory and share differ by client."""
    rng, n, rounds = np.random.default_rng(0), 12, 150
    rho = np.where(np.arange(n) % 2, 0.95, 0.7)
    share, spread = np.where(np.arange(n) % 3 == 0, 0.9, 0.5), 1 + np.arange(n) / n
    lasting, sent = rng.normal(size=(n, 400)), []
    for _ in range(rounds):
        fresh = rng.normal(size=(2, n, 400))
        lasting = rho[:, None] * lasting + np.sqrt(1 - rho**2)[:, None] * fresh[0]
        own = np.sqrt(share)[:, None] * lasting + np.sqrt(1 - share)[:, None] * fresh[1]
        sent.append(spread[:, None] * own)
    who = np.stack([rng.choice(n, 8, replace=False) for _ in range(rounds)])
    drift = measure_drift(np.stack(sent)[np.arange(rounds)[:, None], who], who)
    assert drift.clients.tolist() == list(range(n))
    np.testing.assert_allclose(drift.client_spread, spread, rtol=0.12)
    np.testing.assert_allclose(drift.client_memory, rho, atol=0.1)
    np.testing.assert_allclose(drift.client_lasting, share, atol=0.12)


def test_resemblance_is_the_gram_matrix_of_centred_means() -> None:
    rng = np.random.default_rng(0)
    updates = rng.normal(size=(3, 3, 50))
    members = np.array([[0, 1, 2], [3, 4, 5], [0, 4, -1]])
    drift = measure_drift(updates, members, blocks=[-1] * 7, resemblance=True)
    totals, counts = np.zeros((7, 50)), np.zeros(7)
    for row, sent in zip(members, updates, strict=True):
        present = row >= 0
        totals[row[present]] += sent[present] - sent[present].mean(axis=0)
        counts[row[present]] += 1
    means = totals / np.maximum(counts, 1)[:, None]
    np.testing.assert_allclose(drift.resemblance, means @ means.T / 50, atol=1e-12)
    assert not np.asarray(drift.resemblance)[6].any()
    assert measure_drift(updates, members).resemblance is None


def test_resemblance_in_pieces_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    updates, members = rng.normal(size=(4, 5, 33)), [[0, 1, 2, 3, 4]] * 4
    whole = measure_drift(updates, members, resemblance=True).resemblance
    monkeypatch.setattr("mrsa_jax.federated._drift.at_once", lambda *unused: 7)
    pieces = measure_drift(updates, members, resemblance=True).resemblance
    np.testing.assert_allclose(pieces, whole, atol=1e-14)


def test_resemblance_recovers_a_covariance() -> None:
    """Updates that never change, of clients with C = I + 1/2 in one pair."""
    rng = np.random.default_rng(2)
    covariance = np.diag([1.0, 1.0, 4.0, 9.0])
    covariance[0, 1] = covariance[1, 0] = 0.5
    own = np.linalg.cholesky(covariance) @ rng.normal(size=(4, 200_000))
    found = measure_drift(own[None], [range(4)], resemblance=True).resemblance
    centring = np.eye(4) - 0.25
    np.testing.assert_allclose(found, centring @ covariance @ centring, atol=0.05)
