"""Every public function of arrays runs inside `jit`, `vmap` and `shard_map`, or says why not.

One table: each function with the arrays of two calls, stacked. A public name that is
neither in the table nor among those that take no arrays fails;
docs/reference/transformations.md holds its summary.
"""

from __future__ import annotations

import functools
import inspect
import pathlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, PartitionSpec

import mrsa_jax as mj
from mrsa_jax import (
    attacks,
    availability as online,
    data,
    design,
    dp,
    federated,
    graphs,
    hetero,
    modular,
    privacy,
    secagg,
    selection,
)
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.traced import needs_values
from mrsa_jax.quantize import stochastic

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs/reference/transformations.md"
N, J, D = 4, 3, 5


class Row(NamedTuple):
    """One function, ready to be called.

    Attributes:
        call: Takes the arrays of one call.
        given: Of two calls: pytrees of arrays, and of functions that return them.
        composes: Whether it runs under every transformation; else it refuses all of
            them.
        why: Of one that refuses: what it needs the values for.
    """

    call: Callable[..., Any]
    given: tuple[Any, ...]
    composes: bool
    why: str = ""

    @property
    def arrays(self) -> tuple[Any, ...]:
        """Return those of two calls, on the device."""
        return jax.tree.map(
            lambda one: one() if callable(one) else on_device(one), self.given
        )


# why a function refuses
SEARCH = "a search on the CPU"
VALUE = "gives Python values or NumPy arrays"
SHAPE = "the shape of the result depends on values"
CHECKED = "checks numbers; what it builds is a pytree that any transformation takes"
HOST = "float64 of NumPy"


def _of(call: Callable[..., Any], *arrays: Any, **static: Any) -> Row:
    return Row(lambda *own: call(*own, **static), arrays, True)


def _not(why: str, call: Callable[..., Any], *arrays: Any, **static: Any) -> Row:
    return Row(lambda *own: call(*own, **static), arrays, False, why)


_draw = np.random.default_rng(0)


def _words(*shape: int, below: int = 2**32) -> jax.Array:
    return on_device(_draw.integers(0, below, (2, *shape), dtype=np.uint32))


def _floats(*shape: int) -> jax.Array:
    return on_device(_draw.normal(size=(2, *shape)), jnp.float32)


def _built(factory: Callable[..., Any], *arrays: Any) -> Row:
    """Return the row of a factory.

    Its thresholds in 2^-32 are compared as the chances they are.
    """

    def chances(*own: Any) -> Any:
        leaves = jax.tree.leaves(factory(*own))
        is_threshold = [leaf.dtype == jnp.uint32 for leaf in leaves]
        pairs = zip(leaves, is_threshold, strict=True)
        return [
            leaf.astype(jnp.float32) / 2.0**32 if own else leaf for leaf, own in pairs
        ]

    return _of(chances, *arrays)


def _both(array: Any) -> Any:
    def twice(leaf: Any) -> Any:
        if _is_key(leaf):
            return jnp.stack([leaf, leaf])
        return on_device(np.stack([np.asarray(leaf)] * 2))

    return jax.tree.map(twice, array)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(getattr(leaf, "dtype", np.int32), jax.dtypes.prng_key)


def keys() -> jax.Array:
    return jax.random.split(jax.random.key(1), 2)


P = np.asarray(
    [
        [[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]],
        [[1, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 0]],
    ],
    bool,
)
PATH = np.eye(N, k=1, dtype=bool) | np.eye(N, k=-1, dtype=bool)
GRAPHS = np.stack([~np.eye(N, dtype=bool), PATH])
# the second round loses client 2 before step 3, which parts the path
SURVIVORS = np.ones((2, 5, N), bool)
SURVIVORS[1, 3:, 2] = False
LIMITS = np.asarray([[2, 3, 2, 2], [2, 2, 3, 1]], np.int32)
ROUNDS = (GRAPHS, SURVIVORS, LIMITS)
SIZES = np.asarray([1, 2], np.int32)
RATES = np.asarray([[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.6, 0.2]], np.float32)
CHANCES = np.asarray([0.05, 0.1], np.float32)


def modular_rows() -> dict[str, Row]:
    """Return the rows of `modular`."""
    points = np.broadcast_to(np.arange(1, 4, dtype=np.uint32), (2, 2, 3))
    used = on_device([[[1, 1, 0]] * 2, [[0, 1, 1]] * 2], bool)
    prime = modular.shamir.SHAMIR_PRIME
    matrices = _draw.integers(-2, 3, (2, 3, 4)).astype(np.int32)
    return {
        "add": _of(modular.add, _words(D, below=97), _words(D, below=97), modulus=97),
        "chacha20_columns": _of(
            modular.chacha20_columns, _words(8, 2), _words(2), _words(3, 2)
        ),
        "keystream": _of(modular.keystream, _words(8), _words(3), num_words=20),
        "limbs_of": _of(modular.shamir.limbs_of, _words(3, 8)),
        "rank": _of(modular.rank, matrices),
        "rank_trajectory": _of(modular.rank_trajectory, matrices),
        "recover_secrets": _of(
            modular.shamir.recover_secrets, _words(2, 9, 3, below=prime), points, used
        ),
        "reduce_words": _of(modular.reduce_words, _words(D), _words(D), modulus=97),
        "ring_sum_over": _of(modular.ring_sum_over, _words(3, D, below=97), modulus=97),
        "share_secrets": _of(
            modular.shamir.share_secrets,
            _words(2, 9, below=prime),
            _words(2, 2, 9, below=prime),
            points,
        ),
        "subtract": _of(
            modular.subtract, _words(D, below=97), _words(D, below=97), modulus=97
        ),
        "words_of_limbs": _of(modular.shamir.words_of_limbs, _words(3, 9, below=2**16)),
    }


