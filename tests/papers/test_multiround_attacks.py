"""Least squares on windows of trainings.

What is solved, how it is judged, who is exposed.
Windows are trained with logistic regression on 8x8 digits; sums are checked against
clients trained one round after the other, exposure against elimination in fractions.
"""

from __future__ import annotations

import dataclasses
import fractions
import typing

import numpy as np
import pandas as pd
import pytest
from inside import inside, values_of_item
from matplotlib.figure import Figure

import mrsa_jax as mj
from mrsa_jax._core.streams import fold
from mrsa_jax.data._dataset import client_data
from mrsa_papers import remake
from mrsa_papers.harness import Context, Found

items = inside("multiround.fig9")
exposure = inside("multiround.exposure")
motion = inside("multiround.motion")
played = items.played
RANDOM, Plan, Window = played.RANDOM, played.Plan, played.Window

TWO, FOUR = "Multi-RoundSecAgg (T=2)", "Multi-RoundSecAgg (T=4)"
TINY = Plan(
    "logistic",
    "shards",
    60_000,
    1000,
    0.1,
    True,
    5,
    (12, 16),
    2,
    (1, 2, 4),
    (1.0, 0.001),
    12,
    4,
)


@pytest.fixture(scope="module")
def context() -> Context:
    return Context(0, dataset="digits")


@pytest.fixture(scope="module")
def start(context: Context) -> played.Start:
    return played.trained_start(context, TINY, 0)


@pytest.fixture(scope="module")
def window(context: Context, start: played.Start) -> Window:
    return played.played_window(context, TINY, start, 1, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: remake(["multiround.motoin"]), "did you mean 'multiround.motion'"),
        (
            lambda: remake(["multiround.exposures"]),
            "did you mean 'multiround.exposure'",
        ),
        (
            lambda: remake(["multiround.fig9"], dataset="mnist5k"),
            "did you mean 'mnist_5k'",
        ),
        (
            lambda: remake(["multiround.fig8_2021"], dataset="idx"),
            "`directory` must name the folder",
        ),
    ],
)
def test_misuse_names_argument_and_rule(
    call: typing.Callable[[], object], message: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        call()


@pytest.mark.parametrize(
    ("samples", "wanted", "batch"),
    [(100, 7, 5), (120, 4, 4), (100, 8, 10), (7, 3, 1), (9, 40, 9)],
)
def test_minibatches_are_whole(samples: int, wanted: int, batch: int) -> None:
    """Divisors nearest to the one wanted: of 100 5 or 10, of 7 only 1 and 7."""
    dataset = mj.data.load("digits")
    held = [np.arange(samples), np.arange(max(samples - 1, 1))]
    clients = client_data(dataset, held)
    assert played.whole_minibatch(clients, wanted) == batch


@pytest.mark.long
def test_the_gain_of_a_triangle_by_hand() -> None:
    """The inverse has entries ±1/2.

    Sums of two: 2 (1/4 + 1/4 + 1/4) = 3/2 for each client.
    """
    triangle = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool)
    np.testing.assert_allclose(played.noise_gain(triangle), 1.5)
    # halves of sums of two: 2/4 each
    blocks = np.array([[1, 1, 0, 0], [0, 0, 1, 1]], bool)
    both = played.noise_gain(np.stack([blocks, blocks]))
    np.testing.assert_allclose(both, np.full((2, 4), 0.5))


def _window(participation: list[list[int]], sums: list[list[float]]) -> Window:
    updates = np.array([[1.0], [3.0]], np.float32)
    return Window(
        1,
        1.0,
        np.array(participation, bool),
        np.array(sums, np.float32),
        updates,
        np.array([10.0], np.float32),
        0.0,
        0.0,
        0.0,
        False,
    )


