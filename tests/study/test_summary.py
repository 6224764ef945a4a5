"""Rows and sentences of a study whose numbers are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr

from mrsa_jax import Status
from mrsa_jax.study import sentences, summarise


def test_rows_hold_the_last_round(results: xr.Dataset) -> None:
    random, partition = summarise(results)
    assert random.scheme == "Random"
    assert (random.strong_privacy, partition.strong_privacy) == (1, 2)
    assert (random.rank, random.num_clients) == (3.0, 4)
    assert (random.exposed_clients, partition.exposed_clients) == (2.0, 0.0)
    assert (random.first_exposed_after, random.all_exposed_after) == (2, None)
    assert partition.first_exposed_after is None
    assert math.isclose(random.cardinality_error, 0.3 / math.sqrt(3))
    assert (random.skipped_rounds, partition.skipped_rounds) == (0.0, 1.0)
    assert (random.accuracy, partition.accuracy) == (0.9, 0.8)
    assert math.isclose(random.reconstruction_error or 0, (0.001 + 0.5) / 2)


def test_trials_are_averaged_and_the_worst_privacy_is_kept(results: xr.Dataset) -> None:
    bare = results.drop_vars(["accuracy", "reconstruction_error", "participation"])
    other = bare.assign(
        strong_privacy=bare["strong_privacy"] + 1,
        exposed_clients=bare["exposed_clients"] * 0,
    )
    row, _ = summarise(
        xr.concat(
            [bare, other],
            "trial",
            data_vars="different",
            coords="minimal",
            compat="equals",
            join="exact",
        )
    )
    assert row.strong_privacy == 1
    assert row.exposed_clients == 1.0
    assert row.accuracy is None


def test_rounds_errors_and_failures_are_of_one_of_several_trials(
    results: xr.Dataset,
) -> None:
    bare = results.drop_vars(["accuracy", "reconstruction_error", "participation"])
    codes = np.array(
        [[Status.OK, Status.UNRELIABLE, Status.OK], [Status.SKIPPED] * 3], np.int32
    )
    trials = [
        bare.assign(
            status=(("scheme", "round"), codes if trial < 2 else 0 * codes + Status.OK),
            skipped=bare["skipped"] & (trial == 0),
            hidden_among_worst=(("scheme", "round"), np.full((2, 3), 2.0 + trial)),
        )
        for trial in range(4)
    ]
    joined = {
        "data_vars": "different",
        "coords": "minimal",
        "compat": "equals",
        "join": "exact",
    }
    random, partition = summarise(xr.concat(trials, "trial", **joined))
    assert math.isclose(random.cardinality_error or 0, 0.3 / math.sqrt(3 * 4))
    assert random.failures == {"UNRELIABLE": 2 / 4}
    assert partition.failures == {}
    assert (random.skipped_rounds, partition.skipped_rounds) == (0.0, 1 / 4)
    assert random.hidden_among_worst == 2.0


def test_sentences_say_who_is_exposed_and_what_it_costs(results: xr.Dataset) -> None:
    assert sentences(results) == (
        "The server sees only securely aggregated sums. Even so, after 3 rounds it can "
        "solve for "
        "the individual updates of 2 of 4 clients under Random (from round 2), with a "
        "median "
        "relative squared error of 0.25 if updates never changed. It can solve for no "
        "client's "
        "update under User partition, where that error is 0.65.",
        "Of the schemes that keep their weak T for any number of rounds, User "
        "partition is the "
        "most useful: 1.33 clients per round on average and 80.0 % test accuracy. "
        "Random, which "
        "exposes clients, reaches 1.67 clients per round on average and 90.0 % test "
        "accuracy.",
        "Of the clients of a block, no test of what one of them is does better than "
        "AUC .875 under User partition, after any number of rounds, if mates always "
        "take part together, are alike in advance and all get one model, and half of "
        "the clients are so; a property that one client in a hundred has stays visible "
        "(TPR 1.00 under User partition at FPR .01).",
        "Hidden among is computed for clients that are alike. Attacked as if updates "
        "never "
        "changed, real clients were hidden otherwise: the best-known client among "
        "2.00, the "
        "best-known tenth among 2.13 or fewer, the median client among 2.86 under User "
        "partition.",
    )


def test_no_bound_on_tests_where_no_block_stays_together(results: xr.Dataset) -> None:
    def is_bounded(data: xr.Dataset) -> bool:
        return any("no test of what" in sentence for sentence in sentences(data))

    assert is_bounded(results)
    # weights that part mates, and a scheme that keeps no T
    assert not is_bounded(
        results.assign(strong_privacy=results["strong_privacy"] * 0 + 1)
    )
    assert not is_bounded(results.drop_vars("guaranteed_privacy"))
    # sums of segments may part the clients of a block
    assert not is_bounded(results.assign(expansion=("scheme", [1.0, 1.0])))


def test_sentences_when_nobody_is_exposed(results: xr.Dataset) -> None:
    safe = results.assign(
        exposed_clients=xr.zeros_like(results["exposed_clients"]),
        first_exposure=xr.full_like(results["first_exposure"], np.nan),
    )
    assert sentences(safe)[0].startswith(
        "After 3 rounds, the server can solve for no client's update under any of the "
        "schemes, "
        "with a median relative squared error of 0.25 to 0.65 if updates never "
        "changed. "
    )
    assert sentences(safe.isel(round=[0]))[0].startswith("After 1 round, the server")


@pytest.mark.smoke
def test_the_strictest_scheme_is_named_beside_the_most_useful(
    results: xr.Dataset,
) -> None:
    safe = results.assign(
        exposed_clients=xr.zeros_like(results["exposed_clients"]),
        guaranteed_privacy=("scheme", [2, 2]),
    )
    cost = sentences(safe)[1]
    assert "rounds, Random is the most useful: 1.67 clients per round" in cost
    assert (
        "User partition has the highest strong T of these, 2, but 1.33 clients per"
        in cost
    )


def test_sentences_when_nobody_is_protected(results: xr.Dataset) -> None:
    leaky = results.assign(exposed_clients=xr.ones_like(results["exposed_clients"]))
    cost = sentences(leaky)[1]
    assert (
        cost
        == "None of the schemes both sums updates and protects every client permanently."
    )


def test_one_scheme_is_compared_with_nothing(results: xr.Dataset) -> None:
    cost = sentences(results.isel(scheme=[0]))[1]
    assert (
        cost == "Random has 1.67 clients per round on average and 90.0 % test accuracy."
    )


def test_only_a_scheme_whose_privacy_lasts_is_advised(results: xr.Dataset) -> None:
    """A study that stops early.

    No client is exposed, and Random sums the most and trains best.
    """
    early = results.assign(
        exposed_clients=xr.zeros_like(results["exposed_clients"]),
        first_exposure=xr.full_like(results["first_exposure"], np.nan),
    )
    leak, cost, *_ = sentences(early)
    assert leak.startswith("After 3 rounds")  # no "Even so": nothing has leaked
    assert (
        "No client is exposed yet under Random (rounds left: N - rank = 4 - 3 = 1). "
        in leak
    )
    assert "yet under User" not in leak
    assert "rounds, User partition is the most useful" in cost
    unknown = early.drop_vars("guaranteed_privacy")  # then nothing is guaranteed
    assert "None of the schemes" in sentences(unknown)[1]
    assert (
        "yet under Random (rounds left: N - rank = 4 - 3 = 1) and User part"
        in sentences(unknown)[0]
    )


def test_what_an_attack_attained_stands_beside_what_is_computed(
    results: xr.Dataset,
) -> None:
    """Errors by hand.

    .5, .75 and twice 1.5, so that a tenth lies at .5 + .3 x .25 = .575.
    """
    error = np.array([[0.0, 0.0, 0.0, 0.0], [1.5, 0.75, 0.5, 1.5]])
    hidden = np.full((2, 3), 6.45)
    attacked = results.assign(
        reconstruction_error=(("scheme", "client"), error),
        hidden_among_worst=(("scheme", "round"), hidden),
    )
    _, partition = summarise(attacked)
    assert partition.reconstruction_least == 0.5
    assert math.isclose(partition.reconstruction_tenth or 0, 0.575)
    *_, last = sentences(attacked)
    assert last == (
        "Hidden among is computed for clients that are alike. Attacked as if updates "
        "never "
        "changed, real clients were hidden otherwise: the best-known client among "
        "2.00, the "
        "best-known tenth among 2.35 or fewer, the median client no better than by "
        "guessing zero "
        "under User partition (the worst among 6.45 as computed)."
    )
    bare = " ".join(sentences(results.drop_vars("reconstruction_error")))
    assert "clients that are alike" not in bare
