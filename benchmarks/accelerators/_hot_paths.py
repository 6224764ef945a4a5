"""The hot paths: programs that must stay a few batched launches on an accelerator.

A row names one path, its bounds when compiled for one H100, and a function that returns
the jitted programs with their arguments at the sizes that users have (or at small
ones). Bulk arguments are `jax.ShapeDtypeStruct`s: only their shapes matter to the
compiler, and a run fills them (`_accelerators.filled`); what a program's meaning hangs
on (keys, schemes, edges) is given.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct as Struct

from mrsa_jax._core.forms import Form, use_form


class Call(NamedTuple):
    """One program and what it is called with."""

    function: Any  # what `jax.jit` returned
    arguments: tuple[Any, ...]
    static: dict[str, Any] = {}  # noqa: RUF012


class Work(NamedTuple):
    """What one call of a hot path does.

    Attributes:
        calls: Its programs, in order.
        amount: Units of work.
        least_bytes: Bytes that it must move; arguments and results of its programs if
            None.
        int32: 32-bit integer operations that it must do, without additions, which other
            units do beside them; 0 where nobody has counted.
        flops: Floating-point operations of its matrix products; 0 likewise.
    """

    calls: list[Call]
    amount: float
    least_bytes: int | None = None
    int32: float = 0.0
    flops: float = 0.0


class Bound(NamedTuple):
    """What one form of a path may take on one H100.

    Attributes:
        launches: At most so many.
        moved: Times the least bytes; None if not bounded.
        unknown_loops: Loops of a length that XLA does not know.
    """

    launches: int
    moved: float | None = None
    unknown_loops: int = 0


class HotPath(NamedTuple):
    """A row.

    Attributes:
        name: What it does.
        sizes: What of, at the sizes that users have.
        unit: Of its work.
        build: Takes whether sizes are to be small; called under the form and the device
            that it is compiled for.
        bounds: For each form that is looked at.
    """

    name: str
    sizes: str
    unit: str
    build: Callable[[bool], Work]
    bounds: dict[Form, Bound]


# ---- exact linear algebra


def _ranks(quick: bool) -> Work:
    from mrsa_jax.modular import _linalg

    count, size = (32, 12) if quick else (16_384, 120)
    matrices = Struct((count, size, size), jnp.bool_)
    program = jax.jit(functools.partial(_linalg.ranks_modulo, prime=None, count=count))
    return Work([Call(program, (matrices,))], count, int32=count * size**3)


def _trajectory(quick: bool) -> Work:
    from mrsa_jax.modular import rank_trajectory

    count, rounds, clients = (8, 15, 12) if quick else (1_024, 150, 120)
    histories = Struct((count, rounds, clients), jnp.bool_)
    return Work([Call(jax.jit(rank_trajectory), (histories,))], count)


def _exposure(quick: bool) -> Work:
    from mrsa_jax.privacy import first_exposure

    count, rounds, clients = (8, 15, 12) if quick else (1_024, 150, 120)
    histories = Struct((count, rounds, clients), jnp.bool_)
    return Work([Call(jax.jit(first_exposure), (histories,))], count)


def _hidden(quick: bool) -> Work:
    from mrsa_jax.privacy import hidden_among_trajectory

    count, rounds, clients = (4, 10, 8) if quick else (256, 200, 120)
    histories = Struct((count, rounds, clients), jnp.bool_)
    program = jax.jit(functools.partial(hidden_among_trajectory, quantiles=(0.0, 0.5)))
    return Work([Call(program, (histories,))], count * rounds)


def _weak_bounds(quick: bool) -> Work:
    from mrsa_jax._core.prime import PRIMES, fields
    from mrsa_jax.privacy.solver import bounds

    count, rounds, groups = (4, 15, 12) if quick else (64, 150, 120)
    rows = Struct((count, 2, rounds, groups), jnp.uint32)
    codes = Struct((count, rounds, groups), jnp.int32)
    weights = jnp.ones((count, groups), jnp.int32)
    projection = Struct((2, 3, groups), jnp.uint32)
    arguments = (rows, codes, weights, projection, fields(PRIMES))
    return Work(
        [Call(bounds.in_full, arguments, {"binary": False, "tile": count})], count
    )


# ---- pads and shares

# 20 rounds of 4 quarter rounds of 4 exclusive ors and 4 rotations
_BLOCK_OPERATIONS = 640


def _chacha20(quick: bool) -> Work:
    from mrsa_jax.modular import chacha20_columns

    blocks = 2**10 if quick else 2**20
    shapes = (8, blocks), (blocks,), (3, blocks)
    call = Call(
        jax.jit(chacha20_columns), tuple(Struct(shape, jnp.uint32) for shape in shapes)
    )
    return Work([call], 64 * blocks, int32=_BLOCK_OPERATIONS * blocks)


def _seeds(participants: int) -> Any:
    """Return seeds made here, where a kernel that is compiled for could not run."""
    from mrsa_jax.secagg import derive_seeds, key_material

    with use_form("xla"):
        return derive_seeds(key_material(0), np.arange(participants), 0)


def _padded_round(quick: bool, *, modulus: int) -> Work:
    from mrsa_jax.secagg import complete_plan, pad_inputs

    n, dim = (5, 300) if quick else (100, 10**6)
    plan = complete_plan(n, dim, modulus)
    seeds = _seeds(n)
    inputs = Struct((n, dim), jnp.uint32)
    program = jax.jit(functools.partial(pad_inputs, plan=plan, round_index=0))
    words = 1 if modulus & (modulus - 1) == 0 else 2
    streams = n * n  # of each pair's stream, one for each of its ends, and its own
    operations = streams * math.ceil(dim * words / 16) * _BLOCK_OPERATIONS
    return Work(
        [Call(program, (seeds, inputs))], n * dim, 2 * 4 * n * dim, int32=operations
    )


def _shares(quick: bool) -> Work:
    from mrsa_jax.modular.shamir import LIMBS, recover_secrets, share_secrets

    n, threshold = (5, 3) if quick else (40, 21)
    limbs, degree = LIMBS, threshold - 1
    points = jnp.broadcast_to(jnp.arange(1, n + 1, dtype=jnp.uint32), (n, n))
    secrets, higher = (
        Struct((n, limbs), jnp.uint32),
        Struct((n, degree, limbs), jnp.uint32),
    )
    shares = Struct((n, limbs, n), jnp.uint32)
    share = Call(jax.jit(share_secrets), (secrets, higher, points))
    recover = Call(
        jax.jit(recover_secrets), (shares, points, jnp.ones((n, n), jnp.bool_))
    )
    return Work([share, recover], n)


def _noise(quick: bool) -> Work:
    from mrsa_jax import dp

    clients, dim = (4, 300) if quick else (128, 2**18)
    noise, keys = dp.skellam(4096.0), jax.random.split(jax.random.key(0), clients)

    def draw(noise: Any, keys: Any) -> Any:
        return jax.vmap(lambda key: noise.sample(key, (dim,)))(keys)

    amount = clients * dim
    # 20 rounds of a rotation and an exclusive or per draw
    return Work(
        [Call(jax.jit(draw), (noise, keys))], amount, 4 * amount, int32=40 * amount
    )


def _segments(quick: bool) -> Work:
    from mrsa_jax import hetero, secagg

    clients, groups, dim = (12, 3, 300) if quick else (128, 7, 10**5)
    sizes = [clients // groups + (g < clients % groups) for g in range(groups)]
    layout = hetero.segment_layout("mc", sizes, [2 + g for g in range(groups)], dim)
    seeds = _seeds(clients)
    inputs = Struct((clients, dim), jnp.uint32)
    program = jax.jit(
        functools.partial(secagg.pad_inputs, plan=layout.plan, round_index=0)
    )
    return Work([Call(program, (seeds, inputs))], clients * dim, 2 * 4 * clients * dim)


def _segment_round(quick: bool) -> Work:
    from mrsa_jax.hetero import segment_average, segment_layout

    groups, size, dim = (3, 2, 60) if quick else (10, 10, 10**6)
    levels = [2 + group for group in range(groups)]
    layout = segment_layout("mc", [size] * groups, levels, dim)
    average, n = segment_average(layout, (-1.0, 1.0), fidelity="sets"), groups * size

    def aggregate(updates: Any) -> Any:
        everybody = jnp.ones(n, jnp.bool_)
        out, _ = average.aggregate(
            jax.random.key(0), average.init(), updates, jnp.arange(n), everybody
        )
        return out

    call = Call(jax.jit(aggregate), (Struct((n, dim), jnp.float32),))
    return Work([call], n * dim)


# ---- many trials


def _selection(quick: bool) -> Work:
    from mrsa_jax import availability, selection
    from mrsa_jax.selection import _rollout

    trials, rounds, clients = (64, 5, 12) if quick else (100_000, 200, 120)
    selector = selection.batch_partitioning(clients, clients // 10 // 3 * 3 or 3, 3)
    online = availability.independent(0.1).for_clients(clients)
    indices = Struct((trials,), jnp.uint32)
    static = {"num_rounds": rounds}
    call = Call(
        _rollout._roll_chunk.in_full,
        (jax.random.key(0), indices, selector, online),
        static,
    )
    return Work([call], trials * rounds)


def _failures(quick: bool) -> Work:
    from mrsa_jax import availability, graphs
    from mrsa_jax.secagg.failures import draw_arrays, judge_arrays

    trials, n = (32, 12) if quick else (8_192, 100)
    graph, steps = graphs.erdos_renyi(n, 0.6), availability.independent_steps(0.02)
    drawn = graph, steps, jax.random.key(0), jnp.uint32(0)
    draw = Call(draw_arrays, drawn, {"chunk": trials})
    edges, alive = Struct((trials, n, n), jnp.bool_), Struct((trials, 5, n), jnp.bool_)
    limits = jnp.full(n, n // 2, jnp.int32)
    judge = Call(judge_arrays, (edges, alive, limits))
    return Work([draw, judge], trials)


# ---- training


def _local_training(
    quick: bool,
    *,
    model: str,
    shape: tuple[int, ...],
    clients: int,
    samples: int,
    batch: int,
) -> Work:
    """One epoch of a cohort; XLA does not know its steps, so they count as one."""
    from mrsa_jax import federated
    from mrsa_jax.data import ClientData
    from mrsa_jax.federated.programs import cohort_updates

    clients, samples, batch = (2, 8, 4) if quick else (clients, samples, batch)
    network = getattr(federated, model)(10)
    trainer = federated.local_sgd(network, 0.05, batch_size=batch)
    dim = federated.num_parameters(network, shape)
    pool = clients * samples
    data = ClientData(
        Struct((pool, *shape), jnp.float32),
        Struct((pool,), jnp.int32),
        jnp.arange(pool, dtype=jnp.int32).reshape(clients, samples),
        jnp.full(clients, samples, jnp.int32),
        10,
    )
    everybody = jnp.arange(clients, dtype=jnp.int32), jnp.ones(clients, jnp.bool_)
    start = Struct((dim,), jnp.float32)
    arguments = trainer, start, data, jax.random.key(0), jnp.int32(0), *everybody
    return Work([Call(cohort_updates, arguments)], pool)


def _rounds_between_evaluations(quick: bool, *, num_runs: int | None = None) -> Work:
    """Ten rounds of LeNet, or of some side by side.

    Training, secure sum, server step, a report.
    """
    from mrsa_jax import quantize, secagg
    from mrsa_jax.federated.programs import (
        PLAIN_AVERAGE,
        Carried,
        Fixed,
        Round,
        rounds_program,
        runs_program,
    )

    work = _lenet(quick)
    trainer, start, data, key, _, members, present = work.calls[0].arguments
    num_rounds, slots = 2 if quick else 10, len(members)
    average = secagg.ring_average(
        quantize.stochastic(2**16, 0.5), slots, start.shape[0], fidelity="sets"
    )
    rounds = Round(
        is_run=jnp.ones(num_rounds, jnp.bool_),
        index=jnp.arange(num_rounds, dtype=jnp.int32),
        members=jnp.tile(members, (num_rounds, 1)),
        alive=jnp.tile(present, (num_rounds, 1)),
        sends=jnp.tile(present, (num_rounds, 1)),
        factor=None,
        weights=None,
        assignment_key=None,
    )
    state = PLAIN_AVERAGE.init(jnp.zeros(start.shape, jnp.float32))
    carried = Carried(start, average.init(), state, jnp.bool_(True))
    settings = {"server": PLAIN_AVERAGE, "keep": False, "width": slots}
    fixed = Fixed(key, trainer, average)
    if num_runs is None:
        call = Call(rounds_program, (fixed, carried, rounds, data), settings)
        return Work([call], num_rounds * work.amount)
    each = [(own,) * num_runs for own in (fixed, carried, rounds)]
    settings |= {"width": num_runs * slots, "tile": num_runs}
    call = Call(runs_program, (*each, jnp.zeros(num_runs, jnp.int32), data), settings)
    return Work([call], num_runs * num_rounds * work.amount)


_28, _32 = (28, 28, 1), (32, 32, 3)
_mlp = functools.partial(
    _local_training, model="mlp", shape=_28, clients=12, samples=300, batch=50
)
_cnn = functools.partial(
    _local_training, model="cnn", shape=_28, clients=12, samples=500, batch=100
)
_lenet = functools.partial(
    _local_training, model="lenet", shape=_32, clients=12, samples=417, batch=50
)
_power = functools.partial(_padded_round, modulus=2**32)
_prime = functools.partial(_padded_round, modulus=2**31 - 1)

_ROUND = "n = 100 complete, d = 1,000,000"

HOT_PATHS: dict[str, HotPath] = {
    "ranks": HotPath(
        "ranks, small prime",
        "16,384 x [120, 120] bools",
        "matrices",
        _ranks,
        {"pallas": Bound(20, 3.0), "xla": Bound(1_000)},
    ),
    "trajectory": HotPath(
        "rank trajectories",
        "1,024 x [150, 120]",
        "histories",
        _trajectory,
        {"pallas": Bound(10, 3.0), "xla": Bound(5_000)},
    ),
    "exposure": HotPath(
        "first exposure",
        "1,024 x [150, 120]",
        "histories",
        _exposure,
        {"pallas": Bound(10, 5.0), "xla": Bound(1_200)},
    ),
    "hidden-among": HotPath(
        "worst and median client hidden among, after every round",
        "256 x [200, 120]",
        "rounds",
        _hidden,
        {"pallas": Bound(200), "xla": Bound(6_500)},
    ),
    "weak-bounds": HotPath(
        "bounds of weak privacy",
        "64 x [150, 120]",
        "histories",
        _weak_bounds,
        {"xla": Bound(26_000)},
    ),
    "chacha20": HotPath(
        "ChaCha20",
        "64 MiB",
        "bytes",
        _chacha20,
        {"pallas": Bound(2, 1.2), "xla": Bound(100)},
    ),
    "pads": HotPath(
        "padded round, 2^32",
        _ROUND,
        "coordinates",
        _power,
        {"pallas": Bound(20, 1.5), "xla": Bound(2_000, unknown_loops=1)},
    ),
    "pads-prime": HotPath(
        "padded round, 2^31 - 1",
        _ROUND,
        "coordinates",
        _prime,
        {"pallas": Bound(20, 1.5), "xla": Bound(4_000, unknown_loops=1)},
    ),
    "shamir": HotPath(
        "Shamir's shares and back", "n = 40", "secrets", _shares, {"xla": Bound(400)}
    ),
    "noise": HotPath(
        "exact noise of clients",
        "128 clients x 262,144 coordinates, Skellam",
        "draws",
        _noise,
        # 3 times the least without the loop, which decides draws left open and seldom
        # runs
        {"xla": Bound(20, 15.0, unknown_loops=1)},
    ),
    "segments": HotPath(
        "HeteroSAg's pads",
        "N = 128, G = 7, d = 100,000",
        "coordinates",
        _segments,
        # a kernel for each of two kinds of ring: the count takes it to read all inputs
        # and results
        {"pallas": Bound(100, 3.5)},
    ),
    "selection": HotPath(
        "selection",
        "100,000 trials x 200 rounds, N = 120",
        "rounds",
        _selection,
        {"pallas": Bound(2_000, 20.0), "xla": Bound(6_000, 100.0)},
    ),
    "failures": HotPath(
        "failure study",
        "8,192 rounds, n = 100",
        "rounds",
        _failures,
        {"pallas": Bound(15, 1.2), "xla": Bound(40, 4.0, 1)},
    ),
    "mlp": HotPath(
        "a minibatch step of an MLP",
        "12 clients",
        "samples",
        _mlp,
        {"xla": Bound(40, None, 1)},
    ),
    "cnn": HotPath(
        "a minibatch step of a CNN",
        "12 clients",
        "samples",
        _cnn,
        {"xla": Bound(70, None, 1)},
    ),
    "lenet": HotPath(
        "a minibatch step of LeNet",
        "12 x 417",
        "samples",
        _lenet,
        {"xla": Bound(75, None, 1)},
    ),
    "rounds": HotPath(
        "rounds of LeNet between evaluations",
        "10 x 12 x 417",
        "samples",
        _rounds_between_evaluations,
        {"xla": Bound(1_200, None, 1)},
    ),
    "runs": HotPath(
        "rounds of LeNets side by side",
        "8 x 10 x 12 x 417",
        "samples",
        functools.partial(_rounds_between_evaluations, num_runs=8),
        {"xla": Bound(1_000, None, 1)},
    ),
    "segment-round": HotPath(
        "a round of HeteroSAg without pads",
        "n = 100, 10 groups, d = 10^6",
        "coordinates",
        _segment_round,
        {"xla": Bound(40, 4.0, 1)},
    ),
}
