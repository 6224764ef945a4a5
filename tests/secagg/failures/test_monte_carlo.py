"""Simulated failure rates against rounds judged one by one, enumeration and closed forms."""

import functools
import inspect
import itertools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core import batches as _batches
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.statistics import binomial_interval
from mrsa_jax._core.streams import Stream, as_key, round_key, trial_key
from mrsa_jax.secagg.failures import _judging, _planted, _verdicts
from mrsa_jax.secagg.lists import heeded

SURE = 1.0 - 1e-6  # intervals in these tests fail to cover once in a million


# ---- an oracle in plain Python


def judge(adjacency, survivors, thresholds):
    """Return one round's byte from the definitions, with Python sets."""
    n = len(adjacency)
    beside = [{j for j in range(n) if adjacency[i][j]} for i in range(n)]
    v1, v2, v3, v4 = ({i for i in range(n) if survivors[s][i]} for s in (1, 2, 3, 4))
    informative = {i for i in range(n) if len((beside[i] | {i}) & v4) >= thresholds[i]}
    needed = v3 | {i for i in v2 if beside[i] & v3}
    parts, left = [], set(v3)
    while left:
        part, grown = set(), {min(left)}
        while grown != part:
            part = grown
            grown = part | {j for i in part for j in beside[i] & v3}
        parts.append(part)
        left -= part
    learnt = [
        part
        for part in parts
        if part | {i for i in v2 if beside[i] & part} <= informative
    ]
    apart = len(parts) > 1
    unmaskable = any(2 * thresholds[i] <= len(beside[i]) + 1 for i in range(n))
    return (
        _verdicts.UNRELIABLE * (not needed <= informative)
        | _verdicts.NOT_PRIVATE * (apart and bool(learnt))
        | _verdicts.DISCONNECTED * apart
        | _verdicts.UNMASKABLE * unmaskable
        | _verdicts.NO_SUM * ends_without_a_sum(beside, thresholds, v1, v2, v3, v4)
    )


def ends_without_a_sum(beside, thresholds, v1, v2, v3, v4):
    """Return whether no sum is learnt, where clients refuse lists below their threshold."""

    def holders(i, there):
        return len((beside[i] | {i}) & there)

    sends = {
        i
        for i in v3
        if holders(i, v2) >= thresholds[i] or holders(i, v1) < thresholds[i]
    }
    answers = {i for i in v4 & sends if holders(i, sends) >= thresholds[i]}
    needed = sends | {i for i in v2 if beside[i] & sends}
    is_lost = any(holders(i, answers) < thresholds[i] for i in needed)
    return len(sends) < 2 or is_lost


def drawn_rounds(seed, trials, graph, steps):
    """Return the graphs and the survivors that trials are documented to use."""

    def one(trial):
        own = trial_key(as_key(seed), trial)
        everybody = jnp.ones(graph.num_clients, jnp.bool_)
        adjacency = graph.sample(round_key(own, 0, Stream.ASSIGNMENT))
        return adjacency, steps.sample(round_key(own, 0, Stream.STEPS), everybody)

    drawn = jax.jit(jax.vmap(one))(on_device(np.arange(trials, dtype=np.uint32)))
    return tuple(np.asarray(array) for array in drawn)


def limits_in(adjacency, t):
    """Return t_i: one for all, or the least above half of the closed neighbourhood."""
    if t != "majority":
        return [t] * len(adjacency)
    closed = [sum(map(bool, row)) + 1 for row in adjacency]
    return [max(2, math.floor(Fraction(size, 2)) + 1) for size in closed]


