"""Checkpoints: misuse, what is stored, and trainings that are killed at any moment and resumed."""

from __future__ import annotations

import functools
import inspect
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mrsa_jax as mj
from mrsa_jax._core import sealed as _sealed
from mrsa_jax.federated import _checkpoint

_CLIENTS, _COHORT = 6, 3
_MODEL = mj.federated.logistic(10)

# run by this process and, under another name, by one that is killed
_SETTING = """
import dataclasses, sys
import numpy as np, optax
import mrsa_jax as mj

def clients():
    dataset = mj.data.load("digits", seed=0)
    small = dataclasses.replace(
        dataset, train_inputs=dataset.train_inputs[:90], train_labels=dataset.train_labels[:90]
    )
    return small, mj.data.dirichlet_by_class(0, small, 6, concentration=2.0)

def train(directory, seed=0, num_rounds=24, every=3, identity="", on_damage=None,
          progress=None, **more):
    small, data = clients()
    generator = np.random.default_rng(0)
    history = np.zeros((num_rounds, 6), bool)
    for row in history:
        row[generator.choice(6, 3, replace=False)] = True
    history[[index for index in (1, 4, 5) if index < num_rounds]] = False
    model = mj.federated.logistic(10)
    quantizer = mj.quantize.stochastic(2**16, 0.5)
    settings = dict(
        trainer=mj.federated.local_sgd(model, 0.3, batch_size=8),
        aggregator=mj.secagg.ring_average(
            quantizer, 3, 650, clip_rule=mj.quantize.following_range(4.0)),
        server=optax.sgd(0.5, momentum=0.9),
        test=(small.test_inputs[:50], small.test_labels[:50]),
        evaluate_every=4,
        rate_schedule=mj.federated.decay_at(8, 0.5),
    )
    kept = None
    if directory is not None:
        kept = mj.federated.checkpoints(
            directory, every=every, identity=identity, on_damage=on_damage)
    training = mj.federated.Training(model, data, history, **(settings | more))
    return mj.federated.train(seed, training, checkpoints=kept, progress=progress)
"""

_CHILD = (
    _SETTING
    + """
print("ready", flush=True)
train(sys.argv[1], every=1, progress=lambda done, total: print(done, flush=True))
print("done", flush=True)
"""
)

_here: dict[str, Any] = {}
exec(_SETTING, _here)
_train = _here["train"]


def _assert_equal(
    one: mj.federated.TrainingResult, other: mj.federated.TrainingResult
) -> None:
    for field in (
        "parameters",
        "accuracy",
        "loss",
        "status",
        "clipped_fraction",
        "wrapped",
        "participation",
        "components",
        "evaluated_rounds",
    ):
        np.testing.assert_array_equal(
            getattr(one, field), getattr(other, field), err_msg=field
        )
    assert one.diverged_round == other.diverged_round


@pytest.mark.smoke
def test_misuse(tmp_path: pathlib.Path) -> None:
    for more, message in (
        ({"every": 0}, "`every` must be a positive integer; got 0"),
        ({"keep": True}, "`keep` must be a positive integer; got True"),
        ({"keep": 1}, "`keep` must be at least 2, as one may be damaged; got 1"),
        ({"on_damage": "say"}, "`on_damage` must be a function .* got 'say'"),
        ({"directory": 5}, "`directory` must be the path of a folder; got 5"),
    ):
        with pytest.raises(mj.ConfigurationError, match=message):
            inspect.unwrap(mj.federated.checkpoints)(**({"directory": tmp_path} | more))
    (tmp_path / "file").write_text("")
    with pytest.raises(mj.ConfigurationError, match="`directory` must be a folder"):
        mj.federated.checkpoints(tmp_path / "file")
    with pytest.raises(
        mj.ConfigurationError, match="`keep_aggregates` must not be set"
    ):
        _train(tmp_path / "run", keep_aggregates=True)
    assert not (tmp_path / "run").exists()


def test_the_newest_steps_stay_and_the_newest_that_is_whole_is_read(
    tmp_path: pathlib.Path,
) -> None:
    said: list[str] = []
    own = mj.federated.checkpoints(tmp_path, keep=2, on_damage=said.append)
    store = _checkpoint.Store(own, {})
    for step in (2, 9, 10):
        store.save(step, {"done": np.int32(step)})
    assert sorted(os.listdir(tmp_path)) == ["10", "9"]
    found = store.latest({"done": np.int32(0)})
    assert found == (10, {"done": 10})
    (tmp_path / "10" / "state.npz").write_bytes(b"")
    found = store.latest({"done": np.int32(0)})
    assert found == (9, {"done": 9})
    assert said == [f"checkpoint {tmp_path / '10'} is damaged: step 9 is used instead"]
    assert os.listdir(tmp_path) == ["9"]