def graphs_rows() -> dict[str, Row]:
    """Return the rows of `graphs`."""
    return {
        "check_adjacency": _not(VALUE, graphs.check_adjacency, GRAPHS),
        "component_labels": _of(graphs.component_labels, GRAPHS, SURVIVORS[:, 3]),
        "edges": _not(SHAPE, graphs.edges, GRAPHS),
        "erdos_renyi": _built(lambda p: graphs.erdos_renyi(N, p), CHANCES),
        "harary": _built(lambda degree: graphs.harary(N, degree), SIZES),
        "is_connected": _of(graphs.is_connected, GRAPHS, SURVIVORS[:, 3]),
        "complete().sample": _of(graphs.complete(N).sample, keys),
        "erdos_renyi().sample": _of(
            lambda key, model: model.sample(key),
            keys,
            _both(graphs.erdos_renyi(N, 0.5)),
        ),
        "harary().sample": _of(graphs.harary(N, 2).sample, keys),
        "over_blocks().sample": _of(
            graphs.over_blocks(graphs.harary(N, 2), 2).sample, keys
        ),
        "random_regular().sample": _of(graphs.random_regular(N, 2).sample, keys),
    }


def availability_rows() -> dict[str, Row]:
    """Return the rows of `availability`."""

    def two_rounds(key: Any, model: Any) -> Any:
        model = model.for_clients(N)
        first, state = model.sample(key, model.init(key))
        return first, model.sample(key, state)[0]

    models = {
        "cyclic()": online.cyclic([0.1, 0.9, 0.5, 0.3]),
        "Independent": online.independent(0.5),
        "markov()": online.markov(0.4, 3.0),
        "replay()": online.replay(np.asarray(P[0])),
    }
    rows = {
        f"{name}.sample": _of(two_rounds, keys, _both(model))
        for name, model in models.items()
    }
    steps = online.independent_steps(0.3)
    return rows | {
        "IndependentSteps.sample": _of(
            lambda key, cohort, model: model.sample(key, cohort),
            keys,
            SURVIVORS[:, 3],
            _both(steps),
        ),
        "assign_rates": _not(
            VALUE, lambda key: online.assign_rates(key, [0.1, 0.2], N), keys
        ),
        "cyclic": _built(online.cyclic, RATES),
        "diurnal": _built(
            lambda p, high, phase: online.diurnal(p, high / 4, 4, phase),
            CHANCES,
            CHANCES,
            SIZES,
        ),
        "independent": _built(online.independent, RATES),
        "independent_steps": _built(online.independent_steps, CHANCES),
        "markov": _built(online.markov, RATES, RATES + 2),
        "replay": _built(online.replay, P),
    }


def selection_rows() -> dict[str, Row]:
    """Return the rows of `selection`."""
    blocks, away = selection.batch_partitioning(N, 2, 2), online.independent(0.2)
    steps = online.independent_steps(0.2)
    history = selection.RoundHistory(SURVIVORS[[0] * J], P[0], np.zeros(J, np.int32))
    selectors = {
        "batch_partitioning()": blocks,
        "bernoulli()": selection.bernoulli(N, 0.5),
        "crossing_partitions()": selection.crossing_partitions(N, 2, 2),
        "power_of_choice()": selection.power_of_choice(N, 2, 3),
        "minimum_separation()": selection.minimum_separation(
            selection.uniform(N, 2), 1
        ),
        "balls_in_bins()": selection.balls_in_bins(N, 2),
    }

    def second_round(key: Any, free: Any, selector: Any, state: Any) -> Any:
        return selector.select(key, state, free)

    def after(selector: Any) -> Any:
        everybody = on_device(SURVIVORS[0, 0])
        return _both(selector.select(jax.random.key(1), selector.init(), everybody)[1])

    free = SURVIVORS[:, 0]
    rows = {
        f"{name}.select": _of(
            second_round, keys, free, _both(one), lambda one=one: after(one)
        )
        for name, one in selectors.items()
    }
    # compiled faster than blocks
    schemes = (_both(selection.bernoulli(N, 0.5)), _both(away))
    return rows | {
        "aggregation_cardinality": _of(selection.aggregation_cardinality, P),
        "balls_in_bins": _built(lambda bins: selection.balls_in_bins(N, bins), SIZES),
        "batch_partitioning": _built(
            lambda k, t: selection.batch_partitioning(N, k, t, "greedy"),
            2 * SIZES,
            SIZES,
        ),
        "bernoulli": _built(lambda p: selection.bernoulli(N, p), CHANCES),
        "blocks_within": _not(
            VALUE,
            lambda parts: selection.blocks_within(parts, 2, 2).blocks,
            SURVIVORS[:, :3],
        ),
        "expected_cardinality": _of(
            lambda rate: selection.expected_cardinality(N, 2, 2, rate), RATES
        ),
        "fairness_gap": _of(selection.fairness_gap, P),
        "from_lines": _not(CHECKED, lambda lines: selection.from_lines(lines, 2), P),
        "learnt_rows": _not(SHAPE, selection.learnt_rows, _both(history)),
        "learnt_sums": _of(
            lambda alive: selection.learnt_sums(alive, 2, "drop_block"), SURVIVORS
        ),
        "minimum_separation": _built(
            lambda b: selection.minimum_separation(selection.uniform(N, 2), b), SIZES
        ),
        "partition": _built(lambda k: selection.partition(N, k), SIZES),
        "poisson": _built(lambda p: selection.poisson(N, p), RATES),
        "power_of_choice": _built(
            lambda k, d: selection.power_of_choice(N, k, d), SIZES, SIZES + 1
        ),
        "rollout": _of(
            lambda key, s, a: selection.rollout(key, s, a, J), keys, *schemes
        ),
        "uniform": _built(lambda k: selection.uniform(N, k), SIZES),
        "weighted": _built(lambda k: selection.weighted(N, k), SIZES),
        "rollout_counts": _of(
            lambda key, s, a: selection.rollout_counts(key, s, a, J, 3), keys, *schemes
        ),
        "rollout_many": _not(
            VALUE,
            lambda key: selection.rollout_many([key], [blocks], [away], J, 2),
            keys,
        ),
        "rollout_metrics": _of(
            lambda key, s, a: selection.rollout_metrics(key, s, a, J, 3), keys, *schemes
        ),
        "rollout_rounds": _of(
            lambda key, s, a, own: selection.rollout_rounds(
                key, s, a, own, J, policy="abort", blocks=2
            ),
            keys,
            _both(blocks),
            _both(away),
            _both(steps),
        ),
        "rollout_trials": _of(
            lambda key, s, a: selection.rollout_trials(key, s, a, J, 3), keys, *schemes
        ),
    }


