"""Rounds of HeteroSAg against plain sums, at every fidelity and under every loss."""

import dataclasses
import fractions
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import hetero
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.streams import Stream, as_key, round_key
from mrsa_jax.hetero import (
    _coding,
    _round,
    _row_kernels,
    aggregate,
    encode,
    segment_layout,
)
from mrsa_jax.secagg import (
    Block,
    Seeds,
    _ring_sum as masking,
    derive_seeds,
    key_material,
    pad_inputs,
    segment_plan,
)

_layout = functools.cache(
    lambda: segment_layout("mc", [2, 2, 2], [2, 5, 9], dim=7)
)  # ragged: widths 3, 2, 2
RANGE = (-1.0, 1.0)
UPDATES = np.random.default_rng(0).uniform(-1.2, 1.0, (6, 7)).astype(np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"updates": UPDATES[:5]},
            r"`updates` must have the shape \(6, 7\); got \(5, 7\)",
        ),
        ({"updates": np.zeros((6, 7), int)}, "`updates` must be floating point"),
        (
            {"updates": lambda a, b: UPDATES},
            r"`updates` must return the shape \(6, 3\)",
        ),
        (
            {"updates": UPDATES * np.float32(np.nan)},
            r"`updates` must be finite; got 'slots \[0,",
        ),
        ({"value_range": (1.0, -1.0)}, "`value_range` must be finite with r1 < r2"),
        ({"survivors": np.ones(5, bool)}, r"`survivors` must have shape \(5, 6\)"),
        ({"survivors": np.ones(6, int)}, "`survivors` must hold bools"),
        ({"survivors": np.eye(5, 6, dtype=bool)}, "`survivors` must be nested"),
        ({"thresholds": 0}, r"`thresholds` must lie in \[1, 2\*\*31\); got 0"),
        (
            {"thresholds": [2, 2]},
            "`thresholds` must be one for all or one for each of the 6",
        ),
        ({"adjacency": np.zeros((5, 5), bool)}, "`adjacency` must be 6 x 6"),
        (
            {"adjacency": np.tri(6, dtype=bool)},
            "`adjacency` must not join a client to itself",
        ),
        ({"round_index": -1}, "`round_index` must lie in"),
    ],
)
def test_rejects_what_makes_no_round(change, message):
    arguments = {"updates": UPDATES, "layout": _layout(), "value_range": RANGE} | change
    with pytest.raises(mj.ConfigurationError, match=message):
        aggregate(0, **arguments)


def blocks_of(layout):
    return [
        (set(b.members), b.start, b.stop, b.num_levels, b.modulus)
        for b in layout.blocks
    ]


def not_alone(layout, sends):
    """The largest union of sets without a lonely client, by trying all subsets."""
    everybody = [i for i in range(len(sends)) if sends[i]]
    for size in range(len(everybody), 0, -1):
        for kept in itertools.combinations(everybody, size):
            if all(len(members & set(kept)) != 1 for members, *_ in blocks_of(layout)):
                return set(kept)
    return set()


def codes_of(layout, updates, seed=0, round_index=0):
    key = round_key(as_key(seed), jnp.uint32(round_index), Stream.QUANTIZATION)
    return np.asarray(encode(key, updates, layout, RANGE)[0]).astype(object)


def plain(layout, codes, kept):
    """Totals and the mean update, from Python integers and fractions."""
    totals, update = [], [fractions.Fraction(0)] * layout.dim
    for members, start, stop, levels, modulus in blocks_of(layout):
        rows = [codes[i, start:stop] for i in members & kept]
        total = [int(v) for v in sum(rows)] if rows else [0] * (stop - start)
        assert all(value < modulus for value in total)
        totals.append(total)
        for place in range(start, stop) if rows else ():
            step = fractions.Fraction(2, levels - 1)
            value = -len(rows) + step * total[place - start]
            update[place] += fractions.Fraction(value, len(kept))
    return totals, [float(value) for value in update]


def same(one, two):
    for field in dataclasses.fields(one):
        if field.name != "result":
            mine, theirs = getattr(one, field.name), getattr(two, field.name)
            pairs = (
                zip(mine, theirs, strict=True)
                if field.name == "totals"
                else [(mine, theirs)]
            )
            for left, right in pairs:
                assert np.array_equal(left, right), field.name


