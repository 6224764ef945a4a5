"""One round as arrays.

Misuse, the statuses, what is recovered, and what nobody may reuse.
"""

import dataclasses
import itertools

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.secagg import _four_step as four_step, aggregate

COMPLETE = ~np.eye(4, dtype=bool)
ALL = np.ones((5, 4), bool)
INPUTS = np.asarray([[1, 2, 3], [10, 20, 30], [100, 200, 300], [1000, 2000, 3000]])


def lost(*steps):
    """Return survivors of four clients; client i is lost from set V_steps[i] on."""
    return np.arange(5)[:, None] < np.asarray(steps)[None, :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"modulus_bits": None}, "`modulus_bits` must be given, or else `modulus`"),
        ({"modulus": 7}, "`modulus_bits` must be given, or else `modulus`"),
        ({"modulus_bits": 33}, r"`modulus_bits` must .*33"),
        ({"modulus_bits": 11}, r"`inputs` must lie in \[0, 2048\).* got 1 and 3000"),
        ({"inputs": -INPUTS}, r"`inputs` must lie in"),
        (
            {"inputs": INPUTS.astype(float)},
            "`inputs` must hold integers; got 'float64'",
        ),
        ({"inputs": INPUTS > 0}, "`inputs` must hold integers; got 'bool'"),
        ({"inputs": INPUTS[:, :0]}, "`inputs` must not be empty"),
        ({"inputs": INPUTS[0]}, r"`inputs` must have the shape \[clients, dim\]"),
        (
            {"inputs": INPUTS[:3]},
            "`inputs` must have a row for each client; got 3 and 4",
        ),
        ({"adjacency": np.triu(COMPLETE)}, "`adjacency` must be symmetric"),
        ({"survivors": ALL[:4]}, r"`survivors` must have shape \(5, 4\)"),
        ({"survivors": ~lost(0, 1, 5, 5)}, "`survivors` must be nested"),
        ({"thresholds": 0}, r"`thresholds` must lie in \[1"),
        ({"thresholds": [1, 2]}, "`thresholds` must be one for all or one for each"),
        ({"seed": -1}, "`seed` must be a non-negative integer or bytes; got -1"),
        ({"round_index": -1}, "`round_index` must"),
    ],
)
def test_rejects(change, message):
    arguments = {
        "seed": 0,
        "inputs": INPUTS,
        "adjacency": COMPLETE,
        "survivors": ALL,
        "thresholds": 3,
        "modulus_bits": 16,
    } | change
    with pytest.raises(mj.ConfigurationError, match=message):
        aggregate(**arguments)


@pytest.mark.long
def test_rejects_seeds_of_another_graph():
    seeds = aggregate(0, INPUTS, COMPLETE, ALL, 3, 16).seeds
    path = np.eye(4, k=1, dtype=bool) | np.eye(4, k=-1, dtype=bool)
    with pytest.raises(mj.ConfigurationError, match="`seeds` must have shapes"):
        aggregate(0, INPUTS, path, ALL, 2, 16, seeds=seeds)
    turned = dataclasses.replace(seeds, edges=seeds.edges[::-1])
    with pytest.raises(mj.ConfigurationError, match="`seeds` must belong to the edges"):
        aggregate(0, INPUTS, COMPLETE, ALL, 3, 16, seeds=turned)
    others = dataclasses.replace(seeds, client_ids=seeds.client_ids + 1)
    with pytest.raises(
        mj.ConfigurationError, match="`seeds` must number the clients from 0"
    ):
        aggregate(0, INPUTS, COMPLETE, ALL, 3, 16, seeds=others)


@pytest.mark.parametrize(
    ("survivors", "thresholds", "status"),
    [
        (ALL, 4, mj.Status.OK),
        (ALL, 5, mj.Status.UNRELIABLE),  # more shares than there are
        (lost(5, 5, 5, 4), 3, mj.Status.OK),  # lost before unmasking, still in the sum
        (lost(5, 5, 5, 4), 4, mj.Status.UNRELIABLE),
        (lost(5, 5, 5, 3), 3, mj.Status.OK),  # lost with its pads out
        # its secret key stays unknown
        (lost(5, 5, 5, 3), [3, 3, 3, 4], mj.Status.UNRELIABLE),
        (lost(5, 5, 5, 2), [3, 3, 3, 4], mj.Status.OK),  # nobody shares a pad with it
        (lost(5, 5, 2, 0), 2, mj.Status.OK),
        (lost(5, 3, 3, 3), 1, mj.Status.TOO_FEW_SURVIVORS),
        (lost(0, 0, 0, 0), 1, mj.Status.TOO_FEW_SURVIVORS),
    ],
)
def test_statuses_by_hand(survivors, thresholds, status):
    result = aggregate(1, INPUTS, COMPLETE, survivors, thresholds, 16)
    assert result.status == status
    sends = survivors[3]
    expected = INPUTS[sends].sum(axis=0) if status == mj.Status.OK else np.zeros(3)
    assert result.total.tolist() == expected.tolist()
    assert result.total.dtype == np.uint32
    assert result.learned.tolist() == (
        [sends.tolist()] if status == mj.Status.OK else []
    )


