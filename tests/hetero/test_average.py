"""The aggregator for training.

The same bits as one round after the other, and as a mean.
"""

import dataclasses
import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import hetero
from mrsa_jax._core import batches as _batches
from mrsa_jax._core.arrays import on_device
from mrsa_jax.availability import independent_steps
from mrsa_jax.hetero import _round, decode, encode, segment_average, segment_layout
from mrsa_jax.quantize import following_range
from mrsa_jax.secagg import Aggregator, ring_average

_layout = functools.cache(lambda: segment_layout("mc", [2, 2, 2], [2, 5, 9], dim=7))
RANGE = (-1.0, 1.0)
_updates = functools.cache(
    lambda: on_device(
        np.random.default_rng(0).uniform(-1.1, 1.0, (6, 7)).astype(np.float32)
    )
)
_ids = functools.cache(lambda: jnp.asarray([3, 4, 8, 20, 21, 50]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value_range": (1.0, 1.0)}, "`value_range` must be finite with r1 < r2"),
        ({"threshold": 0}, r"`threshold` must lie in \[1, 2\*\*31\); got 0"),
        (
            {"threshold": [2, 2]},
            "`threshold` must be one for all or one for each of the 6",
        ),
        ({"key_material": -1}, "`seed` must be a non-negative integer or bytes"),
    ],
)
def test_rejects_impossible_aggregators(change, message):
    with pytest.raises(mj.ConfigurationError, match=message):
        segment_average(**({"layout": _layout(), "value_range": RANGE} | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.ones(6, int)}, "`weights` must not be set"),
        ({"survivors": np.ones(6, "int32")}, "`survivors` must be bool"),
        (
            {"survivors": np.ones((4, 6), bool)},
            "`survivors` must have one row, or V0 to V4",
        ),
        ({"updates": np.zeros((6, 8))}, r"`updates` must have the shape \(6, 7\)"),
    ],
)
def test_rejects_what_is_no_round(change, message):
    average = segment_average(_layout(), RANGE)
    arguments = {
        "updates": _updates(),
        "members": _ids(),
        "survivors": jnp.ones(6, bool),
    } | change
    with pytest.raises((mj.ConfigurationError, TypeError), match=message):
        # annotations would reject the second and third under the suite's hook
        inspect.unwrap(type(average).aggregate)(
            average, jax.random.key(0), average.init(), **arguments
        )


def test_is_an_aggregator():
    average = segment_average(_layout(), RANGE)
    assert isinstance(average, Aggregator)
    assert average.num_participants == 6
    leaves, tree = jax.tree.flatten(average)
    same, again = jax.tree.flatten(jax.tree.unflatten(tree, leaves))
    assert again == tree
    assert all(one is other for one, other in zip(same, leaves, strict=True))


def equal(one, two):
    for name, left, right in zip(one._fields, one, two, strict=True):
        for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
            assert a.dtype == b.dtype, name
            assert np.array_equal(a, b), name


PATTERNS = [
    [1, 1, 1, 1, 1, 1],
    [1, 0, 1, 1, 1, 1],
    [1, 1, 0, 0, 1, 1],
    [0, 0, 1, 0, 0, 0],
]


@pytest.mark.long
def test_rounds_have_the_same_bits_with_and_without_pads_and_are_means():
    sets = segment_average(_layout(), RANGE, fidelity="sets")
    state = pad_state = sets.init()
    padded = segment_average(_layout(), RANGE, key_material=b"any")
    for index, here in enumerate(PATTERNS):
        key = jax.random.key(index)
        alive = jnp.asarray(here, bool)
        out, state = sets.aggregate(key, state, _updates(), _ids(), alive)
        other, pad_state = padded.aggregate(key, pad_state, _updates(), _ids(), alive)
        equal(out, other)
        kept = {0: range(6), 1: [2, 3, 4, 5], 2: [0, 1, 4, 5], 3: []}[index]
        # 1 of two is left in pattern 1: with its group alone it would be an input
        assert np.flatnonzero(out.summed).tolist() == list(kept)
        if not kept:
            assert int(out.status) == mj.Status.TOO_FEW_SURVIVORS
            assert not out.update.any()
            assert (out.components == -1).all()
            assert int(out.total_weight) == 0
            continue
        assert int(out.status) == mj.Status.OK
        assert int(out.total_weight) == len(kept)
        assert set(np.asarray(out.components)[list(kept)].tolist()) == {min(kept)}
        codes = np.asarray(encode(key, _updates(), _layout(), RANGE, _ids())[0])
        inside = [[i for i in block.members if i in kept] for block in _layout().blocks]
        totals = [
            codes[rows, block.start : block.stop].sum(axis=0)
            for rows, block in zip(inside, _layout().blocks, strict=True)
        ]
        mean = decode(totals, [len(rows) for rows in inside], _layout(), RANGE)
        assert np.array_equal(out.update, mean)
        assert out.counts.tolist() == [len(rows) for rows in inside]
        sent = np.asarray(_updates())[np.asarray(here, bool)]
        assert float(out.clipped_fraction) == pytest.approx(
            (np.abs(sent) > 1).mean(), abs=1e-6
        )
    assert int(state.round_index) == len(PATTERNS)


