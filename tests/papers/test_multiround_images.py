"""Figures 1 and 10: what is solved for, how it is scored, and how claims are judged."""

from __future__ import annotations

import itertools
import types
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inside import inside, values_of_item
from matplotlib.figure import Figure

import mrsa_jax as mj
from mrsa_jax import attacks
from mrsa_jax.attacks import _gradient_inversion
from mrsa_papers import check_targets, remake
from mrsa_papers.harness import Context, image_as_cells, image_from_text, stretched

pytestmark = pytest.mark.long

images = inside("multiround.fig10")
FOUR = values_of_item("multiround.fig10", num_clients=4, cohort_size=2, num_rounds=30)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Four clients of one digit each, few steps.

    What is solved for does not depend on them.
    """
    ground = images._ground(Context(0, True, dataset="digits"), FOUR, 0)
    attack = attacks.gradient_inversion(num_steps=2)
    made = [
        *images._originals(ground),
        *(
            row
            for target in (1, 2)
            for row in images._from_sums(ground, target, attack)
        ),
        *images._from_upload(ground, attack),
    ]
    return pd.DataFrame(made)


def test_fig1_is_part_of_fig10() -> None:
    assert check_targets(["multiround.fig1"]) == (("multiround", "fig10"),)


def test_single_updates_are_solved_for_and_blocks_are_not(rows: pd.DataFrame) -> None:
    random = rows[rows["seen"] == images._name(1)]
    assert random["exposed"].all()
    assert random["error"].max() < 1e-6  # rounding to 2^16 levels
    for together in (False, True):
        blocks = rows[rows["seen"] == images._name(2, together=together)]
        assert len(blocks) == 4
        assert not blocks["exposed"].any()
        assert blocks["error"].min() > 0.01


def test_every_client_is_scored_once_for_each_thing_seen(rows: pd.DataFrame) -> None:
    scored = rows[rows["psnr"].notna()]
    counts = scored.groupby("seen")["client"].agg(["count", "nunique"])
    assert (counts == 4).to_numpy().all()
    assert len(counts) == 5
    np.testing.assert_allclose(scored["psnr"], -10 * np.log10(scored["mse"]), rtol=1e-9)


def test_the_server_is_given_no_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells them from the updates, which finds all of those that are solved for exactly."""
    seen = []

    def run(_: object, __: object, view: attacks.views.UpdateView) -> object:
        seen.append(view)
        shape = (*view.update.shape[:-1], view.num_images, *view.input_shape)
        return types.SimpleNamespace(images=np.zeros(shape, np.float32))

    monkeypatch.setattr(type(attacks.gradient_inversion()), "run", run)
    attack = attacks.gradient_inversion(num_steps=2)
    ground = images._ground(Context(0, True, dataset="digits"), FOUR, 0)
    images._inverted_blocks(ground, ground.updates, 1, attack)
    images._inverted_blocks(ground, ground.updates, 2, attack)
    assert [view.labels for view in seen] == [None, None]
    truth = np.asarray(ground.clients.labels)[:4]
    np.testing.assert_array_equal(
        _gradient_inversion.inferred_labels(seen[0])[:, 0], truth
    )


def test_the_figure_draws_all_of_them(rows: pd.DataFrame) -> None:
    figure = Figure()
    images.draw_images(figure, rows)
    drawn = [ax for ax in figure.axes if ax.images]
    assert len(drawn) == 6 * 4
    original = rows[(rows["seen"] == "original") & (rows["client"] == 0)].iloc[0]
    shown = image_from_text(original["shape"], original["pixels"])
    np.testing.assert_allclose(
        np.squeeze(drawn[0].images[0].get_array()), shown[..., 0]
    )


@pytest.mark.parametrize(("gap", "verdict"), [(8.0, "reproduced"), (1.0, "differs")])
def test_claims_follow_the_scores(gap: float, verdict: str) -> None:
    names = {images._name(1): 20.0, "mean of all images": 10.0, images.PADDED: 5.0}
    for target, together in itertools.product((2, 4), (False, True)):
        names[images._name(target, together=together)] = 20.0 - gap
    frame = pd.DataFrame(
        {
            "seed": seed,
            "seen": name,
            "client": 0,
            "psnr": value + 0.01 * seed,
            "error": 0.0,
            "exposed": name == images._name(1),
        }
        for name, value in names.items()
        for seed in range(3)
    )
    checks = list(images._checks(frame, (2, 4)))
    found, padded = checks[0], checks[-1]
    assert found.verdict == padded.verdict == "reproduced"
    assert {check.verdict for check in checks[1:-1]} == {verdict}
    assert len(checks) == 6


def test_an_image_survives_its_cells() -> None:
    image = np.random.default_rng(0).random((3, 2, 3))
    back = image_from_text(*image_as_cells(image).values())
    np.testing.assert_allclose(back, image, atol=0.5 / 255 + 1e-12)
    assert (stretched(image).min(), stretched(image).max()) == (0.0, 1.0)
    assert not stretched(np.full((2, 2, 1), 0.3)).any()


@pytest.mark.parametrize(
    ("item", "settings", "message"),
    [
        ("fig10", {"cohort_size": 17}, "`cohort_size` must be at most num_clients, 16"),
        (
            "fig10",
            {"privacy_targets": [3]},
            "`privacy_targets` must divide num_clients",
        ),
        ("image_motion", {"privacy_target": 5}, "`privacy_target` must divide"),
        ("image_motion", {"server_rates": [0.1, 1.0]}, "must be two rates or more"),
        ("image_motion", {"num_clients": 8000}, "the data set's training samples"),
        ("exposure", {"num_rounds": [8, 6]}, "`num_rounds` must ascend"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    item: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        remake(f"multiround.{item}", dataset="digits", **settings)


def test_images_of_models_that_move() -> None:
    ground = images._ground(Context(0, True, dataset="digits"), FOUR, 0)
    attack = attacks.gradient_inversion(num_steps=2)
    made = [
        row
        for rate in (None, 3.0)
        for target in (1, 2)
        for row in images._from_moving_sums(ground, target, rate, attack)
    ]
    frame = pd.DataFrame(made)
    still, moving = frame[frame["rate"] == 0], frame[frame["rate"] > 0]
    assert (still["motion"] == 0).all()
    assert (moving["motion"] > 0).all()
    single = frame["target"] == 1
    assert frame[single & (frame["rate"] == 0)]["error"].max() < 1e-6
    assert frame[single & (frame["rate"] > 0)]["error"].min() > 1e-6
    figure = Figure()
    images.draw_motion(figure.subplots(), frame)
    assert len(figure.axes[0].get_legend().get_texts()) == 2


@pytest.mark.parametrize(("near", "verdict"), [(29.0, "reproduced"), (20.0, "differs")])
def test_motion_is_judged_against_models_that_stand_still(
    near: float, verdict: str
) -> None:
    psnr = {0.0: 30.0, 0.01: near, 3.0: 15.0}
    frame = pd.DataFrame(
        {
            "seed": seed,
            "seen": f"T = {target}",
            "target": target,
            "rate": rate,
            "motion": rate,
            "psnr": value + 0.01 * seed,
        }
        for target in (1, 2)
        for rate, value in psnr.items()
        for seed in range(3)
    )
    less, worst = list(images._motion_checks(frame, (1, 2)))[:2]
    assert less.verdict == "reproduced"
    assert worst.verdict == verdict