def quantize_rows() -> dict[str, Row]:
    """Return the rows of `quantize`."""
    quantizer, weights = stochastic(16, 1.0), on_device([[1, 2, 1, 1], [3, 1, 1, 1]])
    following = mj.quantize.following_range(2.0)
    lattice, noise, one = (
        mj.quantize.lattice(0.25, 1.0, D),
        dp.skellam(1.0),
        jnp.uint32(1),
    )

    def moved(values: Any) -> Any:
        width = following.init(quantizer)
        return following.advance(width, values, jnp.bool_(True))

    return {
        "StochasticQuantizer.encode": _of(
            lambda q, key, v: q.encode(key, v), _both(quantizer), keys, _floats(D)
        ),
        "StochasticQuantizer.decode": _of(
            lambda q, codes: q.decode(codes, 2), _both(quantizer), _words(D, below=30)
        ),
        "StochasticQuantizer.clipped_fraction": _of(
            quantizer.clipped_fraction, _floats(D)
        ),
        "stochastic": _built(stochastic, SIZES + 1, CHANCES),
        "LatticeQuantizer.encode": _of(
            lambda q, key, v: q.encode(key, v), _both(lattice), keys, _floats(D)
        ),
        "LatticeQuantizer.decode": _of(
            lambda q, codes: q.decode(codes, 2), _both(lattice), _words(8, below=30)
        ),
        "following_range().advance": _of(moved, _floats(D)),
        "has_left": _of(
            lambda words, row: mj.quantize.wrapping.has_left(
                words, row, one, jnp.uint32(15)
            ),
            _words(N, D, below=8),
            SURVIVORS[:, 3],
        ),
        "shortened": _of(
            lambda values: mj.quantize.shortened(values, jnp.float32(0.5)), _floats(D)
        ),
        "lifted": _of(
            lambda words: mj.quantize.wrapping.lifted(words, one, jnp.uint32(15)),
            _words(D, below=16),
        ),
        "budget": _not(VALUE, lambda w: mj.quantize.budget(16, N, w), weights),
        "check_fits": _not(
            VALUE, lambda w: mj.quantize.budgets.check_fits(16, N, 2**16, w), weights
        ),
        "check_weights": _not(VALUE, mj.quantize.budgets.check_weights, weights),
        "largest_levels": _not(
            VALUE, lambda w: mj.quantize.budgets.largest_levels(2**16, N, w), weights
        ),
        "largest_total_weight": _not(
            VALUE, lambda w: mj.quantize.budgets.largest_total_weight(N, w), weights
        ),
        "check_wraps": _not(
            VALUE,
            lambda q: mj.quantize.wrapping.check_wraps(q, noise, N, 20),
            _both(lattice),
        ),
        "wrap_probability": _not(
            VALUE,
            lambda q: mj.quantize.wrapping.wrap_probability(q, noise, N, 2**20),
            _both(lattice),
        ),
        "ring_size": _not(
            VALUE, lambda w: mj.quantize.budgets.ring_size(16, N, w), weights
        ),
    }


def privacy_rows() -> dict[str, Row]:
    """Return the rows of `privacy`."""
    blocks, away = selection.batch_partitioning(N, 2, 2), online.independent(0.2)
    return {
        "attribute_bound": _of(
            lambda q: jax.tree.leaves(privacy.attribute_bound(4, q)), CHANCES
        ),
        "audit": _not(SEARCH, privacy.audit, P),
        "audit_steps": _not(SEARCH, lambda p: list(privacy.audit_steps(p)), P),
        "client_privacy": _not(SEARCH, privacy.client_privacy, P),
        "collusion_risk": _not(
            VALUE, lambda p: privacy.collusion_risk(0, p, 0.25, 10), P
        ),
        "determined": _not(SEARCH, lambda p: privacy.determined(p, p.sum(axis=1)), P),
        "determined_rate": _not(
            SEARCH, lambda p: privacy.determined_rate(p, "bits:0.5", 2, nodes=0), P
        ),
        "distinguishability": _not(VALUE, privacy.distinguishability, P),
        "first_exposure": _of(privacy.first_exposure, P),
        "information": _of(
            lambda own: privacy.information(P[0], own, 1.0, own), CHANCES
        ),
        "integer_weights": _not(VALUE, privacy.integer_weights, P),
        "hidden_among": _of(privacy.hidden_among, P),
        "hidden_among_mates": _not(
            VALUE, lambda p: privacy.hidden_among_mates(p, memory=0.5), P
        ),
        "hidden_among_trajectory": _of(
            lambda p: privacy.hidden_among_trajectory(p, noise=0.5), P
        ),
        "policy_privacy": _not(
            VALUE,
            lambda key, rate: privacy.policy_privacy(
                key, blocks, away, rate, J, 2, blocks=[0, 0, 1, 1]
            ),
            keys,
            CHANCES[:, None],
        ),
        "strong_privacy": _of(privacy.strong_privacy, P),
        "strong_privacy_trajectory": _of(privacy.strong_privacy_trajectory, P),
        "unweighted_group": _not(SEARCH, privacy.unweighted_group, P),
        "weak_privacy": _not(SEARCH, privacy.weak_privacy, P),
        "weak_privacy_trajectory": _of(
            lambda p: jax.tree.leaves(privacy.weak_privacy_trajectory(p, "bounds"))[:4],
            P,
        ),
    }