@pytest.mark.long
def test_every_pattern_of_losses_decodes_to_the_plain_sum():
    codes = codes_of(_layout(), UPDATES)
    for number, sends in enumerate(itertools.product([False, True], repeat=6)):
        survivors = np.ones((5, 6), bool)
        survivors[3:] = sends
        result = aggregate(
            0, UPDATES, _layout(), RANGE, survivors=survivors, thresholds=1
        )
        kept = not_alone(_layout(), sends)
        assert set(np.flatnonzero(result.summed).tolist()) == kept
        assert result.status == (mj.Status.OK if kept else mj.Status.TOO_FEW_SURVIVORS)
        totals, update = plain(_layout(), codes, kept)
        assert [total.tolist() for total in result.totals] == totals
        np.testing.assert_allclose(result.update, update, atol=3e-7)
        for (members, *_), status, count in zip(
            blocks_of(_layout()), result.block_status, result.counts, strict=True
        ):
            assert count == len(members & kept)
            assert status == (mj.Status.OK if count else mj.Status.TOO_FEW_SURVIVORS)
        if number % 4 == 3:
            padded = aggregate(
                0,
                UPDATES,
                _layout(),
                RANGE,
                survivors=survivors,
                thresholds=1,
                fidelity="array",
            )
            same(result, padded)


@pytest.mark.long("sends0-exact")
@pytest.mark.parametrize("rule", ["exact", "power_of_two"])
@pytest.mark.parametrize(
    "sends",
    [[1, 1, 1, 1, 1, 1], [1, 0, 1, 1, 1, 1], [1, 0, 1, 0, 1, 0], [1, 0, 0, 0, 0, 0]],
)
def test_all_fidelities_agree_bit_for_bit(sends, rule):
    layout = segment_layout("mc", [2, 2, 2], [2, 5, 9], dim=7, modulus_rule=rule)
    survivors = np.ones((5, 6), bool)
    survivors[3:] = np.asarray(sends, bool)
    arguments = {"survivors": survivors, "thresholds": 2, "round_index": 3}
    results = [
        aggregate(1, UPDATES, layout, RANGE, fidelity=fidelity, **arguments)
        for fidelity in ("sets", "array", "real")
    ]
    same(results[0], results[1])
    same(results[0], results[2])
    assert results[2].result.is_private


def test_too_few_shares_fail_the_round_alike():
    survivors = np.ones((5, 6), bool)
    survivors[3:, 0] = False  # so that 1 would be alone in the sum of its group
    survivors[4, :4] = False
    results = [
        aggregate(
            0,
            UPDATES,
            _layout(),
            RANGE,
            survivors=survivors,
            thresholds=3,
            fidelity=fidelity,
        )
        for fidelity in ("sets", "array", "real")
    ]
    for result in results:
        assert result.status == mj.Status.UNRELIABLE
        by_itself = [members == {0, 1} for members, *_ in blocks_of(_layout())]
        assert result.block_status.tolist() == [
            mj.Status.TOO_FEW_SURVIVORS if alone else mj.Status.UNRELIABLE
            for alone in by_itself
        ]
        assert not result.update.any()
        assert not result.summed.any()
        assert not any(total.any() for total in result.totals)
        same(results[0], result)
    good = aggregate(0, UPDATES, _layout(), RANGE, survivors=survivors, thresholds=2)
    assert good.status == mj.Status.OK
    assert good.summed.tolist() == [False, False, True, True, True, True]


@pytest.mark.long
@pytest.mark.parametrize(
    ("threshold", "status"), [(4, mj.Status.OK), (5, mj.Status.UNRELIABLE)]
)
def test_who_would_be_alone_answers_in_no_fidelity(threshold, status):
    """Client 1 is left alone in its group.

    Five sent, but four alone are asked for shares.
    """
    layout = segment_layout("mc", [2, 2, 2], [2, 4, 8], 6)
    survivors = np.ones((5, 6), bool)
    survivors[3:, 0] = False
    updates = np.zeros((6, 6), np.float32)
    for fidelity in ("sets", "array", "real"):
        result = aggregate(
            0,
            updates,
            layout,
            (-1.0, 1.0),
            survivors=survivors,
            thresholds=threshold,
            fidelity=fidelity,
        )
        assert result.status == status, fidelity


