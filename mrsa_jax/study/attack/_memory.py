"""How much memory an attack needs, told from its settings by the shapes of its largest arrays.

Nothing is compiled or trained here. What programs and libraries take once they are loaded is
measured, and stated for each attack; arrays that live side by side are counted by their shapes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mrsa_jax.study import _attack_config as setting

_MIB = 2**20
_PHOTOGRAPH: tuple[int, ...] = (32, 32, 3)
_CLASSES = 10  # of a model for pictures without labels


def attack_bytes(config: setting.AttackSettings) -> int:
    """Return about how much memory an attack needs beyond what an idle process with JAX holds.

    Within a factor of 3 above what a process takes, and 1.5 below it.

    Args:
        config: Settings of one attack, validated.

    Raises:
        ConfigurationError: If its data set is not there.
    """
    least, arrays = _NEEDS[type(config)]
    return least * _MIB + arrays(config)


def _of_sums(config: Any) -> int:
    """Return the arrays of least squares: sums and moments of what was sent are float64."""
    if config.run is not None:
        from mrsa_jax.study._config import TrainConfig
        from mrsa_jax.study._load import load_config

        own = load_config(TrainConfig, config.run / "config.toml")
        pool, shape, classes = _data(own.data.dataset, own.data.directory, own.seed)
        dim = _dim(own.training.model, shape, classes)
        n, k, rounds = own.population.num_clients, own.population.cohort_size, own.rounds
        rounds = rounds if config.window is None else min(rounds, config.window)
        files, frozen = _sizes_of(config.updates), False
        return pool + files + _of_rounds(dim, n, k, rounds, frozen)
    if config.aggregates is not None:  # read in pieces where it is an .npy; pages count as read
        n = _shape_of(config, "participation")[-1] if config.participation is not None else 0
        d = _shape_of(config, "aggregates")[-1]
        return _sizes_of(config.aggregates, config.updates) + 8 * n * d
    pool, shape, classes = _data(config.dataset, None, config.seed)
    dim = _dim(config.model, shape, classes)
    n, k = config.num_clients, config.cohort_size
    return pool + _of_rounds(dim, n, k, config.rounds, config.frozen)


def _of_rounds(dim: int, n: int, k: int, rounds: int, is_frozen: bool) -> int:
    sums = 2 * 8 * rounds * dim  # one by one, and stacked
    moments = 3 * 8 * n * dim  # total, mean, and the squares of one of them
    in_training = 4 * dim * ((2 * n if is_frozen else 0) + _IN_A_ROUND * k)
    return sums + moments + in_training


_IN_A_ROUND = 10  # arrays of a cohort's updates: trained, masked, drawn, coded, decoded, float64


def _of_shifts(config: Any) -> int:
    """Return the arrays of distinguishing: sums of all trials, or updates of all trainings."""
    simulated = 0
    if "gaussian" in config.others:
        simulated = 2 * 8 * config.trials + 4 * min(config.trials, 2**21 // config.rounds) * (
            config.num_clients + 3 * config.rounds
        )
    if "trained" not in config.others:
        return simulated
    pool, shape, classes = _data(config.dataset, None, config.seed)
    dim = _dim(config.model, shape, classes)
    entries = _activations(config.model, shape, classes) + math.prod(shape)
    kept = 3 * 8 * config.trainings * config.rounds * config.num_clients
    return pool + simulated + kept + 4 * 4 * config.num_clients * (dim + entries)


def _of_canaries(config: Any) -> int:
    """Return the arrays of canaries: scores, and the cohorts' vectors of some trials at once."""
    cohort = 4 * config.cohort_size * 2 * config.dim  # padded to a power of two
    left = 2 * 4 * config.rounds * config.dim  # of all rounds, as scanned and as multiplied
    # a covariance over rounds for each trial, with its square, in float64 as in float32
    grams = 28 * min(config.trials * config.rounds**2, 2**21 + config.rounds**2)
    scores = 2 * 8 * config.trials * config.rounds
    return scores + grams + 2 * _IN_A_ROUND * max(cohort, 2**21) + left


def _of_columns(config: Any) -> int:
    """Return the arrays of disaggregation."""
    if config.aggregates is not None:
        rounds, dim = _shape_of(config, "aggregates")
        who = "counts" if config.counts is not None else "participation"
        n, is_simulated, schemes = _shape_of(config, who)[-1], False, 1
    else:
        rounds, dim, n = config.rounds, config.dim, config.num_clients
        is_simulated, schemes = True, len(config.schemes)
    # updates, estimates, these in the order of the truth, and their difference and its square
    of_updates = (5 if is_simulated else 1) + (schemes - 1)
    of_sums = 1 + (2 if config.drift > 0 else 0)
    narrow = min(dim, 8 * rounds)
    # a singular value decomposition with all right vectors, and its work
    space = 3 * narrow**2 + 4 * rounds**2
    return 8 * (dim * (of_updates * n + of_sums * rounds) + space)


