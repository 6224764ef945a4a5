"""Plans of one round against enumeration, counting and rare-event simulation."""

import inspect
import itertools
import json
import math

import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.cli import main
from mrsa_jax.secagg.failures import _plan

LOG10 = math.log(10.0)


def step_rate(total):
    return 1.0 - (1.0 - total) ** 0.25


def named(plan, name):
    return next((row for row in plan.rounds if row.name == name), None)


def planner(n, rates):
    return _plan._Planner(n, np.asarray(rates), -10.0, -20.0, 10, 16, None)


def circle(n, k):
    """Return the neighbours of each place on a circle: k / 2 before it and behind it."""
    offsets = range(1, k // 2 + 1)
    return [{(i + s * d) % n for d in offsets for s in (-1, 1)} for i in range(n)]


def is_connected(members, beside):
    if not members:
        return True
    part, grown = set(), {min(members)}
    while part != grown:
        part = grown
        grown = part | {j for i in part for j in beside[i] & members}
    return part == members


@pytest.mark.parametrize(("n", "k"), [(7, 2), (9, 4), (11, 4), (12, 6)])
@pytest.mark.parametrize("q", [0.02, 0.2])
def test_two_gaps_bound_the_chance_that_a_circle_falls_apart(n, k, q):
    lost = 1 - (1 - q) ** 3
    beside = circle(n, k)
    chance = 0.0
    for there in itertools.product((False, True), repeat=n):
        members = {i for i in range(n) if there[i]}
        if not is_connected(members, beside):
            chance += lost ** (n - len(members)) * (1 - lost) ** len(members)
    bound = math.exp(planner(n, [q] * 4).log_two_gaps(k))
    assert chance <= bound * (1 + 1e-9)
    if q == 0.02:
        assert bound < 3.0 * chance


def blown_up(blocks, k, size):
    """Return the neighbours of each client in blocks over a circle."""
    beside = circle(blocks, k)
    members = [set(range(b * size, (b + 1) * size)) for b in range(blocks)]
    return [
        set().union(members[b], *(members[c] for c in beside[b])) - {i}
        for b in range(blocks)
        for i in sorted(members[b])
    ]


@pytest.mark.parametrize(("blocks", "k", "size"), [(5, 2, 2), (6, 4, 2), (4, 2, 3)])
def test_two_gaps_bound_the_chance_that_blocks_fall_apart(blocks, k, size):
    q, n = 0.05, blocks * size
    lost = 1 - (1 - q) ** 3
    beside = blown_up(blocks, k, size)
    chance = 0.0
    for there in itertools.product((False, True), repeat=n):
        members = {i for i in range(n) if there[i]}
        if not is_connected(members, beside):
            chance += lost ** (n - len(members)) * (1 - lost) ** len(members)
    rates = planner(n, [q] * 4)
    bound = math.exp(rates.log_two_gaps(k, size))
    assert chance <= bound * (1 + 1e-9)
    assert bound < 5.0 * chance
    design = rates.regular("blocks", k, "majority", size)
    assert design.mean_degree == len(beside[0])
    assert (design.graph, design.number) == (f"over_blocks:{size}:{k}", None)


def test_blocks_are_a_candidate():
    n, q = 60, 0.02
    plan = mj.secagg.plan(n, q, no_sum=1e-3, leak=1e-6, block_size=3)
    found = named(plan, "blocks, majority")
    assert found.keeps
    size, k = map(int, found.graph.split(":")[1:])
    assert size == 3
    rates = _plan._Planner(n, np.full(4, q), math.log(1e-3), math.log(1e-6), 9, 8, None)
    assert not rates.regular("", k - 2, "majority", 3).keeps
    # its bounds are those of the graph that rounds draw
    graph = mj.graphs.over_blocks(mj.graphs.harary(n // 3, k), 3)
    assert int(graph.sample(jax.random.key(0)).sum(1).max()) == found.mean_degree
    assert named(mj.secagg.plan(n, q), "blocks, majority") is None


@pytest.mark.long
def test_stragglers_are_lost_at_the_step_that_takes_them_too_long():
    """One slow uplink: inputs of 1 MB take 1 s, and 10 s of a straggler."""
    n, q, dim = 100, 0.01, 500_000
    costs = mj.secagg.costs
    model = costs.latency_model(up_bytes_per_second=1e6, round_trip_seconds=0.0)
    settings = {"dim": dim, "model": model, "no_sum": 1e-3, "leak": 1e-6}
    plain = mj.secagg.plan(n, q, **settings)
    late = {"straggler_rate": 0.1, "straggler_slowdown": 10.0}
    waited = mj.secagg.plan(n, q, **settings, **late)
    cut = mj.secagg.plan(n, q, **settings, **late, deadline=5.0)
    at_input = [q, q, 1 - (1 - q) * 0.9, q]
    expected = mj.secagg.plan(n, at_input, **settings)
    for name in ("least p, majority", "least degree, majority"):
        own = named(cut, name)
        assert own.losses == pytest.approx(at_input)
        assert own.number == named(expected, name).number > named(plain, name).number
        assert own.log_no_sum == pytest.approx(named(expected, name).log_no_sum)
        assert named(waited, name).number == named(plain, name).number
        # the input's upload is nearly all of a round
        assert 1.0 < named(plain, name).seconds < 1.5
        assert 10.0 < named(waited, name).seconds < 12.0
        assert 5.0 < own.seconds < 5.5
    # no client is in time: no graph keeps the targets
    assert mj.secagg.plan(n, q, **settings, deadline=0.5).best is None


def test_lost_secrets_of_a_ring_are_those_of_every_loss():
    n, k, rates = 6, 2, (0.05, 0.1, 0.2, 0.15)
    beside = circle(n, k)
    stays = np.cumprod([1.0, *(1.0 - np.asarray(rates))])
    last = [*(stays[:4] * rates), stays[4]]
    lost = too_few = 0.0
    for levels in itertools.product(range(5), repeat=n):
        weight = math.prod(last[level] for level in levels)
        in_sum = sum(level >= 3 for level in levels)
        too_few += weight * (in_sum < 2)
        for i in range(n):
            closed = beside[i] | {i}
            shares = sum(levels[j] == 4 for j in closed)
            needed = levels[i] >= 2 and any(levels[j] >= 3 for j in closed)
            lost += weight * (needed and 2 * shares <= len(closed))
    design = planner(n, rates).regular("ring", k, "majority")
    assert math.isclose(
        math.exp(design.log_no_sum), min(1.0, lost + too_few), rel_tol=1e-12
    )
    assert design.log_unmaskable == -math.inf
    # two of three holders are more than half; one is not
    assert planner(n, rates).regular("ring", k, 2).log_unmaskable == -math.inf
    assert planner(n, rates).regular("ring", k, 1).log_unmaskable == 0.0


def test_no_sparser_graph_keeps_the_targets():
    n, q, no_sum, leak = 80, [0.01, 0.02, 0.04, 0.03], 1e-4, 1e-8
    plan = mj.secagg.plan(n, q, no_sum=no_sum, leak=leak)
    failures = mj.secagg.failures
    least = named(plan, "least p, majority")

    def keeps(p):
        return failures.log_reliability_first_moment(n, p, q, "majority") <= math.log(
            no_sum
        ) and failures.log_disconnection_probability(n, p, q) <= math.log(leak)

    assert least.keeps
    assert keeps(least.number)
    assert not keeps(least.number - 1e-5)
    one_t = named(plan, "least p, one t")
    assert one_t.number > least.number
    assert one_t.log_unmaskable == failures.unmasking_bound(
        n, one_t.number, one_t.threshold
    )
    assert one_t.log_leak <= math.log(leak)
    degree = named(plan, "least degree, majority")
    assert degree.number % 2 == 0
    rates = planner(n, q)
    sparser = rates.regular("", degree.number - 2, "majority")
    assert degree.log_no_sum <= math.log(no_sum) < sparser.log_no_sum
    assert plan.best is plan.rounds[0]
    assert [row.keeps for row in plan.rounds] == sorted(
        (row.keeps for row in plan.rounds), reverse=True
    )


@pytest.mark.long
def test_counted_rounds_keep_the_targets():
    n, q = 60, 0.03
    plan = mj.secagg.plan(n, q, no_sum=0.05, leak=0.02)
    steps = mj.availability.independent_steps(q)
    for row in plan.rounds:
        if row.graph == "erdos_renyi":
            graph = mj.graphs.erdos_renyi(n, row.number)
        elif row.graph == "harary":
            graph = mj.graphs.harary(n, row.number)
        else:
            graph = mj.graphs.complete(n)
        rates = mj.secagg.failure_rates_of(1, graph, steps, row.threshold, 1000)
        for rate, log in (
            (rates.no_sum, row.log_no_sum),
            (rates.not_private, row.log_not_private),
            (rates.unmaskable, row.log_unmaskable),
        ):
            assert rate.lower <= math.exp(log)
    least = named(plan, "least p, majority")
    assert math.exp(least.log_no_sum) > 0.04
    graph = mj.graphs.erdos_renyi(n, least.number)
    rates = mj.secagg.failure_rates_of(2, graph, steps, "majority", 4000)
    assert 0.02 < rates.no_sum.rate < 0.06


def test_the_paper_s_setting_costs_more_than_seven_times_the_sparse_graph():
    plan = mj.secagg.plan(1000, step_rate(0.1), no_sum=1e-5)
    least, paper = named(plan, "least p, majority"), named(plan, "CCESA's p*")
    assert (paper.number, paper.threshold) == (0.3106, 198)
    assert 0.038 < least.number < 0.042
    # keystream: a pad for each neighbour, and one of the client itself
    assert paper.keystream_words == pytest.approx((0.3106 * 999 + 1) * 10_000)
    assert 7.0 < paper.keystream_words / least.keystream_words < 8.0
    # shares, keys and lists; the 20,000 bytes of the input are the same
    ratio = (paper.client_bytes - 20_000) / (least.client_bytes - 20_000)
    assert 7.0 < ratio < 8.0
    assert not paper.keeps  # Remark 4's t can be unmasked more often than 1e-12
    assert -6.0 < paper.log_unmaskable / LOG10 < -4.0


def test_no_graph_serves_a_small_round_with_many_losses():
    plan = mj.secagg.plan(50, step_rate(0.3))
    assert plan.best is None
    assert not any(row.keeps for row in plan.rounds)
    assert named(plan, "CCESA's p*") is None  # above 1
    assert named(plan, "least p, majority") is None
    assert mj.secagg.plan(50, 0.3).best is None  # a total loss above one half


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"n": 2}, "`n` must"),
        ({"n": 2**15}, "`n` must"),
        ({"q": [0.1, 0.1]}, "`q` must be one rate, or four"),
        ({"q": 1.5}, "`q` must"),
        ({"no_sum": 0.0}, "`no_sum` must"),
        ({"leak": 1.0}, "`leak` must"),
        ({"dim": 0}, "`dim` must"),
        ({"modulus_bits": 40}, "`modulus_bits` must"),
        ({"block_size": 3}, "`block_size` must divide `n`"),
        ({"block_size": 1}, "`block_size` must"),
        ({"straggler_rate": 1.0}, "`straggler_rate` must lie in"),
        ({"straggler_slowdown": 3.0}, "`straggler_slowdown` must not be set without"),
        ({"straggler_rate": 0.1, "straggler_slowdown": 0.5}, "must be at least 1"),
        ({"deadline": 0.0}, "`deadline` must be positive"),
    ],
)
def test_bad_arguments_are_named(arguments, rule):
    call = inspect.unwrap(mj.secagg.plan)
    with pytest.raises(mj.ConfigurationError, match=rule):
        call(**{"n": 20, "q": 0.01} | arguments)


