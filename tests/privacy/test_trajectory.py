"""Weak privacy after every round of simulated histories, against exhaustive search."""

from __future__ import annotations

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import row_space_oracle as oracle

import mrsa_jax as mj
from mrsa_jax._core import device as _device
from mrsa_jax._core.prime import PRIMES, fields
from mrsa_jax.privacy import weak_privacy, weak_privacy_trajectory
from mrsa_jax.privacy.solver import _bounds

ROUNDS = 24
SCHEMES = {
    "uniform": lambda: mj.selection.uniform(16, 5),
    "uniform_wide": lambda: mj.selection.uniform(16, 6),
    "weighted": lambda: mj.selection.weighted(16, 4),
    "weighted_12": lambda: mj.selection.weighted(12, 3),
    "partition": lambda: mj.selection.partition(16, 4),
    "blocks_of_two": lambda: mj.selection.batch_partitioning(16, 4, 2),
    "blocks_of_four": lambda: mj.selection.batch_partitioning(16, 8, 4),
    "blocks_of_two_of_three": lambda: mj.selection.batch_partitioning(
        16, 6, 2, "uniform"
    ),
    "bernoulli": lambda: mj.selection.bernoulli(16, 0.3),
}
RATES = (0.0, 0.3, 0.6)


@functools.cache
def history(name, trial):
    """Return bool[rounds, clients] of one simulated trial.

    Trials differ in their dropouts.
    """
    online = mj.availability.independent(RATES[trial])
    return np.asarray(mj.selection.rollout(11 + trial, SCHEMES[name](), online, ROUNDS))


@functools.cache
def truth(name, trial):
    """Return rank and T after each round."""
    return np.array(oracle.trajectory(history(name, trial))).T


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([[0.5, 1.0]], r"`P` must hold bools or integers; got \[0.5\]"),
        ([[np.nan, 1.0]], r"`P` must hold bools or integers; got \[nan\]"),
        ([1, 0], r"`P` must have .*; got \(2,\)"),
        (np.zeros((0, 4), bool), r"`P` must not be empty; got \(0, 4\)"),
        (np.zeros((4, 0), bool), r"`P` must not be empty; got \(4, 0\)"),
        ([["1", "0"]], r"`P` must hold bools or integers; got"),
    ],
)
@pytest.mark.parametrize("method", ["certified", "bounds"])
def test_rejects_what_is_no_history(bad, message, method):
    with pytest.raises(mj.ConfigurationError, match=message):
        weak_privacy_trajectory(bad, method=method)


@pytest.mark.parametrize("method", ["exact", "certifed", "", None, 1])
def test_rejects_an_unknown_method(method):
    with pytest.raises(mj.ConfigurationError, match=r"`method` .*certified"):
        weak_privacy_trajectory([[1, 0]], method=method)


@pytest.mark.parametrize("effort", [-1.0, float("nan"), "1", None])
def test_rejects_an_effort_that_is_no_amount(effort):
    with pytest.raises(mj.ConfigurationError, match=r"`effort` must .*; got"):
        weak_privacy_trajectory([[1, 0]], effort=effort)


@pytest.mark.parametrize("form", ["round by round", "rounds at once"])
def test_bounds_by_hand_where_no_small_sets_are_looked_for(form, monkeypatch):
    """Three blocks of two, A, B and C: the sums of A and B, of B and C, of B.

    Two sums leave a combination on any two of three blocks, three one on each block.
    """
    rows = np.array([[1, 1, 0], [0, 1, 1], [0, 1, 0]], np.uint32)
    nothing = jnp.int32(_bounds.NEVER), jnp.int32(0)
    monkeypatch.setattr(_bounds, "_dependent_sets", lambda *_: nothing)
    # modulo two primes; in the place of a projection as well
    both = np.stack([rows, rows])
    follow = {
        "round by round": _bounds._round_by_round,
        "rounds at once": functools.partial(_bounds._rounds_at_once, tile=1),
    }[form]
    found = jax.jit(functools.partial(follow, binary=True))(
        both,
        rows.astype(np.int32),
        np.full(3, 2, np.int32),
        both,
        fields(PRIMES),
    )
    assert found.upper.tolist() == [4, 4, 2]
    assert found.lower.tolist() == [4, 2, 2]
    assert found.rank.tolist() == [1, 2, 3]


@pytest.mark.long
@pytest.mark.parametrize("method", ["certified", "bounds"])
def test_there_is_no_privacy_to_report_before_the_first_sum(method):
    rows = np.zeros((ROUNDS, 16), int)  # a shape that other tests compile anyway
    rows[2, :3] = rows[4, :2] = 1
    found = weak_privacy_trajectory(rows, method=method)
    assert found.rank.tolist() == [0, 0, 1, 1] + [2] * (ROUNDS - 4)
    assert found.lower.tolist() == [-1, -1, 3, 3] + [1] * (ROUNDS - 4)
    assert found.upper.tolist() == found.lower.tolist()