@pytest.mark.long
def test_equal_levels_in_one_group_are_the_ring_average():
    """One group and one segment is plain secure aggregation with a quantizer of K levels."""
    # of more than one client a level
    layout = segment_layout("groups", [4], [1025], dim=300)
    updates = jnp.asarray(
        np.random.default_rng(1).uniform(-1, 1, (4, 300)).astype(np.float32)
    )
    ring = ring_average(mj.quantize.stochastic(1025, 1.0), 4, 300)
    alive = jnp.asarray([True, True, False, True])
    key = jax.random.key(0)
    plain, _ = ring.aggregate(key, ring.init(), updates, _ids()[:4], alive)
    average = segment_average(layout, RANGE)
    out, _ = average.aggregate(key, average.init(), updates, _ids()[:4], alive)
    # roundings are drawn apart: each within a step of the mean
    mean = np.asarray(updates, np.float64)[[0, 1, 3]].mean(axis=0)
    step = 2 / 1024
    for update in (plain.update, out.update):
        assert np.abs(np.asarray(update) - mean).max() <= step
    assert np.array_equal(plain.summed, out.summed)
    assert np.array_equal(plain.components, out.components)


@pytest.mark.long
def test_absent_updates_are_not_read():
    average = segment_average(_layout(), RANGE)
    alive = jnp.asarray([True, True, True, True, False, False])
    one, _ = average.aggregate(
        jax.random.key(0), average.init(), _updates(), _ids(), alive
    )
    broken = _updates().at[4:].set(jnp.nan)
    two, _ = average.aggregate(
        jax.random.key(0), average.init(), broken, _ids().at[4:].set(0), alive
    )
    equal(one, two)


def test_losses_within_the_round():
    average = segment_average(_layout(), RANGE, threshold=4)
    survivors = np.ones((5, 6), bool)
    survivors[3:, :2] = False
    arguments = (jax.random.key(0), average.init(), _updates(), _ids())
    out, _ = average.aggregate(*arguments, on_device(survivors))
    assert int(out.status) == mj.Status.OK
    assert np.asarray(out.summed).tolist() == survivors[3].tolist()
    survivors[4, 2] = False  # three shares of each secret come back
    failed, _ = average.aggregate(*arguments, on_device(survivors))
    assert int(failed.status) == mj.Status.UNRELIABLE
    assert not np.asarray(failed.summed).any()
    assert not np.asarray(failed.update).any()
    nobody = dataclasses.replace(average, steps=independent_steps(1.0))
    lost, _ = nobody.aggregate(*arguments, jnp.ones(6, bool))
    assert int(lost.status) == mj.Status.TOO_FEW_SURVIVORS
    everybody = dataclasses.replace(average, steps=independent_steps(0.0))
    full, _ = everybody.aggregate(*arguments, jnp.ones(6, bool))
    assert np.asarray(full.summed).all()