def test_majorities_are_the_default():
    survivors = np.ones((5, 6), bool)
    survivors[4, 3:] = False
    assert (
        aggregate(0, UPDATES, _layout(), RANGE, survivors=survivors).status
        == mj.Status.UNRELIABLE
    )
    survivors[4, 3] = True  # 4 of 6
    assert (
        aggregate(0, UPDATES, _layout(), RANGE, survivors=survivors).status
        == mj.Status.OK
    )


@pytest.mark.long
def test_a_sparse_graph_asks_for_fewer_secrets():
    """A lost client without neighbours in its blocks hides nothing there."""
    layout = segment_layout("groups", [3, 3], [3, 5], 4)
    graph = np.zeros((6, 6), bool)
    for i, j in [(0, 1), (1, 2), (3, 4), (0, 5), (2, 5)]:
        graph[i, j] = graph[j, i] = True
    survivors = np.ones((5, 6), bool)
    survivors[3:, 5] = False  # shares with 0 and 2, of the other block, alone
    updates = UPDATES[:, :4]
    limits = [1, 1, 1, 1, 1, 9]  # 5 can never be recovered
    results = [
        aggregate(
            0,
            updates,
            layout,
            RANGE,
            survivors=survivors,
            thresholds=limits,
            adjacency=graph,
            fidelity=fidelity,
        )
        for fidelity in ("sets", "array", "real")
    ]
    assert results[0].status == mj.Status.OK
    same(results[0], results[1])
    same(results[0], results[2])
    graph[4, 5] = graph[5, 4] = True
    result = aggregate(
        0,
        updates,
        layout,
        RANGE,
        survivors=survivors,
        thresholds=limits,
        adjacency=graph,
    )
    assert result.status == mj.Status.UNRELIABLE
    assert result.block_status.tolist() == [mj.Status.OK, mj.Status.UNRELIABLE]
    assert result.counts.tolist() == [3, 0]


def test_segments_read_one_by_one_are_the_whole():
    asked = []

    def read(start, stop):
        asked.append((start, stop))
        return UPDATES[:, start:stop]

    seen = []
    whole = aggregate(5, UPDATES, _layout(), RANGE, fidelity="array")
    parts = aggregate(
        5,
        read,
        _layout(),
        RANGE,
        fidelity="array",
        progress=lambda *done: seen.append(done),
    )
    same(whole, parts)
    assert asked == list(_layout().bounds)
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_absent_updates_are_not_read():
    here = np.asarray([True, True, False, True, True, True])
    broken = UPDATES.copy()
    broken[2] = np.nan
    same(
        aggregate(0, UPDATES, _layout(), RANGE, survivors=here),
        aggregate(0, broken, _layout(), RANGE, survivors=here),
    )


@pytest.mark.smoke
def test_clipping_is_counted_over_those_who_send():
    wild = np.zeros((6, 7), np.float32)
    wild[0, :3], wild[4] = 5.0, -5.0
    assert aggregate(0, wild, _layout(), RANGE).clipped_fraction == pytest.approx(
        10 / 42
    )
    here = np.arange(6) != 4
    result = aggregate(0, wild, _layout(), RANGE, survivors=here)
    assert result.clipped_fraction == pytest.approx(3 / 35)


def test_rounds_differ_in_rounding_alone():
    one, two = (aggregate(0, UPDATES, _layout(), RANGE, round_index=r) for r in (0, 1))
    assert not np.array_equal(one.update, two.update)
    _, update = plain(_layout(), codes_of(_layout(), UPDATES, 0, 1), set(range(6)))
    np.testing.assert_allclose(two.update, update, atol=3e-7)


