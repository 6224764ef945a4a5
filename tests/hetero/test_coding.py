"""Codes and their decoding.

By the documented draws, in exact fractions, and by statistics.
"""

import fractions
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.hetero import _row_kernels as kernels, decode, encode, segment_layout
from mrsa_jax.hetero.robust import weighted_mean

_layout = functools.cache(
    lambda: segment_layout("mc", [2, 3, 2], [2, 5, 9], dim=11)
)  # widths 4, 4, 3
RANGE = (-1.0, 3.0)


def updates_of(layout=None, seed=0, low=-1.0, high=3.0):
    rng, layout = np.random.default_rng(seed), layout or _layout()
    return rng.uniform(low, high, (layout.num_participants, layout.dim)).astype(
        np.float32
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"updates": np.zeros((7, 10), np.float32)},
            r"`updates` must have the shape \(7, 11\)",
        ),
        ({"updates": np.zeros((7, 11), np.int32)}, "`updates` must be floating point"),
        (
            {"updates": np.full((7, 11), np.nan, np.float32)},
            "`updates` must not hold NaN",
        ),
        ({"value_range": (1.0, -1.0)}, r"`value_range` must be finite with r1 < r2"),
        (
            {"value_range": (0.0, float("inf"))},
            r"`value_range` must be finite with r1 < r2",
        ),
        ({"members": np.zeros(6, np.int32)}, "`members` must be 7 integers"),
        ({"members": np.zeros(7)}, "`members` must be 7 integers"),
    ],
)
def test_rejects_what_cannot_be_encoded(change, message):
    arguments = {
        "updates": updates_of(),
        "value_range": RANGE,
        "members": None,
    } | change
    with pytest.raises(mj.ConfigurationError, match=message):
        encode(jax.random.key(0), layout=_layout(), **arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"totals": [[0] * 4]},
            "`totals` must hold a sum for each block of the layout",
        ),
        ({"totals": [[0] * 5] * 6}, r"`totals` must have the shape \(4,\)"),
        ({"first": 9}, "`totals` must be residues of their block's ring"),
        ({"first": 0.5}, "`totals` must hold integers"),
        ({"counts": [0] * 5}, "`counts` must hold an integer for each block"),
        ({"counts": [6, 0, 0, 0, 0, 0]}, "`counts` must lie between 0 and the members"),
    ],
)
def test_rejects_what_cannot_be_decoded(change, message):
    totals = [[0] * (block.stop - block.start) for block in _layout().blocks]
    if "first" in change:
        totals[0] = [change["first"]] * 4
    arguments = {"totals": totals, "counts": [0] * len(totals)}
    arguments |= {name: value for name, value in change.items() if name != "first"}
    with pytest.raises(mj.ConfigurationError, match=message):
        decode(**arguments, layout=_layout(), value_range=RANGE)


@pytest.mark.long
def test_levels_are_kept_and_what_is_outside_is_clipped():
    levels = _layout().levels_of()
    codes = np.random.default_rng(3).integers(0, np.repeat(levels, [4, 4, 3], axis=0).T)
    steps = 4.0 / (np.repeat(levels, [4, 4, 3], axis=0).T - 1)
    # binary fractions: K - 1 = 1, 4, 8
    exact = (codes * steps - 1.0).astype(np.float32)
    got, clipped = encode(jax.random.key(1), exact, _layout(), RANGE)
    assert np.array_equal(got, codes)
    assert not clipped.any()
    wild = exact.copy()
    wild[2, :3], wild[5] = [99.0, -99.0, np.inf], np.float32(-np.inf)
    got, clipped = encode(jax.random.key(1), wild, _layout(), RANGE)
    top = np.repeat(levels, [4, 4, 3], axis=0).T - 1
    assert got[2, :3].tolist() == [top[2, 0], 0, top[2, 2]]
    assert not got[5].any()
    np.testing.assert_allclose(clipped, [0, 0, 3 / 11, 0, 0, 1, 0], atol=1e-7)