@functools.cache
def exact_chances(n, p, q, t):
    """Return the chance of every byte over all graphs and losses, as exact fractions."""
    pairs = list(itertools.combinations(range(n), 2))
    kept = 1 - q
    lasts = [q, kept * q, kept**2 * q, kept**3 * q, kept**4]  # in V0 only, ..., to V4
    assert sum(lasts) == 1
    chances = {}
    for levels in itertools.combinations_with_replacement(range(5), n):
        ways = math.factorial(n)
        for level in range(5):
            ways //= math.factorial(levels.count(level))
        weight = ways * math.prod(lasts[level] for level in levels)
        survivors = [[level >= s for level in levels] for s in range(5)]
        for chosen in itertools.product((0, 1), repeat=len(pairs)):
            adjacency = [[False] * n for _ in range(n)]
            for (i, j), there in zip(pairs, chosen, strict=True):
                adjacency[i][j] = adjacency[j][i] = bool(there)
            edges = sum(chosen)
            chance = weight * p**edges * (1 - p) ** (len(pairs) - edges)
            byte = judge(adjacency, survivors, limits_in(adjacency, t))
            chances[byte] = chances.get(byte, Fraction(0)) + chance
    assert sum(chances.values()) == 1
    return chances


def exact_chance(flag, *setting):
    return float(sum(c for byte, c in exact_chances(*setting).items() if byte & flag))


def covers(count, trials, chance):
    lower, upper = binomial_interval(count, trials, SURE)
    return lower <= chance <= upper


# ---------------------------------------------------------------- misuse

GOOD = {"seed": 0, "n": 6, "p": 0.5, "q": 0.1, "t": 2, "num_trials": 4}


@pytest.mark.parametrize(
    ("argument", "value", "rule"),
    [
        ("seed", -1, "must lie in"),
        ("n", 1, "must be at least 2; got 1"),
        ("n", 6.0, "must be an integer"),
        ("p", 1.5, r"must lie in \[0, 1\]; got 1.5"),
        ("p", math.nan, r"must lie in \[0, 1\]"),
        ("p", [0.5] * 6, "must be a number"),
        ("p", "0.5", "must be a number"),
        ("q", -0.1, r"must lie in \[0, 1\]"),
        ("q", math.nan, r"must lie in \[0, 1\]"),
        (
            "q",
            [0.1] * 5,
            r"must be one rate or 6, one for each client; got 'shape \(5,\)'",
        ),
        ("t", 0, r"must lie in \[1, 2\*\*31\); got 0"),
        ("t", 2.5, "must be an integer; got 2.5"),
        ("t", True, "must be an integer; got True"),
        ("t", [2] * 5, "must be one for all or one for each of the"),
        ("t", [2] * 5 + [0], r"must lie in \[1, 2\*\*31\); got 0"),
        ("num_trials", 0, "must lie in"),
        ("num_trials", True, "must be an integer"),
        ("chunk_size", 0, "must be at least 1"),
    ],
)
def test_bad_arguments_are_named(argument, value, rule):
    with pytest.raises(mj.ConfigurationError, match=rf"`{argument}` {rule}"):
        inspect.unwrap(mj.secagg.failure_rates)(**GOOD | {argument: value})


@pytest.mark.parametrize(
    ("argument", "value", "rule"),
    [
        ("graph", np.ones((6, 6), bool), "must be a graph model"),
        ("steps", 0.1, "must be a step dropout model"),
        (
            "steps",
            lambda: mj.availability.independent_steps([0.1] * 5),
            "must be for the graph's 6",
        ),
        ("thresholds", [2, 2], "must be one for all or one for each of the 6"),
        ("num_trials", -1, "must lie in"),
        ("num_trials", 10.0, "must be an integer"),
        ("progress", 3, "must be callable"),
    ],
)
def test_bad_models_are_named(argument, value, rule):
    good = {
        "seed": 0,
        "graph": mj.graphs.complete(6),
        "steps": mj.availability.independent_steps(0.1),
        "thresholds": 2,
        "num_trials": 4,
    }
    with pytest.raises(mj.ConfigurationError, match=rf"`{argument}` {rule}"):
        inspect.unwrap(mj.secagg.failure_rates_of)(
            **good | {argument: value() if callable(value) else value}
        )


