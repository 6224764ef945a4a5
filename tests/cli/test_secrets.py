"""No key, pad or seed of a secret comes twice.

Over commands, schemes, thresholds and points.
"""

import collections
import dataclasses
import itertools

import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import federated
from mrsa_jax.protocol import _client, _pads
from mrsa_jax.secagg import _four_step
from mrsa_jax.study import (
    KINDS,
    DataConfig,
    DemoConfig,
    PopulationConfig,
    SecaggConfig,
    SegmentConfig,
    TrainConfig,
    TrainingConfig,
)
from mrsa_jax.study.sweeps import Machine


class Secrets:
    """Every secret that a run uses, with the place that it was seen at."""

    def __init__(self, monkeypatch):
        self._found, self._run = collections.defaultdict(set), None
        keep = self.keep

        def recording(module, name, places):
            real = getattr(module, name)

            def record(*arguments, **options):
                result = real(*arguments, **options)
                for place, value in places(arguments, result):
                    keep(place, value)
                return result

            monkeypatch.setattr(module, name, record)

        recording(_client, "seal", lambda call, _: [("AES key", call[0])])
        recording(_pads, "chacha20_stream", lambda call, _: [("pad", b"".join(call))])
        recording(_four_step, "_secret_keys", lambda call, keys: [("secret key", keys)])
        recording(
            _four_step,
            "seeds_of_pairs",
            lambda call, seeds: [
                ("self seed", seeds.self_seed),
                ("pair seed", seeds.pair_seed),
            ],
        )

    def keep(self, place, value):
        if isinstance(value, bytes):
            self._found[value].add(self._run)
            return
        for row in np.atleast_2d(np.asarray(value)):
            self._found[row.astype("<u4").tobytes()].add(self._run)

    def of(self, run, act):
        self._run = run
        return act()

    def repeated(self):
        """Return the runs that share a secret with another."""
        return {frozenset(runs) for runs in self._found.values() if len(runs) > 1}

    def __len__(self):
        return len(self._found)


ROUND = SecaggConfig(num_clients=6, dim=4, json=True, seed=5)
ROUNDS = {
    "plain": {},
    "threshold": {"threshold": 5},
    "dropouts": {"dropped_before_unmasking": 0.2},
    "step dropouts": {"step_dropout_rate": 0.01},
    "graph": {"graph": "harary", "degree": 4},
    "dim": {"dim": 5},
    "ring": {"modulus_bits": 12},
}


FEWER = ("plain", "threshold", "dropouts", "graph")  # each shape compiles


@pytest.mark.long
def test_rounds_of_one_seed_share_no_secret(monkeypatch):
    """Real messages and arrays, at other thresholds, graphs, losses, sizes and rings."""
    secrets = Secrets(monkeypatch)
    every = [*itertools.product(["real"], ROUNDS), *itertools.product(["array"], FEWER)]
    for fidelity, name in every:
        config = dataclasses.replace(ROUND, fidelity=fidelity, **ROUNDS[name])
        secrets.of((fidelity, name), lambda config=config: mj.study.run(config))
    assert secrets.repeated() == set()
    # 30 AES keys, 6 self pads and 15 pair pads in each real round, but for the sparse
    # graphs
    assert len(secrets) > 7 * 40 + 4 * 20
    # the same settings repeat everything
    before, real = len(secrets), dataclasses.replace(ROUND, fidelity="real")
    secrets.of(("real", "plain"), lambda: mj.study.run(real))
    assert (len(secrets), secrets.repeated()) == (before, set())


@pytest.mark.long
def test_settings_of_the_library_share_no_secret(monkeypatch):
    """`protocol.run` and `secagg.aggregate` themselves, given one seed."""
    complete, path = (
        ~np.eye(4, dtype=bool),
        np.eye(4, k=1, dtype=bool) | np.eye(4, k=-1, dtype=bool),
    )
    halves = mj.secagg.segment_plan(
        [
            mj.secagg.Block((0, 1, 2, 3), 0, 2, 256),
            mj.secagg.Block((0, 1, 2, 3), 2, 3, 256),
        ],
        4,
        3,
    )
    settings = {
        "t = 3": (complete, 3, {"modulus": 256}, 0),
        "t = 4": (complete, 4, {"modulus": 256}, 0),
        "t = 3, 3, 3, 4": (complete, [3, 3, 3, 4], {"modulus": 256}, 0),
        "path": (path, 2, {"modulus": 256}, 0),
        "ring": (complete, 3, {"modulus": 128}, 0),
        "blocks": (complete, 3, {"plan": halves}, 0),
        "round": (complete, 3, {"modulus": 256}, 1),
    }
    secrets = Secrets(monkeypatch)
    inputs, everybody = np.ones((4, 3), int), np.ones((5, 4), bool)
    for name, (graph, t, ring, number) in settings.items():
        more = {**ring, "round_index": number}
        secrets.of(
            ("real", name),
            lambda graph=graph, t=t, more=more: mj.protocol.run(
                inputs, graph, everybody, t, entropy=0, **more
            ),
        )
        if name != "round":  # pairs' seeds last there; the round is in the pads' nonces
            secrets.of(
                ("array", name),
                lambda graph=graph, t=t, more=more: mj.secagg.aggregate(
                    0, inputs, graph, everybody, t, **more
                ),
            )
    contexts = [b"model"] * 4
    secrets.of(
        "contexts",
        lambda: mj.protocol.run(
            inputs, complete, everybody, 3, 8, entropy=0, contexts=contexts
        ),
    )
    assert secrets.repeated() == set()
    assert len(secrets) > 200