@pytest.mark.long
def test_another_configuration_is_refused_and_both_are_named(
    tmp_path: pathlib.Path,
) -> None:
    _train(tmp_path, num_rounds=3, identity="mine")
    saved = sorted(os.listdir(tmp_path))
    for changes, message in (
        ({"identity": "yours"}, "identity differs .* got 'mine' and 'yours'"),
        ({"seed": 1}, "seed differs"),
        ({"num_rounds": 4}, "(history|evaluations) differs"),
        ({"server": optax.adam(0.5)}, "shapes differ .*trace.* and .*count"),
        ({"rate_schedule": None}, "rate_schedule differs"),
        ({"evaluate_every": 1}, "evaluations differs"),
    ):
        with pytest.raises(mj.ConfigurationError, match=message):
            _train(tmp_path, **({"num_rounds": 3, "identity": "mine"} | changes))
    assert sorted(os.listdir(tmp_path)) == saved


def test_a_finished_training_is_read_and_not_run_again(tmp_path: pathlib.Path) -> None:
    calls: list[tuple[int, int]] = []
    first = _train(tmp_path, num_rounds=8, progress=lambda *call: calls.append(call))
    again = _train(tmp_path, num_rounds=8, progress=lambda *call: calls.append(call))
    assert calls == [(done, 5) for done in range(1, 6)]
    _assert_equal(first, again)
    _assert_equal(first, _train(None, num_rounds=8))
    # five trained rounds, saved after the third and the last
    assert sorted(os.listdir(tmp_path)) == ["3", "5"]


def _stop_at(limit: int) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if done == limit:
            raise KeyboardInterrupt

    return progress


@pytest.fixture(scope="module")
def whole() -> mj.federated.TrainingResult:
    """The training that nothing stops."""
    return _train(None)


@pytest.mark.long
def test_stops_anywhere_and_goes_on(
    tmp_path: pathlib.Path, whole: mj.federated.TrainingResult
) -> None:
    """An exception in mid-training, at each third round.

    Nothing but steps is left behind.
    """
    for limit in (2, 5, 11, 20):
        with pytest.raises(KeyboardInterrupt):
            _train(tmp_path, progress=_stop_at(limit))
        steps = [int(name) for name in os.listdir(tmp_path)]
        assert max(steps, default=0) == limit // 3 * 3
        assert len(steps) <= 2
    _assert_equal(_train(tmp_path), whole)


@pytest.mark.long
def test_many_go_on_too(tmp_path: pathlib.Path) -> None:
    _, clients = _here["clients"]()
    history = np.ones((4, _CLIENTS), bool)
    average = mj.secagg.ring_average(mj.quantize.stochastic(2**16, 0.5), _CLIENTS, 650)
    trainings = [
        mj.federated.Training(
            _MODEL,
            clients,
            history,
            mj.federated.local_sgd(_MODEL, rate, batch_size=8),
            average,
        )
        for rate in (0.3, 3e38)
    ]
    whole = mj.federated.train_many(0, trainings)

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    store = mj.federated.checkpoints(tmp_path, every=1)
    with pytest.raises(KeyboardInterrupt):
        mj.federated.train_many(0, trainings, checkpoints=store, progress=stop)
    resumed = mj.federated.train_many(0, trainings, checkpoints=store)
    assert [result.diverged_round for result in resumed] == [None, 0]
    for one, other in zip(resumed, whole, strict=True):
        _assert_equal(one, other)


def test_leaves_keep_their_kind(tmp_path: pathlib.Path) -> None:
    """Keys, empty arrays, absent parts, Python numbers and NumPy scalars come back as they were."""
    tree = {
        "key": jax.random.key(3),
        "none": None,
        "empty": np.zeros((0, 4), np.float32),
        "int": 7,
        "scalar": np.int32(2),
        "array": np.arange(3),
        "jax": jnp.arange(2.0),
    }
    own = mj.federated.checkpoints(tmp_path)
    store = _checkpoint.Store(own, {})
    assert store.latest(tree) is None
    store.save(4, tree)
    saved = _checkpoint.Store(own, {}).latest(jax.tree.map(lambda leaf: leaf, tree))
    assert saved is not None
    step, back = saved
    assert step == 4
    assert (
        jax.random.key_data(back["key"]).tolist()
        == jax.random.key_data(tree["key"]).tolist()
    )
    for name in ("none", "int", "scalar"):
        assert back[name] == tree[name]
        assert type(back[name]) is type(tree[name])
    for name in ("empty", "array", "jax"):
        np.testing.assert_array_equal(back[name], tree[name])
        assert isinstance(back[name], jax.Array) == (name == "jax")


