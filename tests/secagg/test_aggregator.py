"""The averaged update, bit-equal with and without pads, against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device
from mrsa_jax.quantize import stochastic
from mrsa_jax.secagg import key_material, ring_average
from mrsa_jax.secagg.averages import AggregateOut


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_participants": 1}, "`num_participants` must be at least 2; got 1"),
        ({"dim": 0}, "`dim` must be at least 1; got 0"),
        ({"modulus_bits": 0}, r"`modulus_bits` must lie in \[1, 32\]; got 0"),
        ({"modulus_bits": 33}, r"`modulus_bits` must lie in \[1, 32\]; got 33"),
        ({"modulus_bits": 9}, r"`modulus` must exceed .* got 512 and 1020"),
        (
            {"key_material": -1},
            "`seed` must be a non-negative integer or bytes; got -1",
        ),
        (
            {"key_material": np.zeros(7, np.uint32)},
            r"`key_material` must be uint32\[8\]",
        ),
    ],
)
def test_rejects_impossible_aggregators(arguments, message):
    defaults = {"quantizer": stochastic(256, 1.0), "num_participants": 4, "dim": 10}
    with pytest.raises(mj.ConfigurationError, match=message):
        ring_average(**(defaults | arguments))


def updates_of(round_index, n=5, d=70):
    return 0.4 * jax.random.normal(jax.random.key(100 + round_index), (n, d))


PRESENT = [[1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [0, 1, 0, 0, 1], [1, 1, 1, 1, 0]]


def run(average, rounds=4):
    state, outs = average.init(), []
    for r in range(rounds):
        members = jnp.asarray([3, 50, 7, 900, 12]) + r
        present = jnp.asarray(PRESENT[r], bool)
        out, state = average.aggregate(
            jax.random.key(r), state, updates_of(r), members, present
        )
        outs.append((out, np.asarray(present)))
    assert int(state.round_index) == rounds
    return outs


@pytest.mark.long
@pytest.mark.parametrize("bits", [20, 32])
def test_average_is_bit_equal_with_and_without_pads_and_close_to_the_mean(bits):
    quantizer = stochastic(2**16, 1.0)
    padded = run(ring_average(quantizer, 5, 70, modulus_bits=bits, key_material=1))
    other = run(
        ring_average(quantizer, 5, 70, modulus_bits=bits, key_material=b"another")
    )
    sets = run(ring_average(quantizer, 5, 70, modulus_bits=bits, fidelity="sets"))
    for r, ((out, present), (two, _), (three, _)) in enumerate(
        zip(padded, other, sets, strict=True)
    ):
        for other_out in (two, three):
            for mine, theirs in zip(
                *map(jax.tree.leaves, (out, other_out)), strict=True
            ):
                assert mine.dtype == theirs.dtype
                assert np.array_equal(mine, theirs)
        kept = np.clip(np.asarray(updates_of(r), np.float64)[present], -1, 1)
        assert int(out.status) == mj.Status.OK
        step = 2.0 / (2**16 - 1)
        assert np.abs(np.asarray(out.update) - kept.mean(axis=0)).max() <= step
        clipped = (np.abs(np.asarray(updates_of(r)))[present] > 1).mean()
        assert float(out.clipped_fraction) == pytest.approx(clipped, abs=1e-6)


def test_a_sum_of_fewer_than_two_is_withheld():
    average = ring_average(stochastic(256, 1.0), 3, 8)
    state = average.init()
    for present in ([False] * 3, [False, True, False]):
        out, state = average.aggregate(
            jax.random.key(0),
            state,
            on_device(np.ones((3, 8), np.float32)),
            on_device(np.arange(3, dtype=np.int32)),
            on_device(present),
        )
        assert int(out.status) == mj.Status.TOO_FEW_SURVIVORS
        assert not out.update.any()
        assert not out.learned.any()
    assert int(state.round_index) == 2


def test_absent_updates_are_not_read():
    average = ring_average(stochastic(256, 1.0), 3, 8)
    present = on_device([True, False, True])

    def learnt(absent: float, client: int) -> AggregateOut:
        updates = on_device([[0.5] * 8, [absent] * 8, [-0.5] * 8])
        members = on_device([0, client, 2])
        return average.aggregate(
            jax.random.key(0), average.init(), updates, members, present
        )[0]

    out = learnt(np.nan, 1)
    assert np.array_equal(out.update, learnt(0.9, 77).update)
    assert float(out.clipped_fraction) == 0.0
    assert np.isfinite(out.update).all()


@pytest.mark.long
def test_a_clients_rounding_depends_on_its_id_not_its_slot():
    average = ring_average(stochastic(4, 1.0), 4, 50, fidelity="sets")
    updates = updates_of(0, 4, 50)
    order = jnp.asarray([2, 0, 3, 1])
    members, present = jnp.asarray([8, 3, 5, 1]), jnp.ones(4, bool)
    key = jax.random.key(3)
    out, _ = average.aggregate(key, average.init(), updates, members, present)
    other, _ = average.aggregate(
        key, average.init(), updates[order], members[order], present
    )
    assert np.array_equal(out.learned, other.learned)


def test_learned_is_the_sum_of_the_codes():
    quantizer = stochastic(256, 1.0)
    average = ring_average(quantizer, 3, 20, key_material=key_material(5))
    updates, members = updates_of(1, 3, 20), jnp.asarray([4, 2, 9])
    out, _ = average.aggregate(
        jax.random.key(6), average.init(), updates, members, jnp.ones(3, bool)
    )
    codes = [
        np.asarray(quantizer.encode(jax.random.fold_in(jax.random.key(6), member), row))
        for member, row in zip(members.tolist(), updates, strict=True)
    ]
    assert out.learned.tolist() == np.sum(codes, axis=0).tolist()


@pytest.mark.long
def test_numbers_compile_once(compilations):
    compiled = []
    for levels, clip, material in [(256, 1.0, 0), (16, 0.5, 1), (1024, 2.0, 2)]:
        average = ring_average(stochastic(levels, clip), 3, 9, key_material=material)
        run_args = (jnp.ones((3, 9)), jnp.arange(3), jnp.ones(3, bool))
        with compilations() as own:
            average.aggregate(jax.random.key(0), average.init(), *run_args)
        compiled.append(own)
    assert compiled[1:] == [[], []]
    leaves, tree = jax.tree.flatten(average)
    same, again = jax.tree.flatten(jax.tree.unflatten(tree, leaves))
    assert again == tree
    assert len(leaves) == 4
    assert all(one is other for one, other in zip(same, leaves, strict=True))
