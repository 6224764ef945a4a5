"""Averages over assignment graphs, with weights and moving ranges.

Against plain sets and sums.
"""

from __future__ import annotations

import dataclasses
import fractions
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import availability, graphs, secagg, selection
from mrsa_jax._core.arrays import on_device
from mrsa_jax.quantize import following_range, stochastic
from mrsa_jax.secagg import graph_rule, ring_average

POLICIES = ("ignore", "abort", "drop_block")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_clients": 3}, "`num_clients` must be at least the graph's; got 3 and 4"),
        ({"threshold": 0}, r"`threshold` must lie in \[1, 2\*\*31\); got 0"),
        ({"threshold": np.float32(2)}, "`threshold` must be an integer; got"),
        (
            {"threshold": [2, 2, 2]},
            "`threshold` must be one for all or one for each of the 4",
        ),
        ({"blocks": 0}, "`blocks` must be at least 1; got 0"),
    ],
)
def test_rules_that_make_no_sense(arguments, message) -> None:
    defaults = {"graph": graphs.complete(4), "num_clients": 9}
    with pytest.raises(mj.ConfigurationError, match=message):
        graph_rule(**(defaults | arguments))


def weighted(max_weight=9, levels=256, n=3, d=5, **more):
    return ring_average(stochastic(levels, 1.0), n, d, max_weight=max_weight, **more)


def run(average, updates, survivors, weights=None, key=0, members=None, **more):
    members = jnp.arange(len(updates)) if members is None else jnp.asarray(members)
    out, _ = average.aggregate(
        jax.random.key(key),
        average.init(),
        on_device(updates, jnp.float32),
        members,
        jnp.asarray(survivors, bool),
        weights,
        **more,
    )
    return jax.device_get(out)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0, 3.0], "`weights` must be integers; got 'dtype float64'"),
        ([1, -2, 3], r"`weights` must lie in \[0, 4294967295\]; got -2 and 3"),
        ([1, 2], "`weights` must be 3, one a slot"),
        (
            [10, 9, 9],
            "`weights` must not add up to more than the ring's budget allows; got 28",
        ),
    ],
)
def test_weights_that_could_overflow_or_mean_nothing(weights, message) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        run(weighted(), np.zeros((3, 5)), [1, 1, 1], np.asarray(weights))


def test_misuse_of_a_graph_average() -> None:
    plain = ring_average(stochastic(4, 1.0), 3, 5)
    with pytest.raises(mj.ConfigurationError, match="`weights` must not be set"):
        run(plain, np.zeros((3, 5)), [1, 1, 1], np.ones(3, int))
    with pytest.raises(
        mj.ConfigurationError, match="`modulus` must exceed total weight"
    ):
        weighted(max_weight=2**20, modulus_bits=24)
    with pytest.raises(
        mj.ConfigurationError, match="`rule` must be over `num_participants` slots"
    ):
        ring_average(stochastic(4, 1.0), 3, 5, rule=graph_rule(graphs.complete(4), 9))
    with pytest.raises(
        mj.ConfigurationError, match="`survivors` must have one row, or V0 to V4"
    ):
        run(ring_average(stochastic(4, 1.0), 4, 5), np.zeros((3, 5)), [1, 1, 1])