def test_the_command_prints_the_plan(capsys):
    words = ["secagg", "plan", "--num-clients", "100", "--json"]
    assert main(words) == 0
    content = json.loads(capsys.readouterr().out)
    plan = mj.secagg.plan(100, step_rate(0.1))
    assert [row["name"] for row in content["rounds"]] == [r.name for r in plan.rounds]
    assert content["rounds"][0]["client_bytes"] == plan.best.client_bytes
    assert content["losses"] == pytest.approx([step_rate(0.1)] * 4)
    assert main([*words[:4], "--step-dropout-rates", "0.01", "0", "0.1", "0"]) == 0
    assert "Fewest bytes: harary with" in " ".join(capsys.readouterr().out.split())
    assert main(["secagg", "plan", "--num-clients", "20"]) == 1
    assert main(["secagg", "plan", "--step-dropout-rates", "0.1", "0.2"]) == 2
    assert main(["secagg", "plan", "--total-dropout-rate", "0.1", "--no-sum", "2"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("n", "trials"), [(100, 2000), (1000, 200), (10_000, 4)])
@pytest.mark.parametrize("total", [0.1, 0.3])
def test_rare_rounds_confirm_the_plan(n, trials, total):
    q = step_rate(total)
    least = named(mj.secagg.plan(n, q), "least p, majority")
    if (n, total) == (100, 0.3):
        assert least is None  # not even the complete graph
        return
    rare = mj.secagg.rare_failure_rates(0, n, least.number, q, "majority", trials)
    # the first moment is an upper bound, and sharp where failures are rare
    assert rare.unreliable.log_lower <= least.log_no_sum <= math.log(1e-6)
    assert rare.unreliable.log_upper >= least.log_no_sum - 0.05
    assert rare.not_private.log_lower <= least.log_not_private <= math.log(1e-12)
    assert rare.not_private.log_factor == least.log_not_private


def test_a_plan_prints_itself():
    plan = mj.secagg.plan(100, step_rate(0.1))
    assert "least degree, majority: harary" in repr(plan)
    assert jax.tree.leaves(plan) == [plan]
