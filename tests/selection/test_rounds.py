"""What is learnt when a block loses a member.

Misuse, worked rounds, a plain loop as oracle.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import ConfigurationError, Status, availability, privacy, selection
from mrsa_jax._core.streams import Stream, as_key, round_key, trial_key
from mrsa_jax.selection import _rounds, learnt_sums, rollout_rounds

POLICIES = ("ignore", "abort", "drop_block")
EVERYBODY = np.ones((5, 4), bool)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (EVERYBODY, 2, "drop"),
            "`policy` must be a known policy: did you mean 'drop_block'",
        ),
        (
            (EVERYBODY[:4], 2, "abort"),
            r"`survivors` must have axes \[..., 5, clients\]",
        ),
        ((EVERYBODY[0], 2, "abort"), r"`survivors` must have axes \[..., 5, clients\]"),
        (
            (EVERYBODY.astype(np.int32), 2, "abort"),
            "`survivors` must be bools; got dtype",
        ),
        ((EVERYBODY, 0, "abort"), "`blocks` must be at least 1; got 0"),
        (
            (EVERYBODY, [0, 0, 1], "abort"),
            "`blocks` must be a block size, or 4 numbers",
        ),
        (
            (EVERYBODY, [0, 0, 1, 4], "abort"),
            r"`blocks` must lie in \[0, num_clients\); got 0 and",
        ),
        (
            (EVERYBODY, [0, 0, 1, -1], "abort"),
            r"`blocks` must lie in \[0, num_clients\); got -1",
        ),
        (
            (EVERYBODY, [0.0, 0.0, 1.0, 1.0], "abort"),
            "`blocks` must be a block size, or 4",
        ),
    ],
)
def test_sums_that_make_no_sense(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        inspect.unwrap(learnt_sums)(*arguments)


def test_a_rollout_without_a_step_model_is_refused() -> None:
    selector, online = selection.uniform(4, 2), availability.independent(0.0)
    with pytest.raises(ConfigurationError, match="`steps` must be a `StepDropout`"):
        inspect.unwrap(rollout_rounds)(
            0, selector, online, 0.1, 3, policy="abort", blocks=1
        )


def _survivors(*steps: list[int]) -> np.ndarray:
    return np.array(steps, bool)


@pytest.mark.parametrize(
    ("survivors", "wanted"),
    [
        # nobody leaves
        ([[1, 1, 1, 1]] * 5, [[1, 1, 1, 1]] * 3),
        # client 3 leaves before V3: block {2, 3} would be split
        (
            [[1, 1, 1, 1]] * 2 + [[1, 1, 1, 0]] * 3,
            [[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0]],
        ),
        # client 3 leaves after its masked input came: it is in the sum, nothing is
        # split
        ([[1, 1, 1, 1]] * 4 + [[1, 1, 1, 0]], [[1, 1, 1, 1]] * 3),
        # a whole block leaves: no policy but abort minds
        (
            [[1, 1, 1, 1]] + [[1, 1, 0, 0]] * 4,
            [[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]],
        ),
        # one of each block
        (
            [[1, 1, 1, 1]] * 3 + [[1, 0, 0, 1]] * 2,
            [[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]],
        ),
        # too few left to unmask, or in the sum
        ([[1, 1, 1, 1]] * 4 + [[0, 1, 0, 0]], [[0, 0, 0, 0]] * 3),
        ([[1, 1, 1, 1]] + [[1, 0, 0, 0]] * 4, [[0, 0, 0, 0]] * 3),
        # nobody was asked
        ([[0, 0, 0, 0]] * 5, [[0, 0, 0, 0]] * 3),
    ],
)
def test_worked_rounds(survivors: list[list[int]], wanted: list[list[int]]) -> None:
    for policy, row in zip(POLICIES, wanted, strict=True):
        found = learnt_sums(_survivors(*survivors), 2, policy)
        assert found.dtype == jnp.bool_
        assert found.astype(int).tolist() == row, policy


def _oracle(
    survivors: np.ndarray, blocks: list[int], policy: str, threshold: int
) -> list[bool]:
    """Plain sets: who is summed in one round."""
    cohort, third, fourth = (
        {i for i in range(len(blocks)) if survivors[step][i]} for step in (0, 3, 4)
    )
    members: dict[int, set[int]] = {}
    for client in cohort:
        members.setdefault(blocks[client], set()).add(client)
    whole = [block for block in members.values() if block <= third]
    if policy == "ignore":
        summed = third
    elif policy == "abort":
        summed = third if len(whole) == len(members) else set()
    else:
        summed = set().union(*whole)
    if len(fourth) < threshold or len(summed) < 2:
        summed = set()
    return [i in summed for i in range(len(blocks))]


def test_every_pattern_of_two_steps_agrees_with_sets() -> None:
    """All nested V0, V3, V4 of four clients, for blocks by size and by irregular numbers."""
    patterns = []
    # not asked, lost early, lost late, stays
    for stay in itertools.product(range(4), repeat=4):
        rows = (
            [[s >= 1 for s in stay]] * 3
            + [[s >= 2 for s in stay]]
            + [[s >= 3 for s in stay]]
        )
        patterns.append(rows)
    survivors = np.array(patterns)
    for blocks, labels in (
        (2, [0, 0, 1, 1]),
        ([3, 0, 3, 3], [3, 0, 3, 3]),
        (1, [0, 1, 2, 3]),
    ):
        for policy, threshold in itertools.product(POLICIES, (1, 2, 3)):
            found = learnt_sums(survivors, blocks, policy, threshold=threshold)
            wanted = [_oracle(rows, labels, policy, threshold) for rows in survivors]
            assert found.tolist() == wanted


@pytest.mark.long
def test_policies_map_and_thresholds_compile_once() -> None:
    rng = np.random.default_rng(0)
    survivors = np.cumprod(rng.random((6, 3, 5, 8)) < 0.9, axis=2).astype(bool)
    together = learnt_sums(survivors, 4, "drop_block")
    assert together.shape == (6, 3, 8)
    mapped = jax.vmap(lambda s: learnt_sums(s, 4, "drop_block"))(jnp.asarray(survivors))
    assert (mapped == together).all()
    sweep = jax.vmap(lambda t: learnt_sums(survivors, 4, "abort", threshold=t))
    rows = sweep(jnp.arange(1, 9, dtype=jnp.int32))
    for t in range(1, 9):
        assert (rows[t - 1] == learnt_sums(survivors, 4, "abort", threshold=t)).all()


def _play(policy: str, rate: float, **more: Any) -> selection.RoundHistory:
    return rollout_rounds(
        11,
        selection.batch_partitioning(24, 8, 4),
        availability.independent(0.05),
        availability.independent_steps(rate),
        60,
        policy=policy,  # type: ignore[arg-type]
        blocks=4,
        num_trials=3,
        **more,
    )


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
def test_without_step_dropouts_rounds_are_the_plain_rollout(policy: str) -> None:
    selector, online = (
        selection.batch_partitioning(24, 8, 4),
        availability.independent(0.05),
    )
    plain = selection.rollout_trials(11, selector, online, 60, 3)
    played = _play(policy, 0.0)
    assert (played.participation == plain).all()
    assert (played.survivors == plain[:, :, None, :]).all()


@pytest.mark.long
def test_fewer_rounds_are_the_first_of_more_and_compile_nothing_on_a_cpu(
    on_a_cpu: None, compilations: Any
) -> None:
    """33 to 64 rounds are one program; 32 are another, and the same rounds."""
    selector, online = (
        selection.batch_partitioning(12, 4, 2),
        availability.independent(0.2),
    )
    steps = availability.independent_steps(0.2)

    def played(rounds: int) -> list[np.ndarray]:
        own = rollout_rounds(
            3, selector, online, steps, rounds, policy="abort", blocks=2
        )
        keys = jax.random.key_data(own.assignment_keys)
        return [np.asarray(leaf) for leaf in (*own[:3], keys)]

    whole = played(64)
    with compilations() as found:
        for rounds in (61, 33):
            for fewer, more in zip(played(rounds), whole, strict=True):
                assert len(fewer) == rounds
                np.testing.assert_array_equal(fewer, more[:rounds])
    assert not found
    for fewer, more in zip(played(32), whole, strict=True):
        np.testing.assert_array_equal(fewer, more[:32])


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
def test_rollouts_learn_what_the_oracle_says(policy: str) -> None:
    played = _play(policy, 0.04, threshold=5)
    survivors, rows = np.asarray(played.survivors), np.asarray(played.participation)
    labels = [i // 4 for i in range(24)]
    for b, j in np.ndindex(3, 60):
        assert rows[b, j].tolist() == _oracle(survivors[b, j], labels, policy, 5)
    alone = rollout_rounds(
        11,
        selection.batch_partitioning(24, 8, 4),
        availability.independent(0.05),
        availability.independent_steps(0.04),
        60,
        policy=policy,  # type: ignore[arg-type]
        blocks=4,
        threshold=5,
    )
    assert (alone.participation == rows[0]).all()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _ByTheKey:
    """Client i stays where bit i of the key's first word is 1."""

    def sample(self, key: jax.Array, cohort: jax.Array) -> jax.Array:
        places = jnp.arange(cohort.shape[0], dtype=jnp.uint32)
        stays = jax.random.key_data(key)[0] >> places & jnp.uint32(1) == 1
        return jnp.stack([cohort, *[cohort & stays] * 4])