def design_rows() -> dict[str, Row]:
    """Return the rows of `design`."""
    lines = _both(on_device(np.kron(np.eye(2, dtype=int), [1, 1]), bool))
    return {
        "judge": _not(VALUE, lambda own: design.judge(own, 2, 0.1, num_rounds=2), lines)
    }


def secagg_rows() -> dict[str, Row]:
    """Return the rows of `secagg`."""
    seeds = jax.vmap(lambda own: secagg.derive_seeds(own, jnp.arange(N), 0))(_words(8))
    plan, inputs = secagg.complete_plan(N, D, 2**16), _words(N, D, below=2**16)
    average, coder = secagg.ring_average(stochastic(16, 1.0), N, D), stochastic(16, 1.0)
    rule = secagg.graph_rule(graphs.erdos_renyi(N, 0.7), N)
    costs = secagg.expected_costs(N, 3, 2, D, 2**16)
    model = secagg.costs.latency_model()

    def one_round(aggregator: Any, key: Any, updates: Any, alive: Any) -> Any:
        return aggregator.aggregate(
            key, aggregator.init(), updates, jnp.arange(N), alive
        )

    def bound(name: str) -> Any:
        return getattr(secagg, name, None) or getattr(secagg.failures, name)

    chances = {
        name: _not(VALUE, lambda p, q, f=name: bound(f)(N, p, q), CHANCES, CHANCES)
        for name in ("log_disconnection_probability",)
    } | {
        name: _not(
            VALUE,
            lambda p, q, t, f=name: bound(f)(N, p, q, t),
            CHANCES,
            CHANCES,
            LIMITS[:, 0],
        )
        for name in ("exact_reliability_union_bound", "log_reliability_first_moment")
    }
    return chances | {
        "privacy_bound": _of(
            lambda p, q: secagg.privacy_bound(N, p, q), CHANCES, CHANCES
        ),
        "reliability_bound": _of(
            lambda p, q, t: secagg.reliability_bound(N, p, q, t),
            CHANCES,
            CHANCES,
            LIMITS[:, 0],
        ),
        "RingAverage.aggregate": _of(
            one_round, _both(average), keys, _floats(N, D), SURVIVORS[:, 3]
        ),
        "GraphRule.decide": _of(
            lambda own, key, alive: own.decide(key, alive, jnp.arange(N)),
            _both(rule),
            keys,
            SURVIVORS,
        ),
        "admitted": _not(
            VALUE, lambda sends: secagg.admitted(plan, sends), SURVIVORS[:, 3]
        ),
        "aggregate": _not(
            VALUE, lambda *own: secagg.aggregate(0, *own, 16), inputs, *ROUNDS
        ),
        "check_round": _not(VALUE, secagg.check_round, *ROUNDS),
        "connection_probability": _not(
            VALUE, lambda q: secagg.connection_probability(N, q), CHANCES
        ),
        "derive_seeds": _of(
            lambda own, members: secagg.derive_seeds(own, members, 3),
            _words(8),
            _both(jnp.arange(N)),
        ),
        "failure_rates": _not(
            VALUE,
            lambda p, q: secagg.failure_rates(0, N, p, q, 2, 10),
            CHANCES,
            CHANCES,
        ),
        "failure_rates_of": _not(
            VALUE,
            lambda g, s: secagg.failure_rates_of(0, g, s, 2, 10),
            _both(graphs.erdos_renyi(N, 0.5)),
            _both(online.independent_steps(0.1)),
        ),
        "graph_rule": _not(
            CHECKED,
            lambda t: secagg.graph_rule(graphs.complete(N), N, threshold=t),
            LIMITS,
        ),
        "is_private": _of(secagg.is_private, *ROUNDS),
        "is_reliable": _of(secagg.is_reliable, *ROUNDS),
        "learned_sets": _not(SHAPE, secagg.learned_sets, *ROUNDS),
        "noisy_codes": _of(
            lambda key, x: secagg.noisy_codes(
                coder, dp.skellam(1.0), key, x, range(N), 20
            ),
            keys,
            _floats(N, D),
        ),
        "pad_inputs": _of(lambda s, x: secagg.pad_inputs(s, x, plan, 3), seeds, inputs),
        "plan_outcome": _not(
            VALUE, lambda *own: secagg.plan_outcome(*own, plan), *ROUNDS
        ),
        "private_connection_threshold": _not(
            VALUE, lambda q: secagg.failures.private_connection_threshold(N, q), CHANCES
        ),
        "rare_failure_rates": _not(
            VALUE,
            lambda p, q: secagg.rare_failure_rates(0, N, p, q, 2, 10),
            CHANCES,
            CHANCES,
        ),
        "reliable_connection_threshold": _not(
            VALUE,
            lambda q: secagg.failures.reliable_connection_threshold(N, q),
            CHANCES,
        ),
        "ring_average": _not(
            CHECKED,
            lambda own: secagg.ring_average(
                stochastic(16, 1.0), N, D, key_material=own
            ),
            _words(8),
        ),
        "ring_sum": _of(
            lambda s, x, alive: secagg.ring_sum(s, x, plan, 3, survivors=alive),
            seeds,
            inputs,
            SURVIVORS,
        ),
        "round_costs": _not(
            VALUE, lambda *own: secagg.round_costs(*own, D, 2**16), *ROUNDS
        ),
        "round_latency": _not(
            VALUE, lambda own: secagg.costs.round_latency(costs, own), _both(model)
        ),
        "share_threshold": _not(VALUE, lambda p: secagg.share_threshold(N, p), CHANCES),
        "unmasking_bound": _not(
            VALUE,
            lambda p, t: secagg.failures.unmasking_bound(N, p, t),
            CHANCES,
            LIMITS[:, 0],
        ),
        "unmasking_risk": _not(VALUE, secagg.unmasking_risk, GRAPHS, LIMITS),
        "whole_blocks_rate": _not(
            VALUE, lambda q: secagg.failures.whole_blocks_rate(3, 2, 4, q), CHANCES
        ),
    }