# ---------------------------------------------------------------- round by round


@pytest.mark.long("70-0.06-0.05-thresholds1-40")
@pytest.mark.parametrize(
    ("n", "p", "q", "thresholds", "trials"),
    [
        (6, 0.3, 0.12, [1, 2, 1, 3, 2, 1], 300),
        (70, 0.06, 0.05, [1 + i % 3 for i in range(70)], 40),
        (70, 0.5, [0.02 + 0.003 * i for i in range(70)], [20] * 70, 40),
    ],
)
def test_trials_are_the_documented_rounds_judged_by_the_definitions(
    n, p, q, thresholds, trials
):
    graph, steps = mj.graphs.erdos_renyi(n, p), mj.availability.independent_steps(q)
    limits = np.asarray(thresholds, np.int32)
    verdicts, sums = _judging.judge_trials(
        graph, steps, limits, as_key(7), 0, trials, 300
    )
    assert len(verdicts) == len(sums) == trials
    for trial, (adjacency, survivors) in enumerate(
        zip(*drawn_rounds(7, trials, graph, steps), strict=True)
    ):
        assert verdicts[trial] == judge(adjacency, survivors, thresholds)
        assert sums[trial] == survivors[3].sum()
    seen = np.bitwise_or.reduce(verdicts)
    assert seen & _verdicts.UNRELIABLE  # the settings show something
    if p < 0.5:
        assert seen & _verdicts.NOT_PRIVATE


@pytest.mark.long
def test_counts_are_those_of_the_public_predicates():
    graph, steps = mj.graphs.erdos_renyi(6, 0.4), mj.availability.independent_steps(0.1)
    adjacency, survivors = drawn_rounds(3, 200, graph, steps)
    reliable = mj.secagg.is_reliable(adjacency, survivors, 2)
    private = mj.secagg.is_private(adjacency, survivors, 2)
    rates = mj.secagg.failure_rates(3, 6, 0.4, 0.1, 2, 200)
    assert rates.unreliable.count == (~reliable).sum() > 0
    assert rates.not_private.count == (~private).sum() > 0
    assert rates.both.count == (~reliable & ~private).sum()
    assert rates.failed.count == (~reliable | ~private).sum()
    risky = [mj.secagg.unmasking_risk(graph, 2).any() for graph in adjacency]
    assert rates.unmaskable.count == sum(risky)
    assert rates.too_few.count == (survivors[:, 3].sum(axis=1) < 2).sum()
    ends = [
        mj.secagg.aggregate(0, np.zeros((6, 1), np.uint32), *each, 2, 8).status
        for each in zip(adjacency, survivors, strict=True)
    ]
    assert rates.no_sum.count == sum(status != mj.Status.OK for status in ends)
    assert rates.mean_survivors == survivors[:, 3].sum(axis=1).mean()


@functools.cache
def exact_no_sum(n, q, t):
    """Return the chance of a round without a sum over the complete graph, by all losses."""
    everybody, kept = np.ones((n, n)) - np.eye(n), 1 - q
    lasts = [q, kept * q, kept**2 * q, kept**3 * q, kept**4]
    chance = Fraction(0)
    for levels in itertools.product(range(5), repeat=n):
        survivors = [[level >= step for level in levels] for step in range(5)]
        if judge(everybody, survivors, [t] * n) & _verdicts.NO_SUM:
            chance += math.prod(lasts[level] for level in levels)
    return chance