def test_the_range_follows_the_update():
    rule = following_range(2.0, floor=1e-3)
    average = segment_average(_layout(), RANGE, clip_rule=rule)
    state = average.init()
    assert float(state.half_width) == 1.0
    alive = jnp.ones(6, bool)
    out, after = average.aggregate(
        jax.random.key(0), state, _updates() * 0.1, _ids(), alive
    )
    wide = max(2 * float(np.abs(out.update).max()), 1e-3)
    assert float(after.half_width) == pytest.approx(wide)
    narrow, _ = average.aggregate(
        jax.random.key(0), after, _updates() * 0.1, _ids(), alive
    )
    fixed = segment_average(_layout(), (-wide, wide))
    same, _ = fixed.aggregate(
        jax.random.key(0), fixed.init(), _updates() * 0.1, _ids(), alive
    )
    np.testing.assert_allclose(narrow.update, same.update, atol=1e-6)
    none, kept = average.aggregate(
        jax.random.key(0), after, _updates(), _ids(), jnp.zeros(6, bool)
    )
    assert int(none.status) == mj.Status.TOO_FEW_SURVIVORS
    assert float(kept.half_width) == float(after.half_width)


@pytest.mark.long
def test_slots_may_be_clients():
    """Who is asked then moves nobody into another group."""
    layout = segment_layout("mc", [3, 3, 3], [2, 5, 9], dim=7)
    average = segment_average(layout, RANGE, by_client=True)
    asked = [8, 1, 3, 0, 4, 7]
    members = jnp.asarray([*asked, 0, 0, 0])
    alive = jnp.arange(9) < 6
    updates = jnp.concatenate([_updates(), jnp.full((3, 7), jnp.nan)])
    out, _ = average.aggregate(
        jax.random.key(4), average.init(), updates, members, alive
    )
    by_id = jnp.zeros((9, 7)).at[jnp.asarray(asked)].set(_updates())
    here = jnp.zeros(9, bool).at[jnp.asarray(asked)].set(True)
    plain = segment_average(layout, RANGE)
    same, _ = plain.aggregate(
        jax.random.key(4), plain.init(), by_id, jnp.arange(9), here
    )
    assert np.array_equal(out.update, same.update)
    assert out.summed.tolist() == alive.tolist()
    assert out.components.tolist() == [0] * 6 + [-1] * 3
    with pytest.raises(
        mj.ConfigurationError, match="`members` must be clients of the layout"
    ):
        average.aggregate(
            jax.random.key(4), average.init(), updates, members.at[0].set(9), alive
        )


@pytest.mark.long
def test_robust_rule_and_attackers():
    layout = segment_layout("groups", [2, 2, 2], [3, 3, 3], 2)
    updates = jnp.asarray(np.repeat(np.float32([[0, 1], [0, 1], [0, 1]]), 2, axis=0))
    attack = hetero.byzantine.scaling(np.arange(60) == 20, -1e6)
    arguments = (updates, _ids(), jnp.ones(6, bool))
    for rule, expected in (
        (None, [0.0, 2 / 3]),
        (hetero.robust.coordinate_median(), [0.0, 1.0]),
    ):
        average = segment_average(layout, RANGE, combine=rule, byzantine=attack)
        out, _ = average.aggregate(jax.random.key(0), average.init(), *arguments)
        np.testing.assert_allclose(out.update, expected, atol=1e-6)
        clean = dataclasses.replace(average, byzantine=None)
        honest, _ = clean.aggregate(jax.random.key(0), clean.init(), *arguments)
        np.testing.assert_allclose(honest.update, [0, 1], atol=1e-6)


@pytest.mark.long
def test_attackers_see_those_who_send():
    """Colluders send minus the honest senders' mean.

    Who is absent, or NaN, does not move it.
    """
    layout = segment_layout("groups", [3, 3], [2**20, 2**20], 7)
    attack = hetero.byzantine.collusion(np.arange(60) == 3, "inner_product", 1.0)
    average = segment_average(layout, RANGE, byzantine=attack)
    alive = jnp.asarray([True, True, True, True, True, False])
    updates = (_updates() * 0.5).at[5].set(jnp.nan)
    out, _ = average.aggregate(
        jax.random.key(0), average.init(), updates, _ids(), alive
    )
    honest = np.asarray(updates, np.float64)[1:5].mean(axis=0)
    np.testing.assert_allclose(out.update, 0.6 * honest, atol=1e-5)