def test_losses_of_a_round_are_drawn_by_its_own_key() -> None:
    selector, everybody = (
        selection.bernoulli(8, 1.0),
        availability.replay(np.ones((1, 8), bool)),
    )
    played = rollout_rounds(
        3, selector, everybody, _ByTheKey(), 3, policy="ignore", blocks=1
    )
    for j, survivors in enumerate(np.asarray(played.survivors)):
        key = round_key(trial_key(as_key(3), 0), j, Stream.STEPS)
        word = int(jax.random.key_data(key)[0])
        assert survivors[4].tolist() == [word >> i & 1 == 1 for i in range(8)]


@pytest.mark.long
@pytest.mark.parametrize("separation", [None, 1, 3])
def test_counts_are_of_sums_that_were_learnt(separation: int | None) -> None:
    """Weighted selection asks those least often summed, not those least often asked."""
    selector: selection.Selector = selection.weighted(12, 4)
    if separation is not None:
        selector = selection.minimum_separation(selector, separation)
    played = rollout_rounds(
        2,
        selector,
        availability.independent(0.0),
        availability.independent_steps(0.1),
        40,
        policy="ignore",
        blocks=1,
        num_trials=2,
    )
    rows, asked = (
        np.asarray(played.participation),
        np.asarray(played.survivors)[:, :, 0],
    )
    assert (asked & ~rows).any()
    for b, j in np.ndindex(rows.shape[:2]):
        counts = rows[b, :j].sum(axis=0)
        rested = ~asked[b, max(0, j - (separation or 1) + 1) : j].any(axis=0)
        assert rested[asked[b, j]].all()
        assert counts[asked[b, j]].max() <= counts[rested & ~asked[b, j]].min(
            initial=99
        )