@pytest.mark.long
def test_a_weighted_mean_is_exact_on_codes_and_close_to_float64() -> None:
    rng = np.random.default_rng(0)
    updates = rng.uniform(-1.3, 1.3, (4, 50)).astype(np.float32)
    weights = np.asarray([7, 0, 300, 12])
    here = np.asarray([True, True, True, False])
    average = weighted(weights, 2**16, 4, 50)
    out = run(average, updates, here, weights, key=5)
    codes = [
        np.asarray(
            average.quantizer.encode(
                jax.random.fold_in(jax.random.key(5), i), jnp.asarray(updates[i])
            )
        ).astype(object)
        for i in range(4)
    ]
    total = sum(
        int(w) * row for w, row, p in zip(weights, codes, here, strict=True) if p
    )
    assert out.learned.tolist() == total.tolist()
    assert int(out.total_weight) == 307
    step = fractions.Fraction(2, 2**16 - 1)
    exact = [float(fractions.Fraction(int(t), 307) * step - 1) for t in total]
    np.testing.assert_allclose(out.update, exact, atol=2e-7)
    clipped = np.clip(updates.astype(np.float64), -1, 1)
    mean = (weights * here) @ clipped / 307
    assert np.abs(np.asarray(out.update) - mean).max() <= float(step)
    share = (np.abs(updates[here]) > 1).mean()
    assert float(out.clipped_fraction) == pytest.approx(share, abs=1e-6)
    sets = run(
        dataclasses.replace(average, fidelity="sets"), updates, here, weights, key=5
    )
    for mine, theirs in zip(out, sets, strict=True):
        assert np.array_equal(mine, theirs)


def test_weights_of_one_are_the_unweighted_average_bit_for_bit() -> None:
    updates = np.random.default_rng(1).normal(0, 0.5, (3, 40)).astype(np.float32)
    plain = run(ring_average(stochastic(1000, 1.0), 3, 40), updates, [1, 0, 1])
    for weights in (None, np.ones(3, int)):
        same = run(weighted(1, 1000, 3, 40), updates, [1, 0, 1], weights)
        for name in plain._fields:
            assert np.array_equal(getattr(plain, name), getattr(same, name)), name


def test_equal_weights_cancel_and_no_weight_at_all_moves_nothing() -> None:
    updates = np.random.default_rng(2).normal(0, 0.5, (3, 5)).astype(np.float32)
    one = run(weighted(), updates, [1, 1, 1], np.ones(3, int))
    nine = run(weighted(), updates, [1, 1, 1], np.full(3, 9))
    np.testing.assert_allclose(one.update, nine.update, atol=1e-6)
    none = run(weighted(), updates, [1, 1, 1], np.zeros(3, int))
    assert (int(none.status), int(none.total_weight)) == (mj.Status.OK, 0)
    assert not none.update.any()
    # is not asked
    absent = run(weighted(), updates, [1, 1, 0], np.asarray([1, 1, 10**6]))
    assert int(absent.total_weight) == 2


def nested(rng, n, stay=0.85, asked=0.9):
    rows = np.concatenate([rng.random((1, n)) < asked, rng.random((4, n)) < stay])
    return np.cumprod(rows, axis=0).astype(bool)


