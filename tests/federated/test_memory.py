"""Memory stated before a run: bounds, what XLA says, and what a process really takes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.mesh import checked_mesh
from mrsa_jax._core.streams import as_key
from mrsa_jax.federated import programs
from mrsa_jax.federated._program import MemoryEstimate, largest_width

_MODEL = mj.federated.logistic(10)


def _clients(num_clients: int = 6) -> mj.data.ClientData:
    return mj.data.iid(0, mj.data.load("digits"), num_clients)


def _trainer() -> mj.federated.LocalSGD:
    return mj.federated.local_sgd(_MODEL, 0.3, batch_size=8)


def _estimate(**more: Any) -> MemoryEstimate:
    settings: dict[str, Any] = {"trainer": _trainer(), "cohort_size": 4} | more
    return mj.federated.memory_estimate(_MODEL, _clients(), **settings)


def test_misuse() -> None:
    for name in ("cohort_size", "width"):
        with pytest.raises(
            mj.ConfigurationError, match=f"`{name}` must be a positive integer"
        ):
            _estimate(**{name: 0})
    with pytest.raises(
        mj.ConfigurationError, match="`num_rounds` must be an integer from 0"
    ):
        _estimate(num_rounds=-1)


@pytest.mark.long
def test_parts_by_hand() -> None:
    plain = _estimate(width=1)
    clients = _clients()
    samples = 4 * (clients.inputs.size + clients.labels.size)
    # filled up to 8 and 256, as programs take them
    assert clients.indices.shape == (6, 241)
    assert plain.data_bytes == samples + 4 * (8 * 256 + 8 + 650)
    assert plain.training_bytes >= 4 * 650 * 4  # the updates at least
    more = _estimate(width=1, num_rounds=100, keep_aggregates=True)
    assert more.host_bytes == 100 * (6 * 6 + 16) + 100 * 650 * 4
    assert more.peak_bytes == plain.peak_bytes + more.host_bytes
    assert _estimate(width=4).training_bytes > plain.training_bytes
    # a lattice that turns 650 numbers sends 1024: six arrays of four clients and eight
    # models
    turned = _estimate(width=1, code_dim=1024)
    assert turned.aggregation_bytes - plain.aggregation_bytes == 4 * 374 * (6 * 4 + 8)
    assert turned.training_bytes == plain.training_bytes
    with pytest.raises(
        mj.ConfigurationError, match="`code_dim` must be an integer from 650"
    ):
        _estimate(code_dim=649)


@pytest.mark.long
def test_each_device_of_a_mesh_needs_its_share_of_the_slots_and_all_data() -> None:
    mesh = jax.make_mesh((2,), ("clients",))
    half, whole = _estimate(cohort_size=2, width=1), _estimate(cohort_size=4, width=1)
    each = _estimate(cohort_size=4, width=1, mesh=mesh)
    assert each.data_bytes == whole.data_bytes
    assert each.aggregation_bytes == half.aggregation_bytes < whole.aggregation_bytes
    # its own slots are those of the half; order and gathering of four slots come on top
    assert (
        half.training_bytes <= each.training_bytes <= half.training_bytes + 4 * 4 * 650
    )


def test_the_program_that_is_estimated_is_the_one_that_trains() -> None:
    """Word for word, so that the compile cache has it when training starts."""
    mesh = checked_mesh(jax.make_mesh((2,), ("clients",)))
    parameters, clients = jnp.zeros(650, jnp.float32), _clients()
    slots = jnp.asarray([4, 0, 2], jnp.int32), jnp.asarray([True, False, True])
    estimated = programs.lowered_cohort_updates(
        _trainer(), parameters, clients, 3, mesh=mesh
    )
    given = (_trainer(), parameters, clients, as_key(5), jnp.int32(7), *slots)
    trained = programs.sharded.lower(
        *programs.replicated(given, mesh), mesh=mesh, width=None
    )
    assert estimated.as_text() == trained.as_text()


def test_widest_within_a_bound() -> None:
    """A client takes 10, other things 5: by hand."""

    def estimate(width: int) -> MemoryEstimate:
        asked.append(width)
        return MemoryEstimate(width, 5, 10 * width, 0, 0, 0)

    for bound, most, widest in ((15, 9, 1), (44, 9, 3), (45, 9, 4), (1000, 9, 9)):
        asked: list[int] = []
        assert largest_width(bound, most, estimate) == widest
        assert len(asked) <= 2
    with pytest.raises(
        mj.ConfigurationError, match="needed and given are; got 15 and 14"
    ):
        largest_width(14, 9, estimate)
    # work space that grows faster than the width, against all expectation
    assert (
        largest_width(100, 8, lambda w: MemoryEstimate(w, 0, 10 * w * w, 0, 0, 0)) == 2
    )


@pytest.mark.long
def test_a_bound_is_kept_or_refused_before_any_work() -> None:
    history = np.zeros((2, 6), bool)
    history[:, :4] = True
    aggregator = mj.secagg.ring_average(mj.quantize.stochastic(2**16, 0.5), 4, 650)

    def train(**more: Any) -> mj.federated.TrainingResult:
        training = mj.federated.Training(
            _MODEL, _clients(), history, _trainer(), aggregator
        )
        return mj.federated.train(0, training, **more)

    with pytest.raises(
        mj.ConfigurationError, match="`memory_bytes` must be a positive integer"
    ):
        train(memory_bytes=0)
    with pytest.raises(
        mj.ConfigurationError, match="must hold the training of one client"
    ):
        train(memory_bytes=10_000)
    bound = _estimate(width=1, num_rounds=2).peak_bytes
    tight = train(memory_bytes=bound)
    compiled = programs.cohort_updates._cache_size()
    free = train(memory_bytes=100 * bound)
    np.testing.assert_array_equal(tight.status, free.status)
    np.testing.assert_allclose(tight.parameters, free.parameters, atol=2 * 1.6e-5)
    train(memory_bytes=bound + 1)  # the same width: nothing new
    assert programs.cohort_updates._cache_size() <= compiled + 1


_MEASURE = """
import json, pathlib, sys
import numpy as np
import mrsa_jax as mj