@pytest.mark.long
def test_a_rule_takes_the_place_of_policy_blocks_and_threshold() -> None:
    settings: Any = (
        11,
        selection.batch_partitioning(24, 8, 4),
        availability.independent(0.05),
        availability.independent_steps(0.04),
        60,
    )
    labels = jnp.arange(24, dtype=jnp.int32) // jnp.int32(4)
    rule = _rounds.ThresholdRule(labels, jnp.int32(5), "drop_block")
    ruled = rollout_rounds(*settings, rule=rule, num_trials=3)
    played = _play("drop_block", 0.04, threshold=5)
    for mine, theirs in zip(ruled, played, strict=True):
        assert mine is theirs or (mine == theirs).all()
    with pytest.raises(
        ConfigurationError, match="`rule` must not be given with `policy`"
    ):
        rollout_rounds(*settings, rule=rule, policy="abort")
    with pytest.raises(
        ConfigurationError, match="`policy` must be given with `blocks`, or `rule`"
    ):
        rollout_rounds(*settings, policy="abort")


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
def test_statuses_say_what_went_wrong_first(policy: str) -> None:
    played = _play(policy, 0.1, threshold=5)
    survivors, rows = np.asarray(played.survivors), np.asarray(played.participation)
    statuses, seen = np.asarray(played.status), set()
    for b, j in np.ndindex(3, 60):
        cohort, third, fourth = (
            set(np.flatnonzero(survivors[b, j, s])) for s in (0, 3, 4)
        )
        whole = {i for i in third if {k for k in cohort if k // 4 == i // 4} <= third}
        left = {"ignore": third, "drop_block": whole}.get(
            policy, third if third == cohort else set()
        )
        wanted = Status.OK
        if not cohort:
            wanted = Status.SKIPPED
        elif len(third) < 2:
            wanted = Status.TOO_FEW_SURVIVORS
        elif len(left) < 2:
            wanted = Status.ABORTED
        elif len(fourth) < 5:
            wanted = Status.UNRELIABLE
        assert statuses[b, j] == wanted
        assert rows[b, j].any() == (wanted == Status.OK)
        seen.add(wanted)
    assert Status.OK in seen
    assert (Status.UNRELIABLE in seen) or policy == "abort"
    assert (Status.ABORTED in seen) == (policy != "ignore")


@pytest.mark.long
def test_learnt_rows_of_whole_sums() -> None:
    played = _play("abort", 0.03)
    with pytest.raises(ConfigurationError, match="`history` must be of one trial"):
        selection.learnt_rows(played)
    one = jax.tree.map(lambda leaf: leaf[1], played)
    rows, rounds = selection.learnt_rows(one)
    kept = np.asarray(one.participation)
    assert rounds.tolist() == np.flatnonzero(kept.any(axis=1)).tolist()
    assert (rows == kept[rounds]).all()


@pytest.mark.long
def test_ignoring_breaks_blocks_and_the_others_keep_them() -> None:
    strong = {
        policy: [
            privacy.strong_privacy(P)
            for P in np.asarray(_play(policy, 0.03).participation)
        ]
        for policy in POLICIES
    }
    assert max(t for t in strong["ignore"] if t) < 4
    assert min(t or 4 for t in strong["abort"]) >= 4
    assert min(t or 4 for t in strong["drop_block"]) >= 4


@pytest.mark.long
def test_dropping_blocks_keeps_more_rounds_than_aborting() -> None:
    kept = {
        policy: np.asarray(_play(policy, 0.03).participation).any(axis=-1).sum(axis=-1)
        for policy in POLICIES
    }
    assert (kept["drop_block"] > kept["abort"]).all()
    assert (kept["ignore"] >= kept["drop_block"]).all()