@pytest.mark.long
@pytest.mark.parametrize("method", ["certified", "bounds"])
def test_types_and_shapes(method):
    found = weak_privacy_trajectory(history("weighted", 1), method=method)
    for values in (found.lower, found.upper, found.rank):
        assert values.dtype == np.int32
        assert values.shape == (ROUNDS,)
    assert found.certified.dtype == np.bool_
    assert found.certified.shape == (ROUNDS,)


@pytest.mark.long
def test_certified_is_the_default_method():
    rows = history("weighted", 1)[:9]
    default, named = (
        weak_privacy_trajectory(rows),
        weak_privacy_trajectory(rows, "certified"),
    )
    assert np.array_equal(default.lower, named.lower)
    assert np.array_equal(default.certified, named.certified)


@pytest.mark.parametrize("trial", range(3))
@pytest.mark.parametrize("name", SCHEMES)
def test_every_prefix_is_certified_exactly(name, trial):
    ranks, weak = truth(name, trial)
    found = weak_privacy_trajectory(history(name, trial), method="certified")
    assert np.array_equal(found.rank, ranks)
    assert np.array_equal(found.lower, weak)
    assert np.array_equal(found.upper, weak)
    assert found.certified.all()


@pytest.mark.long
@pytest.mark.parametrize("trial", range(3))
@pytest.mark.parametrize("name", SCHEMES)
def test_bounds_enclose_the_truth(name, trial):
    ranks, weak = truth(name, trial)
    found = weak_privacy_trajectory(history(name, trial), method="bounds")
    assert np.array_equal(found.rank, ranks)
    assert (found.lower <= weak).all()
    assert (weak <= found.upper).all()
    assert np.array_equal(found.upper == -1, ranks == 0)
    assert np.array_equal(found.lower == -1, ranks == 0)
    seen = ranks > 0
    assert (np.diff(found.lower[seen]) <= 0).all()
    assert (np.diff(found.upper[seen]) <= 0).all()
    assert (found.lower[found.certified] == weak[found.certified]).all()
    assert (found.upper[found.certified] == weak[found.certified]).all()


@pytest.mark.long
def test_bounds_say_more_than_nothing():
    # the worst an upper bound can do is the smallest sum, the worst a lower one 1
    gaps = []
    for name in SCHEMES:
        found = weak_privacy_trajectory(history(name, 1), method="bounds")
        gaps += [(found.upper - found.lower)[found.rank > 0].mean()]
    assert max(gaps) < 2.0


@pytest.mark.long
def test_blocks_are_exact_without_a_search():
    for name in (
        "partition",
        "blocks_of_two",
        "blocks_of_four",
        "blocks_of_two_of_three",
    ):
        found = weak_privacy_trajectory(history(name, 1), method="bounds")
        assert np.array_equal(found.lower, truth(name, 1)[1]), name
        assert np.array_equal(found.upper, truth(name, 1)[1]), name


@pytest.mark.long
@pytest.mark.parametrize("method", ["certified", "bounds"])
def test_a_row_of_a_batch_is_that_history_alone(method):
    batch = np.stack([history("weighted", trial) for trial in range(3)])
    found = weak_privacy_trajectory(batch, method=method)
    assert found.lower.shape == found.certified.shape == (3, ROUNDS)
    for trial in range(3):
        alone = weak_privacy_trajectory(batch[trial], method=method)
        for field in ("lower", "upper", "rank", "certified"):
            assert np.array_equal(
                getattr(found, field)[trial], getattr(alone, field)
            ), field


@pytest.mark.long
def test_more_leading_axes_are_kept():
    batch = np.stack([history("partition", trial) for trial in range(3)])[:, None]
    found = weak_privacy_trajectory(batch, method="bounds")
    assert found.upper.shape == (3, 1, ROUNDS)


@pytest.mark.long
@pytest.mark.parametrize("method", ["certified", "bounds"])
def test_the_last_entry_is_the_whole_history(method):
    rows = history("blocks_of_two_of_three", 1)
    whole = weak_privacy(rows)
    found = weak_privacy_trajectory(rows, method=method)
    assert found.rank[-1] == whole.rank
    assert found.lower[-1] <= whole.upper
    assert whole.lower <= found.upper[-1]


@pytest.mark.long
@pytest.mark.parametrize("method", ["certified", "bounds"])
def test_array_library_and_x64_change_nothing(method):
    rows = history("blocks_of_two", 1)
    plain = weak_privacy_trajectory(rows, method=method)
    with jax.enable_x64(True):
        wide = weak_privacy_trajectory(jnp.asarray(rows, jnp.int64), method=method)
    for field in ("lower", "upper", "rank", "certified"):
        assert np.array_equal(getattr(plain, field), getattr(wide, field)), field


@pytest.mark.long
@pytest.mark.parametrize("method", ["certified", "bounds"])
@hypothesis.given(
    st.lists(
        st.lists(st.integers(-2, 2), min_size=6, max_size=6), min_size=7, max_size=7
    )
)
def test_weighted_rows(method, rows):
    ranks, weak = np.array(oracle.trajectory(rows)).T
    found = weak_privacy_trajectory(rows, method=method)
    assert np.array_equal(found.rank, ranks)
    assert (found.lower <= weak).all()
    assert (weak <= found.upper).all()
    if method == "certified":
        assert found.certified.all()
        assert np.array_equal(found.lower, weak)
        assert np.array_equal(found.upper, weak)