def test_rounds_without_a_sum_are_counted_whatever_the_theorems_say():
    """By hand: a complete graph gives a sum where three or more last to the end."""
    lasts = Fraction(7, 10) ** 4

    def by_hand(n):
        few = range(3)
        return sum(math.comb(n, k) * lasts**k * (1 - lasts) ** (n - k) for k in few)

    assert exact_no_sum(5, Fraction(3, 10), 3) == by_hand(5)
    found = mj.secagg.failure_rates(3, 10, 1, 0.3, 3, 6_000)
    assert covers(found.no_sum.count, 6_000, float(by_hand(10)))
    assert found.failed.rate < 0.8  # which is not what a person asks
    few = mj.secagg.failure_rates(0, 10, 1, 0.5, 8, 400)
    assert few.no_sum.rate == 1.0
    assert few.failed.rate < 0.8
    nobody = mj.secagg.failure_rates(0, 10, 1, 1.0, 6, 100)
    assert (nobody.no_sum.rate, nobody.unreliable.rate, nobody.failed.rate) == (
        1.0,
        0.0,
        0.0,
    )


def test_a_refusal_may_save_a_round_that_theorem_1_calls_unreliable():
    """Rounds over sparse graphs, where a client that refuses is not missed."""
    graph, steps = mj.graphs.erdos_renyi(7, 0.3), mj.availability.independent_steps(0.1)
    limits = np.full(7, 2, np.int32)
    verdicts, _ = _judging.judge_trials(graph, steps, limits, as_key(0), 0, 200, 200)
    drawn = drawn_rounds(0, 200, graph, steps)
    plan = mj.secagg.complete_plan(7, 1, 8)
    alive = np.stack(
        [heeded(plan, *each, limits).survivors for each in zip(*drawn, strict=True)]
    )
    is_reliable = mj.secagg.is_reliable(drawn[0], alive, 2)
    no_sum = (alive[:, 3].sum(axis=1) < 2) | ~is_reliable
    assert ((verdicts & _verdicts.NO_SUM) > 0).tolist() == no_sum.tolist()
    is_saved = ~no_sum & ((verdicts & _verdicts.UNRELIABLE) > 0)
    assert is_saved.any()


@pytest.mark.long
def test_other_graphs_are_drawn_and_judged_alike():
    graph = mj.graphs.harary(6, 2)
    steps = mj.availability.independent_steps(0.2)
    rates = mj.secagg.failure_rates_of(5, graph, steps, 3, 120)
    rounds = zip(*drawn_rounds(5, 120, graph, steps), strict=True)
    bytes_ = [judge(*each, [3] * 6) for each in rounds]
    for name, flag in [
        ("no_sum", _verdicts.NO_SUM),
        ("unreliable", _verdicts.UNRELIABLE),
        ("not_private", _verdicts.NOT_PRIVATE),
        ("disconnected", _verdicts.DISCONNECTED),
        ("unmaskable", _verdicts.UNMASKABLE),
    ]:
        assert getattr(rates, name).count == sum(bool(byte & flag) for byte in bytes_)


@pytest.mark.long
def test_a_full_device_is_given_half_a_chunk(monkeypatch):
    graph, steps = mj.graphs.harary(6, 2), mj.availability.independent_steps(0.2)
    whole = mj.secagg.failure_rates_of(5, graph, steps, 3, 50)
    judge, most = _judging.judge_trials, [30]

    def judge_few(*args):
        if args[6] > most[0]:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: allocating 7.5GiB")
        return judge(*args)

    monkeypatch.setattr(_judging, "judge_trials", judge_few)
    assert mj.secagg.failure_rates_of(5, graph, steps, 3, 50, chunk_size=50) == whole
    most[0] = 20
    told = (
        "`chunk_size` must fit .*7.5GiB.: judging rounds of 6 clients; got 25 at once"
    )
    with pytest.raises(mj.ConfigurationError, match=told):
        mj.secagg.failure_rates_of(5, graph, steps, 3, 50, chunk_size=50)


# ---------------------------------------------------------------- statistics