@pytest.mark.long
def test_trains_a_model():
    from mrsa_jax import data, federated

    clients = data.iid(0, data.load("digits"), num_clients=4)
    model = federated.logistic(10)
    history = np.asarray([[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]], bool)
    layout = segment_layout("sc", [2, 2], [64, 256], dim=650)
    runs = [
        federated.train(
            0,
            federated.Training(
                model,
                clients,
                history,
                trainer=federated.local_sgd(model, 0.1, batch_size=100),
                aggregator=segment_average(layout, (-0.5, 0.5), fidelity=fidelity),
                keep_aggregates=True,
            ),
        )
        for fidelity in ("sets", "array")
    ]
    assert [mj.Status(code).name for code in runs[0].status] == ["OK", "SKIPPED", "OK"]
    assert np.array_equal(runs[0].parameters, runs[1].parameters)
    assert np.array_equal(runs[0].participation, history)
    assert runs[0].aggregates.shape == (2, 650)
    assert np.isfinite(runs[0].parameters).all()


@pytest.mark.long
def test_rounds_in_one_scan_are_the_rounds_one_by_one():
    """Losses, ranges and attackers of 12 rounds, none of them known while tracing."""
    rng, rounds = np.random.default_rng(3), 12
    layout = segment_layout("mc", [3, 3, 3], [2, 5, 9], dim=8)  # widths 3, 3, 2
    average = segment_average(
        layout,
        RANGE,
        by_client=True,
        fidelity="sets",
        combine=hetero.robust.trimmed_mean(0.2),
        byzantine=hetero.byzantine.wrong_pads(np.arange(9) == 2),
        clip_rule=following_range(2.0, floor=0.1),
        threshold=6,
    )
    keep = rng.random((rounds, 5, 9)) < 0.93
    given = (
        jax.random.split(jax.random.key(1), rounds),
        jnp.asarray(rng.uniform(-1, 1, (rounds, 9, 8)), jnp.float32),
        jnp.asarray([rng.permutation(9) for _ in range(rounds)], jnp.int32),
        jnp.asarray(np.cumprod(keep, axis=1).astype(bool)),
    )

    def step(state, own):
        out, state = average.aggregate(own[0], state, *own[1:])
        return state, out

    _, outs = jax.jit(lambda *all_: jax.lax.scan(step, average.init(), all_))(*given)
    state = average.init()
    for r in range(rounds):
        state, out = step(state, [leaf[r] for leaf in given])
        for name, mine, theirs in zip(out._fields, out, outs, strict=True):
            assert np.array_equal(mine, theirs[r]), (r, name)
    assert {int(mj.Status.OK), int(mj.Status.UNRELIABLE)} <= set(
        np.asarray(outs.status).tolist()
    )


@pytest.mark.long
@pytest.mark.parametrize("fidelity", ["sets", "array"])
def test_an_update_does_not_depend_on_how_many_segments_go_at_once(
    fidelity, monkeypatch
):
    # widths 7, 7, 7, 6, 6
    layout = segment_layout("mc", [2] * 5, [2, 4, 5, 8, 9], dim=33)
    updates = jnp.asarray(
        np.random.default_rng(4).uniform(-1, 1, (10, 33)), jnp.float32
    )
    average = segment_average(layout, RANGE, fidelity=fidelity)
    arguments = (
        jax.random.key(0),
        average.init(),
        updates,
        jnp.arange(10),
        jnp.ones(10, bool),
    )
    outs = []
    for at_once in (1, 2**22):
        monkeypatch.setitem(_batches._WORK, "segments", _batches._Work(at_once, 1))
        outs.append(average.aggregate(*arguments)[0])
        if fidelity == "sets":
            # how many is read while tracing
            whole = jax.jit(lambda *own: average.aggregate(*own))
            outs.append(whole(*arguments)[0])
    assert outs[0].learned.shape == (5, 3, 7)
    for other in outs[1:]:
        equal(outs[0], other)