class Stopped(Exception):
    """A training that is not gone through."""


TRAIN = TrainConfig(
    scheme="uniform",
    seed=5,
    rounds=3,
    population=PopulationConfig(num_clients=12, cohort_size=4),
    data=DataConfig(dataset="digits"),
    training=TrainingConfig(model="logistic"),
)


def materials(monkeypatch, act):
    """Return the key material of each aggregator that a command would train with."""
    found = []

    def train(_, training, **__):
        if len(training.history.cohorts) > 1:  # not the round that only compiles
            found.append(np.asarray(training.aggregator.key_material).tobytes())
        raise Stopped

    def train_many(seeds, trainings, **__):
        train(seeds, trainings[0])

    monkeypatch.setattr(federated, "train", train)
    monkeypatch.setattr(federated, "train_many", train_many)
    with pytest.raises(Stopped):
        act()
    return found


def points():
    """Trainings of one seed that differ in one setting each."""
    yield TRAIN
    aggregation = TRAIN.aggregation
    for scheme in ("weighted", "batch_partitioning:2"):
        yield dataclasses.replace(TRAIN, scheme=scheme)
    yield dataclasses.replace(
        TRAIN, training=TrainingConfig(model="logistic", learning_rate=0.2)
    )
    yield dataclasses.replace(
        TRAIN, aggregation=dataclasses.replace(aggregation, num_levels=64)
    )
    for threshold in (3, 4):
        protocol = dataclasses.replace(
            TRAIN.protocol, graph="complete", threshold=threshold
        )
        yield dataclasses.replace(TRAIN, protocol=protocol)
    yield dataclasses.replace(
        TRAIN, hetero=SegmentConfig(segments="mc", group_levels=(4, 8))
    )


@pytest.mark.long
def test_trainings_of_one_seed_share_no_key_material(monkeypatch):
    configs = list(points())
    found = {}
    for number, config in enumerate(configs):
        (own,) = materials(monkeypatch, lambda config=config: mj.study.run(config))
        found[own] = number
    points_of = KINDS["train"].runner()
    (swept,) = materials(
        monkeypatch, lambda: list(points_of.run_points(configs[-1:], Machine(), (), 1))
    )
    assert found[swept] == len(configs) - 1  # a point of a sweep is the point alone
    assert len(found) == len(configs)
    demo = DemoConfig(
        seed=5,
        rounds=3,
        schemes=("uniform",),
        population=TRAIN.population,
        data=TRAIN.data,
        training=TRAIN.training,
    )
    (other,) = materials(monkeypatch, lambda: mj.study.run(demo))
    assert other not in found
    assert np.asarray(mj.secagg.key_material(5)).tobytes() not in found


# --- rounds are words


@pytest.mark.parametrize("number", [-1, 2**32, 2**32 + 3, 2**70, 1.0])
def test_rounds_beyond_a_word_are_refused(number):
    material, inputs = mj.secagg.key_material(0), np.zeros((2, 3), np.uint32)
    plan, seeds = (
        mj.secagg.complete_plan(2, 3, 256),
        mj.secagg.derive_seeds(mj.secagg.key_material(0), np.arange(2), 0),
    )
    calls = (
        lambda: mj.secagg.derive_seeds(material, np.arange(2), number),
        lambda: mj.secagg.pad_inputs(seeds, inputs, plan, number),
        lambda: mj.secagg.ring_sum(seeds, inputs, plan, number),
    )
    for call in calls:
        with pytest.raises(
            mj.ConfigurationError, match=r"`round_index` must be an integer in \[0"
        ):
            call()


def test_the_last_round_has_seeds_of_its_own():
    material = mj.secagg.key_material(0)
    with jax.enable_x64(True):
        wide = jax.numpy.asarray(2**32, jax.numpy.int64)
        with pytest.raises(
            mj.ConfigurationError, match="`round_index` must be an integer"
        ):
            mj.secagg.derive_seeds(material, np.arange(2), wide)
    numbers = (0, 1, 2**31 - 1, 2**31, 2**32 - 1)
    seeds = [
        mj.secagg.derive_seeds(material, np.arange(3), number) for number in numbers
    ]
    own = {row.tobytes() for one in seeds for row in np.asarray(one.self_seed)}
    assert len(own) == 3 * len(numbers)
