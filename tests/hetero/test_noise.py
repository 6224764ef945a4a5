"""Noise in blocks of unequal quantizers.

Every integer accounted for, real messages alike.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.streams import Stream, fold
from mrsa_jax.hetero import decode, encode, segment_average, segment_layout
from mrsa_jax.hetero._row_kernels import BlockNoise, noisy_row

RANGE = (-1.0, 1.0)
N, D, BITS = 6, 31, 14
_layout = functools.cache(
    lambda: segment_layout("mc", [2, 2, 2], [2, 5, 9], dim=D, modulus_bits=BITS)
)
_key = functools.cache(lambda: jax.random.key(4))
_noise = functools.cache(lambda: mj.dp.skellam(0.25))
_updates = functools.cache(
    lambda: jnp.asarray(
        np.random.default_rng(0).uniform(-0.3, 0.3, (N, D)).astype(np.float32)
    )
)
LOST = np.ones((5, N), bool)
LOST[3:, 5] = False


def terms_of(noise) -> np.ndarray:
    """Return codes and noise as plain integers, each drawn by the path that a seed means."""
    codes, _ = encode(_key(), _updates(), _layout(), RANGE)
    drawn = np.zeros((N, D), np.int64)
    for segment, (start, stop) in enumerate(_layout().bounds):
        for slot in range(N):
            step = 2.0 / (int(_layout().levels_of()[segment, slot]) - 1)
            key = fold(_key(), slot, segment, 0, int(Stream.NOISE))
            own = noise.on(float(np.float32(step)))
            drawn[slot, start:stop] = own.sample(key, (stop - start,))
    return np.asarray(codes, np.int64) + drawn


class Told(NamedTuple):
    """A law whose noise tells by which key it was drawn.

    Attributes:
        size: Of its window.
    """

    size: jax.Array

    def sample(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        word = jax.random.key_data(key)[0] & (self.size - jnp.uint32(1))
        return jnp.broadcast_to(word.astype(jnp.int32), shape)


def test_noise_is_drawn_from_its_own_stream() -> None:
    """Of the rounding's key, folded with a name: the dice of the rounding are others."""
    layout = segment_layout("groups", [2], [5], dim=3, modulus_bits=BITS)
    row = jax.tree.map(lambda values: jnp.asarray(values[0]), layout.rows)
    keys = jax.random.split(_key(), (2, 1))
    noise = BlockNoise(jnp.asarray([5], jnp.int32), (Told(jnp.uint32(2**BITS)),))
    codes, everybody = jnp.zeros((2, 3), jnp.uint32), jnp.ones(2, bool)
    noisy, _ = jax.jit(noisy_row)(codes, keys, row, noise, everybody)
    own = [jax.random.fold_in(key, int(Stream.NOISE)) for key in keys[:, 0]]
    words = np.asarray([jax.random.key_data(key)[0] for key in own]) % 2**BITS
    assert np.array_equal(noisy, np.repeat(words[:, None], 3, axis=1))


@pytest.mark.long
def test_all_ways_to_sum_agree_and_are_codes_and_noise() -> None:
    averages = [
        segment_average(_layout(), RANGE, fidelity=fidelity, noise=_noise())
        for fidelity in ("array", "sets")
    ]
    alive = jnp.asarray(LOST)
    members = jnp.arange(N)
    outs = [
        own.aggregate(_key(), own.init(), _updates(), members, alive)[0]
        for own in averages
    ]
    traced = jax.jit(
        lambda own, key: own.aggregate(key, own.init(), _updates(), members, alive)[0]
    )
    outs.append(traced(averages[1], _key()))
    for out in outs[1:]:
        jax.tree.map(np.testing.assert_array_equal, outs[0], out)

    terms, counts = terms_of(_noise()), np.asarray(outs[0].counts)
    summed = np.asarray(outs[0].summed)
    assert summed.sum() >= 4
    residues, _ = encode(_key(), _updates(), _layout(), RANGE, noise=_noise())
    assert np.array_equal(residues, terms % 2**BITS)
    graph = ~np.eye(N, dtype=bool)
    real = mj.protocol.run(np.asarray(residues), graph, LOST, 4, plan=_layout().plan)
    assert real.status == mj.Status.OK

    exact = np.zeros(D)
    learned = np.asarray(outs[0].learned)
    place = dict.fromkeys(range(_layout().num_segments), 0)
    for number, block in enumerate(_layout().blocks):
        here = [slot for slot in block.members if summed[slot]]
        total = terms[here, block.start : block.stop].sum(axis=0)
        width = block.stop - block.start
        assert np.array_equal(total % 2**BITS, real.totals[number])
        row = learned[block.segment, place[block.segment]]
        place[block.segment] += 1
        assert np.array_equal(total % 2**BITS, row[:width])
        exact[block.start : block.stop] += (
            len(here) * -1.0 + total * 2.0 / (block.num_levels - 1)
        ) / summed.sum()
    assert np.abs(np.asarray(outs[0].update) - exact).max() < 1e-5
    again = decode(real.totals, counts, _layout(), RANGE, has_noise=True)
    assert np.array_equal(again, outs[0].update)
    assert outs[0].wrapped == 0