@pytest.mark.long
@pytest.mark.parametrize("chunk", [65_536, 3])
def test_draws_are_those_documented(chunk, monkeypatch):
    monkeypatch.setattr(kernels, "_DRAWS_OF_A_KEY", chunk)
    jax.clear_caches()  # the chunk is read while tracing
    members = [7, 3, 11, 100, 0, 5, 8]
    updates, key = updates_of(seed=1), jax.random.key(5)
    codes = encode(key, updates, _layout(), RANGE, members)[0]
    length = min(4, chunk)  # of the widest segment
    for slot, member in enumerate(members):
        for segment, (start, stop) in enumerate(_layout().bounds):
            own = jax.random.fold_in(jax.random.fold_in(key, member), segment)
            words = np.concatenate(
                [
                    jax.random.bits(
                        jax.random.fold_in(own, part), (length,), jnp.uint32
                    )
                    for part in range(-(-4 // length))
                ]
            )[: stop - start]
            top = np.float32(_layout().levels_of()[segment, slot] - 1)
            scaled = (updates[slot, start:stop] + np.float32(1)) / (np.float32(4) / top)
            floor = np.floor(scaled)
            up = words < ((scaled - floor) * np.float32(2**32)).astype(np.uint32)
            assert codes[slot, start:stop].tolist() == (floor + up).astype(int).tolist()
    jax.clear_caches()


def test_a_client_is_coded_the_same_wherever_it_sits():
    other = segment_layout("mc", [[6, 1], [0, 2, 4], [3, 5]], [2, 5, 9], dim=11)
    seat = np.asarray([6, 1, 0, 2, 4, 3, 5])  # of the clients of the layout, in `other`
    updates = updates_of(seed=2)
    here = encode(jax.random.key(2), updates, _layout(), RANGE)[0]
    moved = np.empty_like(updates)
    moved[seat] = updates
    members = np.empty(7, np.int32)
    members[seat] = np.arange(7)
    there = encode(jax.random.key(2), moved, other, RANGE, members)[0]
    assert np.array_equal(np.asarray(there)[seat], here)


def exact_mean(layout, totals, counts, value_range):
    """The documented decoding in exact fractions."""
    lower, upper = map(fractions.Fraction, value_range)
    out = [fractions.Fraction(0)] * layout.dim
    for segment, (start, stop) in enumerate(layout.bounds):
        own = [i for i, block in enumerate(layout.blocks) if block.segment == segment]
        number = sum(int(counts[i]) for i in own)
        for place in range(start, stop) if number else ():
            for i in own:
                step = (upper - lower) / (layout.blocks[i].num_levels - 1)
                value = int(counts[i]) * lower + step * int(totals[i][place - start])
                out[place] += value * bool(counts[i]) / number
    return [float(value) for value in out]


@pytest.mark.parametrize("value_range", [(-1.0, 3.0), (-0.5, 0.5), (1000.0, 1001.0)])
def test_decoding_in_fractions(value_range):
    rng = np.random.default_rng(0)
    counts = [
        int(rng.integers(0, len(block.members) + 1)) for block in _layout().blocks
    ]
    totals = [
        rng.integers(0, count * (block.num_levels - 1) + 1, block.stop - block.start)
        for count, block in zip(counts, _layout().blocks, strict=True)
    ]
    got = np.asarray(decode(totals, counts, _layout(), value_range), np.float64)
    exact = np.asarray(exact_mean(_layout(), totals, counts, value_range))
    scale = max(map(abs, value_range))
    np.testing.assert_allclose(got, exact, atol=3e-7 * scale, rtol=0)
    ruled = decode(totals, counts, _layout(), value_range, combine=weighted_mean())
    np.testing.assert_allclose(ruled, exact, atol=1e-6 * scale, rtol=0)


def test_many_levels_near_zero_do_not_cancel():
    layout = segment_layout("groups", [100, 100], [2**21, 2**21], 1)
    middle = 100 * (2**21 - 1) // 2
    got = decode([[middle + 3], [middle - 1]], [100, 100], layout, (-1.0, 1.0))
    step = fractions.Fraction(2, 2**21 - 1)
    exact = step * (2 * middle + 2 - 100 * (2**21 - 1)) / 200
    assert float(got[0]) == pytest.approx(float(exact), rel=1e-6)


def test_nobody_summed_decodes_to_zeros():
    totals = [np.zeros(block.stop - block.start, int) for block in _layout().blocks]
    for rule in (None, weighted_mean()):
        assert not decode(totals, [0] * len(totals), _layout(), RANGE, rule).any()


def test_a_rule_sees_averages_and_counts():
    layout = segment_layout("groups", [2, 3], [3, 5], 2)
    seen = []

    def second(values, weights):
        seen.append((values.tolist(), weights.tolist()))
        return values[1]

    got = decode([[4, 0], [6, 0]], [2, 3], layout, (-1.0, 1.0), combine=second)
    assert seen == [([[1.0, -1.0], [0.0, -1.0]], [2.0, 3.0])]
    assert got.tolist() == [0.0, -1.0]


def test_unbiased_with_the_variance_of_theorem_2():
    """One value everywhere, halfway between levels for the slow group.

    The bound (11) is met.
    """
    width, false = 100_000, 1e-6 / 8
    # step 1, longer than a chunk
    layout = segment_layout("sc", [2, 2], [3, 3], 2 * width)
    values = np.asarray([0.5, -0.5, 0.25, -0.9], np.float32)
    codes, _ = encode(
        jax.random.key(9), np.tile(values[:, None], 2 * width), layout, (-1.0, 1.0)
    )
    back = np.asarray(codes, np.float64) - 1.0
    error = back - values[:, None].astype(np.float64)
    spread = math.sqrt(math.log(2 / false) / 2)  # Hoeffding
    for part in (error[:, :width], error[:, width:]):
        mean = part.mean(axis=0)  # over clients, as the sum decodes
        assert abs(mean.mean()) <= spread * math.sqrt(4 / 16 / width)
        up = (values + 1) % 1  # fraction above the lower level
        variance = float((up * (1 - up)).sum() / 16)
        assert abs((mean**2).mean() - variance) <= spread / math.sqrt(width)
        # eq. (11) for one coordinate: (r2 - r1)^2 = 4
        bound = 4 / (4 * 16) * 4 * (1 / 4)
        assert variance <= bound
        # the two with a value midway reach it: a quarter step^2 each
        halves = part[:2].mean(axis=1), (part[:2] ** 2).mean(axis=1)
        np.testing.assert_allclose(halves[1], 0.25, atol=1e-6)
    for lag in (1, 65_536, width):  # draws of places, chunks and segments are unrelated
        product = np.sign(error[0, :-lag]) * np.sign(error[0, lag:])
        assert abs(product.mean()) <= 2 * spread / math.sqrt(2 * width - lag)
    between = np.sign(error[0]) * np.sign(error[1])
    assert abs(between.mean()) <= 2 * spread / math.sqrt(2 * width)


@pytest.mark.long
def test_coding_and_decoding_inside_a_users_program():
    updates, key = (
        jnp.asarray(np.stack([updates_of(seed=s) for s in (0, 1)])),
        jax.random.key(3),
    )
    coded = jax.jit(jax.vmap(lambda own: encode(key, own, _layout(), RANGE)))(updates)
    codes, clipped = jax.device_get(coded)
    totals = [
        codes[:, list(block.members), block.start : block.stop].sum(
            axis=1, dtype=np.uint32
        )
        for block in _layout().blocks
    ]
    counts = jnp.asarray([len(block.members) for block in _layout().blocks])
    decoded = jax.vmap(
        lambda own: decode(own, counts, _layout(), RANGE, weighted_mean())
    )
    means = jax.jit(decoded)(totals)
    for r in range(2):
        one = encode(key, updates[r], _layout(), RANGE)
        assert np.array_equal(codes[r], one[0])
        assert np.array_equal(clipped[r], one[1])
        again = decode(
            [own[r] for own in totals], counts, _layout(), RANGE, weighted_mean()
        )
        np.testing.assert_allclose(means[r], again, atol=1e-6)