@pytest.mark.parametrize("t", [1, 2, "majority"])
def test_rates_are_those_of_full_enumeration(t):
    setting = (4, Fraction(3, 5), Fraction(1, 8), t)
    trials = 20_000
    rates = mj.secagg.failure_rates(11, 4, 3 / 5, 1 / 8, t, trials)
    for rate, flag in [
        (rates.no_sum, _verdicts.NO_SUM),
        (rates.unreliable, _verdicts.UNRELIABLE),
        (rates.not_private, _verdicts.NOT_PRIVATE),
        (rates.disconnected, _verdicts.DISCONNECTED),
        (rates.unmaskable, _verdicts.UNMASKABLE),
    ]:
        chance = exact_chance(flag, *setting)
        assert covers(rate.count, trials, chance)
        assert rate.rate == rate.count / trials
        assert (rate.lower, rate.upper) == binomial_interval(rate.count, trials)


def test_disconnection_is_as_frequent_as_its_closed_form():
    trials = 20_000
    rates = mj.secagg.failure_rates(2, 20, 0.16, 0.02, 2, trials)
    chance = math.exp(mj.secagg.failures.log_disconnection_probability(20, 0.16, 0.02))
    assert 0.3 < chance < 0.7
    assert covers(rates.disconnected.count, trials, chance)


@pytest.mark.long
def test_the_paper_s_setting_fails_as_rarely_as_it_should():
    n, total, trials = 100, 0.0, 20_000
    p = mj.secagg.connection_probability(n, total)
    t = mj.secagg.share_threshold(n, p)
    rates = mj.secagg.failure_rates(0, n, p, 0.0, t, trials)
    lower, _ = binomial_interval(rates.unreliable.count, trials, SURE)
    assert lower <= math.exp(
        mj.secagg.failures.log_reliability_first_moment(n, p, 0.0, t)
    )
    assert rates.unreliable.count > 0
    assert rates.not_private.count == 0
    assert rates.not_private.upper < 2e-4
    lower, _ = binomial_interval(rates.unmaskable.count, trials, SURE)
    assert lower <= math.exp(mj.secagg.failures.unmasking_bound(n, p, t))


# ---------------------------------------------------------------- contracts


@pytest.mark.long
def test_results_do_not_depend_on_chunks():
    setting = (9, 6, 0.3, 0.05, 2)
    whole = mj.secagg.failure_rates(*setting, 500)
    assert whole == mj.secagg.failure_rates(*setting, 500, chunk_size=77)
    with jax.enable_x64(True):
        assert whole == mj.secagg.failure_rates(*setting, 500, chunk_size=300)


def test_a_longer_run_begins_with_the_shorter_one():
    graph, steps = mj.graphs.erdos_renyi(6, 0.4), mj.availability.independent_steps(0.1)
    limits = np.full(6, 2, np.int32)
    whole, _ = _judging.judge_trials(graph, steps, limits, as_key(1), 0, 60, 300)
    tail, _ = _judging.judge_trials(graph, steps, limits, as_key(1), 40, 20, 300)
    np.testing.assert_array_equal(whole[40:], tail)


def test_a_key_is_a_seed():
    by_key = mj.secagg.failure_rates(as_key(4), 6, 0.4, 0.1, 2, 50)
    assert by_key == mj.secagg.failure_rates(4, 6, 0.4, 0.1, 2, 50)
    assert by_key != mj.secagg.failure_rates(5, 6, 0.4, 0.1, 2, 50)


def test_progress_is_told_after_each_chunk():
    told = []
    mj.secagg.failure_rates(
        0, 6, 0.5, 0.1, 2, 25, chunk_size=10, progress=lambda *args: told.append(args)
    )
    assert told == [(10, 25), (20, 25), (25, 25)]


@pytest.mark.long
def test_a_sweep_compiles_once():
    mj.secagg.failure_rates(0, 6, 0.5, 0.1, 2, 30)
    functions = (_judging.draw_arrays, _judging.judge_arrays)
    compiled = [function._cache_size() for function in functions]
    for seed, p, q, t in [(1, 0.2, 0.0, 1), (2, 1.0, 0.3, 4), (3, 0.0, 1.0, 9)]:
        mj.secagg.failure_rates(seed, 6, p, q, t, 30)
    mj.secagg.failure_rates(0, 6, 0.5, 0.1, list(range(1, 7)), 30)
    assert [function._cache_size() for function in functions] == compiled