def peak():  # of this program; getrusage would start from its parent's
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])

hidden, width = int(sys.argv[1]), int(sys.argv[2]) or None
model = mj.federated.mlp(10, hidden_sizes=(hidden,))
clients = mj.data.iid(0, mj.data.load("digits"), 12)
dim = mj.federated.num_parameters(model, (8, 8, 1))
trainer = mj.federated.local_sgd(model, 0.1, batch_size=32)

def train(rounds, **more):
    training = mj.federated.Training(
        model, clients, np.ones((rounds, 12), bool), trainer,
        mj.secagg.ring_average(mj.quantize.stochastic(2**16, .5), 12, dim))
    return mj.federated.train(0, training, **more)

estimate = mj.federated.memory_estimate(
    model, clients, trainer=trainer, cohort_size=12, width=width, num_rounds=2)
before = peak()
train(2, **({} if width is None else {"memory_bytes": estimate.peak_bytes}))
print(json.dumps({"estimate": estimate.peak_bytes, "measured": peak() - before}))
"""


def _measured(hidden: int, width: int) -> tuple[int, int]:
    import json

    environment = os.environ | {"PYTHONPATH": str(pathlib.Path(mj.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(hidden), str(width)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["estimate"], answer["measured"]


@pytest.mark.slow
@pytest.mark.parametrize(("hidden", "width"), [(40_000, 0), (40_000, 1), (10_000, 12)])
def test_the_estimate_is_what_a_process_takes(hidden: int, width: int) -> None:
    """Within a quarter above, and half below, beside 150 MB for compiling and executables."""
    estimate, measured = _measured(hidden, width)
    assert measured <= 1.25 * estimate + 150e6
    assert measured >= 0.5 * estimate