@pytest.mark.long
@pytest.mark.parametrize(("engine", "modulus"), [("compiled", 101), ("xla", 128)])
def test_a_plan_in_parts_has_the_pads_of_the_whole(engine, modulus, monkeypatch):
    """Sums alone would agree whatever the pads are: compare what is sent under them."""
    if engine == "xla":
        monkeypatch.setenv("MRSA_JAX_FORM", "xla")
    first, last = Block((0, 1), 0, 5, 64), Block((0, 1, 2), 5, 9, modulus)
    inputs = np.random.default_rng(0).integers(0, 64, (3, 9)).astype(np.uint32)
    seeds = derive_seeds(key_material(0), np.arange(3), 2)
    padded = pad_inputs(seeds, inputs, segment_plan([first, last], 3, 9), 2)
    part = (Block((0, 1, 2), 0, 4, modulus),)
    round_ = masking.checked_round(seeds, inputs[:, 5:], part, 2)
    own, sums = masking.padded_and_sum(round_._replace(first=np.uint32(1)), part)
    assert np.array_equal(own, padded[:, 5:])
    assert np.array_equal(sums.total, inputs[:, 5:].sum(axis=0) % modulus)
    other = pad_inputs(seeds, inputs[:, 5:], part, 2)
    assert not np.array_equal(other, own)


def test_pairs_of_a_block_are_found_in_any_edge_list():
    rng = np.random.default_rng(1)
    graph = np.triu(rng.random((9, 9)) < 0.5, 1)
    sparse = np.argwhere(graph)
    complete = np.stack(np.triu_indices(9, 1), axis=1)
    members = (0, 2, 3, 7)
    for edges in (complete, sparse, sparse[::-1], sparse[:2], sparse[:0]):
        seeds = Seeds(
            *map(
                on_device,
                (
                    np.arange(9),
                    np.zeros((9, 8)),
                    np.zeros((len(edges), 8)),
                    edges.reshape(-1, 2),
                ),
            )
        )
        here = np.ones(9, bool)
        round_ = masking.Round(seeds, np.zeros((9, 4), np.uint32), here, here, 0, 0)
        rows, places = masking._Pairs(round_).inside(Block(members, 0, 4, 8))
        expected = [
            (row, members.index(i), members.index(j))
            for row, (i, j) in enumerate(edges.tolist())
            if i in members and j in members
        ]
        assert sorted(zip(rows.tolist(), *places.T.tolist(), strict=True)) == expected


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Attack:
    """Records nothing, changes each stage by a known amount."""

    is_byzantine: jax.Array
    stage: str = dataclasses.field(metadata={"static": True})

    def corrupt_updates(self, key, updates, mine):
        return jnp.where(
            mine[:, None] & (self.stage == "updates"), jnp.float32(1), updates
        )

    def corrupt_residues(self, key, codes, modulus, mine):
        top = modulus - jnp.uint32(1)
        return jnp.where(mine[:, None] & (self.stage == "residues"), top, codes)

    def corrupt_average(self, key, average, is_touched):
        return jnp.where(
            is_touched & (self.stage == "average"), jnp.float32(9), average
        )


@pytest.mark.long
@pytest.mark.parametrize("fidelity", ["sets", "array", "real"])
def test_attackers_strike_at_each_stage(fidelity):
    lonely = jnp.arange(6) == 2
    own = UPDATES.copy()
    own[2] = 1.0
    updates = aggregate(
        0,
        UPDATES,
        _layout(),
        RANGE,
        byzantine=Attack(lonely, "updates"),
        fidelity=fidelity,
    )
    np.testing.assert_allclose(
        updates.update, aggregate(0, own, _layout(), RANGE).update, atol=3e-7
    )
    honest = aggregate(0, UPDATES, _layout(), RANGE)
    codes = codes_of(_layout(), UPDATES)
    residues = aggregate(
        0,
        UPDATES,
        _layout(),
        RANGE,
        byzantine=Attack(lonely, "residues"),
        fidelity=fidelity,
    )
    for (members, start, stop, _, modulus), got, true in zip(
        blocks_of(_layout()), residues.totals, honest.totals, strict=True
    ):
        expected = [int(v) for v in true]
        if 2 in members:
            expected = [
                (v - int(c) - 1) % modulus
                for v, c in zip(expected, codes[2, start:stop], strict=True)
            ]
        assert got.tolist() == expected
    averages = aggregate(
        0,
        UPDATES,
        _layout(),
        RANGE,
        byzantine=Attack(lonely, "average"),
        fidelity=fidelity,
    )
    for segment, (start, stop) in enumerate(_layout().bounds):
        size = sum(
            len(b.members)
            for b in _layout().blocks
            if b.segment == segment and 2 in b.members
        )
        assert (
            averages.update[start:stop] >= 9 * size / 6 - (6 - size) / 6 - 1e-5
        ).all()