def test_ends_of_the_ranges():
    def counts(p, q, t):
        rates = mj.secagg.failure_rates(0, 6, p, q, t, 40)
        return rates.unreliable.count, rates.not_private.count, rates.too_few.count

    assert counts(1.0, 0.0, 6) == (0, 0, 0)  # SecAgg without losses
    assert counts(1.0, 0.0, 7) == (40, 0, 0)  # more shares than holders
    assert counts(0.0, 0.0, 1) == (0, 40, 0)  # nobody is joined: all inputs are exposed
    assert counts(0.0, 0.0, 2) == (40, 0, 0)
    assert counts(0.5, 1.0, 1) == (0, 0, 40)  # nobody stays


def test_secagg_is_the_complete_graph():
    steps = mj.availability.independent_steps(0.1)
    complete = mj.secagg.failure_rates_of(0, mj.graphs.complete(6), steps, 4, 80)
    assert complete == mj.secagg.failure_rates(0, 6, 1.0, 0.1, 4, 80)
    assert complete.disconnected.count == 0


# ---------------------------------------------------------------- rare failures


@pytest.mark.parametrize(
    ("argument", "value", "rule"),
    [
        ("n", 1, "must be at least 2"),
        ("p", -0.5, r"must lie in \[0, 1\]"),
        ("q", [0.1] * 6, "must be one rate, or four"),
        ("t", 0, r"must lie in \[1, 2\*\*31\)"),
        ("num_trials", 0, "must lie in"),
        ("progress", "loud", "must be callable"),
    ],
)
def test_bad_arguments_of_rare_rates_are_named(argument, value, rule):
    with pytest.raises(mj.ConfigurationError, match=rf"`{argument}` {rule}"):
        inspect.unwrap(mj.secagg.rare_failure_rates)(**GOOD | {argument: value})


def planted_graph(drawn, cut, v3, client, row):
    """Return a drawn graph after the planting, edge by edge."""
    adjacency = drawn.copy()
    for i, j in itertools.permutations(range(len(adjacency)), 2):
        if v3[i] and v3[j] and cut[i] != cut[j]:
            adjacency[i, j] = False
        if client in (i, j):
            adjacency[i, j] = row[j if client == i else i]
    return adjacency


def first_failure(adjacency, survivors, thresholds, cut, client):
    """Return whether what was planted is the first failure of its kind, by Python sets."""
    n = len(adjacency)
    beside = [{j for j in range(n) if adjacency[i][j]} for i in range(n)]
    v2, v3, v4 = ({i for i in range(n) if survivors[s][i]} for s in (2, 3, 4))
    if client >= 0:
        lost = [
            i
            for i in sorted(v2)
            if (i in v3 or beside[i] & v3)
            and len((beside[i] | {i}) & v4) < thresholds[i]
        ]
        return lost[:1] == [client]
    part, grown = set(), {min(v3)}
    while grown != part:
        part = grown
        grown = part | {j for i in part for j in beside[i] & v3}
    side = {i for i in v3 if cut[i]}
    return part in (side, v3 - side)