def test_a_graph_in_two_parts_gives_its_parts_away():
    # 0-1 and 2-3
    parts = np.kron(np.eye(2, dtype=int), 1 - np.eye(2, dtype=int)).astype(bool)
    result = aggregate(0, INPUTS, parts, ALL, 2, 16)
    assert (result.status, result.is_reliable, result.is_private) == (0, True, False)
    assert result.learned.astype(int).tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]
    # client 3 is never recovered
    half = aggregate(0, INPUTS, parts, ALL, [2, 2, 2, 3], 16)
    assert (half.status, half.is_private) == (mj.Status.UNRELIABLE, False)
    assert half.learned.astype(int).tolist() == [[1, 1, 0, 0]]
    assert not half.total.any()


def test_the_unmasking_risk_is_a_field():
    assert aggregate(0, INPUTS, COMPLETE, ALL, 2, 16).unmasking_risk  # 2 t = 4 shares
    assert not aggregate(0, INPUTS, COMPLETE, ALL, 3, 16).unmasking_risk


def test_secrets_come_back_from_shares_alone(monkeypatch):
    """Spoil one share that is used.

    The secret is not recovered, and the sum is withheld.
    """
    real = four_step._shares_of

    def spoilt(*arguments):
        shares = real(*arguments)
        return shares.at[0, 3, 1].add(1)  # client 0's shares of both secrets, holder 1

    monkeypatch.setattr(four_step, "_shares_of", spoilt)
    result = aggregate(0, INPUTS, COMPLETE, ALL, 3, 16)
    assert result.status == mj.Status.UNRELIABLE
    assert result.transcript.is_informative.tolist() == [False, True, True, True]
    # with holder 1 gone, its share is not used
    assert (
        aggregate(0, INPUTS, COMPLETE, lost(5, 4, 5, 5), 3, 16).status == mj.Status.OK
    )


def test_sharing_polynomials_are_fresh_for_each_client_secret_and_round():
    material = mj.secagg.key_material(0)
    degree = np.full(5, 8, np.int32)
    rows = [
        four_step._coefficients(material, degree, 8, np.uint32(label), np.uint32(index))
        for label, index in itertools.product((4, 5), (0, 1))
    ]
    flat = np.concatenate([np.asarray(row).reshape(5, -1) for row in rows])
    assert flat.max() < 2**31 - 1
    # P(any collision of 1,440 31-bit words) < 5e-4
    assert len(np.unique(flat)) == flat.size


def test_seeds_inputs_lists_and_keys_are_accepted():
    one = aggregate(
        3, INPUTS.tolist(), COMPLETE.tolist(), ALL.tolist(), [3, 3, 3, 3], 16
    )
    two = aggregate(
        3, jax.numpy.asarray(INPUTS), jax.numpy.asarray(COMPLETE), ALL, 3, modulus=2**16
    )
    assert np.array_equal(one.transcript.padded_inputs, two.transcript.padded_inputs)
    again = aggregate(
        3, INPUTS, COMPLETE, ALL, 3, 16, seeds=one.seeds, keep_padded=False
    )
    assert again.transcript.padded_inputs.shape == (0, 3)
    assert np.array_equal(again.total, one.total)
    key = aggregate(jax.random.key(3), INPUTS, COMPLETE, ALL, 3, 16)
    other = aggregate(b"3", INPUTS, COMPLETE, ALL, 3, 16)
    assert key.total.tolist() == other.total.tolist() == one.total.tolist()
    assert not np.array_equal(key.seeds.self_seed, other.seeds.self_seed)
    later = aggregate(3, INPUTS, COMPLETE, ALL, 3, 16, round_index=1)
    assert not np.array_equal(later.seeds.self_seed, one.seeds.self_seed)
    assert not np.array_equal(
        later.transcript.padded_inputs, one.transcript.padded_inputs
    )


@pytest.mark.long
@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(st.data())
def test_any_round_gives_the_survivors_sum_or_the_right_status(data):
    """Against sets in plain Python: CCESA's Theorem 1 with one's own share sent."""
    n = data.draw(st.sampled_from([1, 3, 6]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    adjacency = np.triu(rng.random((n, n)) < rng.choice([0.3, 0.8, 1.0]), 1)
    adjacency |= adjacency.T
    survivors = np.logical_and.accumulate(
        rng.random((5, n)) > rng.choice([0.02, 0.2]), axis=0
    )
    modulus = data.draw(
        st.one_of(st.sampled_from([2, 2**32, 2**31 - 1]), st.integers(2, 2**20))
    )
    thresholds = rng.integers(1, adjacency.sum(axis=1) + 3)
    inputs = rng.integers(0, modulus, (n, 4))
    result = aggregate(0, inputs, adjacency, survivors, thresholds, modulus=modulus)
    v2, v3, v4 = (set(np.flatnonzero(survivors[s]).tolist()) for s in (2, 3, 4))
    near = [set(np.flatnonzero(row).tolist()) for row in adjacency]
    needed = v3 | {i for i in v2 if near[i] & v3}
    reliable = all(len((near[i] | {i}) & v4) >= thresholds[i] for i in needed)
    if len(v3) < 2:
        expected = mj.Status.TOO_FEW_SURVIVORS
    else:
        expected = mj.Status.OK if reliable else mj.Status.UNRELIABLE
    assert result.status == expected
    plain = inputs[sorted(v3)].sum(axis=0) % modulus
    assert result.total.tolist() == (
        plain.tolist() if expected == mj.Status.OK else [0] * 4
    )
