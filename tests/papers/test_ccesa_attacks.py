"""CCESA's attack items.

Uploads under real pads, what they are judged by, and their tables.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from inside import inside, values_of_item
from matplotlib.figure import Figure
from scipy import stats

import mrsa_jax as mj
from mrsa_jax._core.arrays import on_device
from mrsa_papers import ITEMS, check_targets, remake
from mrsa_papers.harness import Context

inversion = inside("ccesa.fig2")
membership = inside("ccesa.table3")
lines = inversion.lines
PLAIN, SECAGG, Wire, ccesa_name = (
    lines.PLAIN,
    lines.SECAGG,
    lines.Wire,
    lines.ccesa_name,
)
chance_check, wire = lines.chance_check, lines.wire
Guesses, curve_rows, score_rows = (
    membership.Guesses,
    membership.curve_rows,
    membership.score_rows,
)

N, DIM, CHANCE = 12, 300, 0.4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: remake(["ccesa.fig2"], dataset="mnist5k"), "did you mean 'mnist_5k'"),
        (lambda: remake(["ccesa.table4"]), "did you mean 'ccesa.table"),
        (
            lambda: membership._sizes(values_of_item("ccesa.table3"), _tiny()),
            "`dataset` must leave each of 12 clients 5",
        ),
    ],
)
def test_misuse_names_argument_and_rule(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        call()


def _tiny() -> mj.data.Dataset:
    images, labels = np.zeros((50, 2, 2, 1), np.float32), np.zeros(50, np.int32)
    return mj.data.Dataset("tiny", images, labels, images[:10], labels[:10], 2)


def test_figures_and_tables_of_two_names_are_one_item() -> None:
    wanted = ["ccesa.figb2", "ccesa.tableb1", "ccesa.fig2"]
    assert check_targets(wanted) == (("ccesa", "fig2"), ("ccesa", "table3"))
    assert {"fig2", "table3"} <= set(ITEMS["ccesa"])


# ---- the wire


@functools.cache
def _line() -> tuple[np.ndarray, Wire]:
    models = np.random.default_rng(0).normal(0, 0.5, (N, DIM)).astype(np.float32)
    return models, wire(jax.random.key(3), on_device(models), (CHANCE,), round_index=7)


@pytest.mark.long
def test_models_without_pads_are_read_to_a_level() -> None:
    models, line = _line()
    assert line.clipped == 0
    np.testing.assert_allclose(line.read(PLAIN), models, atol=8 / (2**16 - 1) + 1e-6)


@pytest.mark.long
def test_sums_are_those_of_their_clients() -> None:
    models, line = _line()
    for size in (4, N):
        wanted = models.reshape(-1, size, DIM).mean(axis=1)
        np.testing.assert_allclose(
            line.means(size), wanted, atol=8 / (2**16 - 1) + 1e-6
        )
    whole = line.uploads[SECAGG].astype(np.uint64).sum(axis=0) % line.modulus
    codes = line.codes.astype(np.uint64).sum(axis=0) % line.modulus
    assert not np.array_equal(whole, codes), "self pads are still on"


@pytest.mark.parametrize("name", [SECAGG, ccesa_name(CHANCE)])
def test_padded_uploads_are_uniform_and_read_in_the_quantizers_range(name: str) -> None:
    _, line = _line()
    padded, plain = line.uploads[name], line.codes
    assert padded.shape == plain.shape
    assert (padded == plain).mean() < 0.01
    # 64 equal cells of the ring, 3,600 residues, chi-squared at 1e-6
    cells = np.bincount((padded // np.uint32(line.modulus // 64)).ravel(), minlength=64)
    expected = padded.size / 64
    assert ((cells - expected) ** 2 / expected).sum() < stats.chi2.isf(1e-6, 63)
    read = line.read(name)
    assert np.abs(read).max() <= 4
    assert read.std() == pytest.approx(8 / math.sqrt(12), rel=0.06)
    models, _ = _line()
    # correlation of 3,600 independent pairs: standard error 1 / 60
    assert (
        abs(np.corrcoef(read.ravel(), models.ravel())[0, 1]) < stats.norm.isf(5e-7) / 60
    )


def test_each_scheme_and_round_has_pads_of_its_own() -> None:
    models, line = _line()
    secagg, sparse = line.uploads[SECAGG], line.uploads[ccesa_name(CHANCE)]
    later = wire(jax.random.key(3), jnp.asarray(models), (CHANCE,), round_index=8)
    for one, other in ((secagg, sparse), (secagg, later.uploads[SECAGG])):
        assert (one == other).mean() < 0.01


# ---- verdicts


@pytest.mark.parametrize(
    ("counts", "is_hidden", "verdict"),
    [
        ([(5000, 10_000)], True, "reproduced"),
        ([(50, 100)], True, "undecided"),  # 37 to 63 %: a leak of ten points would pass
        ([(3, 6)], True, "undecided"),
        ([(50, 100), (80, 100)], True, "differs"),
        ([(20, 100)], True, "differs"),  # worse than chance is not chance either
        ([(90, 100)], False, "reproduced"),
        ([(90, 100), (30, 100)], False, "differs"),
        ([(90, 100), (50, 100)], False, "undecided"),
        ([(60, 100)], False, "undecided"),  # 47 to 72 %
    ],
)
def test_chance_is_in_the_interval_or_well_below_it(
    counts: list[tuple[int, int]], is_hidden: bool, verdict: str
) -> None:
    labels = [f"case {k}: " for k in range(len(counts))]
    check = chance_check(
        "c", counts, 0.5, is_hidden=is_hidden, paper="p", labels=labels
    )
    assert check.verdict == verdict
    assert check.ours.count("case") == len(counts)


def test_intervals_of_several_cases_hold_together() -> None:
    """A deviation of 2.7 standard errors is outside one interval, inside one of ten."""
    count = 5000 + round(2.7 * 50)
    alone = chance_check("c", [(count, 10_000)], 0.5, is_hidden=True, paper="p")
    many = chance_check(
        "c",
        [(count, 10_000)] + 9 * [(5000, 10_000)],
        0.5,
        is_hidden=True,
        paper="p",
        labels=10 * [""],
    )
    assert (alone.verdict, many.verdict) == ("differs", "reproduced")


def test_forty_percent_hide_but_lose_the_sum() -> None:
    values = values_of_item("ccesa.fig2", fast=True)
    check = inversion._forty_percent(Context(0, True), values)
    assert check.verdict == "our reading"
    assert "0 are not private" in check.ours


def test_printed_recall_follows_from_accuracy_and_precision() -> None:
    """By counts of 5,000 members and 5,000 others that give the printed 72.49 % and 70.41 %."""
    hits, alarms = 3879, 1630
    assert (hits + 5000 - alarms) / 10_000 == pytest.approx(0.7249, abs=5e-5)
    assert hits / (hits + alarms) == pytest.approx(0.7041, abs=5e-5)
    frame = pd.DataFrame({"scheme": [PLAIN], "recall": [0.97]})
    check = membership._recall(frame)
    assert check.verdict == "paper errs"
    assert check.ours.startswith(f"{100 * hits / 5000:.1f} %")


# ---- membership tables


def _guesses() -> list[Guesses]:
    """Two seeds of two targets, three samples each: members first."""
    first = np.asarray([[3.0, 2, 0, 1, 0, -1], [5, 4, 3, 2, 1, 0]])
    return [
        Guesses(3, PLAIN, "loss", first, 1.5),
        Guesses(3, PLAIN, "loss", first[:, ::-1], 10.0),
        Guesses(3, SECAGG, "likelihood_ratio", first, 0.5),
    ]


def test_scores_by_hand() -> None:
    plain, padded = score_rows(_guesses())
    # seed 1 calls (3, 2) of target 1 and (5, 4, 3) and one other of target 2; seed 2
    # nobody
    assert (plain["called"], plain["hits"], plain["trials"]) == (6, 5, 24)
    assert plain["right"] == 5 + 11
    assert plain["precision"] == pytest.approx(5 / 6)
    assert plain["recall"] == pytest.approx(5 / 12)
    # areas of target 1: of 9 pairs 3 + 3 + 1.5; mirrored in seed 2
    assert plain["auc"] == pytest.approx((7.5 / 9 + 1 + 1.5 / 9 + 0) / 4)
    assert plain["models"] == 4
    assert padded["called"] == 8
    # above all others (2, 1, 1, 0, 0, -1): 3, 5, 4, 3 of six members
    assert padded["found at 1 %"] == pytest.approx(4 / 6)


@pytest.mark.smoke
def test_curves_count_members_above_so_many_others() -> None:
    rows = curve_rows(_guesses(), "likelihood_ratio")
    assert {row["scheme"] for row in rows} == {SECAGG}
    # the second largest of the others is 1: above it are 3, 2, 5, 4, 3
    assert rows[0]["fpr"] == pytest.approx(1 / 6)
    assert rows[0]["tpr"] == pytest.approx(5 / 6)
    assert all(row["chance low"] <= row["fpr"] + 1 / 6 for row in rows)


@pytest.mark.long
def test_the_band_of_luck_holds_luck() -> None:
    rng = np.random.default_rng(0)
    inside, total = 0, 0
    for _ in range(20):
        guess = Guesses(400, SECAGG, "likelihood_ratio", rng.normal(size=(1, 800)), 0.0)
        for row in curve_rows([guess, guess], "likelihood_ratio")[:1]:
            total += 1
            inside += row["chance low"] <= row["tpr"] <= row["chance high"]
    assert inside >= 12, f"{inside} of {total}: 95 % each, below 12 of 20 at 1e-9"


def test_places_pair_each_client_with_others_of_its_own() -> None:
    places = membership._places(3, 12 * 3, 12)
    assert places.shape == (12, 6)
    assert places[2].tolist() == [6, 7, 8, 36 + 6, 36 + 7, 36 + 8]
    assert len(np.unique(places)) == 72
    few = membership._places(3, 4, 12)  # others come again, never twice for one client
    assert few.max() == 36 + 3
    assert all(len(set(row.tolist())) == 6 for row in few)


@pytest.mark.smoke("False")
@pytest.mark.parametrize("is_own", [True, False])
def test_printed_shares_stand_beside_the_papers_own_data_alone(
    is_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "is_data_of", lambda dataset, known: is_own)
    values = values_of_item("ccesa.table3")
    # epochs and rates are open in the paper, so that no run compares: as if they were not
    assert not values.are_papers
    monkeypatch.setattr(type(values), "are_papers", True)
    counts = {
        "right": 60,
        "trials": 100,
        "hits": 30,
        "called": 50,
        "recall": 0.9,
        "auc": 0.5,
        "auc half at 99.9 %": 0.1,
        "found at 0.1 %": 0.0,
    }
    names = [
        PLAIN,
        SECAGG,
        ccesa_name(values.connection_probability),
        *map(membership._sum_name, (2, 4, 12)),
    ]
    rows = [
        {"size": 30, "method": method, "scheme": name, **counts}
        for method in ("shadow", "likelihood_ratio")
        for name in names
    ]
    dataset = mj.data.load("digits")
    labelled = membership._labelled("scores", rows, {30: 5000}, values, dataset)
    frame = pd.DataFrame(list(labelled))
    assert bool(frame["printed"].notna().any()) is is_own
    papers = {check.claim: check.paper for check in membership._checks(frame, values)}
    for words, one, other in (
        ("accuracy", "72.49 %", "49.67 %"),
        ("precision", "70.41 %", "49.78 %"),
    ):
        plain, padded = (
            papers[f"{words} of the attack, {name}"] for name in (PLAIN, SECAGG)
        )
        assert plain == (one if is_own else "better than a guess")
        assert padded == (other if is_own else "random guess")


def test_the_papers_model_and_epochs_go_with_its_images() -> None:
    labels = np.zeros(20, np.int32)
    for side, model, epochs, missed in (
        ((32, 32, 3), "vgg11", 3, {"num_clients"}),
        ((8, 8, 1), "small_mlp", 60, {"num_clients", "model", "num_epochs"}),
    ):
        inputs = np.zeros((20, *side), np.float32)
        few = mj.data.Dataset("few", inputs, labels, inputs, labels, 10)
        context, values = Context(), values_of_item("ccesa.table3")
        vars(context)["images"] = few
        # what the images decide is set before their number is found to be too small
        with pytest.raises(mj.ConfigurationError, match="`dataset` must leave each of"):
            membership.members(context, values)
        assert (values.model, values.num_epochs) == (model, epochs)
        assert set(values.missed) == missed


# ---- items


@pytest.mark.long
def test_plain_models_show_their_class_and_padded_ones_do_not() -> None:
    """Softmax regression whose weights are the class means less their mean, noisily, by client."""
    dataset = mj.data.load("digits")
    clients = mj.data.shards(0, dataset, 40, single_label=True)
    people = inversion._people(dataset, clients, is_shown=True)
    weights = (people.means - people.means.mean(axis=0)).reshape(10, -1).T
    noise = np.random.default_rng(0).normal(0, 0.02, (40, *weights.shape))
    models = np.concatenate(
        [np.zeros((40, 10)), (weights + noise).reshape(40, -1)], axis=1
    )
    line = wire(jax.random.key(0), jnp.asarray(models, jnp.float32), (CHANCE,))
    attack = mj.attacks.model_inversion(num_steps=40)
    rows = inversion._inverted(line, dataset, mj.federated.logistic(10), attack, people)
    frame = pd.DataFrame([*inversion._originals(dataset, clients, people), *rows])
    found = frame.groupby("scheme")["identified"].sum()
    assert min(found[PLAIN], found["sum of all"]) >= 36
    # binomial(40, 0.1) exceeds 16 with chance 6e-7
    assert max(found[SECAGG], found[ccesa_name(CHANCE)]) <= 16
    shown = frame[frame["pixels"].notna()]
    assert shown.groupby("scheme").size().unique().tolist() == [10]
    figure = Figure()
    inversion.draw_inverted(figure, frame)
    assert len(figure.axes) == 60
    labels = [ax.get_ylabel() for ax in figure.axes[::10]]
    assert labels[:3] == ["training image", "mean of the class", PLAIN]
    assert not figure.axes[0].get_xlabel()
    assert figure.axes[20].get_xlabel().startswith("r = ")