@pytest.mark.long("cut")
@pytest.mark.parametrize("kind", ["cut", "client"])
def test_planted_rounds_hold_what_was_planted(kind):
    n, p, q, count = 6, 0.5, 0.15, 200
    graph, thresholds = (
        mj.graphs.erdos_renyi(n, p),
        np.asarray([1, 2, 3, 2, 4, 1], np.int32),
    )
    key, rates = as_key(3), np.full(4, q)
    if kind == "cut":
        cuts = _planted.isolated_cuts(n, p, rates)
        rounds = _planted.plant_cuts(key, 0, count, cuts, rates)
    else:
        table = _planted.lost_secrets(n, p, rates, thresholds)
        rounds = _planted.plant_lost_secrets(key, 0, count, table, rates)
    bytes_ = _planted.judge_planted(graph, rounds, thresholds, key, 0, count)
    drawn, _ = drawn_rounds(3, count, graph, mj.availability.independent_steps(q))
    for trial, (survivors, cut, client, row) in enumerate(zip(*rounds, strict=True)):
        assert not (survivors[1:] & ~survivors[:-1]).any()
        assert survivors[0].all()
        assert (client >= 0) == (kind == "client")
        adjacency = planted_graph(drawn[trial], cut, survivors[3], client, row)
        first = first_failure(adjacency, survivors, thresholds, cut, client)
        expected = (
            judge(adjacency, survivors, thresholds) | _verdicts.PLANTED_FIRST * first
        )
        assert bytes_[trial] == expected
        if kind == "cut":
            assert 1 <= (cut & survivors[3]).sum() == cut.sum() < survivors[3].sum()
            assert expected & _verdicts.DISCONNECTED
        else:
            shares = (row & survivors[4]).sum() + survivors[4][client]
            assert shares < thresholds[client]
            assert survivors[2][client]
            assert not row[client]


def close_to(rare, chance):
    """Return whether a rare rate agrees with a chance, but for one draw in a million."""
    lower, upper = binomial_interval(rare.count, rare.trials, SURE)
    factor = math.exp(rare.log_factor)
    return lower * factor <= chance <= upper * factor


@pytest.mark.long
@pytest.mark.parametrize("t", [1, 2, "majority"])
def test_rare_rates_are_those_of_full_enumeration(t):
    setting = (4, Fraction(3, 5), Fraction(1, 8), t)
    rare = mj.secagg.rare_failure_rates(1, 4, 3 / 5, 1 / 8, t, 20_000)
    assert close_to(rare.not_private, exact_chance(_verdicts.NOT_PRIVATE, *setting))
    assert close_to(rare.unreliable, exact_chance(_verdicts.UNRELIABLE, *setting))
    exact = exact_chance(_verdicts.DISCONNECTED, *setting)
    assert math.exp(rare.log_disconnected) == pytest.approx(exact, rel=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "p", "q", "t"),
    [
        (12, 0.35, 0.05, 3),
        (16, 0.5, 0.1, [2 + i % 4 for i in range(16)]),
        (8, 0.3, 0.0, 2),
        (14, 0.4, 0.08, "majority"),
    ],
)
def test_rare_rates_are_those_that_counting_finds(n, p, q, t):
    counted = mj.secagg.failure_rates(2, n, p, q, t, 40_000)
    rare = mj.secagg.rare_failure_rates(3, n, p, q, t, 10_000)
    for few, many in [
        (rare.not_private, counted.not_private),
        (rare.unreliable, counted.unreliable),
    ]:
        assert many.count > 50
        lower, upper = binomial_interval(many.count, many.trials, SURE)
        below, above = binomial_interval(few.count, few.trials, SURE)
        factor = math.exp(few.log_factor)
        assert below * factor <= upper
        assert lower <= above * factor
        assert few.lower <= few.rate <= few.upper


@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "p", "q"), [(10, 0.4, 0.05), (30, 0.2, 0.0), (20, 0.9, 0.2)]
)
def test_as_many_rounds_are_kept_as_the_exact_chances_say(n, p, q):
    rare = mj.secagg.rare_failure_rates(0, n, p, q, 2, 8_000)
    share = math.exp(rare.log_disconnected - rare.log_cuts)
    assert covers(rare.not_private.trials, rare.trials, share)
    assert rare.log_disconnected == mj.secagg.failures.log_disconnection_probability(
        n, p, q
    )