def hetero_rows() -> dict[str, Row]:
    """Return the rows of `hetero`."""
    layout = hetero.segment_layout("sc", [2, 2], [2, 3], D)
    matrix = _both(np.asarray(hetero.segment_matrix("sc", 4)))
    updates, values, weights = _floats(N, D), _floats(N + 1, D), np.abs(_floats(N + 1))
    attackers = np.asarray([[True, False, False, False]] * 2)
    first = on_device(attackers[0])
    rules = {
        "weighted_mean()": hetero.robust.weighted_mean(),
        "coordinate_median()": hetero.robust.coordinate_median(),
        "trimmed_mean()": hetero.robust.trimmed_mean(0.25),
        "geometric_median()": hetero.robust.geometric_median(5),
        "krum()": hetero.robust.krum(1),
    }
    corrupters = {
        "scaling()": hetero.byzantine.scaling(first),
        "collusion()": hetero.byzantine.collusion(first),
    }
    rows = {
        f"{name}.__call__": _of(rule, values, weights) for name, rule in rules.items()
    } | {
        f"{name}.__call__": _of(
            lambda key, u, own=attack: own.corrupt_updates(key, u, first), keys, updates
        )
        for name, attack in corrupters.items()
    }
    residues = hetero.byzantine.wrong_pads(np.ones(N, bool)).on_residues
    averages = hetero.byzantine.gaussian_blocks(np.ones(N, bool)).on_averages
    average = hetero.segment_average(layout, (-1.0, 1.0), fidelity="sets")
    sums = [
        _words(block.stop - block.start, below=block.modulus) for block in layout.blocks
    ]
    counts = [len(block.members) for block in layout.blocks]
    return rows | {
        "segment_average().aggregate": _of(
            lambda key, u, alive: average.aggregate(
                key, average.init(), u, jnp.arange(N), alive
            ),
            keys,
            updates,
            SURVIVORS[:, 3],
        ),
        "aggregate": _not(
            VALUE,
            lambda key, u: hetero.aggregate(key, u, layout, (-1.0, 1.0)),
            keys,
            updates,
        ),
        "wrong_pads().on_residues": _of(
            lambda key, own, mine: residues(key, own, jnp.uint32(97), mine),
            keys,
            _words(N, D, below=97),
            attackers,
        ),
        "gaussian_blocks().on_averages": _of(
            lambda key, own, hit: averages(key, own, hit),
            keys,
            _floats(D),
            attackers[:, 0],
        ),
        "blocks_of": _not(VALUE, hetero.blocks_of, matrix),
        "communication_times": _not(
            VALUE, lambda own: hetero.costs.communication_times(layout, own), RATES
        ),
        "decode": _of(
            lambda *own: hetero.decode(own, counts, layout, (-1.0, 1.0)), *sums
        ),
        "encode": _of(
            lambda key, u: hetero.encode(key, u, layout, (-1.0, 1.0)), keys, updates
        ),
        "format_matrix": _not(VALUE, hetero.format_matrix, matrix),
        "privacy_level": _not(VALUE, hetero.privacy_level, matrix),
        "privacy_report": _not(VALUE, hetero.privacy_report, matrix),
        "quantization_error": _not(
            VALUE, lambda u: hetero.quantization_error(u, layout, (-1.0, 1.0)), updates
        ),
        "quantization_error_bound": _not(
            VALUE,
            lambda m: hetero.quantization_error_bound(m, [4, 8, 16, 32], 2, 10),
            matrix,
        ),
        "ranked_groups": _not(
            VALUE,
            lambda own, rate: hetero.ranked_groups(own, rate, 2),
            SURVIVORS[:, :2],
            RATES,
        ),
        "scheme_error_bound": _not(
            VALUE,
            lambda own: hetero.scheme_error_bound("sc", own, 2, 8),
            on_device([[2, 3, 4, 5]] * 2),
        ),
        "round_rates": _not(
            VALUE,
            lambda q: hetero.round_rates(layout, q, num_trials=1),
            on_device([[0.1] * 4] * 2),
        ),
        "segment_average": _not(
            CHECKED,
            lambda t: hetero.segment_average(layout, (-1.0, 1.0), threshold=t),
            LIMITS,
        ),
        "segment_costs": _not(
            VALUE, lambda own: hetero.costs.segment_costs(layout, own), SURVIVORS[:, 3]
        ),
        "segment_layout": _not(
            VALUE,
            lambda own: hetero.segment_layout(own, [1] * 4, [2, 4, 8, 16], 10),
            matrix,
        ),
        "segment_matrix_plus": _not(
            VALUE,
            lambda own: hetero.segment_matrix_plus("sc", own),
            on_device([[2, 1]] * 2),
        ),
        "segment_participation": _not(
            VALUE,
            lambda own: hetero.segment_participation(layout, own),
            SURVIVORS[:, :2],
        ),
        "tolerated_byzantine": _not(VALUE, hetero.tolerated_byzantine, matrix),
        "wrong_pads": _not(CHECKED, hetero.byzantine.wrong_pads, attackers),
        "sign_flip": _not(CHECKED, hetero.byzantine.sign_flip, attackers),
        "scaling": _not(CHECKED, hetero.byzantine.scaling, attackers),
        "collusion": _not(CHECKED, hetero.byzantine.collusion, attackers),
        "gaussian_blocks": _not(CHECKED, hetero.byzantine.gaussian_blocks, attackers),
    }


