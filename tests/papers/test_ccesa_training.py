"""CCESA's trainings.

Which rounds count, that failed ones change nothing, how claims are judged.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing

import numpy as np
import pandas as pd
import pytest
from inside import inside
from matplotlib.figure import Figure

import mrsa_jax as mj
from mrsa_papers import remake
from mrsa_papers.harness import Context

reliability = inside("ccesa.fig4")
Runs, first_samples = reliability.Runs, reliability.first_samples

N, ROUNDS, SHARES = 12, 6, 7


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: remake(["ccesa.fig4"], dataset="mnist5k"), "did you mean 'mnist_5k'"),
        (
            lambda: remake(["ccesa.figb1"], dataset="idx"),
            "`directory` must name the folder",
        ),
        (lambda: remake(["ccesa.figb11"]), "did you mean 'ccesa.figb1'"),
    ],
)
def test_misuse_names_argument_and_rule(
    call: typing.Callable[[], object], message: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        call()


@pytest.mark.long
def test_data_that_are_not_here_are_named_before_any_work(
    tmp_path: pathlib.Path,
) -> None:
    with pytest.raises(mj.DataNotFoundError):
        remake(["ccesa.table1", "ccesa.fig4"], dataset="idx", directory=tmp_path)


@pytest.fixture(scope="module")
def runs() -> Runs:
    """Twelve clients of four digits each, t = 7, at most a tenth of them lost in a round."""
    model = mj.federated.logistic(10)
    return Runs(
        Context(3, True, dataset="digits"),
        num_clients=N,
        totals=(0.1,),
        splits={
            "IID": lambda key, dataset: first_samples(mj.data.iid(key, dataset, N), 4)
        },
        chances=(1.0, 0.7, 0.1),
        grid=(0.1, 0.7, 1.0),
        threshold=SHARES,
        rounds=ROUNDS,
        every=2,
        seeds=2,
        trials=300,
        model=model,
        trainer=mj.federated.local_sgd(model, 0.1, batch_size=4, num_epochs=2),
        clip=1.0,
    )


@pytest.fixture(scope="module")
def frame(runs: Runs) -> pd.DataFrame:
    return pd.DataFrame([*runs.accuracy_rows(), *runs.rate_rows()])


def theorem_1(adjacency: np.ndarray, survivors: np.ndarray, t: int) -> bool:
    """Every secret that matters has t holders left.

    B_i of V3, s_i of lost neighbours of V3.
    """
    _, _, v2, v3, v4 = survivors
    for i in range(len(adjacency)):
        holders = int((adjacency[i] & v4).sum())
        if v3[i] and holders + int(v4[i]) < t:
            return False
        if v2[i] and not v3[i] and (adjacency[i] & v3).any() and holders < t:
            return False
    return True


@pytest.mark.long
@pytest.mark.parametrize("chance", [0.7, 1.0])
def test_rounds_are_learnt_where_theorem_1_says(runs: Runs, chance: float) -> None:
    for seed in range(2):
        history = runs.history(0.1, chance, seed)
        graphs = [
            np.asarray(mj.graphs.erdos_renyi(N, chance).sample(key))
            for key in history.assignment_keys
        ]
        wanted = [
            theorem_1(graph, alive, SHARES)
            for graph, alive in zip(graphs, np.asarray(history.survivors), strict=True)
        ]
        assert runs.learnt(0.1, chance, seed).tolist() == wanted


@pytest.mark.long
def test_rounds_of_all_chances_are_paired(runs: Runs) -> None:
    """The same clients are lost, and a denser graph has all edges of a sparser one."""
    for seed in range(2):
        whole, sparse = (runs.history(0.1, p, seed) for p in (1.0, 0.7))
        assert np.array_equal(whole.survivors, sparse.survivors)
        assert not np.asarray(whole.survivors).all(), "somebody is lost"
        learnt = [runs.learnt(0.1, p, seed) for p in (0.1, 0.7, 1.0)]
        assert not learnt[0].any()
        assert not (learnt[1] & ~learnt[2]).any()
        assert 0 < learnt[1].sum() < learnt[2].sum()


@pytest.mark.long
def test_failed_rounds_leave_the_model_alone_and_others_take_the_mean(
    runs: Runs,
) -> None:
    """The same training by hand.

    Means over V3 in the learnt rounds, nothing in the others.
    """
    seed, chance = 0, 0.7
    key, clients = runs.context.key(seed), runs.experiment("IID").clients(seed)
    shape = runs.context.images.input_shape
    alive = np.asarray(runs.history(0.1, chance, seed).survivors)[:, 3]
    model = np.asarray(mj.federated.initial_parameters(key, runs.model, shape))
    for j in np.flatnonzero(runs.learnt(0.1, chance, seed)):
        updates = mj.federated.client_updates(
            key, runs.model, model, clients, runs.trainer, round_index=int(j)
        )
        model = model + np.asarray(updates)[alive[j]].mean(axis=0)
    result = runs.result("IID", 0.1, chance, seed)
    step = 2 / (2**16 - 1)  # of the quantizer, once a round
    assert np.abs(result.parameters - model).max() <= ROUNDS * step


@pytest.mark.long
def test_nothing_is_trained_where_nothing_is_learnt(
    runs: Runs, frame: pd.DataFrame
) -> None:
    shape = runs.context.images.input_shape
    start = mj.federated.initial_parameters(runs.context.key(1), runs.model, shape)
    assert np.array_equal(runs.result("IID", 0.1, 0.1, 1).parameters, start)
    flat = frame[(frame["measure"] == "accuracy") & (frame["p"] == 0.1)]
    assert flat.groupby("seed")["accuracy"].nunique().max() == 1
    assert (flat["learnt rounds"] == 0).all()


@pytest.mark.long
def test_equal_rounds_give_equal_bits(runs: Runs) -> None:
    """What the items rely on when they train once for several values of p."""
    first = int(np.argmax(~(runs.learnt(0.1, 0.7, 0) & runs.learnt(0.1, 1.0, 0))))
    if first:
        assert runs.same_model(0.7, first)
    assert not runs.same_model(0.7, ROUNDS), "a round of p = 0.7 fails"


@pytest.mark.long
def test_rows_count_learnt_rounds_and_agree_with_the_rollout(
    runs: Runs, frame: pd.DataFrame
) -> None:
    tests = frame[frame["measure"] == "accuracy"]
    assert len(tests) == 2 * 3 * ROUNDS // 2
    assert tests["as judged before"].all()
    assert (tests["most clipped"] == 0).all()
    for (chance, seed), rows in tests.groupby(["p", "seed"]):
        learnt = runs.learnt(0.1, float(chance), int(seed))
        assert rows["round"].tolist() == [2, 4, 6]
        assert rows["learnt rounds"].tolist() == [
            int(learnt[:j].sum()) for j in (2, 4, 6)
        ]


@pytest.mark.long
def test_rates_stand_beside_the_theory(runs: Runs, frame: pd.DataFrame) -> None:
    rates = frame[frame["measure"] == "failure"].set_index("p")
    q = 1 - 0.9**0.25
    for chance, row in rates.iterrows():
        found = mj.secagg.failure_rates(3, N, float(chance), q, SHARES, 300).unreliable
        assert (row["count"], row["upper"]) == (found.count, found.upper)
        assert row["theorem 5"] == pytest.approx(
            np.exp(mj.secagg.reliability_bound(N, float(chance), q, SHARES))
        )
    assert rates.loc[0.1, "rate"] == 1
    assert rates.loc[1.0, "count"] == 0


def ends(gaps: list[float]) -> pd.DataFrame:
    """Return trainings of ten rounds that end at 90 % at p = 1, and gaps below it at p = 0.5."""
    tests = [
        {
            "measure": "accuracy",
            "split": "IID",
            "q_total": 0.1,
            "p": p,
            "seed": seed,
            "round": 10,
            "accuracy": 0.9 - (gap / 100 if p < 1 else 0),
            "learnt rounds": 4,
        }
        for seed, gap in enumerate(gaps)
        for p in (1.0, 0.5)
    ]
    rate = {
        "measure": "failure",
        "q_total": 0.1,
        "p": 0.5,
        "count": 2,
        "trials": 10,
        "rate": 0.2,
        "lower": 0.03,
        "upper": 0.6,
        "theorem 5": 0.5,
    }
    return pd.DataFrame([*tests, rate])


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ([0.2, 0.3, 0.1], "reproduced"),  # 0.2 +- 0.25
        ([2.5, 2.9, 3.0], "differs"),  # 2.8 +- 0.66, wholly above a point
        ([-3.0, -2.9, -3.1], "reproduced"),  # better is no failure
        ([0.5, 0.9, 1.9], "undecided"),  # 1.1 +- 1.8
        # mean 0.9, but its interval reaches above a point
        ([0.0, 2.7, 0.0], "undecided"),
    ],
)
def test_sufficient_means_within_a_point(
    runs: Runs, gaps: list[float], verdict: str
) -> None:
    full = dataclasses.replace(
        runs, context=Context(3), chances=(1.0, 0.5), rounds=10, seeds=len(gaps)
    )
    check = reliability._suffices(ends(gaps), full, "IID", 0.1, 0.5, "p = 0.5")
    assert check.verdict == verdict
    assert "4.0 of 10 rounds learnt; 2 of 10 simulated rounds fail" in check.note


@pytest.mark.long
def test_a_rate_above_theorem_5_is_a_difference() -> None:
    frame = ends([0.0, 0.0])
    assert reliability._theorem_5(frame).verdict == "reproduced"
    frame.loc[frame["measure"] == "failure", "theorem 5"] = 0.02
    assert reliability._theorem_5(frame).verdict == "differs"


@pytest.mark.long
def test_neither_printed_share_of_resources_is_a_quarter() -> None:
    check = reliability._printed_shares()
    assert check.verdict == "paper errs"
    assert check.ours.startswith("25.0 %")


@pytest.mark.long
def test_first_samples_keeps_the_first_of_each_client() -> None:
    whole = mj.data.iid(0, mj.data.load("digits"), 400)  # of 3 or 4 samples
    cut = first_samples(whole, 3)
    assert cut.sizes.tolist() == [3] * 400
    assert np.array_equal(cut.indices, whole.indices[:, :3])
    assert np.array_equal(first_samples(whole, 9).sizes, whole.sizes)


@pytest.mark.long
def test_figures_show_rates_and_curves(frame: pd.DataFrame) -> None:
    rates = frame[frame["measure"] == "failure"]
    axes = Figure().subplots()
    reliability._draw_rates(axes, rates)
    drawn = [np.asarray(line.get_xydata()) for line in axes.get_lines()]
    none = rates[rates["count"] == 0]
    assert any(
        np.allclose(line, none[["p", "upper"]])
        for line in drawn
        if len(line) == len(none)
    )
    figure = Figure()
    reliability.draw_reliability(figure, frame)
    assert len(figure.axes) == 2
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["SecAgg (p = 1)", "p = 0.7", "p = 0.1"]