def _of_gradients(config: Any) -> int:
    """Return the arrays of gradient inversion: gradients of gradients of all restarts."""
    count = config.num_summed * config.num_images
    pool, shape, classes = 0, _PHOTOGRAPH, _CLASSES
    if config.dataset is not None:
        pool, shape, classes = _data(config.dataset, None, config.seed)
    dim = _dim(config.model, shape, classes)
    images = count if "sum" in config.seen else config.num_images
    entries = _activations(config.model, shape, classes) + math.prod(shape)
    walked = config.restarts * (_OF_MODEL * dim + _OF_IMAGE * images * entries)
    return pool + 4 * walked + _on_the_wire(dim, config.num_summed)


_OF_MODEL = 6  # arrays like the model, of each restart
_OF_IMAGE = 24  # arrays like the activations, of each image


def _on_the_wire(dim: int, senders: int) -> int:
    """Return the arrays of one round of secure aggregation over vectors, all senders' at once."""
    return 4 * _IN_A_WIRE * dim * senders


_IN_A_WIRE = 14  # codes, draws, pads, padded codes, and what is read from them


def _of_classes(config: Any) -> int:
    """Return the arrays of model inversion: the clients' models and their uploads."""
    pool, shape, classes = _data(config.dataset, None, config.seed)
    dim = _dim("logistic", shape, classes)
    return pool + _on_the_wire(dim, config.num_clients) + 8 * 4 * len(config.seen) * dim


def _of_members(config: Any) -> int:
    """Return the arrays of membership inference: the clients' models and the shadow models."""
    from mrsa_jax._device import at_once, samples_at_once

    pool, shape, classes = _data(config.dataset, None, config.seed)
    dim = _dim(config.model, shape, classes)
    clients = max(config.num_targets, config.num_summed)
    models = 4 * dim * (_OF_SHADOW * config.num_shadows + 3 * clients)
    entries = _activations(config.model, shape, classes) + math.prod(shape)
    side_by_side = min(config.num_shadows, at_once("clients", 4 * dim))
    training = 4 * side_by_side * (4 * dim + 3 * config.batch_size * entries)
    together = samples_at_once("questions", shape)
    asking = 4 * entries * min(_OF_QUESTION * together, 2 * config.client_size + 1000)
    return pool + models + training + asking + _on_the_wire(dim, config.num_summed)


_OF_SHADOW = 4  # arrays like the model, of each shadow model
_OF_QUESTION = 4  # arrays like the activations, of each sample that models are asked about


def _of_inconsistency(config: Any) -> int:
    """Return the arrays of the malicious server: real messages of all clients."""
    pool, shape, classes = _data(config.dataset, None, config.seed)
    dim = math.prod(shape) * config.hidden_size + config.hidden_size * (1 + classes) + classes
    return pool + 4 * dim * (_OF_SENDER * config.cohort_size + _OF_MESSAGES)


_OF_SENDER = 8  # arrays like the update, of each client
_OF_MESSAGES = 20  # and of the one whose message is made or undone

# What each attack takes at its smallest, in MiB: programs, the compiler's work on them, libraries.
# Between a process that finds all programs in the cache on disk and one that compiles them, on two
# cores of x86-64 with JAX 0.10. And what returns the bytes of its arrays.
_NEEDS: dict[type, tuple[int, Callable[[Any], int]]] = {
    setting.LeastSquaresConfig: (270, _of_sums),
    setting.DistinguishConfig: (430, _of_shifts),
    setting.CanariesConfig: (560, _of_canaries),
    setting.DisaggregationConfig: (200, _of_columns),
    setting.GradientsConfig: (520, _of_gradients),
    setting.ModelInversionConfig: (350, _of_classes),
    setting.MembershipConfig: (450, _of_members),
    setting.InconsistencyConfig: (200, _of_inconsistency),
}


# --- shapes -------------------------------------------------------------------------------------


@functools.cache
def _data(name: str, directory: Any, seed: int) -> tuple[int, tuple[int, ...], int]:
    """Return the bytes of a data set, on the host and on the device, a sample's shape, classes."""
    from mrsa_jax import data

    found = data.load(name, directory=directory, seed=seed)
    size = sum(np.asarray(one).nbytes for one in (found.train_inputs, found.test_inputs))
    return 2 * size, tuple(found.train_inputs.shape[1:]), found.num_classes


def _dim(model: str, shape: tuple[int, ...], classes: int) -> int:
    from mrsa_jax import federated
    from mrsa_jax.study import _build

    return int(federated.num_parameters(_build.MODELS[model](classes), shape))


@functools.cache
def _activations(model: str, shape: tuple[int, ...], classes: int) -> int:
    """Return how many numbers a model's layers put out for one sample."""
    import jax
    import jax.numpy as jnp

    from mrsa_jax.study import _build

    module = _build.MODELS[model](classes)
    sample = jnp.zeros((1, *shape), jnp.float32)

    def answers(key: Any) -> Any:
        variables = module.init(key, sample)
        return module.apply(
            variables, sample, capture_intermediates=True, mutable=["intermediates"]
        )

    found = jax.eval_shape(answers, jax.random.key(0))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(found))


def _shape_of(config: Any, name: str) -> tuple[int, ...]:
    from mrsa_jax.study.attack._sums import read_array

    return tuple(read_array(getattr(config, name), name).shape)


def _sizes_of(*paths: Any) -> int:
    return sum(path.stat().st_size for path in paths if path is not None)