@pytest.mark.long
def test_models_of_a_window_by_hand() -> None:
    """Model 10, sum 1 + 3: models sum to 24; it moves to 12.

    Then client 1 alone sends 5: 17.
    """
    models = played.of_models(_window([[1, 1], [0, 0], [0, 1]], [[4.0], [0.0], [5.0]]))
    assert models.sums.ravel().tolist() == [24.0, 0.0, 17.0]
    assert models.updates.ravel().tolist() == [11.0, 13.0]
    np.testing.assert_allclose(models.unattacked, [1 / 121, 9 / 169])
    assert _window([[1, 1]], [[4.0]]).unattacked.tolist() == [1.0, 1.0]


@pytest.mark.long
def test_the_rate_falls_before_the_window_and_stays_in_it(start: played.Start) -> None:
    assert float(start.trainer.learning_rate) == pytest.approx(0.1 * 0.16)
    assert TINY.setting.rounds == 5
    # in the paper's regime at the paper's rounds, and nowhere in the window
    late = dataclasses.replace(TINY, before=1_460).setting.schedule
    assert late is not None
    falls = [late(index) for index in (399, 400, 799, 800, 1_459)]
    assert falls == pytest.approx([1, 0.4, 0.4, 0.16, 0.16])


@pytest.mark.long
def test_sums_are_those_of_clients_trained_one_by_one(
    context: Context, start: played.Start, window: Window
) -> None:
    """A loop: members train from the model, it moves by their mean.

    Codes of 2^20 levels.
    """
    assert window.participation.shape == (16, 12)
    model, key = start.parameters.copy(), fold(start.key, TINY.before)
    for index, members in enumerate(window.participation):
        chosen = np.flatnonzero(members)
        if len(chosen) == 0:
            assert not window.sums[index].any()
            continue
        updates = np.asarray(
            mj.federated.client_updates(
                key,
                start.model,
                model,
                start.clients,
                start.trainer,
                chosen,
                round_index=index,
            )
        )
        if index == 0:
            np.testing.assert_allclose(updates, window.updates[chosen], atol=1e-7)
        step = 4 * np.abs(window.updates).max() / 2**20
        np.testing.assert_allclose(
            window.sums[index], updates.sum(axis=0), atol=len(chosen) * step
        )
        model = model + window.sums[index] / np.float32(len(chosen))
    assert window.clipped == 0
    assert 0 < window.rounding < 1e-3
    assert not window.is_diverged


