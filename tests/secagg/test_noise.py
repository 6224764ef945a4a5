"""Noise in the ring: the same bits however summed, and every integer accounted for."""

import functools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.streams import Stream, fold
from mrsa_jax.availability import independent_steps
from mrsa_jax.quantize import lattice, stochastic
from mrsa_jax.quantize.wrapping import has_left, lifted, wrap_probability
from mrsa_jax.secagg import graph_rule, noisy_codes, ring_average

N, D, BITS = 6, 50, 16
_ids = functools.cache(lambda: jnp.asarray([3, 50, 7, 900, 12, 11]))
_updates = functools.cache(lambda: 0.05 * jax.random.normal(jax.random.key(1), (N, D)))
_key = functools.cache(lambda: jax.random.key(9))
_noise = functools.cache(lambda: mj.dp.skellam(0.01))
LOST = np.ones((5, N), bool)
LOST[3:, 1] = False  # before sending
LOST[4, 4] = False  # after
QUANTIZERS = [
    partial(lattice, 2.0**-8, 1.0, D),
    partial(lattice, 0.01, 1.0, D, rotate=False),
    partial(stochastic, 255, 1.0),
]


@pytest.mark.long
def test_residues_stand_for_the_integers_of_a_window() -> None:
    for bits in (1, 3, 16, 17, 31, 32):
        middles = [0, 1, 5, 2**bits // 2, 2**31 - 1]
        for middle in middles:
            low = middle - 2 ** (bits - 1)
            far = [low, low + 1, middle, low + 2**bits - 1]
            beyond = [
                low - 1,
                low + 2**bits,
                low - 2**bits,
                middle + 2**31,
                middle - 2**31,
            ]
            residues = jnp.asarray([one % 2**bits for one in far], jnp.uint32)
            top = jnp.uint32(2**bits - 1)
            words = lifted(residues, jnp.uint32(middle), top)
            assert words.tolist() == [one % 2**32 for one in far]
            # sums of three clients, one of whom is not there
            sums = far + beyond
            terms = np.asarray(
                [[s // 2 for s in sums], [-(-s // 2) for s in sums], [7] * 9]
            )
            terms = (terms % 2**32).astype(np.uint32)
            is_fit = np.abs(np.asarray(sums)) < 2**32 - 2  # halves are signed words
            left = has_left(
                jnp.asarray(terms),
                jnp.asarray([True, True, False]),
                jnp.uint32(middle),
                top,
            )
            expected = [not low <= one < low + 2**bits for one in sums]
            assert np.array_equal(
                np.asarray(left)[is_fit], np.asarray(expected)[is_fit]
            )


def draws_of(noise, quantizer, width) -> np.ndarray:
    """Draw each client's noise from its own key: the path that a seed means."""
    own = noise.on(float(quantizer.step))
    keys = [fold(_key(), client, int(Stream.NOISE)) for client in _ids().tolist()]
    return np.stack([np.asarray(own.sample(key, (width,)), np.int64) for key in keys])


@pytest.mark.long
@pytest.mark.parametrize("number", range(3))
def test_all_ways_to_sum_agree_and_are_codes_and_noise(number) -> None:
    quantizer = QUANTIZERS[number]()
    averages = [
        ring_average(
            quantizer, N, D, modulus_bits=BITS, noise=_noise(), fidelity=fidelity
        )
        for fidelity in ("array", "sets")
    ]
    present = LOST[3]
    outs = [
        own.aggregate(_key(), own.init(), _updates(), _ids(), jnp.asarray(LOST))[0]
        for own in averages
    ]
    traced = jax.jit(
        lambda own, key: own.aggregate(
            key, own.init(), _updates(), _ids(), jnp.asarray(LOST)
        )[0]
    )
    keys = jnp.stack([jax.random.key(2), _key()])
    many = jax.jit(jax.vmap(traced, (None, 0)))(averages[1], keys)
    outs += [jax.tree.map(lambda leaf: leaf[1], many)]
    for out in outs[1:]:
        for mine, theirs in zip(outs[0], out, strict=True):
            assert np.array_equal(mine, theirs)

    codes = noisy_codes(quantizer, _noise(), _key(), _updates(), _ids(), BITS)
    graph = ~np.eye(N, dtype=bool)
    real = mj.protocol.run(np.asarray(codes), graph, LOST, 4, BITS)
    assert real.status == mj.Status.OK
    assert np.array_equal(real.total, outs[0].learned)

    plain = noisy_codes(quantizer, None, _key(), _updates(), _ids(), 32)
    drawn = draws_of(_noise(), quantizer, plain.shape[1])
    exact = (np.asarray(plain).astype(np.int32) + drawn)[present].sum(axis=0)
    assert np.array_equal(exact % 2**BITS, np.asarray(outs[0].learned))
    assert outs[0].wrapped == 0
    words = jnp.asarray(exact % 2**32, jnp.uint32)
    mean = np.asarray(quantizer.decode(words, int(present.sum()))) / np.float32(
        present.sum()
    )
    assert np.allclose(outs[0].update, mean, rtol=0, atol=1e-6)
    noise = np.asarray(outs[0].update) - np.asarray(_updates())[present].mean(axis=0)
    assert noise.std() == pytest.approx(math.sqrt(0.01 / present.sum()), rel=0.35)


@pytest.mark.long
def test_graphs_steps_and_rounds_of_one_program() -> None:
    rule = graph_rule(mj.graphs.erdos_renyi(N, 0.9), N, threshold=2)
    settings = {"modulus_bits": BITS, "rule": rule, "steps": independent_steps(0.05)}
    averages = [
        ring_average(QUANTIZERS[0](), N, D, noise=noise, fidelity=fidelity, **settings)
        for noise, fidelity in (
            (_noise(), "array"),
            (_noise(), "sets"),
            (mj.dp.discrete_gaussian(0.01), "sets"),
        )
    ]
    asked = jnp.ones(N, bool)

    def rounds(own, keys):
        def one(state, key):
            out, after = own.aggregate(key, state, _updates(), jnp.sort(_ids()), asked)
            return after, out

        return jax.lax.scan(one, own.init(), keys)[1]

    keys = jax.random.split(_key(), 6)
    found = [jax.jit(rounds)(own, keys) for own in averages]
    jax.tree.map(np.testing.assert_array_equal, *found[:2])
    statuses = np.asarray(found[0].status)
    assert (statuses == mj.Status.OK).any()
    assert np.asarray(found[0].learned).any(axis=1).tolist() == (statuses == 0).tolist()
    assert not np.array_equal(found[0].learned, found[2].learned)
    state = averages[0].init()
    out, _ = averages[0].aggregate(keys[0], state, _updates(), jnp.sort(_ids()), asked)
    assert np.array_equal(out.learned, found[0].learned[0])


@pytest.mark.long
def test_wraps_are_counted_from_the_true_sums() -> None:
    quantizer, bits, size = stochastic(17, 1.0), 9, 4000
    # of the sum: 73 steps, in 256 less 48
    noise = mj.dp.skellam(30.0**2 * (2 / 16) ** 2)
    own = ring_average(quantizer, N, size, modulus_bits=bits, noise=noise)
    updates = jnp.ones((N, size))
    out, _ = own.aggregate(_key(), own.init(), updates, _ids(), jnp.ones(N, bool))
    drawn = draws_of(noise, quantizer, size)
    offsets = 16 * N + drawn.sum(axis=0) - 8 * N
    wrapped = ((offsets < -256) | (offsets >= 256)).sum()
    assert 0 < wrapped < 40
    assert int(out.wrapped) == wrapped
    exact = 1 + (2 / 16) * drawn.mean(axis=0)
    gap = np.abs(np.asarray(out.update) - exact) > 1e-4
    assert gap.sum() == wrapped
    none, _ = own.aggregate(_key(), own.init(), updates, _ids(), jnp.zeros(N, bool))
    assert int(none.wrapped) == 0
    assert none.status == mj.Status.TOO_FEW_SURVIVORS


@pytest.mark.long
def test_the_chance_of_a_wrap_is_bounded() -> None:
    # codes at their largest and Skellam noise: the exact chance, in closed form
    for bits, variance in ((9, 900.0), (12, 1e5), (8, 20.0), (6, 0.01)):
        quantizer = stochastic(17, 8.0)  # of step 1
        noise = mj.dp.skellam(variance / 4)
        bound = wrap_probability(quantizer, noise, 4, 2**bits)
        room = 2 ** (bits - 1) - 32
        total = mj.dp.skellam(variance)
        exact = 1.0
        if room > 0:
            beyond = np.arange(room, room + 40 * math.isqrt(math.ceil(variance)))
            exact = 2.0 * total.mass(beyond).sum()
        assert exact / 2 <= bound
        assert bound == 1.0 or bound <= 40 * exact or exact < 1e-280
    # rotated codes of equal updates, over signs: many lattices, each coordinate a
    # sample
    clip, dim, bits = 1.0, 64, 8
    values = jnp.zeros((1, dim)).at[0, 0].set(clip).at[0, 1].set(0.1)
    noise = mj.dp.skellam(6.0 * 0.2**2)
    outside, count = 0, 40
    for seed in range(count):
        own = lattice(0.2, clip, dim, key=seed, rejection=0.9)
        average = ring_average(
            own, 40, dim, modulus_bits=bits, noise=noise, fidelity="sets"
        )
        updates = jnp.broadcast_to(values, (40, dim))
        key = jax.random.key(seed)
        out, _ = average.aggregate(
            key, average.init(), updates, jnp.arange(40), jnp.ones(40, bool)
        )
        outside += int(out.wrapped)
    bound = wrap_probability(own, noise, 40, 2**bits)
    assert outside / (count * dim) <= bound < 0.05
    assert (
        wrap_probability(lattice(0.2, clip, dim, rotate=False), noise, 40, 2**bits)
        == 1.0
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_weight": 3}, "`max_weight` must not be set with `noise`"),
        (
            {"clip_rule": lambda: mj.quantize.following_range(4.0)},
            "`clip_rule` must not be set",
        ),
        ({"modulus_bits": 6}, "`modulus_bits` must leave room .* chance of 1 "),
        (
            {"modulus_bits": 9, "noise": lambda: mj.dp.skellam(20.0)},
            r"chance of 0\.\d+ \(by Chernoff",
        ),
        (
            {"dim": D + 1, "quantizer": QUANTIZERS[0]},
            "`dim` must be that of the lattice",
        ),
    ],
)
def test_refuses_what_breaks_the_account(arguments, message) -> None:
    defaults = {
        "quantizer": stochastic(17, 1.0),
        "num_participants": N,
        "dim": D,
        "noise": _noise,
    }
    given = {k: v() if callable(v) else v for k, v in (defaults | arguments).items()}
    with pytest.raises(mj.ConfigurationError, match=message):
        ring_average(**given)


@pytest.mark.long
def test_a_lattice_without_noise_sums_exactly() -> None:
    own = lattice(2.0**-8, 1.0, D)
    bits = (int(own.num_levels) * N).bit_length()
    average = ring_average(own, N, D, modulus_bits=bits)
    out, _ = average.aggregate(
        _key(), average.init(), _updates(), _ids(), jnp.ones(N, bool)
    )
    codes = np.asarray(noisy_codes(own, None, _key(), _updates(), _ids(), 32)).astype(
        np.int32
    )
    total = jnp.asarray(codes.sum(axis=0)).astype(jnp.uint32)
    assert np.array_equal(np.asarray(out.learned), np.asarray(total) % 2**bits)
    assert np.allclose(
        out.update, own.decode(total, N) / np.float32(N), rtol=0, atol=1e-7
    )
    weighted = ring_average(own, N, D, modulus_bits=bits + 2, max_weight=3)
    weights = np.asarray([1, 3, 2, 1, 1, 1])
    out, _ = weighted.aggregate(
        _key(), weighted.init(), _updates(), _ids(), jnp.ones(N, bool), weights
    )
    mean = (np.asarray(_updates()) * weights[:, None]).sum(axis=0) / 9
    assert np.abs(np.asarray(out.update) - mean).max() < 2.0**-7
    with pytest.raises(mj.ConfigurationError, match="must exceed count"):
        ring_average(own, N, D, modulus_bits=bits - 2)
    with pytest.raises(mj.ConfigurationError, match="a lattice has a norm, no range"):
        ring_average(own, N, D, clip_rule=mj.quantize.following_range(4.0))