@pytest.mark.parametrize("memory", [0, -5, 1.5, "much", True])
def test_rejects_a_memory_that_is_no_number_of_bytes(memory):
    with pytest.raises(mj.ConfigurationError, match="`memory_bytes` must"):
        weak_privacy_trajectory([[1, 0]], memory_bytes=memory)


@pytest.mark.long
def test_little_memory_changes_nothing_but_the_chunks():
    batch = np.stack([history("weighted", trial) for trial in range(3)])
    reports = []
    plain = weak_privacy_trajectory(batch, "bounds")
    small = weak_privacy_trajectory(
        batch, "bounds", memory_bytes=1, progress=lambda *state: reports.append(state)
    )
    for field in ("lower", "upper", "rank"):
        assert np.array_equal(getattr(plain, field), getattr(small, field)), field
    assert [done for _, done, _ in reports] == [1, 2, 3]


@pytest.mark.long
def test_bounds_inside_a_program_hold_those_of_a_search_outside():
    """With clients of equal columns, who are not taken together there, and one who is never in."""
    generator = np.random.default_rng(3)
    # a shape that the table of transformations compiles
    batch = generator.random((4, 3, 4)) < 0.5
    batch[0, :, 1], batch[1, :, 0], batch[2] = batch[0, :, 0], False, False
    found = jax.vmap(lambda rows: weak_privacy_trajectory(rows, "bounds"))(
        jnp.asarray(batch)
    )
    outside = weak_privacy_trajectory(batch)
    assert outside.certified.all()
    assert np.array_equal(found.rank, outside.rank)
    assert (np.asarray(found.lower) <= outside.lower).all()
    assert (outside.upper <= np.asarray(found.upper)).all()
    assert np.asarray(found.lower)[2].tolist() == [-1] * 3
    assert not found.certified.any()
    with pytest.raises(mj.ConfigurationError, match="`P` must be known, not traced"):
        jax.jit(weak_privacy_trajectory)(batch[0])


def on_an_accelerator(lanes):
    """Trace as for one of so many lanes: what it has room for goes side by side."""
    return _device.compiling_for("cuda", lanes, 2**33)


@pytest.mark.long
@pytest.mark.parametrize("lanes", [1, 2**16], ids=["each look alone", "all at once"])
@pytest.mark.parametrize("every_round", [48, 4], ids=["few groups", "many groups"])
@pytest.mark.parametrize("largest", [1, 2, 9], ids=["bools", "small", "weights"])
def test_rounds_at_once_find_what_one_after_another_find(
    largest, every_round, lanes, monkeypatch
):
    """Histories that stay small sets, that grow and that end early, in both forms."""
    monkeypatch.setattr(_bounds, "EVERY_ROUND", every_round)
    generator = np.random.default_rng(largest)
    count, rounds, groups = 24, 14, 9
    rows = generator.integers(1, largest + 1, (count, rounds, groups))
    rows *= generator.random(rows.shape) < generator.uniform(0.2, 0.7, (count, 1, 1))
    rows[::4, :, 1] = rows[::4, :, 0]
    rows[1::4, 5:] = 0
    rows[2::4, 3:6] = rows[2::4, :3]
    rows[3] = 0
    weights = generator.integers(1, 4, (count, groups)).astype(np.int32)
    residues = np.repeat(rows[:, None], 2, axis=1).astype(np.uint32)
    arguments = (
        residues,
        rows.astype(np.int32),
        weights,
        _bounds.random_projection(PRIMES, groups, seed=1),
        fields(PRIMES),
    )

    def found(tile):
        follow = functools.partial(
            _bounds.bounds.in_full.__wrapped__, binary=largest == 1, tile=tile
        )
        return jax.jit(follow)(*arguments)

    alone = found(1)
    with on_an_accelerator(lanes):
        together = found(count)
    for name in ("lower", "upper", "rank"):
        assert np.array_equal(getattr(together, name), getattr(alone, name)), name
    assert len(np.unique(alone.lower)) > 4
    if every_round == 4:  # what was left out shows
        monkeypatch.setattr(_bounds, "EVERY_ROUND", 48)
        assert not np.array_equal(found(1).lower, alone.lower)


@pytest.mark.long
def test_bounds_of_many_histories_side_by_side_are_those_of_one_after_another():
    generator = np.random.default_rng(8)
    batch = generator.integers(0, 3, (4, 6, 7)) * (generator.random((4, 6, 7)) < 0.4)
    batch[2], batch[3, :, 1] = 0, batch[3, :, 0]
    alone = weak_privacy_trajectory(batch, "bounds")
    with on_an_accelerator(2**16):
        found = weak_privacy_trajectory(batch, "bounds")
    for name in ("lower", "upper", "rank"):
        assert np.array_equal(getattr(found, name), getattr(alone, name))
