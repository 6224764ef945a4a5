"""Rules for t against exact sums over degrees, and alike wherever they are named."""

import inspect
import itertools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.streams import Stream, as_key, round_key, trial_key

Q = 1.0 - 0.9**0.25  # of one step, when a tenth of the clients is lost in all


def binomial(n, p):
    return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


def majority(neighbours):
    """Return the least integer above half of a client and its neighbours, from 2 on."""
    return max(2, math.floor(Fraction(neighbours + 1, 2)) + 1)


def lost_secrets(n, degrees, rates, limit):
    """Return the expected number of needed secrets that are lost, in fractions."""
    first, second, third, fourth = rates
    to_v2 = (1 - first) * (1 - second)
    to_v3, to_v4 = to_v2 * (1 - third), to_v2 * (1 - third) * (1 - fourth)
    total = Fraction(0)
    for k, weight in enumerate(degrees):
        back = binomial(k, to_v4)
        few, fewer = sum(back[: limit(k)]), sum(back[: limit(k) - 1])
        needed = few - (1 - to_v3) ** k
        lost = to_v4 * fewer + to_v3 * fourth * few + to_v2 * third * needed
        total += weight * lost
    return n * total


@pytest.mark.parametrize(
    ("n", "p"), [(2, Fraction(1, 2)), (9, Fraction(1, 3)), (24, Fraction(4, 5))]
)
@pytest.mark.parametrize(
    "rates", [(Fraction(1, 20),) * 4, tuple(Fraction(k, 40) for k in (0, 3, 1, 8))]
)
def test_first_moment_sums_over_degrees(n, p, rates):
    degrees = binomial(n - 1, p)
    q = [float(rate) for rate in rates]
    found = mj.secagg.failures.log_reliability_first_moment
    exact = lost_secrets(n, degrees, rates, majority)
    assert math.isclose(
        math.exp(found(n, float(p), q, "majority")), exact, rel_tol=1e-11
    )
    t = mj.secagg.share_threshold(n, float(p))
    assert found(n, float(p), q, "remark4") == found(n, float(p), q, t)
    # thresholds of each client, of which half have one and half another
    mixed = [2 + i % 2 for i in range(n)]
    parts = [lost_secrets(1, degrees, rates, lambda k, t=t: t) for t in mixed]
    assert math.isclose(
        math.exp(found(n, float(p), q, mixed)), sum(parts), rel_tol=1e-11
    )


def test_first_moment_is_that_of_every_graph_and_loss():
    n, p, rates = 3, Fraction(2, 5), [Fraction(1, k) for k in (8, 9, 10, 7)]
    pairs = list(itertools.combinations(range(n), 2))
    stays = [math.prod(1 - rate for rate in rates[:s]) for s in range(5)]
    last = [stays[s] * rates[s] for s in range(4)] + [stays[4]]
    total = Fraction(0)
    for levels in itertools.product(range(5), repeat=n):
        for there in itertools.product((0, 1), repeat=len(pairs)):
            beside = [{i} for i in range(n)]
            for (i, j), joined in zip(pairs, there, strict=True):
                if joined:
                    beside[i].add(j)
                    beside[j].add(i)
            weight = math.prod(last[level] for level in levels)
            weight *= p ** sum(there) * (1 - p) ** (len(pairs) - sum(there))
            for i in range(n):
                in_sum = any(levels[j] >= 3 for j in beside[i])
                shares = sum(levels[j] == 4 for j in beside[i])
                is_lost = levels[i] >= 2 and in_sum
                total += weight * (is_lost and shares < majority(len(beside[i]) - 1))
    value = mj.secagg.failures.log_reliability_first_moment(
        n, float(p), [float(rate) for rate in rates], "majority"
    )
    assert math.isclose(math.exp(value), total, rel_tol=1e-12)