@pytest.mark.long
def test_a_robust_rule_takes_the_place_of_the_mean():
    layout = segment_layout("groups", [2, 2, 2], [3, 3, 3], 2)
    updates = np.repeat(np.float32([[-1, 0], [0, 1], [1, 1]]), 2, axis=0)
    assert aggregate(0, updates, layout, RANGE).update.tolist() == pytest.approx(
        [0, 2 / 3]
    )
    median = hetero.robust.coordinate_median()
    for fidelity in ("sets", "array", "real"):
        result = aggregate(0, updates, layout, RANGE, combine=median, fidelity=fidelity)
        assert result.update.tolist() == [0.0, 1.0]


@pytest.mark.long("1", "9")
@pytest.mark.parametrize("tile", [1, 4, 9])
def test_clients_coded_some_after_the_others_make_the_same_sums(tile: int) -> None:
    """Also where the last tile reaches back: 4 does not divide 9."""
    rng = np.random.default_rng(3)
    layout = segment_layout("mc", [3, 3, 3], [2, 5, 9], 21)
    updates = rng.uniform(-1.5, 1.5, (9, 21)).astype(np.float32)
    updates[[1, 5]] = np.nan
    alive = np.ones((5, 9), bool)
    alive[3:, 1] = False
    alive[4, 7] = False
    bounds = _coding.range_bounds(_coding.range_quantizer((-1.0, 1.0)))
    slots = jnp.arange(9, dtype=jnp.int32)
    cast = _round.cast_of(layout, as_key(2), slots, jnp.asarray(alive[3]), bounds)
    verdict = _round.judge(layout.memberships, jnp.asarray(alive), None)
    for span in _row_kernels.spans_of(layout):
        for number in range(len(span.rows.segment)):
            rows = type(span.rows)(*(leaf[number : number + 1] for leaf in span.rows))
            start = span.bounds[number][0]
            given = jnp.asarray(updates), start, rows, cast
            codes, counted = _round.code_span(*given, width=span.width)
            sums = _round._plain_sums(codes, rows, True, verdict)
            found, own = _round._tiled_sums(
                *given, verdict, width=span.width, tile=tile
            )
            assert np.array_equal(found, sums)
            assert np.array_equal(own.outside, counted.outside)
            assert np.array_equal(own.not_finite, counted.not_finite)
            assert bool(own.not_finite[0, 5])


@pytest.mark.long
def test_segments_beyond_the_cache_are_coded_in_tiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The memory that spans share holds each span's own updates."""
    seen = []
    tiled = _round._tiled_sums

    def noted(*given, **sizes):
        seen.append(sizes["tile"])
        return tiled(*given, **sizes)

    monkeypatch.setattr(_round, "_tiled_sums", noted)
    layout = segment_layout("mc", [14, 13, 13], [2, 5, 9], 60_001)
    updates = np.random.default_rng(4).uniform(-1, 1, (40, 60_001))
    whole = mj.hetero.aggregate(0, updates, layout, (-1.0, 1.0))
    assert len(seen) == 3
    assert all(1 <= tile < 40 for tile in seen)
    parts = mj.hetero.aggregate(
        0, lambda start, stop: updates[:, start:stop], layout, (-1.0, 1.0)
    )
    monkeypatch.setattr(_round, "at_once", lambda kind, size: 10**9)
    plain = mj.hetero.aggregate(0, jnp.asarray(updates), layout, (-1.0, 1.0))
    for other in (parts, plain):
        assert np.array_equal(whole.update, other.update)
        assert whole.clipped_fraction == other.clipped_fraction