def _damages(
    newest: pathlib.Path, older: pathlib.Path
) -> dict[str, Callable[[], object]]:
    """Return ways to spoil the newest step's file, by name."""
    own = newest.read_bytes()
    size = len(own)
    generator = np.random.default_rng(0)

    def flip(place: int) -> Callable[[], object]:
        changed = bytearray(own)
        changed[place] ^= 1 << int(generator.integers(8))
        return lambda: newest.write_bytes(changed)

    def zero(start: int) -> Callable[[], object]:
        changed = bytearray(own)
        changed[start : start + 64] = bytes(len(changed[start : start + 64]))
        return lambda: newest.write_bytes(changed)

    def swap() -> None:
        newest.write_bytes(older.read_bytes())
        older.write_bytes(own)

    every: dict[str, Callable[[], object]] = {f"flip {i}": flip(i) for i in range(size)}
    every |= {
        f"cut to {i}": functools.partial(newest.write_bytes, own[:i])
        for i in range(size)
    }
    zeroed = {f"zero {i}": zero(i) for i in range(0, size, 64) if any(own[i : i + 64])}
    return (
        every
        | zeroed
        | {
            "longer": lambda: newest.write_bytes(own + b"0"),
            "the older one's": lambda: newest.write_bytes(older.read_bytes()),
            "swapped": swap,
            "no file": newest.unlink,
            "no archive": lambda: newest.write_bytes(b"PK"),
            "pickled": lambda: np.savez(newest, about=np.asarray([{}], object)),
        }
    )


@pytest.mark.long
def test_damage_of_any_kind_is_seen(tmp_path: pathlib.Path) -> None:
    """Each byte with a bit flipped, each length, each block of zeros, files amiss or swapped."""
    template = {"weights": jnp.arange(5.0), "done": np.zeros((), np.int32)}
    own = mj.federated.checkpoints(tmp_path)
    store = _checkpoint.Store(own, {"seed": "0"})
    for step in (3, 5):
        store.save(
            step,
            jax.tree.map(
                lambda leaf, step=step: leaf + leaf.dtype.type(step), template
            ),
        )
    older, newest = (tmp_path / f"{step}" / "state.npz" for step in (3, 5))
    sound = newest.read_bytes()
    for name, damage in _damages(newest, older).items():
        damage()
        assert _sealed.read_sealed(newest, "5") is None, name
        if name == "swapped":
            assert _sealed.read_sealed(older, "3") is None
            with pytest.raises(mj.MrsaError, match="must hold an intact step"):
                store.latest(template)
            older.write_bytes(newest.read_bytes())
        newest.write_bytes(sound)
    step, state = store.latest(template)
    assert (step, int(state["done"])) == (5, 5)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["flip 100", "flip 1700", "cut to 900", "zero 512", "no file"]
)
def test_a_damaged_step_is_named_and_the_one_before_it_used(
    tmp_path: pathlib.Path, name: str, whole: mj.federated.TrainingResult
) -> None:
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path, progress=_stop_at(8))
    _damages(*(tmp_path / f"{step}" / "state.npz" for step in (6, 3)))[name]()
    with pytest.warns(
        RuntimeWarning, match="checkpoint .*6 is damaged: step 3 is used instead"
    ):
        resumed = _train(tmp_path)
    _assert_equal(resumed, whole)
    assert sorted(os.listdir(tmp_path)) == ["18", "21"]


@pytest.mark.long
def test_a_lost_step_folder_is_no_loss(
    tmp_path: pathlib.Path, whole: mj.federated.TrainingResult
) -> None:
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path, progress=_stop_at(8))
    shutil.rmtree(tmp_path / "6")
    said: list[str] = []
    _assert_equal(_train(tmp_path, on_damage=said.append), whole)
    assert not said


def _killed(directory: pathlib.Path, after: int, delay: float) -> bool:
    """Start the training, kill it a moment after some round.

    Return whether it had finished.
    """
    environment = os.environ | {"PYTHONPATH": str(pathlib.Path(mj.__file__).parents[1])}
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    assert child.stdout is not None
    finished = False
    for count, line in enumerate(child.stdout):
        finished = line.strip() == "done"
        if count == after or finished:
            break
    time.sleep(delay)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    return finished


def _assert_survives_kills(
    directory: pathlib.Path, kills: list[tuple[int, float]]
) -> None:
    for after, delay in kills:
        _killed(directory, after, delay)
    # what a save that is cut off leaves, whether or not a kill above met one
    left = directory / "99.part"
    left.mkdir(parents=True)
    (left / "state.npz").write_bytes(b"half")
    resumed = _train(directory, every=1)
    _assert_equal(resumed, _train(None))
    assert all(name.isdecimal() for name in os.listdir(directory))
    assert len(os.listdir(directory)) <= 2


@pytest.mark.long
def test_survives_kills_at_random_moments(tmp_path: pathlib.Path) -> None:
    generator = np.random.default_rng(5)
    _assert_survives_kills(
        tmp_path,
        [(int(generator.integers(1, 5)), float(generator.uniform(0, 0.05)))] * 2,
    )


@pytest.mark.slow
def test_survives_many_kills(tmp_path: pathlib.Path) -> None:
    generator = np.random.default_rng(6)
    kills = [
        (int(generator.integers(0, 4)), float(generator.uniform(0, 0.2)))
        for _ in range(12)
    ]
    _assert_survives_kills(tmp_path, kills)