def dp_rows() -> dict[str, Row]:
    """Return the rows of `dp`."""

    coins, stays = selection.bernoulli(N, 0.5), online.independent(0.0)

    def drawn(noise: Any, key: Any) -> Any:
        return noise.sample(key, (D,))

    return {
        "LatticeNoise.sample": _of(drawn, _both(dp.skellam(2.0)), keys),
        "amplification": _not(
            VALUE, lambda z: dp.amplification(4, 2, [1], 2, z), CHANCES
        ),
        "ledger": _not(VALUE, lambda p: dp.ledger(p, 1.0), P),
        "privacy_losses": _not(
            VALUE,
            lambda key: dp.privacy_losses(coins, stays, J, 1.0, 5, seed=key),
            keys,
        ),
        "ring_mechanism": _not(
            VALUE,
            lambda z: dp.ring_mechanism(
                "skellam", z, 1.0, dim=D, num_clients=N, modulus_bits=20
            ),
            CHANCES,
        ),
        "toeplitz": _not(VALUE, lambda row: dp.toeplitz(row, J), CHANCES),
    }


def data_rows() -> dict[str, Row]:
    """Return the rows of `data`."""
    clients, dataset = _clients(), data.load("digits")
    splits = {
        name: _not(
            VALUE, lambda key, own=name: getattr(data, own)(key, dataset, 4), keys
        )
        for name in (
            "dirichlet_by_class",
            "dirichlet_by_client",
            "iid",
            "shards",
            "shards_with_shared",
        )
    }
    return splits | {
        "check_client_data": _not(VALUE, data.check_client_data, _both(clients)),
        "class_counts": _not(VALUE, data.class_counts, _both(clients)),
        "label_dropout_rates": _not(VALUE, data.label_dropout_rates, _both(clients)),
    }


def _clients() -> Any:
    inputs = on_device(_draw.random((6, 2, 2, 1)), jnp.float32)
    labels, indices = (
        on_device([0, 1, 2, 0, 1, 2]),
        np.arange(6, dtype=np.int32).reshape(3, 2),
    )
    return data.ClientData(inputs, labels, on_device(indices), on_device([2, 2, 2]), 3)


def federated_rows() -> dict[str, Row]:
    """Return the rows of `federated`."""
    clients, model = _clients(), federated.logistic(3)
    trainer = federated.local_sgd(model, 0.1, batch_size=2)
    by_state = federated.scaffold(model, 0.1, batch_size=2)
    by_adam = federated.local_optax(model, optax.adam(0.1), batch_size=2)
    flat = _floats(15)
    average = secagg.ring_average(stochastic(16, 1.0), 3, 15)
    history = np.ones((2, 3), bool)

    def training(start: Any) -> Any:
        return federated.Training(
            model, clients, history, trainer, average, initial_parameters=start
        )

    def trained(start: Any, seed: Any = 0) -> Any:
        return federated.train(seed, training(start))

    def trained_many(key: Any) -> Any:
        return federated.train_many([key], training(None))

    return {
        "LocalSGD.update": _of(
            lambda own, key, start: own.update(
                key, start, clients.inputs, clients.labels, jnp.int32(5)
            ),
            _both(trainer),
            keys,
            flat,
        ),
        "LocalOptax.update": _of(
            lambda key, start: by_adam.update(
                key, start, clients.inputs, clients.labels, jnp.int32(5)
            ),
            keys,
            flat,
        ),
        "Scaffold.update_with_state": _of(
            lambda key, start: by_state.update_with_state(
                key, start, start, start, clients.inputs, clients.labels, jnp.int32(5)
            ),
            keys,
            flat,
        ),
        "client_updates": _of(
            lambda key, start, own, by: federated.client_updates(
                key, model, start, own, by
            ),
            keys,
            flat,
            _both(clients),
            _both(trainer),
        ),
        "local_sgd": _built(
            lambda rate, pull: federated.local_sgd(
                model, rate, batch_size=2, proximal=pull
            ),
            CHANCES,
            CHANCES,
        ),
        "scaffold": _built(
            lambda rate: federated.scaffold(model, rate, batch_size=2), CHANCES
        ),
        "evaluate": _not(
            VALUE,
            lambda start: federated.evaluate(
                model, start, clients.inputs, clients.labels
            ),
            flat,
        ),
        "evaluate_clients": _not(
            VALUE, lambda start: federated.evaluate_clients(model, start, clients), flat
        ),
        "initial_parameters": _of(
            lambda key: federated.initial_parameters(key, model, (2, 2, 1)), keys
        ),
        "measure_drift": _not(
            VALUE,
            lambda own: federated.measure_drift(own, np.arange(3)[None]),
            _floats(1, 3, 5),
        ),
        "Training": _not(VALUE, training, flat),
        "train": _not(VALUE, lambda start, key: trained(start, key), flat, keys),
        "train_many": _not(VALUE, trained_many, keys),
        "unflatten": _of(lambda own: federated.unflatten(model, (2, 2, 1), own), flat),
    }