@pytest.mark.long
def test_motion_is_how_far_updates_have_changed(
    start: played.Start, window: Window
) -> None:
    key, places = (
        fold(start.key, TINY.before),
        np.flatnonzero(window.participation.any(axis=1)),
    )
    squares = []
    for index in (places[-1], places[len(places) // 2]):
        counts = np.maximum(window.participation[:index].sum(axis=1), 1)
        model = start.parameters + (window.sums[:index] / counts[:, None]).sum(axis=0)
        there = np.asarray(
            mj.federated.client_updates(
                key,
                start.model,
                model.astype(np.float32),
                start.clients,
                start.trainer,
                round_index=int(index),
            )
        )
        own = np.square(there - window.updates).sum(axis=1)
        squares.append((own / np.square(window.updates).sum(axis=1)).mean())
    assert window.motion == pytest.approx(np.sqrt(np.mean(squares)), rel=1e-3)


@pytest.mark.long
def test_rows_hold_the_errors_of_plain_least_squares(window: Window) -> None:
    """Full rank or not: NumPy's pseudo-inverse on the same sums; a batch as one by one."""
    still = window._replace(
        speed=0.0, sums=window.participation.astype(np.float32) @ window.updates
    )
    rows = pd.DataFrame(played.rows_of([window, still], 12, 7, 0.5))
    alone = pd.DataFrame(played.rows_of([still], 12, 7, 0.5))
    pd.testing.assert_frame_equal(
        rows[12:].reset_index(drop=True), alone, rtol=1e-9, atol=1e-15
    )
    learnt = window.participation[:12].astype(np.float64)
    inverse = np.linalg.pinv(learnt, rcond=1e-10)
    truth = window.updates.astype(np.float64)
    size = np.square(truth).sum(axis=1)
    for column, sums in (("error", window.sums[:12]), ("frozen", learnt @ truth)):
        wanted = np.square(inverse @ sums - truth).sum(axis=1) / size
        np.testing.assert_allclose(rows[column][:12], wanted, rtol=1e-6, atol=1e-20)
    np.testing.assert_allclose(
        rows["predicted"][:12], 1 - np.diag(inverse @ learnt), atol=1e-9
    )
    assert rows["seed"].unique().tolist() == [7]
    assert rows["sums"].iloc[0] == learnt.any(axis=1).sum()


def _errors(**means: list[float]) -> dict[str, list[float]]:
    return {RANDOM: means["random"], TWO: means["two"]}


@pytest.mark.long
def test_verdicts_of_errors() -> None:
    published = _errors(random=[0.0067, 0.0067], two=[0.78, 0.79])
    assert items._recovered(published, "x").verdict == "reproduced"
    assert items._hidden(published, "x", 2).verdict == "reproduced"
    assert items._recovered({RANDOM: [0.0067, 0.09]}, "x").verdict == "differs"
    assert items._recovered({RANDOM: [0.0067, 0.049]}, "x").verdict == "reproduced"
    assert items._hidden(_errors(random=[1.0], two=[0.24]), "x", 2).verdict == "differs"
    assert items._hidden({FOUR: [0.36]}, "x", 4).verdict == "differs"
    assert items._regularised(
        _errors(random=[0.4, 0.6], two=[0.5, 0.61]), (2,)
    ).as_made == ("reproduced")
    assert (
        items._regularised(_errors(random=[0.4, 0.6], two=[0.5, 0.6]), (2,)).as_made
        == "differs"
    )
    short, long = (
        _errors(random=[9.0, 1.0], two=[1.0, 1.0]),
        _errors(random=[3.0, 1.5], two=[1, 1]),
    )
    assert items._longer(short, short | long, (40, 60)).as_made == "differs"
    check = items._longer(short, {RANDOM: [3.0, 0.5]}, (40, 60))
    assert check.as_made == "reproduced"
    assert "factors of 2 to 3" in check.ours


@pytest.mark.long
@pytest.mark.parametrize("is_own", [True, False])
def test_a_printed_error_stands_beside_the_papers_own_data_alone(
    is_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "is_data_of", lambda dataset, known: is_own)
    context = Context(0, True, dataset="digits")
    values = values_of_item("multiround.fig9")
    assert not items._printed(context, values, "cifar10", "6.715e-3")
    # all of its values would be the paper's, had the paper stated the learning rate
    monkeypatch.setattr(type(values), "are_papers", True)
    number = items._printed(context, values, "cifar10", "6.715e-3")
    means = _errors(random=[0.0067, 0.0069], two=[0.78, 0.79])
    check = items._recovered(means, "x", number)
    assert check.paper.endswith("the server reconstructs all updates")
    assert ("6.715e-3" in check.paper) is is_own
    assert check.ours == "0.0067, 0.0069"  # of each seed


@pytest.mark.long
def test_one_client_recovered_without_a_prediction_is_a_miss() -> None:
    frame = pd.DataFrame({"frozen": [1e-20, 0.5, 0.2], "exposed": [True, False, False]})
    assert items._exposed(frame).verdict == "reproduced"
    assert (
        items._exposed(frame.assign(exposed=[True, True, False])).verdict == "differs"
    )
    assert items._exposed(frame.assign(frozen=[1e-20, 1e-15, 0.2])).verdict == "differs"


@pytest.mark.long
def test_precision_and_recall_by_hand() -> None:
    exposed, recovered = (
        np.array([1, 1, 1, 0, 0], bool),
        np.array([1, 0, 0, 1, 0], bool),
    )
    assert exposure.confusion(exposed, recovered) == (1 / 3, 1 / 2)
    nobody = np.zeros(5, bool)
    assert exposure.confusion(nobody, nobody) == (1.0, 1.0)
    assert exposure.confusion(nobody, recovered) == (1.0, 0.0)


def _is_in_row_space(rows: np.ndarray, client: int) -> bool:
    """Eliminate in fractions: whether e_client is a combination of the rows."""
    reduced: list[list[fractions.Fraction]] = []
    target = [int(i == client) for i in range(rows.shape[1])]
    for row in [*rows.astype(int).tolist(), target]:
        left = [fractions.Fraction(value) for value in row]
        for other in reduced:
            lead = next(i for i, value in enumerate(other) if value)
            left = [
                a - left[lead] / other[lead] * b
                for a, b in zip(left, other, strict=True)
            ]
        if any(left):
            reduced.append(left)
    return len(reduced) == _rank(rows)


def _rank(rows: np.ndarray) -> int:
    return int(np.linalg.matrix_rank(rows.astype(np.float64), tol=1e-9))


@pytest.mark.long
def test_who_is_exposed_is_recovered(context: Context) -> None:
    settings = values_of_item(
        "multiround.exposure",
        num_clients=12,
        cohort_size=4,
        num_rounds=(8, 11),
        rounds_before=5,
        dim=50,
        learning_rate=0.1,
        batch_size=1000,
        num_trials=2,
    )
    plan = dataclasses.replace(TINY, lengths=(11,), decays=False)
    item = exposure.exposed_and_recovered(context, settings)
    exact = [c.as_made for c in item.checks if c.claim.startswith("who is predicted")]
    assert exact == ["reproduced", "reproduced"]
    frame = item.data
    assert len(frame) == 5 * 2 * 2 * 2 * 12
    chosen = frame[
        (frame["scheme"] == TWO) & (frame["lost"] > 0) & (frame["rounds"] == 8)
    ]
    histories = exposure._histories(
        context,
        plan,
        exposure._selectors(plan, 0.1)[TWO],
        0.05,
    )
    for seed, client, found in (
        chosen[["seed", "client", "exposed"]].to_numpy().tolist()
    ):
        assert found == _is_in_row_space(histories[seed, :8], client)
    whole = frame[frame["scheme"].isin([TWO, FOUR]) & (frame["lost"] == 0)]
    assert not whole["exposed"].any()
    # a block's clients cannot be told apart: 1 - leverage is at least 1 - 1/T
    assert (whole.loc[whole["scheme"] == FOUR, "predicted"] > 0.75 - 1e-9).all()


@pytest.fixture(scope="module")
def made(context: Context) -> dict[str, Found]:
    """Return the three items that train through windows, of logistic regression on digits."""
    tiny = {
        "num_clients": 12,
        "cohort_size": 4,
        "rounds_before": 5,
        "early_rounds": 0,
        "learning_rate": 0.1,
        "batch_size": 1000,
        "partition": "shards",
        "model": "logistic",
        "num_seeds": 2,
    }
    many = tiny | {"privacy_targets": (2, 4)}
    del many["early_rounds"]
    updates = many | {"window": 12, "longer_window": 16, "slow_factor": 0.001}
    models = tiny | {"partition": "iid", "window": 12}
    updates |= {"early_rounds": 2}
    moving = many | {"window_lengths": (12, 16), "rate_factors": (1.0, 0.001)}
    return {
        "fig9": items.updates_over_a_window(
            context, values_of_item("multiround.fig9", **updates)
        ),
        "fig8_2021": items.models_of_2021(
            context, values_of_item("multiround.fig8_2021", **models)
        ),
        "motion": motion.error_against_motion(
            context, values_of_item("multiround.motion", **moving)
        ),
    }


@pytest.mark.parametrize(
    ("item", "settings", "message"),
    [
        ("fig9", {"cohort_size": 41}, "`cohort_size` must be at most num_clients, 40"),
        ("fig9", {"privacy_targets": [3]}, "`privacy_targets` must divide num_clients"),
        ("fig9", {"privacy_targets": [2, 2]}, "must not contain duplicates"),
        ("fig9", {"window": 60}, "`longer_window` must be longer than window, 60"),
        ("fig8_2021", {"privacy_target": 1}, "`privacy_target` must be at least 2"),
        ("fig8_2021", {"model": "resnet"}, "`model` must be"),
        ("motion", {"window_lengths": [60, 40]}, "must have two values or more"),
        ("motion", {"rate_factors": [0.5, 0.1]}, "must begin with 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused_before_any_work(
    item: str, settings: dict[str, typing.Any], message: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        remake(f"multiround.{item}", dataset="digits", **settings)


@pytest.mark.long
def test_frozen_updates_fall_to_random_selection_and_not_to_blocks(
    made: dict[str, Found],
) -> None:
    frame = made["fig9"].data
    long = frame[frame["rounds"] == 16]
    means = long.groupby("scheme")["frozen"].mean()
    singular = 1 - long[long["scheme"] == RANDOM]["exposed"].mean()
    assert means[RANDOM] <= 2 * singular + 1e-12
    assert means[TWO] > 0.2
    assert means[FOUR] > means[TWO]
    slow = long[(long["speed"] < 1) & (long["scheme"] != RANDOM)]
    np.testing.assert_allclose(slow["error"], slow["frozen"], rtol=0.1, atol=0.02)
    assert (
        long["motion"][long["speed"] == 1].min()
        > 10 * long["motion"][long["speed"] < 1]
    ).all()


@pytest.mark.long
def test_the_caption_has_the_errors_of_both_windows(made: dict[str, Found]) -> None:
    item = made["fig9"]
    frame = item.data
    chosen = frame[(frame["rounds"] == 12) & (frame["speed"] == 1.0)]
    errors = chosen[chosen["scheme"] == RANDOM].groupby("seed")["error"].mean()
    late = ", ".join(f"{value:.3g}" for value in errors)
    assert f"rate: {late} in a window after 5 rounds" in item.caption
    assert "in a window after 2 rounds" in item.caption
    assert "in a window after" not in made["fig8_2021"].caption


@pytest.mark.long
def test_schemes_start_from_one_model(context: Context, made: dict[str, Found]) -> None:
    for name in ("fig9", "motion"):
        assert (made[name].data.groupby("seed")["accuracy"].nunique() == 1).all()
    # the windows that were kept, a row for each client
    (clients,) = (
        frame
        for (_, plan, _), frame in context.cache.items()
        if plan.split == "shards" and not plan.decays
    )
    means = made["motion"].data
    each = ["target", "speed", "rounds", "seed"]
    wanted = clients.groupby(each)["error"].mean()
    np.testing.assert_allclose(
        means.set_index(each)["error"].sort_index(), wanted.sort_index()
    )


@pytest.mark.long
def test_a_models_error_is_small_whatever_is_hidden(made: dict[str, Found]) -> None:
    checks = {check.claim: check for check in made["fig8_2021"].checks}
    assert checks["a small error of models shows that T = 1"].verdict == "paper errs"
    frame = made["fig8_2021"].data
    assert frame["unattacked"].max() < 0.1
    assert frame.loc[frame["target"] == 2, "frozen"].max() < 0.1


@pytest.mark.long
@pytest.mark.parametrize("name", ["fig9", "fig8_2021", "motion"])
def test_items_are_drawn_and_say_what_was_run(
    name: str, made: dict[str, Found]
) -> None:
    item = made[name]
    assert "digits" in item.caption
    assert "12 clients" in item.caption
    assert all(check.tolerance and check.ours for check in item.checks)
    draw = {
        "fig9": items.draw_errors,
        "fig8_2021": items.draw_errors_of_models,
        "motion": motion.draw_motion,
    }[name]
    draw(figure := Figure(), item.data)
    assert len(figure.axes) == {"fig9": 6, "fig8_2021": 2, "motion": 2}[name]
    assert all(axes.has_data() for axes in figure.axes)