@pytest.mark.long
def test_wraps_and_robust_rules_and_attackers() -> None:
    tight = segment_layout("groups", [3, 3], [3, 9], dim=3000, modulus_bits=7)
    noise = mj.dp.discrete_gaussian(7.0)
    updates = jnp.ones((6, 3000))
    own = segment_average(tight, RANGE, noise=noise, fidelity="sets")
    out, _ = own.aggregate(
        _key(), own.init(), updates, jnp.arange(6), jnp.ones(6, bool)
    )
    residues, _ = encode(_key(), updates, tight, RANGE, noise=noise)
    plain, _ = encode(_key(), updates, tight, RANGE)
    wrapped = 0
    for block in tight.blocks:
        # of noise so small that a term alone stays near its code
        part = (list(block.members), slice(block.start, block.stop))
        near = np.asarray(residues)[part].astype(int) - np.asarray(plain)[part]
        near = (near + 64) % 128 - 64 + np.asarray(plain)[part].astype(int)
        middle = len(block.members) * (block.num_levels - 1) // 2
        offset = near.sum(axis=0) - middle
        wrapped += int(((offset < -64) | (offset >= 64)).sum())
    assert 0 < wrapped < 60
    assert int(out.wrapped) == wrapped

    rule = mj.hetero.robust.coordinate_median()
    attack = mj.hetero.byzantine.sign_flip(jnp.asarray([True] + [False] * 5), 1.0)
    for extra in ({"combine": rule}, {"byzantine": attack}):
        outs = []
        for fidelity in ("array", "sets"):
            average = segment_average(
                _layout(), RANGE, noise=_noise(), fidelity=fidelity, **extra
            )
            out, _ = average.aggregate(
                _key(), average.init(), _updates(), jnp.arange(N), jnp.ones(N, bool)
            )
            outs.append(out)
        jax.tree.map(np.testing.assert_array_equal, *outs)
        assert outs[0].status == mj.Status.OK


@pytest.mark.long
def test_clip_norm_bounds_what_a_client_changes() -> None:
    average = segment_average(
        _layout(), RANGE, noise=_noise(), clip_norm=0.5, fidelity="sets"
    )
    plain = segment_average(_layout(), RANGE, noise=_noise(), fidelity="sets")
    assert plain.sensitivity == math.inf
    steps = 2.0 / (_layout().levels_of() - 1.0)
    lengths = np.asarray([stop - start for start, stop in _layout().bounds])
    worst = 0.5 + np.sqrt((lengths[:, None] * steps**2).sum(axis=0)).max()
    assert worst <= average.sensitivity <= worst * 1.001
    # short updates as they are, long ones at the norm
    everybody = jnp.ones(N, bool)
    short = _updates() * 0.1
    outs = [
        own.aggregate(_key(), own.init(), short, jnp.arange(N), everybody)[0]
        for own in (average, plain)
    ]
    assert np.array_equal(outs[0].update, outs[1].update)
    # with the same dice, zeros in one client's place: the decoded change, over hostile
    # updates
    random = np.random.default_rng(1)
    rows = [
        np.full(D, 1e30),
        np.eye(D)[3] * 9,
        random.normal(size=D),
        np.full(D, 0.01),
        np.where(np.arange(D) % 2, np.nan, 1.0),
    ]
    zeros = average.aggregate(
        _key(), average.init(), _updates().at[1].set(0.0), jnp.arange(N), everybody
    )[0]
    for row in rows:
        out = average.aggregate(
            _key(),
            average.init(),
            _updates().at[1].set(jnp.asarray(row, jnp.float32)),
            jnp.arange(N),
            everybody,
        )[0]
        change = N * np.linalg.norm(np.asarray(out.update - zeros.update, np.float64))
        assert change <= average.sensitivity
    assert change > 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"layout": lambda: segment_layout("mc", [2, 2, 2], [2, 5, 9], dim=7)},
            "must have rings of 2",
        ),
        (
            {"noise": lambda: mj.dp.skellam(1e8)},
            "`modulus_bits` must leave room for noise: .* chance of 1 .*; got 14",
        ),
        (
            {"clip_rule": lambda: mj.quantize.following_range(4.0)},
            "`clip_rule` must not be set",
        ),
        ({"clip_norm": 0.0}, "`clip_norm` must lie in"),
        ({"clip_norm": 1.0, "value_range": (0.5, 1.0)}, "`value_range` must hold 0"),
    ],
)
def test_refuses_what_breaks_the_account(change, message) -> None:
    change = {
        name: value() if callable(value) else value for name, value in change.items()
    }
    with pytest.raises(mj.ConfigurationError, match=message):
        segment_average(
            **({"layout": _layout(), "value_range": RANGE, "noise": _noise()} | change)
        )
    with pytest.raises(mj.ConfigurationError, match="`modulus_bits` must leave room"):
        segment_layout("mc", [2, 2, 2], [2, 5, 9], dim=7, modulus_bits=3)