def attacks_rows() -> dict[str, Row]:
    """Return the rows of `attacks`."""
    clients, model = _clients(), federated.logistic(3)
    hidden = federated.mlp(3, hidden_sizes=(4,))
    trainer = federated.local_sgd(model, 0.1, batch_size=2)
    images, other, flat = _floats(2, 8, 8, 1), _floats(2, 8, 8, 1), _floats(15)
    sums, history = _floats(J, D), P
    shape = (2, 2, 1)
    quantizer = stochastic(16, 1.0)

    def seen(update: Any) -> Any:
        return attacks.views.UpdateView(model, jnp.zeros(15), shape, 3, update, 1)

    def members(start: Any) -> Any:
        own = clients.inputs, clients.labels
        return attacks.views.MembershipView(model, start, start, shape, 3, *own, *own)

    average = secagg.ring_average(quantizer, 3, 15)
    shadows_have = np.arange(16) % 2 == 0
    views = {
        "attribute()": (
            attacks.attribute(trainer),
            lambda own: attacks.views.AttributeView(
                np.ones((1, 2), int),
                own[None],
                own[None],
                data.ClientData(
                    clients.inputs,
                    clients.labels,
                    np.zeros((16, 1), np.int32),
                    np.ones(16, np.int32),
                    clients.num_classes,
                ),
                shadows_have,
            ),
            flat,
        ),
        "dense_recovery()": (attacks.dense_recovery(), lambda own: seen(own), flat),
        "gradient_inversion()": (attacks.gradient_inversion(num_steps=2), seen, flat),
        "membership()": (
            attacks.membership("loss", trainer, shadow_size=2),
            members,
            flat,
        ),
        "model_inversion()": (
            attacks.model_inversion(num_steps=2),
            lambda own: attacks.views.ModelView(model, own, shape, 3),
            flat,
        ),
    }
    counts = attacks.views.CountView(
        np.ones((3, 2)), np.ones((3, N), int), np.ones(3, int)
    )
    aggregates = attacks.views.AggregateView(np.asarray(P[0]), np.ones((3, 2)))
    mechanism = dp.ring_mechanism(
        "skellam", 1.0, 1.0, dim=8, num_clients=N, modulus_bits=20
    )
    rows = {
        "disaggregation().run": _not(
            VALUE, lambda key: attacks.disaggregation().run(key, counts), keys
        ),
        "canaries().play": _not(
            VALUE, lambda key: attacks.canaries(0, mechanism).play(key, P[0], 3), keys
        ),
        "exposing_server().play": _not(
            VALUE, lambda key: attacks.exposing_server(6, 3).play(key, 2), keys
        ),
        "Distinguish.run": _not(
            VALUE,
            lambda key: attacks.distinguish(0, [1.0, 1.0]).run(key, aggregates),
            keys,
        ),
        "LeastSquares.run": _not(
            HOST, lambda key: attacks.least_squares_attack().run(key, aggregates), keys
        ),
    } | {
        f"{name}.run": _not(
            VALUE,
            lambda key, own, by=attack, view=view: by.run(key, view(own)),
            keys,
            array,
        )
        for name, (attack, view, array) in views.items()
    }
    return rows | {
        "model_inconsistency().run": _not(
            VALUE,
            lambda key, own: attacks.model_inconsistency(
                hidden, trainer, quantizer
            ).run(key, own, clients, [0, 1], 0),
            keys,
            flat,
        ),
        "identified": _not(HOST, attacks.identified, images, other),
        "least_squares": _not(HOST, attacks.least_squares, history, sums),
        "matched_images": _not(HOST, attacks.matched_images, images, other),
        "mean_squared_error": _not(HOST, attacks.mean_squared_error, images, other),
        "membership_score": _not(
            HOST, attacks.membership_score, RATES, on_device([[True, False] * 2] * 2)
        ),
        "predicted_error": _not(HOST, attacks.predicted_error, history),
        "psnr": _not(HOST, attacks.psnr, images, other),
        "reconstruction_error": _not(HOST, attacks.reconstruction_error, sums, sums),
        "ssim": _not(HOST, attacks.ssim, images, other),
        "streamed_errors": _not(
            HOST, attacks.streamed_errors, history, sums, _floats(N, D)
        ),
        "summed_rounds": _not(
            VALUE,
            lambda own: attacks.summed_rounds(
                0,
                model,
                own,
                clients,
                np.ones((2, 3), bool),
                trainer=trainer,
                aggregator=average,
            ),
            flat,
        ),
        "wire_round": _not(
            VALUE, lambda key, own: attacks.wire_round(key, own, quantizer), keys, sums
        ),
    }


TABLE = {
    "modular": modular_rows,
    "graphs": graphs_rows,
    "availability": availability_rows,
    "selection": selection_rows,
    "quantize": quantize_rows,
    "privacy": privacy_rows,
    "design": design_rows,
    "secagg": secagg_rows,
    "hetero": hetero_rows,
    "dp": dp_rows,
    "data": data_rows,
    "federated": federated_rows,
    "attacks": attacks_rows,
}
# constants, types, records of results, and functions of Python numbers, texts and files
NO_ARRAYS = {
    "modular": """
        LIMBS MOST_POINTS SHAMIR_PRIME Ring check_modulus ring_of
    """,
    "graphs": """
        GraphModel register secagg_plus_parameters
""",
    "availability": """
        Availability StepDropout register
    """,
    "selection": """
        Fairness RoundHistory Scheme Selector enumerate_family family_size
        register
    """,
    "quantize": """
        ClipRule LIKELIEST_WRAP MOST_CLIENTS Quantizer RingNoise lattice
    """,
    "privacy": """
        bound_in_words smallest_target
        AttributeBound Audit CollusionRisk Determined DeterminedRate
        Distinguishability Gate ParticipationLog
        Recipe certificate read_log
    """,
    "design": """
        blocks grids nets rectangles
    """,
    "secagg": """
         AggregateResult Aggregator Block FailureRates
        PlanOutcome RoundCosts Seeds SegmentPlan
        StepReport Transcript complete_plan
         expected_costs fedavg_costs key_material latency_model operation_seconds
        segment_plan

    """,
    "hetero": """
           SegmentHistory SegmentLayout
        claimed_privacy_level cohort_layouts
        scheme_privacy_level segment_leakage segment_matrix
    """,
    "dp": """
        Account Amplification Ledger RingMechanism account discrete_gaussian skellam
    """,
    "data": """
        SOURCES ClientData Dataset available load normalise plan_preparation prepare
        recognise
    """,
    "federated": """
        Drift LocalTrainer RateSchedule StatefulTrainer TrainingResult checkpoints cnn
        decay_at json_lines lenet local_optax logistic memory_estimate mlp num_parameters
        smooth_lenet vgg11
    """,
    "attacks": """
        Attack CanaryScores
          distinguish
        least_squares_attack read_models
""",
}
rows_of = functools.cache(lambda family: TABLE[family]())


def _mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:2]), ("calls",))


def _call(arrays: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: _at(leaf, index), arrays)


def _at(leaf: Any, index: int) -> Any:
    """Return an entry of an array; where the values are known, without a program."""
    if isinstance(leaf, jax.core.Tracer) or _is_key(leaf):
        return leaf[index]
    return on_device(np.asarray(leaf)[index])