@pytest.mark.long("<lambda>-majority1")
@pytest.mark.parametrize(
    ("build", "threshold"),
    [
        (lambda: mj.graphs.erdos_renyi(12, 0.5), "majority"),
        (lambda: mj.graphs.erdos_renyi(12, 0.8), "remark4"),
        (lambda: mj.graphs.complete(12), "remark4"),
        (lambda: mj.graphs.harary(12, 4), "majority"),
    ],
)
def test_graph_rule_decides_as_failures_are_counted(build, threshold):
    graph = build()
    trials, n = 200, graph.num_clients
    steps = mj.availability.independent_steps(0.06)
    rule = mj.secagg.graph_rule(graph, n, threshold=threshold)

    def status(trial):
        of_trial = trial_key(as_key(3), trial)
        survivors = steps.sample(
            round_key(of_trial, 0, Stream.STEPS), jnp.ones(n, jnp.bool_)
        )
        members = jnp.arange(n, dtype=jnp.int32)
        of_graph = round_key(of_trial, 0, Stream.ASSIGNMENT)
        return rule.decide(of_graph, survivors, members).status

    statuses = np.asarray(jax.jit(jax.vmap(status))(jnp.arange(trials)))
    drawn = mj.secagg.failures.draw_arrays(
        graph, steps, as_key(3), jnp.uint32(0), trials
    )
    limits = mj.secagg.thresholds.before_graphs(threshold, "threshold", graph)
    if limits is not None:
        limits = jnp.full(n, int(limits))
    judged = np.asarray(mj.secagg.failures.judge_arrays(*drawn, limits).bytes)
    is_unreliable = statuses == mj.Status.UNRELIABLE
    assert np.array_equal(is_unreliable, judged & 1 > 0)
    rates = mj.secagg.failure_rates_of(3, graph, steps, threshold, trials)
    assert rates.unreliable.count == is_unreliable.sum()
    assert 5 < rates.unreliable.count < trials - 5


def a_round(n=10):
    key = jax.random.key(4)
    graph = np.asarray(mj.graphs.erdos_renyi(n, 0.6).sample(key))
    survivors = np.ones((5, n), np.bool_)
    survivors[3:, 1] = survivors[4, 3] = False
    return graph, survivors


def limits_of(graph, rule):
    """Return t_i of the graph by its definition."""
    if rule == "majority":
        return [majority(row.sum()) for row in graph]
    n = len(graph)
    return [mj.secagg.share_threshold(n, graph.sum() / (n * (n - 1)))] * n


@pytest.mark.parametrize("rule", ["majority", "remark4"])
def test_a_rule_is_the_array_that_it_means_in_every_function(rule):
    graph, survivors = a_round()
    n = len(graph)
    limits = limits_of(graph, rule)
    found = mj.secagg.check_round(graph, survivors, rule)[2]
    assert np.asarray(found).tolist() == limits
    for name in ("is_reliable", "is_private", "learned_sets"):
        function = getattr(mj.secagg, name)
        assert np.array_equal(
            function(graph, survivors, rule), function(graph, survivors, limits)
        )
    assert np.array_equal(
        mj.secagg.unmasking_risk(graph, rule),
        mj.secagg.unmasking_risk(graph, limits),
    )
    costs = [
        mj.secagg.round_costs(graph, survivors, t, 5, 2**16) for t in (rule, limits)
    ]
    assert np.array_equal(costs[0].bytes_up, costs[1].bytes_up)
    inputs = np.arange(n * 3).reshape(n, 3)
    sums = [
        mj.secagg.aggregate(7, inputs, graph, survivors, t, modulus_bits=16)
        for t in (rule, limits)
    ]
    assert sums[0].status == sums[1].status
    assert sums[0].total.tolist() == sums[1].total.tolist()


def test_rules_of_several_graphs():
    graph, survivors = a_round()
    n = len(graph)
    assert not mj.secagg.unmasking_risk(graph, "majority").any()
    both = np.stack([graph, ~np.eye(n, dtype=bool)])
    pair = mj.secagg.is_reliable(both, survivors, "remark4")
    assert pair.tolist() == [
        mj.secagg.is_reliable(one, survivors, "remark4") for one in both
    ]


def test_messages_follow_the_rule_by_degree():
    graph, survivors = a_round(5)
    inputs = np.arange(10).reshape(5, 2)
    named, counted = (
        mj.protocol.run(
            inputs, graph, survivors, t, modulus_bits=16, entropy=bytes(range(32))
        )
        for t in ("majority", [majority(row.sum()) for row in graph])
    )
    assert named.status == counted.status
    assert named.total.tolist() == counted.total.tolist()


