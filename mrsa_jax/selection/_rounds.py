"""Inside a round: which sum the server learns when a block loses a member.

Multi-RoundSecAgg keeps blocks of T clients whole in every sum, but takes cohort and sum
for the same. If members drop out of the protocol (CCESA's V1 to V4), a policy decides
what is learnt; P (`participation`) has a row for each learnt sum.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int32, Key, Shaped

from mrsa_jax._core.array_types import Integers, Nested, PRNGKey
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.device import platform
from mrsa_jax._core.factories import bucket
from mrsa_jax._core.mesh import varying_like
from mrsa_jax._core.pictures import with_picture
from mrsa_jax._core.programs import LITTLE, one_program, quick_for_little
from mrsa_jax._core.pytrees import kept_apart
from mrsa_jax._core.round_rules import (
    RoundRule,
    SplitPolicy,
    ThresholdRule,
    block_labels,
    check_policy,
    with_weights,
)
from mrsa_jax._core.selector import Selector, with_counts
from mrsa_jax._core.streams import Seed, Stream, as_key, by_words, round_key, trial_key
from mrsa_jax._core.traced import is_traced, needs_values
from mrsa_jax.availability import Availability, StepDropout
from mrsa_jax.selection._by_loops import Rollout
from mrsa_jax.selection._rollout import _entries, _in_chunks, _play, _start
from mrsa_watch._base.errors import check_integer, check_size, require
from mrsa_watch._base.html import brief
from mrsa_watch._base.values import by_value


@by_value
class RoundHistory(NamedTuple):
    """Rounds with dropouts inside, of one trial or many.

    Attributes:
        survivors: bool[..., J, 5, N], V0 (the cohort) to V4.
        participation: bool[..., J, N], who is in the round's sum, if the server learnt
            it; a row of zeros where it did not.
        status: int32[..., J], a `Status` for each round; OK exactly where there is a
            row.
        assignment_keys: key[..., J], from which each round's assignment graph is drawn:
            the trial's round key of the stream `ASSIGNMENT`. `federated.train` hands it
            to the aggregator, which so draws the same graph.
        components: int32[..., J, N], for each client the number of the learnt sum that
            it is in, -1 for none; None under rules that know no partial sums. Privacy
            is a matter of all these sums (`learnt_rows`), failed rounds' included.
    """

    survivors: Bool[Array, "*trials rounds 5 clients"]
    participation: Bool[Array, "*trials rounds clients"]
    status: Int32[Array, "*trials rounds"]
    assignment_keys: Key[Array, "*trials rounds"] | None = None
    components: Int32[Array, "*trials rounds clients"] | None = None

    def __repr__(self) -> str:
        """Describe the arrays."""
        return brief(self)

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        return with_picture(self)

    def _cells(self) -> np.ndarray:
        """Rounds: a row each; asked and lost, arrived in vain, or in the sum."""
        alive = np.asarray(self.survivors)
        kinds = alive[..., 0, :].astype(np.uint8) + alive[..., 3, :]
        return np.where(np.asarray(self.participation) != 0, np.uint8(3), kinds)


def learnt_sums(
    survivors: Nested,
    blocks: Integers,
    policy: SplitPolicy,
    *,
    threshold: ArrayLike = 2,
) -> Bool[Array, "*rounds clients"]:
    """Return the members of the sum that the server learns from each round.

    The sum is over V3, the clients whose masked inputs arrived, if at least `threshold`
    of them are left to unmask it (V4). A block of which some member was asked but is
    not in V3 would be split. By policy:

    - `"ignore"`: the sum over V3 is learnt as it is, and blocks no longer move
      together;
    - `"abort"`: the round ends before unmasking, and nothing is learnt;
    - `"drop_block"`: the members who are left are treated as dropped too: only the pads
      they share with others are removed, their self pads stay and hide their inputs.
      The sum is over whole blocks.

    Args:
        survivors: bool[..., 5, N], V0 to V4 (`availability.StepDropout`), nested.
        blocks: T, for blocks i // T of client i; or [N], the number of each client's
            block in [0, N).
        policy: What to do.
        threshold: t >= 1, shares needed to unmask: fewer clients in V4 and nothing is
            learnt.

    Returns:
        bool[..., N]: a row of P for each round; zeros where nothing is learnt. A sum
        over fewer than two clients is withheld.

    Raises:
        ConfigurationError: If shapes do not match, a block is out of range, survivors
            are no bools, or the policy is unknown.

    Edge cases: a client who is lost after V3 is in the sum and splits nothing. Blocks
    of which only some members were asked (T does not divide the cohort) count as whole
    when none of those asked is lost.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax.numpy as jnp
        >>> cohort = [1, 1, 1, 1, 0, 0]
        >>> lost = [1, 1, 1, 0, 0, 0]  # client 3, of block {2, 3}, is lost before V3
        >>> survivors = jnp.asarray([cohort, cohort, cohort, lost, lost], jnp.bool_)
        >>> [
        ...     mj.selection.learnt_sums(survivors, 2, policy).astype(int).tolist()
        ...     for policy in ("ignore", "abort", "drop_block")
        ... ]
        [[1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]

    Cost: a few passes over N.

    Source: Multi-RoundSecAgg, Section 4, where P holds cohorts; the policies are this
    package's.
    """
    array = on_device(survivors)
    require(array.dtype == jnp.bool_, "survivors", "must be bools", array.dtype)
    require(
        array.ndim >= 2 and array.shape[-2] == 5,
        "survivors",
        "must have axes [..., 5, clients]",
        array.shape,
    )
    labels = block_labels(blocks, array.shape[-1])
    rule = ThresholdRule(labels, on_device(threshold, jnp.int32), check_policy(policy))
    return _learnt_rows(rule, array)


@jax.jit
def _learnt_rows(rule: RoundRule, survivors: Array) -> Array:
    unused = jax.random.key(0)
    each = survivors.reshape((-1, *survivors.shape[-2:]))
    rows = jax.vmap(lambda alive: rule.learn(unused, alive).summed)(each)
    return rows.reshape((*survivors.shape[:-2], survivors.shape[-1]))


@needs_values
def learnt_rows(
    history: Any,
) -> tuple[Shaped[np.ndarray, "sums clients"], Int32[np.ndarray, " sums"]]:
    """Return a row of P for each sum that the server learnt, and its round.

    Args:
        history: Rounds of one trial: a `RoundHistory`, or what else has its
            `participation` and `components`, as a training's result does. Where that
            has `weights`, P has them.

    Returns:
        bool[L, N], or integers where sums had weights, and int32[L], in the order of
        rounds: the round's sum where it is all that is learnt, the sums over parts of
        V3 where the graph became disconnected, those from failed rounds included. The
        rows of a round add up to its sum.

    Raises:
        ConfigurationError: If the history is of many trials.

    Examples:
        >>> import mrsa_jax as mj
        >>> import jax
        >>> import jax.numpy as jnp
        >>> whole = jnp.asarray([[True, True, True], [False] * 3])
        >>> parts = jnp.asarray([[0, 1, 0], [-1, 1, -1]], jnp.int32)
        >>> keys, status = (
        ...     jax.random.split(jax.random.key(0), 2),
        ...     jnp.asarray([0, 3], jnp.int32),
        ... )
        >>> alive = jnp.ones((2, 5, 3), bool)
        >>> rows, rounds = mj.selection.learnt_rows(
        ...     mj.selection.RoundHistory(alive, whole, status, keys, parts)
        ... )
        >>> rows.astype(int).tolist(), rounds.tolist()
        ([[1, 0, 1], [0, 1, 0], [0, 1, 0]], [0, 0, 1])
    """
    whole = np.asarray(history.participation)
    require(whole.ndim == 2, "history", "must be of one trial", whole.shape)
    weights = getattr(history, "weights", None)
    if history.components is None:
        rounds = np.flatnonzero(whole.any(axis=1))
        return with_weights(whole[rounds], weights), rounds.astype(np.int32)
    labels = np.asarray(history.components)
    # a round whose graph became disconnected gives a sum for each component
    sums = [
        (j, label) for j, row in enumerate(labels) for label in np.unique(row[row >= 0])
    ]
    rows = np.zeros((len(sums), whole.shape[1]), np.bool_)
    for place, (j, label) in enumerate(sums):
        rows[place] = labels[j] == label
    return with_weights(rows, weights), np.asarray([j for j, _ in sums], np.int32)


def rollout_rounds(
    seed: Seed,
    selector: Selector,
    availability: Availability,
    steps: StepDropout,
    num_rounds: int,
    *,
    policy: SplitPolicy | None = None,
    blocks: Integers | None = None,
    threshold: ArrayLike = 2,
    rule: RoundRule | None = None,
    num_trials: int | None = None,
    first: int = 0,
) -> RoundHistory:
    """Roll rounds out in which clients also drop out between the protocol's steps.

    `rollout` with dropouts inside rounds. A selector's counts are of sums that were
    learnt: who was asked in vain is not served.

    Args:
        seed: Integer or typed key.
        selector: Whom the server asks.
        availability: Who is online when it asks.
        steps: Who survives the protocol's steps, e.g.
            `availability.independent_steps(0.01)`.
        num_rounds: J >= 1.
        policy: What happens to a block that loses a member (`learnt_sums`).
        blocks: T, or the number of each client's block.
        threshold: t, shares needed to unmask.
        rule: What is learnt from a round, instead of the three above, e.g.
            `secagg.graph_rule`.
        num_trials: B, for that many independent trials as leading axis; None for one
            without.
        first: As for `rollout_trials`.

    Returns:
        What happened in each round. Rates, T and thresholds are data: new values
        compile nothing new. Memory beyond the result is bounded, as for
        `rollout_trials`.

    Raises:
        ConfigurationError: As `rollout` and `learnt_sums`; if not exactly one of `rule`
            or `policy` with `blocks` is given, or a cohort is larger than the rule's
            rounds.

    Examples:
        >>> import mrsa_jax as mj
        >>> selector = mj.selection.batch_partitioning(12, 4, 2)
        >>> online = mj.availability.independent(0.1)
        >>> stays = mj.availability.independent_steps(0.0)
        >>> played = mj.selection.rollout_rounds(
        ...     5, selector, online, stays, 9, policy="abort", blocks=2
        ... )
        >>> bool(
        ...     (
        ...         played.participation == mj.selection.rollout(5, selector, online, 9)
        ...     ).all()
        ... )
        True

    Source: Multi-RoundSecAgg, Section 4; CCESA, Algorithm 1, for the steps.
    """
    rounds = check_size(num_rounds, "num_rounds")
    trials = 1 if num_trials is None else check_size(num_trials, "num_trials")
    for name, value, kind in (
        ("selector", selector, Selector),
        ("availability", availability, Availability),
        ("steps", steps, StepDropout),
    ):
        require(isinstance(value, kind), name, f"must be a `{kind.__name__}`", value)
    if rule is None:
        require(
            policy is not None and blocks is not None,
            "policy",
            "must be given with `blocks`, or `rule`",
            policy,
            blocks,
        )
        labels = block_labels(blocks, selector.num_clients)
        rule = ThresholdRule(
            labels, on_device(threshold, jnp.int32), check_policy(policy)
        )
    else:
        require(
            policy is None and blocks is None,
            "rule",
            "must not be given with `policy` or `blocks`",
            policy,
            blocks,
        )
        require(isinstance(rule, RoundRule), "rule", "must be a `RoundRule`", rule)
    n = selector.num_clients
    given = selector, availability.for_clients(n), steps, rule
    schemes = tuple(map(kept_apart, given))
    row_bytes = 10 * n + 12  # survivors, who is summed, components; status and key
    start = check_integer(first, "first", 0, 2**31 - trials)
    key = as_key(seed)
    is_known = platform() == "cpu" and not is_traced(key, schemes)
    # where compiling is most of the work, other numbers of rounds are the first of one
    # program's
    more = bucket(rounds)
    played = more if is_known and trials * more * n <= LITTLE else rounds
    job = Rollout(key, schemes, played, trials, start)
    history = _in_chunks(_roll, job, row_bytes)
    _check_places(rule, history.survivors)
    if num_trials is not None and played == rounds:
        return history
    if not is_known:
        return _only(history)
    places: Any = np.s_[0, :rounds] if num_trials is None else np.s_[:, :rounds]
    return by_words(lambda leaf: on_device(np.asarray(leaf)[places]), history)


@one_program
def _only(history: RoundHistory) -> RoundHistory:
    return jax.tree.map(lambda leaf: leaf[0], history)


@one_program
def _largest_cohort(survivors: Array) -> Array:
    return jnp.max(jnp.sum(survivors[..., 0, :], axis=-1, dtype=jnp.int32))


def _check_places(rule: RoundRule, survivors: Array) -> None:
    """Raise if some cohort had more members than the rule has places."""
    places = getattr(rule, "num_participants", None)
    if places is not None and not isinstance(survivors, jax.core.Tracer):
        if platform() == "cpu":
            largest = int(np.asarray(survivors)[..., 0, :].sum(axis=-1).max())
        else:
            largest = int(_largest_cohort(survivors))
        most = f"{places} places"
        require(
            largest <= places,
            "rule",
            "must have a place for each member of a cohort",
            most,
            f"{largest} members",
        )


@quick_for_little(_entries, static_argnames=("num_rounds",))
def _roll(
    key: PRNGKey,
    trials: Array,
    selector: Any,
    availability: Any,
    steps: Any,
    rule: RoundRule,
    num_rounds: int,
) -> RoundHistory:
    def play(trial: Array, states: Any, j: Array) -> tuple[Any, RoundHistory]:
        (after, online), cohort = _play(trial, selector, availability, states, j)
        survivors = steps.sample(round_key(trial, j, Stream.STEPS), cohort)
        graph_key = round_key(trial, j, Stream.ASSIGNMENT)
        learnt = rule.learn(graph_key, survivors)
        # who was asked in vain is not served, whatever the selector has counted
        after = with_counts(after, states[0].counts + learnt.summed.astype(jnp.int32))
        row = RoundHistory(
            survivors, learnt.summed, learnt.status, graph_key, learnt.components
        )
        return (after, online), row

    def one(trial: Array) -> RoundHistory:
        own = trial_key(key, trial)
        start = varying_like(_start(own, selector, availability), steps, rule)
        rounds = jnp.arange(num_rounds, dtype=jnp.uint32)
        return lax.scan(functools.partial(play, own), start, rounds)[1]

    return jax.vmap(one)(trials)
