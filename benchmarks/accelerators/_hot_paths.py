"""The hot paths: programs that must stay a few batched launches on an accelerator.

`hot_paths.toml` names each path and its bounds when compiled for one H100. A function
for each builds the jitted programs with their arguments at the sizes that users have
(or at small ones). Bulk arguments are `jax.ShapeDtypeStruct`s: only their shapes matter
to the compiler, and a run fills them (`_measured.filled`); what a program's meaning
hangs on (keys, schemes, edges) is given.
"""

from __future__ import annotations

import functools
import math
import pathlib
import tomllib
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct as Struct

from mrsa_jax._core.forms import Form, use_form

_FEW, _MANY = (8, 15, 12), (1_024, 150, 120)  # histories x rounds x clients


class Call(NamedTuple):
    """One program and what it is called with."""

    function: Any  # what `jax.jit` returned
    arguments: tuple[Any, ...]
    static: dict[str, Any] = {}  # noqa: RUF012


class Work(NamedTuple):
    """Work of one call of a hot path.

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
    """Bounds of one form of a path on one H100.

    Attributes:
        launches: At most so many.
        moved: Times the least bytes; None if not bounded.
        unknown_loops: Loops of a length that XLA does not know.
        instructions: Of a warp, for one unit of work; None if not bounded.
    """

    launches: int
    moved: float | None = None
    unknown_loops: int = 0
    instructions: float | None = None


class HotPath(NamedTuple):
    """A row.

    Attributes:
        name: What it does.
        sizes: What of, at the sizes that users have.
        unit: Of its work.
        build: Takes whether sizes are to be small; called under the form and the device
            that it is compiled for.
        bounds: For each form that is looked at.
        kernels: Whose instructions are counted: for one unit of work, the rounds of each
            one's loops, in the order in which they begin.
    """

    name: str
    sizes: str
    unit: str
    build: Callable[[bool], Work]
    bounds: dict[Form, Bound]
    kernels: dict[str, list[float]] = {}  # noqa: RUF012


def _bools(*shape: int) -> Struct:
    return Struct(shape, jnp.bool_)


def _words(*shape: int) -> Struct:
    return Struct(shape, jnp.uint32)


def _floats(*shape: int) -> Struct:
    return Struct(shape, jnp.float32)


def _of_histories(function: Callable[..., Any], *shape: int) -> Work:
    """Build the work of a function of many histories [count, rounds, clients]."""
    return Work([Call(jax.jit(function), (_bools(*shape),))], shape[0])


def _ranks(quick: bool) -> Work:
    from mrsa_jax.modular import _linalg

    count, size = (32, 12) if quick else (16_384, 120)
    ranks = functools.partial(_linalg.ranks_modulo, prime=None, count=count)
    return _of_histories(ranks, count, size, size)._replace(int32=count * size**3)


def _trajectory(quick: bool) -> Work:
    from mrsa_jax.modular import rank_trajectory

    return _of_histories(rank_trajectory, *(_FEW if quick else _MANY))


def _exposure(quick: bool) -> Work:
    from mrsa_jax.privacy import first_exposure

    return _of_histories(first_exposure, *(_FEW if quick else _MANY))


def _hidden(quick: bool) -> Work:
    from mrsa_jax.privacy import hidden_among_trajectory

    count, rounds, clients = (4, 10, 8) if quick else (256, 200, 120)
    hidden = functools.partial(hidden_among_trajectory, quantiles=(0.0, 0.5))
    work = _of_histories(hidden, count, rounds, clients)
    return work._replace(amount=count * rounds)


def _weak_bounds(quick: bool) -> Work:
    from mrsa_jax._core.prime import PRIMES, fields
    from mrsa_jax.privacy.solver import bounds

    count, rounds, groups = (4, 15, 12) if quick else (64, 150, 120)
    rows = _words(count, 2, rounds, groups)
    codes = Struct((count, rounds, groups), jnp.int32)
    weights = jnp.ones((count, groups), jnp.int32)
    projection = _words(2, 3, groups)
    arguments = (rows, codes, weights, projection, fields(PRIMES))
    call = Call(bounds.in_full, arguments, {"binary": False, "tile": count})
    return Work([call], count)


# 20 rounds of 4 quarter rounds of 4 exclusive ors and 4 rotations
_BLOCK_OPERATIONS = 640


def _chacha20(quick: bool) -> Work:
    from mrsa_jax.modular import chacha20_columns

    blocks = 2**10 if quick else 2**20
    state = _words(8, blocks), _words(blocks), _words(3, blocks)
    call = Call(jax.jit(chacha20_columns), state)
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
    inputs = _words(n, dim)
    program = jax.jit(functools.partial(pad_inputs, plan=plan, round_index=0))
    words = 1 if modulus & (modulus - 1) == 0 else 2
    streams = n * n  # of each pair's stream, one for each of its ends, and its own
    operations = streams * math.ceil(dim * words / 16) * _BLOCK_OPERATIONS
    calls = [Call(program, (seeds, inputs))]
    return Work(calls, n * dim, 2 * 4 * n * dim, int32=operations)


def _shares(quick: bool) -> Work:
    from mrsa_jax.modular.shamir import LIMBS, recover_secrets, share_secrets

    n, threshold = (5, 3) if quick else (40, 21)
    points = jnp.broadcast_to(jnp.arange(1, n + 1, dtype=jnp.uint32), (n, n))
    secrets = _words(n, LIMBS)
    higher = _words(n, threshold - 1, LIMBS)
    share = Call(jax.jit(share_secrets), (secrets, higher, points))
    present = jnp.ones((n, n), jnp.bool_)
    recover = Call(jax.jit(recover_secrets), (_words(n, LIMBS, n), points, present))
    return Work([share, recover], n)


def _noise(quick: bool) -> Work:
    from mrsa_jax import dp

    clients, dim = (4, 300) if quick else (128, 2**18)
    noise, keys = dp.skellam(4096.0), jax.random.split(jax.random.key(0), clients)

    def draw(noise: Any, keys: Any) -> Any:
        return jax.vmap(lambda key: noise.sample(key, (dim,)))(keys)

    amount = clients * dim
    # 20 rounds of a rotation and an exclusive or per draw
    calls = [Call(jax.jit(draw), (noise, keys))]
    return Work(calls, amount, 4 * amount, int32=40 * amount)


def _segments(quick: bool) -> Work:
    from mrsa_jax import hetero, secagg

    clients, groups, dim = (12, 3, 300) if quick else (128, 7, 10**5)
    sizes = [clients // groups + (g < clients % groups) for g in range(groups)]
    layout = hetero.segment_layout("mc", sizes, [2 + g for g in range(groups)], dim)
    seeds = _seeds(clients)
    inputs = _words(clients, dim)
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

    call = Call(jax.jit(aggregate), (_floats(n, dim),))
    return Work([call], n * dim)


def _selection(quick: bool) -> Work:
    from mrsa_jax import availability, selection
    from mrsa_jax.selection import _rollout

    # blocks of three: the largest multiple of 3 up to a tenth of the clients
    trials, rounds, clients = (64, 5, 12) if quick else (100_000, 200, 120)
    selector = selection.batch_partitioning(clients, clients // 10 // 3 * 3 or 3, 3)
    online = availability.independent(0.1).for_clients(clients)
    indices = _words(trials)
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
    edges, alive = _bools(trials, n, n), _bools(trials, 5, n)
    limits = jnp.full(n, n // 2, jnp.int32)
    judge = Call(judge_arrays, (edges, alive, limits))
    return Work([draw, judge], trials)


class _Cohort(NamedTuple):
    """A cohort of twelve clients that trains one epoch.

    Attributes:
        model: Function of `federated` that builds the network.
        side: Height and width of an image.
        channels: Of an image.
        samples: Of each client.
        batch: Samples of a minibatch.
    """

    model: str
    side: int
    channels: int
    samples: int
    batch: int


_LENET = _Cohort("lenet", 32, 3, 417, 50)


def _local_training(quick: bool, **words: Any) -> Work:
    """One epoch of a cohort; XLA does not know its steps, so they count as one."""
    from mrsa_jax import federated
    from mrsa_jax.data import ClientData
    from mrsa_jax.federated.programs import cohort_updates

    network = _Cohort(**words)
    clients, samples, batch = (2, 8, 4) if quick else (12, *network[3:])
    model = getattr(federated, network.model)(10)
    trainer = federated.local_sgd(model, 0.05, batch_size=batch)
    shape = (network.side, network.side, network.channels)
    pool = clients * samples
    data = ClientData(
        _floats(pool, *shape),
        Struct((pool,), jnp.int32),
        jnp.arange(pool, dtype=jnp.int32).reshape(clients, samples),
        jnp.full(clients, samples, jnp.int32),
        10,
    )
    everybody = jnp.arange(clients, dtype=jnp.int32), jnp.ones(clients, jnp.bool_)
    start = _floats(federated.num_parameters(model, shape))
    arguments = trainer, start, data, jax.random.key(0), jnp.int32(0), *everybody
    return Work([Call(cohort_updates, arguments)], pool)


def _rounds_between_evaluations(quick: bool, *, num_runs: int = 1) -> Work:
    """Ten rounds of LeNet, or of some side by side.

    Training, secure sum, server step, a report.
    """
    from mrsa_jax import quantize, secagg
    from mrsa_jax.federated.programs import (
        PLAIN_AVERAGE,
        Carried,
        Fixed,
        Round,
        runs_program,
    )

    work = _local_training(quick, **_LENET._asdict())
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
    settings = {"server": PLAIN_AVERAGE, "keep": False}
    fixed = Fixed(key, trainer, average)
    each = [(value,) * num_runs for value in (fixed, carried, rounds)]
    settings |= {"width": num_runs * slots, "tile": num_runs}
    call = Call(runs_program, (*each, jnp.zeros(num_runs, jnp.int32), data), settings)
    return Work([call], num_runs * num_rounds * work.amount)


def _hot_path(
    name: str,
    sizes: str,
    unit: str,
    bounds: dict[str, dict[str, Any]],
    build: str,
    words: dict[str, Any] | None = None,
    kernels: dict[str, list[float]] | None = None,
) -> HotPath:
    # a row names the function of this module that builds its programs
    builder = functools.partial(globals()[f"_{build}"], **(words or {}))
    forms = {cast(Form, form): Bound(**most) for form, most in bounds.items()}
    return HotPath(name, sizes, unit, builder, forms, kernels or {})


HOT_PATHS: dict[str, HotPath] = {
    key: _hot_path(**row)
    for key, row in tomllib.loads(
        pathlib.Path(__file__).with_name("hot_paths.toml").read_text(encoding="utf-8")
    ).items()
}
