"""Among how many clients are hidden.

Within nine digits of rationals, or said not to be known.
"""

from fractions import Fraction

import flint
import numpy as np
import pytest

from mrsa_jax import live, privacy
from mrsa_jax.privacy import (
    _hidden as hidden,
    audit,
    distinguishability,
    hidden_among,
    hidden_among_trajectory,
    information,
)

THREE_WAYS = (
    lambda n, t: n / t,
    lambda n, t: n * (1 / t),
    lambda n, t: (n / 100) / (t / 100),
)


def exact(P):
    """Return T of each client by rational elimination; None for those in no sum."""
    rows = []
    for row in np.asarray(P).tolist():
        if flint.fmpz_mat([*rows, row]).rank() > len(rows):
            rows.append(row)
    if not rows:
        return [None] * np.shape(P)[1]
    whole = flint.fmpz_mat(rows)
    solved = (whole * whole.transpose()).solve(whole)
    found = []
    for i in range(whole.ncols()):
        share = sum(
            (whole[k, i] * solved[k, i] for k in range(len(rows))), flint.fmpq(0)
        )
        found.append(Fraction(int(share.q), int(share.p)) if share else None)
    return found


def check(found, truth):
    """Fail for a figure that is wrong in nine digits.

    Return how many are said not to be known.
    """
    for value, right in zip(np.asarray(found).tolist(), truth, strict=True):
        if np.isnan(value):
            continue
        if right is None:
            assert value == np.inf
        else:
            assert abs(Fraction(value) - right) <= right * Fraction(1, 10**9), (
                value,
                float(right),
            )
            assert (value == 1.0) == (right == 1)
    return int(np.isnan(found).sum())


def normalised(samples):
    total = float(samples.sum())
    return [[way(float(n), total) for n in samples] for way in THREE_WAYS]


def weighted(rng):
    """Return a log of weights as floats print them, of one of several kinds."""
    rounds, clients = [(3, 6), (5, 8), (8, 5), (6, 12)][rng.integers(4)]
    base = rng.integers(1, 900, clients)
    kind = rng.integers(5)
    if kind == 0:  # rounds that differ in the last of d digits
        digits = int(rng.integers(3, 18))
        steps = 1 + 10.0 ** (1 - digits) * rng.integers(-1, 2, (rounds, clients))
        return [
            [float(f"{v:.{digits}g}") for v in row] for row in base / base.sum() * steps
        ]
    if kind == 1:  # huge and tiny
        return np.ldexp(
            rng.integers(0, 8, (rounds, clients)) * 1.0,
            rng.integers(-40, 40, (rounds, clients)),
        )
    if kind == 2:  # one row again and again, and noise of floats
        return np.outer(rng.integers(1, 4, rounds) / 7, base / 3)
    if kind == 3:  # each row is near those before together, and near none of them
        size = int(rng.integers(1, 2**30))
        rows = np.tril(np.full((rounds, clients), size), -1)
        return (
            rows
            + 2**30 * np.eye(rounds, clients, dtype=int)
            + (rng.random(clients) < 0.2)
        )
    return rng.integers(0, 2, (rounds, clients)) * (base / base.sum())


def differ(monkeypatch, trials, seed):
    rng = np.random.default_rng(seed)
    unknown = 0
    for _ in range(trials):
        P = privacy.integer_weights(weighted(rng))
        truth = exact(P)
        with monkeypatch.context() as patch:
            patch.setattr(hidden, "MOST_WORK", 0)  # floats alone
            unknown += check(hidden_among(P), truth)
        assert not check(hidden_among(P), truth)
        for mu, right in zip(distinguishability(P).mu.tolist(), truth, strict=True):
            rest = None if right is None else right - 1
            if not rest:
                assert mu == (0.0 if rest is None else np.inf)
            elif not np.isnan(mu):
                assert abs(1 / Fraction(mu) ** 2 - rest) <= rest * Fraction(1, 10**4)
    assert unknown


@pytest.mark.long
def test_figures_are_right_to_nine_digits_or_not_told(monkeypatch):
    differ(monkeypatch, 30, 0)


@pytest.mark.slow
def test_many_figures_are_right_to_nine_digits_or_not_told(monkeypatch):
    differ(monkeypatch, 10**4, 1)


@pytest.mark.long
def test_one_normalisation_written_in_three_ways_passes_no_gate():
    samples = np.random.default_rng(0).integers(50, 900, 6)
    P = privacy.integer_weights(normalised(samples))
    truth = exact(P)
    least = float(min(truth))
    found = audit(P, effort=0)
    assert found.hidden.least == pytest.approx(least, rel=1e-9)
    assert not found.gate(least * 1.001, "hidden").passed
    assert found.gate(least * 0.999, "hidden").passed
    assert not check(hidden_among_trajectory(P)[-1], truth)
    assert hidden_among_trajectory(P, quantiles=(0.0,))[-1, 0] == pytest.approx(
        least, rel=1e-9
    )
    gate = live.Gate(fail_below_hidden=least * 1.001)
    for row in P.tolist():
        gate.add(range(6), row)
    assert gate.state.hidden == pytest.approx(least, rel=1e-9)
    assert gate.state.breaches


@pytest.mark.long
def test_what_is_not_known_passes_no_gate_and_is_no_number(monkeypatch):
    monkeypatch.setattr(hidden, "MOST_WORK", 0)
    P = privacy.integer_weights(
        normalised(np.random.default_rng(0).integers(50, 900, 6))
    )
    found = audit(P, effort=0)
    verdict = found.gate(1, "hidden")
    assert not verdict.passed
    assert (
        verdict.reason
        == "among how many the worst client is hidden is not known to nine digits"
    )
    assert "is not known to nine digits" in " ".join(found.sentences())
    assert found.worst_hidden == "not known to nine digits"
    assert found.to_dict()["hidden_among"] == {
        "worst": [],
        "least": None,
        "least_client": None,
        "median": None,
        "condition": found.hidden.condition,
    }
    assert np.isnan(distinguishability(P).mu).all()
    assert np.isnan(information(P)).all()
    assert np.isnan(hidden_among_trajectory(P, quantiles=(0.0, 0.5))[-1]).all()
