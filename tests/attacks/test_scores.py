"""Scores by hand, against brute force, and against the formulas written out."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import numpy as np
import pytest

import mrsa_jax as mj

attacks = mj.attacks
IMAGES = np.random.default_rng(0).random((3, 14, 12, 2))
NOISY = np.clip(IMAGES + np.random.default_rng(1).normal(0, 0.1, IMAGES.shape), 0, 1)


@pytest.mark.parametrize(
    "score", [attacks.mean_squared_error, attacks.psnr, attacks.ssim]
)
def test_misuse_of_images(score: Any) -> None:
    with pytest.raises(
        mj.ConfigurationError, match=r"`images` must be \[\.\.\., height"
    ):
        score(np.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(
        mj.ConfigurationError, match="`truth` must have the images' shape"
    ):
        score(IMAGES, IMAGES[:2])
    broken = IMAGES.copy()
    broken[1, 0, 0, 0] = np.nan
    with pytest.raises(mj.ConfigurationError, match="`truth` must be finite"):
        score(IMAGES, broken)


def test_misuse_of_ranges_and_matches() -> None:
    for score in (attacks.psnr, attacks.ssim):
        with pytest.raises(
            mj.ConfigurationError, match="`data_range` must be positive; got 0"
        ):
            score(IMAGES, IMAGES, data_range=0.0)
    with pytest.raises(
        mj.ConfigurationError, match="`images` must be as many as the originals"
    ):
        attacks.matched_images(IMAGES[:2], IMAGES)
    with pytest.raises(
        mj.ConfigurationError, match=r"`truth` must be \[images, height"
    ):
        attacks.matched_images(IMAGES, IMAGES[0])


def test_distances_by_hand() -> None:
    black = np.zeros((2, 3, 3, 1))
    grey = black.copy()
    grey[0, 0, 0, 0] = 0.6  # 0.36 / 9
    np.testing.assert_allclose(attacks.mean_squared_error(grey, black), [0.04, 0])
    np.testing.assert_allclose(attacks.psnr(grey, black), [10 * np.log10(25), np.inf])
    np.testing.assert_allclose(
        attacks.psnr(255 * grey, black, data_range=255.0)[0], 13.9794, 1e-5
    )


def _ssim(one: np.ndarray, other: np.ndarray, side: int) -> float:
    """One channel by the definition: every place where the whole window fits."""
    at = np.arange(side) - (side - 1) / 2
    weights = np.exp(-(at**2) / (2 * 1.5**2))
    window = np.outer(weights, weights)
    window /= window.sum()
    values = []
    for i, j in itertools.product(*(range(length - side + 1) for length in one.shape)):
        a, b = one[i : i + side, j : j + side], other[i : i + side, j : j + side]
        mean_a, mean_b = (window * a).sum(), (window * b).sum()
        var_a, var_b = (
            (window * a**2).sum() - mean_a**2,
            (window * b**2).sum() - mean_b**2,
        )
        both = (window * a * b).sum() - mean_a * mean_b
        shape = (2 * mean_a * mean_b + 0.01**2) * (2 * both + 0.03**2)
        values.append(
            shape / ((mean_a**2 + mean_b**2 + 0.01**2) * (var_a + var_b + 0.03**2))
        )
    return float(np.mean(values))


def test_similarity_by_its_definition() -> None:
    got = attacks.ssim(NOISY, IMAGES)
    expected = [
        np.mean([_ssim(a[..., c], b[..., c], 11) for c in range(2)])
        for a, b in zip(NOISY, IMAGES, strict=True)
    ]
    np.testing.assert_allclose(got, expected, atol=1e-5)
    # a window of 7 is what fits
    small = attacks.ssim(NOISY[:, :8, :7], IMAGES[:, :8, :7])
    np.testing.assert_allclose(
        small[0],
        np.mean(
            [_ssim(NOISY[0, :8, :7, c], IMAGES[0, :8, :7, c], 7) for c in range(2)]
        ),
        atol=1e-5,
    )
    np.testing.assert_allclose(attacks.ssim(IMAGES, IMAGES), 1, atol=1e-6)
    constant = np.full((9, 9, 1), 0.5)
    assert float(attacks.ssim(constant, constant)) == pytest.approx(1, abs=1e-6)
    shape = attacks.ssim(
        IMAGES.reshape(3, 1, 14, 12, 2), IMAGES.reshape(3, 1, 14, 12, 2)
    ).shape
    assert shape == (3, 1)


def test_similarity_leaves_the_settings_of_jax_alone() -> None:
    before = (jax.config.jax_numpy_dtype_promotion, jax.config.jax_numpy_rank_promotion)
    attacks.ssim(IMAGES, NOISY)
    assert (
        jax.config.jax_numpy_dtype_promotion,
        jax.config.jax_numpy_rank_promotion,
    ) == before


def test_matches_by_brute_force() -> None:
    generator = np.random.default_rng(2)
    truth, given = generator.random((3, 4, 4, 1)), generator.random((4, 4, 4, 1))
    cost = [[np.square(a - b).sum() for a in given] for b in truth]
    best = min(
        itertools.permutations(range(4), 3),
        key=lambda order: sum(cost[i][j] for i, j in enumerate(order)),
    )
    assert attacks.matched_images(given, truth).tolist() == list(best)


@pytest.mark.parametrize(
    ("scores", "members", "more", "message"),
    [
        ([1.0, 2.0], [True], {}, "`is_member` must be bool, one for each score"),
        ([1.0, 2.0], [1, 0], {}, "`is_member` must be bool"),
        (
            [1.0, 2.0],
            [True, True],
            {},
            "`is_member` must hold members and others; got 2 and 2",
        ),
        ([1.0, np.nan], [True, False], {}, "`scores` must be finite"),
        ([], [], {}, r"`scores` must be \[samples\]"),
        ([1.0, 2.0], [True, False], {"false_positive_rates": [0.0]}, "must lie in"),
    ],
)
def test_misuse_of_membership(
    scores: Any, members: Any, more: Any, message: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        attacks.membership_score(scores, np.asarray(members), **more)


@pytest.mark.smoke
def test_membership_by_hand() -> None:
    scores = [0.9, 0.8, 0.8, 0.4, 0.3, 0.1]
    members = np.array([True, False, True, True, False, False])
    got = attacks.membership_score(
        scores, members, threshold=0.5, false_positive_rates=(0.01, 0.4)
    )
    assert (got.accuracy, got.precision, got.recall) == (4 / 6, 2 / 3, 2 / 3)
    # pairs of a member and another: 9 wins but (0.8, 0.8) half and (0.4, 0.8) lost
    assert got.auc == pytest.approx(7.5 / 9)
    # above all others only 0.9; with one of three false positives all members
    assert got.true_positive_rates == pytest.approx((1 / 3, 1.0))
    best = attacks.membership_score(scores, members)
    assert (best.accuracy, best.recall) == (5 / 6, 1.0)
    nobody = attacks.membership_score(scores, members, threshold=2.0)
    assert (nobody.accuracy, nobody.recall) == (0.5, 0.0)
    assert np.isnan(nobody.precision)


@pytest.mark.smoke
def test_membership_rates_by_brute_force() -> None:
    generator = np.random.default_rng(3)
    members = generator.random(200) < 0.5
    scores = np.round(generator.normal(members, 1.0), 1)  # with ties
    got = attacks.membership_score(scores, members, false_positive_rates=(0.05, 0.3))
    for rate, found in zip(
        got.false_positive_rates, got.true_positive_rates, strict=True
    ):
        best = 0.0
        for cut in [*np.unique(scores), np.inf]:
            if (scores[~members] >= cut).mean() <= rate:
                best = max(best, float((scores[members] >= cut).mean()))
        assert found == pytest.approx(best)
    wins = [
        (a > b) + 0.5 * (a == b)
        for a, b in itertools.product(scores[members], scores[~members])
    ]
    assert got.auc == pytest.approx(np.mean(wins))


def test_areas_are_those_of_scikit_learn() -> None:
    from sklearn import metrics

    draw = np.random.default_rng(0)
    for num_values in (1, 2, 3, 5, 40):  # with many ties, and few
        members = np.arange(30) % 3 == 0
        scores = draw.integers(0, num_values, 30) / 3.0
        own = attacks.membership_score(scores, members, false_positive_rates=(0.1, 0.4))
        assert own.auc == float(metrics.roc_auc_score(members, scores))
        false, true, _ = metrics.roc_curve(members, scores, drop_intermediate=False)
        assert own.true_positive_rates == tuple(
            true[false <= rate].max() for rate in (0.1, 0.4)
        )


def _delong(scores, members):
    """Return the standard error by DeLong's formula, from all pairs."""
    wins = np.sign(scores[members][:, None] - scores[~members][None, :]) / 2 + 0.5
    parts = [wins.mean(axis=1), wins.mean(axis=0)]
    return np.sqrt(sum(part.var(ddof=1) / len(part) for part in parts))