def oracle(adjacency, survivors, threshold, blocks, policy):
    """Plain sets: (status, who is summed, learnt component of each slot)."""
    n = len(adjacency)
    v0, _, v2, v3, v4 = ({i for i in range(n) if row[i]} for row in survivors)
    near = [{j for j in v0 if adjacency[i][j]} if i in v0 else set() for i in range(n)]
    split = {blocks[i] for i in v0 - v3}
    kept = {
        "ignore": v3,
        "abort": v3 if not split else set(),
        "drop_block": {i for i in v3 if blocks[i] not in split},
    }[policy]
    if not v0:
        return mj.Status.SKIPPED, set(), [-1] * n
    if len(v3) < 2:
        return mj.Status.TOO_FEW_SURVIVORS, set(), [-1] * n
    if len(kept) < 2:
        return mj.Status.ABORTED, set(), [-1] * n
    t = [
        max(2, (len(near[i]) + 1) // 2 + 1) if threshold == "majority" else threshold
        for i in range(n)
    ]
    knows = {i for i in range(n) if len((near[i] | {i}) & v4) >= t[i]}
    components, left = [-1] * n, set(kept)
    while left:
        part = {min(left)}
        while more := {j for i in part for j in near[i] if j in kept} - part:
            part |= more
        left -= part
        around = part | {j for i in part for j in near[i] if j in v2}
        if around <= knows:
            for i in part:
                components[i] = min(part)
    whole = all(components[i] >= 0 for i in kept)
    return (
        (mj.Status.OK, kept, components)
        if whole
        else (mj.Status.UNRELIABLE, set(), components)
    )


@jax.jit
def _all_rounds(rule, keys, survivors, members):
    found = jax.vmap(rule.decide)(keys, survivors, members)
    return found, jax.vmap(rule.graph.sample)(keys)


@pytest.mark.long("None-ignore")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("threshold", ["majority", 2])
def test_rounds_are_what_plain_sets_say(policy, threshold) -> None:
    """200 rounds of sparse graphs, whose components, losses and statuses are of every kind."""
    n, rng = 8, np.random.default_rng(3)
    blocks = rng.integers(0, 5, 30)
    rule = graph_rule(
        graphs.erdos_renyi(n, 0.4),
        30,
        threshold=threshold,
        policy=policy,
        blocks=blocks,
    )
    members = np.sort([rng.choice(30, n, replace=False) for _ in range(200)], axis=1)
    survivors = np.stack([nested(rng, n, stay=0.93) for _ in range(200)])
    found, drawn = jax.device_get(
        _all_rounds(
            rule,
            jax.random.split(jax.random.key(0), 200),
            on_device(survivors),
            on_device(members, jnp.int32),
        )
    )
    seen = set()
    for r in range(200):
        status, summed, components = oracle(
            drawn[r], survivors[r], threshold, blocks[members[r]], policy
        )
        assert int(found.status[r]) == status
        kept = found.survivors[r, 3]
        assert status != mj.Status.OK or set(np.flatnonzero(kept)) == summed
        assert found.components[r].tolist() == components
        seen.add((status, len(set(components) - {-1})))
    assert (mj.Status.OK, 1) in seen
    assert any(status == mj.Status.UNRELIABLE and parts >= 1 for status, parts in seen)
    if policy == "ignore":
        assert any(status == mj.Status.OK and parts >= 2 for status, parts in seen)
    if policy != "ignore":
        assert any(status == mj.Status.ABORTED for status, parts in seen)


@pytest.mark.long
@pytest.mark.parametrize("fidelity", ["array", "sets"])
def test_the_average_over_a_graph_is_of_those_the_rule_sums(fidelity) -> None:
    n, d, rng = 6, 20, np.random.default_rng(4)
    rule = graph_rule(
        graphs.erdos_renyi(n, 0.7), 40, threshold=3, policy="drop_block", blocks=2
    )
    average = ring_average(
        stochastic(2**12, 1.0),
        n,
        d,
        rule=rule,
        max_weight=50,
        fidelity=fidelity,
        modulus_bits=24,
    )
    statuses = set()
    for r in range(15):
        members = np.sort(rng.choice(40, n, replace=False))
        survivors = nested(rng, n, stay=0.95, asked=1.0)
        updates = rng.uniform(-1, 1, (n, d)).astype(np.float32)
        weights = rng.integers(1, 51, n)
        key = jax.random.key(1000 + r)
        out = run(
            average,
            updates,
            survivors,
            weights,
            key=r,
            members=members,
            assignment_key=key,
        )
        drawn = np.asarray(rule.graph.sample(key))
        status, summed, components = oracle(
            drawn, survivors, 3, members // 2, "drop_block"
        )
        statuses.add(int(out.status))
        assert int(out.status) == status
        assert set(np.flatnonzero(out.summed)) == summed
        assert out.components.tolist() == components
        if status == mj.Status.OK:
            chosen = sorted(summed)
            mean = np.average(
                updates[chosen].astype(np.float64), axis=0, weights=weights[chosen]
            )
            assert np.abs(np.asarray(out.update) - mean).max() <= 2 / (2**12 - 1) + 1e-6
            assert int(out.total_weight) == weights[chosen].sum()
        else:
            assert not out.update.any()
            assert not out.learned.any()
            assert int(out.total_weight) == 0
    assert {int(mj.Status.OK), int(mj.Status.UNRELIABLE)} <= statuses


@pytest.mark.long
def test_a_history_and_the_aggregator_agree_on_every_round() -> None:
    """The same key of the stream gives the same graph: same status, same sums."""
    slots, clients = 12, 18
    rule = graph_rule(graphs.erdos_renyi(slots, 0.75), clients, threshold=4)
    history = selection.rollout_rounds(
        3,
        selection.bernoulli(clients, 0.18),
        availability.independent(0.1),
        availability.independent_steps(0.03),
        60,
        rule=rule,
    )
    average = ring_average(stochastic(64, 1.0), slots, 3, rule=rule, fidelity="sets")
    survivors = np.asarray(history.survivors)
    rows, labels = np.asarray(history.participation), np.asarray(history.components)
    statuses = np.asarray(history.status)
    assert len(set(statuses.tolist())) >= 3
    for j in range(0, 60, 2):
        chosen = np.flatnonzero(survivors[j, 0])
        members = np.zeros(slots, int)
        members[: len(chosen)] = chosen
        alive = survivors[j][:, members] & (np.arange(slots) < len(chosen))
        out = run(
            average,
            np.zeros((slots, 3)),
            alive,
            members=members,
            assignment_key=history.assignment_keys[j],
        )
        assert int(out.status) == statuses[j]
        assert (rows[j].any()) == (statuses[j] == mj.Status.OK)
        assert set(members[np.asarray(out.summed)]) == set(np.flatnonzero(rows[j]))
        found = {
            int(m): int(c)
            for m, c in zip(members, out.components, strict=True)
            if c >= 0
        }
        assert {c: int(members[s]) for c, s in found.items()} == {
            int(c): int(labels[j, c]) for c in np.flatnonzero(labels[j] >= 0)
        }


@pytest.mark.long
def test_learnt_rows_list_every_sum_of_a_history() -> None:
    n = 9
    rule = graph_rule(graphs.erdos_renyi(n, 0.25), n, threshold=1)
    history = selection.rollout_rounds(
        0,
        selection.uniform(n, n),
        availability.independent(0.0),
        availability.independent_steps(0.05),
        30,
        rule=rule,
    )
    rows, rounds = selection.learnt_rows(history)
    labels = np.asarray(history.components)
    wanted = [
        (j, [c == label for c in labels[j]])
        for j in range(30)
        for label in sorted(set(labels[j].tolist()) - {-1})
    ]
    assert [
        (int(j), row.tolist()) for j, row in zip(rounds, rows, strict=True)
    ] == wanted
    assert len(rows) > 30  # graphs that fall apart
    for j in np.flatnonzero(np.asarray(history.participation).any(axis=1)):
        total = rows[rounds == j].sum(axis=0)
        assert (total == np.asarray(history.participation)[j]).all()


@pytest.mark.long
def test_a_cohort_with_too_many_members_is_refused() -> None:
    with pytest.raises(
        mj.ConfigurationError, match="`rule` must have a place for each member"
    ):
        selection.rollout_rounds(
            0,
            selection.uniform(9, 5),
            availability.independent(0.0),
            availability.independent_steps(0.0),
            3,
            rule=graph_rule(graphs.complete(4), 9),
        )


@pytest.mark.long
def test_steps_are_drawn_where_the_caller_says_nothing() -> None:
    n = 5
    rule = graph_rule(graphs.complete(n), n)
    lose = ring_average(
        stochastic(16, 1.0), n, 4, rule=rule, steps=availability.independent_steps(0.3)
    )
    kept = [run(lose, np.zeros((n, 4)), [1] * n, key=k) for k in range(12)]
    assert len({int(out.status) for out in kept}) > 1
    assert not all(out.summed.all() for out in kept)
    for out, k in zip(kept, range(12), strict=True):
        drawn = lose.steps.sample(
            jax.random.fold_in(jax.random.key(k), 9),
            jnp.ones(n, bool),  # the stream of steps
        )
        again = run(lose, np.zeros((n, 4)), drawn, key=k)
        assert int(out.status) == int(again.status)
        assert np.array_equal(out.summed, again.summed)


def test_the_clip_range_follows_what_was_learnt_only() -> None:
    n, d = 3, 8
    average = ring_average(
        stochastic(2**14, 1.0),
        n,
        d,
        clip_rule=following_range(2.0, floor=0.01),
        max_weight=4,
    )
    state, rng = average.init(), np.random.default_rng(5)
    assert float(state.half_width) == 1.0
    for r, here in enumerate(([1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1])):
        before = float(state.half_width)
        updates = rng.uniform(-1, 1, (n, d)).astype(np.float32) / 3**r
        out, state = average.aggregate(
            jax.random.key(r),
            state,
            on_device(updates),
            jnp.arange(n),
            jnp.asarray(here, bool),
            np.asarray([4, 1, 2]),
        )
        sent = np.abs(updates[np.asarray(here, bool)]) > before
        assert float(out.clipped_fraction) == pytest.approx(sent.mean(), abs=1e-6)
        if int(out.status) == mj.Status.OK:
            wanted = max(2 * float(np.abs(out.update).max()), 0.01)
            assert float(state.half_width) == pytest.approx(wanted, rel=1e-6)
            assert wanted != before
        else:
            assert float(state.half_width) == before


@pytest.mark.long
def test_other_thresholds_graphs_and_ranges_compile_nothing_new(compilations) -> None:
    compiled = []
    for p, t, rate in itertools.product((0.5, 0.9), (2, 3), (0.0, 0.1)):
        rule = graph_rule(graphs.erdos_renyi(4, p), 4, threshold=t)
        average = ring_average(
            stochastic(16, 1.0),
            4,
            3,
            rule=rule,
            steps=availability.independent_steps(rate),
            fidelity="sets",
            clip_rule=following_range(1.0 + p),
        )
        with compilations() as own:
            run(average, np.zeros((4, 3)), [1] * 4)
        compiled.append(own)
    assert compiled[1:] == [[]] * 7


@pytest.mark.long
@pytest.mark.usefixtures("on_a_cpu")
@pytest.mark.parametrize("fidelity", ["array", "sets"])
def test_rounds_in_one_scan_are_the_rounds_one_by_one(fidelity) -> None:
    """Graphs, losses, weights and ranges of 24 rounds, none of them known while tracing."""
    n, d, rounds, rng = 6, 9, 24, np.random.default_rng(6)
    average = ring_average(
        stochastic(2**10, 1.0),
        n,
        d,
        fidelity=fidelity,
        max_weight=20,
        modulus_bits=20,
        rule=graph_rule(
            graphs.erdos_renyi(n, 0.7), 40, threshold=3, policy="drop_block", blocks=2
        ),
        clip_rule=following_range(2.0, floor=0.1),
    )
    given = (
        jax.random.split(jax.random.key(1), rounds),
        jnp.asarray(rng.uniform(-1, 1, (rounds, n, d)), jnp.float32),
        jnp.asarray(
            np.sort([rng.choice(40, n, False) for _ in range(rounds)], axis=1),
            jnp.int32,
        ),
        jnp.asarray([nested(rng, n, stay=0.95, asked=1.0) for _ in range(rounds)]),
        jnp.asarray(rng.integers(0, 21, (rounds, n)), jnp.uint32),
    )

    def step(state, own):
        key, updates, members, survivors, weights = own
        out, state = average.aggregate(key, state, updates, members, survivors, weights)
        return state, out

    last, outs = jax.jit(lambda *all_: jax.lax.scan(step, average.init(), all_))(*given)
    state, outs = average.init(), jax.device_get(outs)
    round_of = jax.jit(lambda r: [leaf[r] for leaf in given])
    for r in range(rounds):
        state, out = step(state, round_of(r))
        jax.tree.map(
            np.testing.assert_array_equal,
            out,
            jax.tree.map(lambda leaf, r=r: leaf[r], outs),
        )
    assert float(last.half_width) == float(state.half_width)
    statuses = np.asarray(outs.status)
    assert {int(mj.Status.OK), int(mj.Status.UNRELIABLE)} <= set(statuses.tolist())
    if fidelity == "array":
        return
    batch = jax.vmap(lambda *own: step(average.init(), own)[1])(*given)
    # round 0 in each: other pads, the same graphs
    assert np.array_equal(batch.status, statuses)
    assert np.array_equal(batch.components, outs.components)


# --- blocks that clients keep: the rule beside real messages


RING = np.abs((np.arange(10)[:, None] // 2 - np.arange(10) // 2 + 1) % 5 - 1) <= 1


@dataclasses.dataclass(frozen=True)
class Given:
    """One graph, whatever the key."""

    adjacency: np.ndarray

    @property
    def num_clients(self):
        return len(self.adjacency)

    def sample(self, key):
        return on_device(self.adjacency)


def obstinate(monkeypatch):
    """Let the server of real rounds list all inputs that came."""
    monkeypatch.setattr(
        mj.protocol._server,
        "admitted",
        lambda plan, sends, blocks: secagg.admitted(plan, sends),
    )


@pytest.mark.long
@pytest.mark.parametrize("policy", ["drop_block", "ignore"])
def test_rounds_of_clients_who_keep_blocks_are_those_of_messages(
    policy, monkeypatch
) -> None:
    """Over the complete graph and a ring of blocks.

    The server leaves out parted blocks, or not.
    """
    if policy == "ignore":
        obstinate(monkeypatch)
    rng, statuses = np.random.default_rng(3), []
    alike = {mj.Status.ABORTED: mj.Status.TOO_FEW_SURVIVORS}
    for graph in (np.ones((10, 10), bool), RING):
        adjacency = graph & ~np.eye(10, dtype=bool)
        limits = (adjacency.sum(axis=1) + 1) // 2 + 1
        rule = graph_rule(
            Given(adjacency), 10, policy=policy, blocks=2, keeps_blocks=True
        )
        alive = np.logical_and.accumulate(rng.random((12, 5, 10)) > 0.03, axis=1)
        decide = jax.jit(
            jax.vmap(
                lambda row, own=rule: own.decide(jax.random.key(0), row, jnp.arange(10))
            )
        )
        found = jax.device_get(decide(alive))
        for trial, row in enumerate(alive):
            asked = adjacency & row[0] & row[0][:, None]
            own = np.where(row[0], limits, 2)
            if not np.array_equal(asked, adjacency):
                continue  # mates of those who were not asked have other neighbours
            real = mj.protocol.run(
                np.ones((10, 1), int),
                asked,
                row,
                own,
                8,
                entropy=trial,
                blocks=2,
                contexts=[b"one model"] * 10,
            )
            status = mj.Status(int(found.status[trial]))
            assert alike.get(status, status) is real.status
            summed = found.survivors[trial, 3] & (status == mj.Status.OK)
            assert np.array_equal(summed, real.learned.any(axis=0))
            statuses.append(status)
    assert len(statuses) > 12
    worst = mj.Status.UNRELIABLE if policy == "ignore" else mj.Status.OK
    assert statuses.count(worst) > 5


@pytest.mark.long
@pytest.mark.parametrize("broken", ["threshold", "neighbours", "mate not asked"])
def test_clients_who_keep_blocks_send_nothing_where_they_could_be_parted(
    broken,
) -> None:
    adjacency, threshold = RING & ~np.eye(10, dtype=bool), "majority"
    survivors = np.ones((5, 10), bool)
    if broken == "threshold":
        threshold = 3  # half of six
    if broken == "neighbours":
        adjacency[0, 2] = adjacency[2, 0] = False
    if broken == "mate not asked":
        survivors[:, 0] = False
    rule = graph_rule(
        Given(adjacency),
        10,
        threshold=threshold,
        blocks=2,
        policy="drop_block",
        keeps_blocks=True,
    )
    found = jax.jit(rule.decide)(
        jax.random.key(0), jnp.asarray(survivors), jnp.arange(10)
    )
    expected = {
        "threshold": [],
        "neighbours": [4, 5, 6, 7, 8, 9],
        "mate not asked": [*range(2, 10)],
    }
    assert np.flatnonzero(found.survivors[3]).tolist() == expected[broken]
    assert int(found.status) != mj.Status.OK or broken != "threshold"