@pytest.mark.long
@pytest.mark.parametrize("total", [0.0, 0.05, 0.1])
def test_the_paper_s_privacy_failure_is_measured_below_its_bound(total):
    p, q = mj.secagg.connection_probability(100, total), 1.0 - (1.0 - total) ** 0.25
    t = mj.secagg.share_threshold(100, p)
    rare = mj.secagg.rare_failure_rates(0, 100, p, q, t, 1_000)
    bound = mj.secagg.privacy_bound(100, p, q)
    assert rare.not_private.log_upper <= bound + 1e-9
    assert rare.not_private.log_lower > bound - 3.0  # and not far below
    assert rare.not_private.trials == rare.trials
    if total == 0.0:
        assert round(rare.not_private.log_rate / math.log(10.0), 2) == -41.48
    union = mj.secagg.failures.log_reliability_first_moment(100, p, q, t)
    assert rare.unreliable.log_rate <= union + 1e-9
    assert rare.unreliable.log_lower > union - 0.1


@pytest.mark.long("40-0.35-4-1000", "40-0.5-4-1000")
@pytest.mark.parametrize(
    ("n", "p", "t", "trials"),
    # the first runs the programs of the planted rounds above
    [(6, 0.9, 2, 200), (40, 0.35, 4, 1_000), (40, 0.5, 4, 1_000)],
)
def test_theorem_5_is_loose_and_theorem_6_sharp_where_failures_are_rare(
    n, p, t, trials
):
    q = 0.02
    rare = mj.secagg.rare_failure_rates(0, n, p, q, t, trials)
    loose = mj.secagg.reliability_bound(n, p, q, t)
    assert 10 < math.exp(loose - rare.unreliable.log_upper) < 100
    sharp = {
        "unreliable": [mj.secagg.failures.log_reliability_first_moment(n, p, q, t)],
        "not_private": [
            mj.secagg.privacy_bound(n, p, q),
            mj.secagg.failures.log_disconnection_probability(n, p, q),
        ],
    }
    for kind, bounds in sharp.items():
        rate = getattr(rare, kind)
        for bound in bounds:
            assert rate.log_lower <= bound + 1e-9 < rate.log_upper + math.log(1.2)


@pytest.mark.long
@pytest.mark.usefixtures("on_a_cpu")
def test_rare_rates_do_not_depend_on_chunks(monkeypatch):
    setting = (5, 6, 0.5, 0.1, 2)
    whole = mj.secagg.rare_failure_rates(*setting, 300)
    monkeypatch.setitem(_batches._WORK, "planted", _batches._Work(128 * 64 * 6, 0))
    assert whole == mj.secagg.rare_failure_rates(*setting, 300)
    told = []
    assert whole == mj.secagg.rare_failure_rates(
        *setting, 300, progress=lambda *args: told.append(args)
    )
    assert told == [(done, 600) for done in (128, 256, 300, 428, 556, 600)]


@pytest.mark.long
def test_rare_rates_at_the_ends_of_the_ranges():
    certain = mj.secagg.rare_failure_rates(0, 4, 1.0, 0.0, 4, 20)
    assert certain.not_private.rate == certain.unreliable.rate == 0.0
    assert certain.not_private.log_upper == certain.unreliable.log_upper == -math.inf
    gone = mj.secagg.rare_failure_rates(0, 4, 0.5, 1.0, 2, 20)
    assert gone.not_private.upper == gone.unreliable.upper == 0.0
    apart = mj.secagg.rare_failure_rates(0, 3, 0.0, 0.0, 1, 2_000)
    assert apart.log_disconnected == 0.0
    assert apart.not_private.rate == 1.0  # all three inputs stand alone
    # one of three cuts is the first
    assert covers(apart.not_private.trials, 2_000, 1 / 3)
    beyond = mj.secagg.rare_failure_rates(0, 4, 1.0, 0.0, 5, 2_000)
    assert close_to(beyond.unreliable, 1.0)
    none = mj.secagg.failures.RareRate.of(-50.0, 0, 0)
    assert math.isnan(none.log_rate)
    assert (none.log_lower, none.log_upper) == (-math.inf, -50.0)