def test_the_auc_has_delongs_standard_error():
    generator = np.random.default_rng(0)
    members = np.arange(40) < 15
    scores = generator.normal(size=40).round(1) + members
    judged = attacks.membership_score(scores, members)
    assert judged.auc_error == pytest.approx(_delong(scores, members), rel=1e-12)
    separate = attacks.membership_score(scores, members, groups=np.arange(40)[::-1])
    assert separate.auc_error == pytest.approx(judged.auc_error, rel=1e-12)


def test_the_error_of_groups_is_the_scatter_over_draws():
    """Four clients per group, with one score."""
    generator = np.random.default_rng(1)
    groups = np.repeat(np.arange(30), 4)
    aucs, errors = [], []
    for _ in range(600):
        members = generator.random(120) < 0.5
        scores = (
            np.bincount(groups, members)[groups] + generator.normal(size=30)[groups]
        )
        judged = attacks.membership_score(scores, members, groups=groups)
        aucs.append(judged.auc)
        errors.append(judged.auc_error)
    assert np.mean(errors) == pytest.approx(np.std(aucs), rel=0.12)


def test_one_group_of_a_kind_has_no_error():
    judged = attacks.membership_score([2, 1, 0], [True, False, False])
    assert math.isnan(judged.auc_error)
    with pytest.raises(mj.ConfigurationError, match="`groups` must be integers"):
        attacks.membership_score([2, 1, 0], [True, False, False], groups=[0, 1])