def _sharded(row: Row, check_vma: bool = True) -> Callable[..., Any]:
    """Return the calls of a row, each on a device of its own."""

    def one(*arrays: Any) -> Any:
        return jax.tree.map(
            lambda leaf: jnp.asarray(leaf)[None], row.call(*_call(arrays, 0))
        )

    cut = PartitionSpec("calls")
    return jax.shard_map(
        one, mesh=_mesh(), in_specs=cut, out_specs=cut, check_vma=check_vma
    )


def _names(room: Any) -> list[str]:
    return getattr(room, "__all__", None) or [
        name for name in vars(room) if name[0] != "_"
    ]


@pytest.mark.parametrize("family", TABLE)
def test_every_public_name_is_in_the_table(family: str) -> None:
    rest = set(NO_ARRAYS[family].split())
    covered = {re.split(r"\W", name)[0] for name in rows_of(family)}
    assert not covered & rest
    door = getattr(mj, family)
    rooms = [name for name in door.__all__ if inspect.ismodule(getattr(door, name))]
    below = {name for room in rooms for name in _names(getattr(door, room))}
    assert set(door.__all__) - {*rooms} <= covered | rest <= {*door.__all__} | below


@pytest.mark.long(
    "availability",
    "federated",
    "graphs",
    "hetero",
    "modular",
    "privacy",
    "quantize",
    "secagg",
    "selection",
)
@pytest.mark.parametrize("family", TABLE)
def test_runs_inside_transformations(family: str, checks_varying: bool) -> None:
    for name, row in rows_of(family).items():
        if row.composes:
            try:
                _runs_everywhere(row, checks_varying)
            except Exception as error:
                error.add_note(f"{family}.{name}")
                raise


def _runs_everywhere(row: Row, check_vma: bool) -> None:
    # one program of all: `jit` of `shard_map`, each of whose devices maps over both
    # calls. JAX cannot check there what varies (it loses that of constants that a
    # `vmap` within closes over).
    def everywhere(*arrays: Any) -> Any:
        cut = PartitionSpec("calls")
        mapped = jax.shard_map(
            jax.vmap(row.call),
            mesh=_mesh(),
            in_specs=cut,
            out_specs=cut,
            check_vma=False,
        )
        return mapped(*jax.tree.map(lambda leaf: leaf[np.asarray(order)], arrays))

    order, arrays = (0, 1, 1, 0), row.arrays
    found = jax.jit(everywhere)(*arrays)
    calls = [_call(arrays, index) for index in range(2)]
    outside = [row.call(*own) for own in calls]
    for place, index in enumerate(order):
        _compare(_call(found, place), outside[index])
    # and each device may take one call as it is, where that is checked
    jax.make_jaxpr(_sharded(row, check_vma))(*arrays)
    if len(arrays) > 1:  # one argument traced, the others known
        for place in range(len(arrays)):
            jax.make_jaxpr(_traced_at(row, calls[0], place))(calls[0][place])


def _traced_at(row: Row, own: tuple[Any, ...], place: int) -> Callable[..., Any]:
    return lambda value: row.call(*own[:place], value, *own[place + 1 :])


def _compare(found: Any, expected: Any) -> None:
    """Integers to the bit, floats to the rounding of sums in another order."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for one, other in pairs:
        if _is_key(one):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        one, other = np.asarray(one), np.asarray(other)
        assert one.shape == other.shape
        if np.issubdtype(one.dtype, np.floating):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("family", TABLE)
def test_refuses_with_a_sentence(family: str) -> None:
    sentence = r"^`\w+` must be known, not traced: "
    for name, row in rows_of(family).items():
        if row.composes:
            continue
        arrays = row.arrays
        own = _call(arrays, 0)
        tries = [(row.call, own), (jax.vmap(row.call), arrays), (_sharded(row), arrays)]
        tries += [
            (_traced_at(row, own, place), own[place : place + 1])
            for place in range(len(own))
        ]
        for call, given in tries:
            said = f"{family}.{name} says nothing"
            try:
                jax.make_jaxpr(call)(*given)
            except mj.ConfigurationError as error:
                said = str(error)
            assert re.match(sentence, said)


def test_schemes_are_built_from_known_numbers_inside_transformations() -> None:
    rows = [
        row
        for family in TABLE
        for row in rows_of(family).values()
        if row.why == CHECKED
    ]
    own = [(row.call, _call(row.arrays, 0)) for row in rows]

    def build(unused: Any) -> Any:
        return jax.tree.map(
            jnp.asarray, [call(*arrays) for call, arrays in own]
        ), unused

    inside = jax.jit(build)(jnp.int32(0))[0]
    for found, (call, arrays) in zip(inside, own, strict=True):
        _compare(found, call(*arrays))


def summary() -> str:
    """Return the table of the page: a line for each family."""
    lines = ["| | run inside `jit`, `vmap` and `shard_map` | refuse |", "|---|---|---|"]
    for family in TABLE:
        rows = rows_of(family)
        named = {name: f"`{name}`" for name in rows}
        runs = ", ".join(named[name] for name, row in rows.items() if row.composes)
        refused = [
            f"{why}: "
            + ", ".join(named[name] for name in rows if rows[name].why == why)
            for why in dict.fromkeys(
                row.why for row in rows.values() if not row.composes
            )
        ]
        lines.append(f"| `{family}` | {runs} | {'; '.join(refused)} |")
    return "\n".join(lines)


def test_the_page_holds_the_table() -> None:
    assert summary() in PAGE.read_text(), (
        f"{PAGE.name} must hold this table:\n{summary()}"
    )


def test_what_needs_values_compiles_as_it_does_elsewhere() -> None:
    traces = []

    @jax.jit
    def program(x: jax.Array) -> jax.Array:
        traces.append(x)
        return x + jnp.float32(1)

    known = needs_values(lambda x: float(program(x)))
    one = jnp.float32(1)
    assert (known(one), known(one), float(program(one)), len(traces)) == (
        2.0,
        2.0,
        2.0,
        1,
    )
    assert float(jax.jit(lambda x: x + jnp.float32(known(one)))(one)) == 3.0