@jax.jit
def _judgements(inside, survivors, thresholds):
    return jax.vmap(_round.judge, (None, 0, 0))(inside, survivors, thresholds)


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["mc", "sc", "groups"])
def test_rounds_are_judged_as_by_sets(scheme):
    """300 rounds of every kind against the outcome that plain sets give one by one."""
    rng = np.random.default_rng(5)
    layout = segment_layout(scheme, [2, 3, 2], [2, 5, 9], dim=9)
    stay = rng.choice([0.6, 0.8, 0.95], (300, 1, 1))
    survivors = np.cumprod(rng.random((300, 5, 7)) < stay, axis=1).astype(bool)
    limits = rng.integers(1, 7, (300, 7)).astype(np.int32)
    found = _judgements(layout.memberships, jnp.asarray(survivors), jnp.asarray(limits))
    majority = jax.vmap(_round.judge, (None, 0, None))(
        layout.memberships, jnp.asarray(survivors), None
    )
    for own, several in ((limits, found), ([None] * 300, majority)):
        got = jax.device_get(several)
        for r in range(300):
            outcome = layout.outcome(survivors[r], own[r])
            assert got.status[r] == outcome.status
            assert np.array_equal(got.block_status[r], outcome.block_status)
            assert np.array_equal(got.survivors[r, 3], outcome.summed)
            counts = [
                outcome.summed[list(block.members)].sum() * (status == mj.Status.OK)
                for block, status in zip(
                    layout.blocks, outcome.block_status, strict=True
                )
            ]
            assert np.array_equal(got.counts[r], counts)
    assert len(set(np.asarray(found.status).tolist())) == 3


GRAPHS = {
    "erdos_renyi": lambda: mj.graphs.erdos_renyi(6, 0.5),
    "harary": lambda: mj.graphs.harary(6, 2),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("fidelity", ["sets", "array"])
def test_rounds_over_drawn_graphs_are_those_of_real_messages(name, fidelity):
    """The ends of the range are coded without a draw, so all bits must agree."""
    rng = np.random.default_rng(len(name))
    updates = rng.choice(np.float32([-1, 1]), (6, 7))
    ids = np.asarray([21, 3, 50, 8, 20, 4])
    model = GRAPHS[name]()
    rule = mj.secagg.graph_rule(model, 60)
    average = segment_average(_layout(), RANGE, fidelity=fidelity, rule=rule)
    state = average.init()
    statuses = []
    for index in range(6):
        drawn = jax.random.key(index)
        survivors = np.ones((5, 6), bool)
        survivors[1:] = rng.random((4, 6)) < 0.95
        survivors = np.logical_and.accumulate(survivors)
        by_id = np.asarray(model.sample(drawn))
        # the neighbours of the clients in ascending order
        places = [sorted(ids).index(client) for client in ids]
        graph = np.asarray([[by_id[i, j] for j in places] for i in places])
        degrees = graph.sum(axis=1)
        out, state = average.aggregate(
            jax.random.key(99),
            state,
            on_device(updates),
            on_device(ids),
            on_device(survivors),
            assignment_key=drawn,
        )
        real = hetero.aggregate(
            0,
            updates,
            _layout(),
            RANGE,
            survivors=survivors,
            thresholds=np.maximum((degrees + 1) // 2 + 1, 2),
            adjacency=graph,
            fidelity="real",
        )
        assert int(out.status) == real.status
        assert out.block_status.tolist() == real.block_status.tolist()
        assert out.counts.tolist() == real.counts.tolist()
        assert out.summed.tolist() == real.summed.tolist()
        assert np.array_equal(out.update, real.update)
        statuses.append(real.status)
    assert mj.Status.OK in statuses
    assert len(set(statuses)) > 1


def test_a_rule_over_slots_has_its_own_thresholds():
    rule = mj.secagg.graph_rule(mj.graphs.harary(6, 2), 60)
    with pytest.raises(mj.ConfigurationError, match="`threshold` must not be set"):
        segment_average(_layout(), RANGE, rule=rule, threshold=3)
    bounded = segment_average(_layout(), RANGE, rule=rule, clip_norm=0.5)
    assert bounded.rule is rule
    small = mj.secagg.graph_rule(mj.graphs.harary(5, 2), 60)
    with pytest.raises(mj.ConfigurationError, match="`rule` must be over the layout's"):
        segment_average(_layout(), RANGE, rule=small)
    parts = mj.secagg.graph_rule(mj.graphs.harary(6, 2), 60, policy="abort", blocks=2)
    with pytest.raises(mj.ConfigurationError, match='policy "ignore"'):
        segment_average(_layout(), RANGE, rule=parts)