@pytest.mark.long
def test_rules_are_alike_where_rounds_are_drawn():
    n, p, q = 30, 0.7, 0.02
    t = mj.secagg.share_threshold(n, p)
    assert mj.secagg.failure_rates(
        0, n, p, q, "remark4", 200
    ) == mj.secagg.failure_rates(0, n, p, q, t, 200)
    assert mj.secagg.rare_failure_rates(
        0, n, p, q, "remark4", 50
    ) == mj.secagg.rare_failure_rates(0, n, p, [q] * 4, t, 50)
    degree = mj.graphs.harary(n, 6)
    steps = mj.availability.independent_steps(q)
    assert mj.secagg.failure_rates_of(
        0, degree, steps, "majority", 200
    ) == mj.secagg.failure_rates_of(0, degree, steps, 4, 200)


@pytest.mark.parametrize("value", ["majorty", "", "Remark4", "3"])
def test_unknown_rules_are_refused(value):
    graph, survivors = a_round()
    steps = mj.availability.independent_steps(0.1)
    secagg = mj.secagg
    for function, *arguments in (
        (secagg.failure_rates, 0, 6, 0.5, 0.1, value, 4),
        (secagg.failure_rates_of, 0, mj.graphs.complete(4), steps, value, 4),
        (secagg.rare_failure_rates, 0, 6, 0.5, 0.1, value, 4),
        (secagg.is_reliable, graph, survivors, value),
        (secagg.failures.log_reliability_first_moment, 6, 0.5, 0.1, value),
    ):
        # without the suite's type checks, which would stop a wrong name before
        with pytest.raises(
            mj.ConfigurationError, match="must be 'majority', 'remark4'"
        ):
            inspect.unwrap(function)(*arguments)


@pytest.mark.parametrize(
    "build",
    [
        lambda: mj.graphs.harary(8, 4),
        lambda: mj.graphs.over_blocks(mj.graphs.complete(4), 2),
    ],
)
def test_remark_4_is_about_independent_edges(build):
    graph = build()
    steps = mj.availability.independent_steps(0.1)
    for call in (
        lambda: mj.secagg.graph_rule(graph, 8, threshold="remark4"),
        lambda: mj.secagg.failure_rates_of(0, graph, steps, "remark4", 4),
    ):
        with pytest.raises(mj.ConfigurationError, match="erdos_renyi or complete"):
            call()


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.04, 0.02])
def test_lost_secrets_of_1000_clients_are_as_many_as_expected(p):
    n, trials, chunk = 1000, 4000, 20
    graph, steps = mj.graphs.erdos_renyi(n, p), mj.availability.independent_steps(Q)
    lost = unreliable = 0
    for first in range(0, trials, chunk):
        drawn = mj.secagg.failures.draw_arrays(
            graph, steps, as_key(0), np.uint32(first), chunk
        )
        adjacency, alive = map(np.asarray, drawn)
        closed = adjacency | np.eye(n, dtype=bool)
        by_round = np.matmul(
            closed.astype(np.float32), alive.transpose(0, 2, 1).astype(np.float32)
        )
        holders = closed.sum(axis=2)
        needed = alive[:, 2] & (by_round[:, :, 3] > 0)
        few = needed & (2 * by_round[:, :, 4] <= np.maximum(holders, 2))
        lost += int(few.sum())
        unreliable += int(few.any(axis=1).sum())
    rates = mj.secagg.failure_rates(0, n, p, Q, "majority", trials)
    assert rates.unreliable.count == unreliable
    assert rates.unmaskable.count == 0
    expected = trials * math.exp(
        mj.secagg.failures.log_reliability_first_moment(n, p, Q, "majority")
    )
    # lost secrets are rare, nearly independent: their variance is their mean
    assert abs(lost - expected) <= 3.0 * math.sqrt(expected) + 1e-9
    if p == 0.04:
        assert lost == rates.no_sum.count == 0
        assert round(1e6 * expected / trials, 1) == 5.2
    else:
        assert round(300 * expected / trials, 1) == 7.0
