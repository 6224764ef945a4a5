"""Among how many an audit says that clients are hidden, its gate, and what noise leaves to tell."""

from __future__ import annotations

import inspect
import json
import math
from fractions import Fraction
from statistics import NormalDist, median
from typing import Any

import numpy as np
import pytest

from mrsa_jax import ConfigurationError, privacy
from mrsa_jax.privacy import ParticipationLog, _audit_hidden, audit, audit_steps
from mrsa_watch.logs import integer_rows

PHI = NormalDist().cdf


def named(P: np.ndarray, scales: Any = ()) -> ParticipationLog:
    rounds, clients = P.shape
    return ParticipationLog(
        P,
        tuple(f"r{j}" for j in range(rounds)),
        tuple(f"c{i}" for i in range(clients)),
        scales,
    )


def exact(P: np.ndarray) -> list[list[Fraction]]:
    """Return 1/h after each row, 0 of clients in no sum, by projections in exact rationals."""
    basis: list[list[Fraction]] = []
    shares = [Fraction(0)] * P.shape[1]
    found = []
    for row in P:
        rest = [Fraction(int(value)) for value in row]
        for own in basis:
            share = sum(a * b for a, b in zip(rest, own, strict=True)) / sum(
                a * a for a in own
            )
            rest = [a - share * b for a, b in zip(rest, own, strict=True)]
        length = sum(a * a for a in rest)
        if length:
            basis.append(rest)
            shares = [h + a * a / length for h, a in zip(shares, rest, strict=True)]
        found.append([1 / h if h else Fraction(0) for h in shares])
    return found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"noise_multiplier": 1.0},
            "`clip` must be used together with noise_multiplier",
        ),
        ({"clip": 1.0}, "`noise_multiplier` must be used together with clip"),
        (
            {"spread": 1.0},
            "`spread` must be used together with noise_multiplier and clip",
        ),
        (
            {"noise_multiplier": 0.0, "clip": 1.0},
            "`noise_multiplier` must be positive and finite",
        ),
        (
            {"noise_multiplier": -1, "clip": 1.0},
            "`noise_multiplier` must be positive and finite",
        ),
        (
            {"noise_multiplier": 1.0, "clip": math.nan},
            "`clip` must be positive and finite",
        ),
        (
            {"noise_multiplier": 1.0, "clip": math.inf},
            "`clip` must be positive and finite",
        ),
        (
            {"noise_multiplier": 1.0, "clip": 1.0, "spread": 0},
            "`spread` must be positive",
        ),
        (
            {"noise_multiplier": 1.0, "clip": 1.0, "delta": 1.0},
            r"`delta` must lie in \(0, 1\)",
        ),
        (
            {"noise_multiplier": 1.0, "clip": 1.0, "delta": 0.0},
            r"`delta` must lie in \(0, 1\)",
        ),
    ],
)
def test_noise_that_makes_no_sense(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        audit([[1, 1]], effort=0, **given)


def test_gates_that_make_no_sense() -> None:
    found = audit([[1, 1]], effort=0)
    gate = inspect.unwrap(type(found).gate)
    for target in (0.5, 0, -3, math.nan, math.inf, True):
        with pytest.raises(
            ConfigurationError, match="`target` must be a finite number of at le"
        ):
            gate(found, target, "hidden")


@pytest.mark.long
def test_each_client_s_figure_in_exact_rationals() -> None:
    rng = np.random.default_rng(0)
    weights = np.array([Fraction(1, 3), Fraction(1, 2), 1, 0, 0], dtype=object)
    for trial in range(30):
        P: np.ndarray = rng.random((6, 8)) < rng.uniform(0.2, 0.7)
        log = named(P)
        if trial % 3 == 2:
            log = named(
                *integer_rows(rng.choice(weights, (6, 8)), "w", primitive=False)
            )
        path = exact(log.participation)
        wanted = path[-1]
        found = audit(log, effort=0)
        if not any(wanted):
            assert found.hidden is None
            continue
        assert found.hidden is not None
        there = sorted((size, i) for i, size in enumerate(wanted) if size)
        for size, value in zip(wanted, found.hidden.values, strict=True):
            assert (value == 1) == (size == 1)
            assert value == pytest.approx(float(size) if size else math.inf, rel=1e-9)
        assert found.hidden.least == pytest.approx(float(there[0][0]), rel=1e-9)
        assert found.hidden.median == pytest.approx(
            float(median(s for s, _ in there)), rel=1e-9
        )
        others = [float(size) for size, _ in there if size > 1][:5]
        np.testing.assert_allclose(
            [size for _, size in found.hidden.worst], others, rtol=1e-9
        )
        for name, size in found.hidden.worst:
            assert size == found.hidden.values[log.clients.index(name)]
        after = found.over_rounds(log).hidden
        assert after is not None
        for value, sizes in zip(after, path, strict=True):
            least = min((size for size in sizes if size), default=None)
            assert value == 1 if least == 1 else value > 1 or least is None
            np.testing.assert_allclose(
                value, math.nan if least is None else float(least)
            )


@pytest.mark.long
def test_the_gate_on_both_sides_of_its_bar() -> None:
    """Blocks of three, all of whose sums are solved for, are hidden among exactly three."""
    blocks = np.repeat(np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1]], bool), 3, axis=1)
    found = audit(named(blocks), effort=0)
    assert found.gate(3, "hidden").passed
    assert found.gate(3, "hidden").reason.endswith("is hidden among 3.00, at least 3")
    assert not found.gate(3.000001, "hidden").passed
    rng = np.random.default_rng(1)
    for _ in range(20):
        P = rng.random((4, 9)) < 0.5
        least = float(min(size for size in exact(P)[-1] if size))
        found = audit(named(P), effort=0)
        assert found.gate(max(1.0, least * (1 - 1e-6)), "hidden").passed
        assert not found.gate(least * (1 + 1e-6), "hidden").passed
    exposed = audit([[1, 1, 0], [0, 0, 1]], effort=0)
    assert exposed.gate(1, "hidden").passed
    assert exposed.gate(1.5, "hidden").reason == "client 2 is hidden among 1, below 1.5"
    nobody = audit(np.zeros((2, 3), bool), effort=0).gate(1, "hidden")
    assert (nobody.passed, "no client took part" in nobody.reason) == (False, True)


def test_hardly_hidden_never_reads_as_exposed() -> None:
    """The first client is all of the sum but for a thousandth of another's update."""
    found = audit(np.array([[1000, 1]]), effort=0)
    assert found.exposed == ()
    assert "client 0 among 1.000001, client 1 among 1,000,001" in found.sentences()[1]
    assert not found.gate(1.01, "hidden").passed


@pytest.mark.long
def test_what_takes_long_comes_later_and_what_takes_too_long_is_said_to_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    P = np.random.default_rng(3).random((5, 9)) < 0.5
    first, *_, last = audit_steps(P, effort=0)
    assert first.pending == ("weak privacy", "plain sums", "who exposes whom")
    assert first.hidden == last.hidden is not None
    monkeypatch.setattr(_audit_hidden, "_MOST_AT_ONCE", 10)
    later, *_, same = audit_steps(P, effort=0)
    assert (later.pending[1], later.hidden) == ("hidden among", None)
    assert same.hidden == last.hidden
    assert "left out" not in " ".join(later.sentences())
    monkeypatch.setattr(_audit_hidden, "_MOST_MULTIPLIED", 10)
    first, *_, large = audit_steps(P, effort=0)
    assert (first.pending, large.hidden) == (
        ("weak privacy", "plain sums", "who exposes whom"),
        None,
    )
    assert "hidden was left out: the log is too large" in large.sentences()[1]
    assert large.to_dict()["hidden_among"] is None
    assert large.over_rounds(named(P)).hidden is None
    gate = large.gate(1, "hidden")
    assert (gate.passed, "not computed" in gate.reason) == (False, True)


def test_noise_with_others_known_is_composed_over_a_client_s_rounds() -> None:
    """mu = |weights|/Z.

    Epsilon and delta fit together by Gaussian differential privacy.
    """
    weights = np.array([[0.5, 0.25, 0], [1.5, 0.125, 1], [0, 0, 2]])
    log = named(*integer_rows(weights, "w", primitive=False))
    assert log.scales  # rows were multiplied, and so is their noise
    found = audit(log, effort=0, noise_multiplier=2, clip=0.7, delta=1e-3).noisy
    assert found is not None
    told = {name: (mu, epsilon) for name, mu, epsilon in found.known}
    for i, length in enumerate(np.linalg.norm(weights, axis=0)):
        mu, epsilon = told[f"c{i}"]
        assert mu == pytest.approx(length / 2, rel=1e-12)
        delta = PHI(-epsilon / mu + mu / 2) - math.exp(epsilon) * PHI(
            -epsilon / mu - mu / 2
        )
        assert delta == pytest.approx(1e-3, rel=1e-6)
    assert found.mean_epsilon == pytest.approx(
        np.mean([epsilon for _, epsilon in told.values()])
    )
    assert [mu for _, mu, _ in found.known] == sorted(
        (mu for mu, _ in told.values()), reverse=True
    )
    assert found.gaussian is None


@pytest.mark.long
def test_noise_with_gaussian_others_is_the_separation_of_the_best_test() -> None:
    rng = np.random.default_rng(4)
    P = (rng.random((5, 6)) < 0.5).astype(np.int64)
    clip, spread, multiplier = 0.5, 0.2, 1.5
    found = audit(P, effort=0, noise_multiplier=multiplier, clip=clip, spread=spread)
    assert found.noisy is not None
    assert found.noisy.gaussian is not None
    for name, mu, _ in found.noisy.gaussian:
        p = P[:, name]
        rest = spread**2 * (P @ P.T - np.outer(p, p)) + (
            multiplier * clip
        ) ** 2 * np.eye(5)
        assert mu == pytest.approx(
            clip * math.sqrt(p @ np.linalg.solve(rest, p)), rel=1e-9
        )
    known = {name: mu for name, mu, _ in found.noisy.known}
    assert all(mu < known.get(name, math.inf) for name, mu, _ in found.noisy.gaussian)
    said = " ".join(found.sentences())
    assert (
        "With noise of standard deviation 0.75 in each sum (noise multiplier 1.5, clip"
        in said
    )
    assert "a guarantee of differential privacy, delta 1e-05" in said
    assert (
        "to one who sees only the noisy sums, not the noise or a sum without it" in said
    )
    assert "Gaussian with spread 0.2 (no guarantee): client" in said
    content = json.loads(json.dumps(found.to_dict()))["noise"]
    assert (content["noise_multiplier"], content["spread"]) == (1.5, 0.2)
    # six clients, five of whom are listed: the mean is of all
    every = privacy.distinguishability(P, clip, None, (multiplier * clip) ** 2).epsilon(
        1e-5
    )
    assert content["mean_epsilon"] == pytest.approx(every.mean())
    assert f"the mean of all clients: epsilon {every.mean():.3g}." in said
    assert len(content["others_gaussian"]) == len(content["others_known"]) == 5
    assert privacy.audit(P, effort=0).noisy is None
    # no client took part
    assert audit(P * 0, effort=0, noise_multiplier=1, clip=1).noisy is None


SIZES = [1.0, 2.0, 3.0, 6.0]


def test_sizes_and_resemblance_known_stand_beside_alike() -> None:
    """A block alone: v_i over the sum of v; with one correlation (1 + (T-1) k) / T."""
    block = [[1, 1, 1, 1]] * 3
    found = privacy.audit(block, effort=0, covariance=np.diag(SIZES))
    assert found.resembling is not None
    assert found.resembling.values == pytest.approx([12.0, 6.0, 4.0, 2.0])
    assert found.hidden is not None
    assert found.hidden.least == 4.0  # as if clients were alike
    words = " ".join(found.sentences())
    assert "From a server that knows the covariance of clients' updates" in words
    assert "client 3 among 2.00" in words
    kappa = 0.5
    alike = np.where(np.eye(4) == 1, 1.0, kappa)
    found = privacy.audit(block, effort=0, covariance=alike)
    assert found.resembling is not None
    assert found.resembling.values == pytest.approx(4 / (1 + 3 * kappa))
    # the smaller of both figures is compared
    gate = found.gate(2, "hidden")
    assert not gate.passed
    assert gate.reason.startswith("the update with resemblance known of client")
    assert "of clients that are alike, among 4" in gate.reason
    assert found.to_dict()["hidden_among_resembling"]["least"] == pytest.approx(1.6)


def test_a_drift_counts_with_a_covariance_as_well() -> None:
    P = np.array([[1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]])
    C = np.diag(SIZES)
    drift = {"memory": 0.9, "share": 0.5}
    found = privacy.audit(P, effort=0, covariance=C, **drift).resembling
    assert found is not None
    expected = privacy.hidden_among(P, covariance=C, **drift)
    assert found.values == pytest.approx(expected)
    assert "if updates drift with memory 0.9, share 0.5 and resemblance" in (
        found.sentence()
    )
    same = privacy.ParticipationLog(P[:2], ("0/a", "0/b"), tuple("wxyz"))
    found = privacy.audit(same, effort=0, covariance=C, **drift).resembling
    assert found is not None
    # sums of one round are of one update, so its drift plays no part
    expected = privacy.hidden_among(P[:2], covariance=C)
    assert found.values == pytest.approx(expected)


@pytest.mark.parametrize(
    ("covariance", "settings", "message"),
    [
        (np.eye(3), {}, r"`covariance` must be numbers of shape \[4, 4\]"),
        (np.triu(np.ones((4, 4))), {}, "`covariance` must be symmetric"),
        (2 * np.eye(4) - 1, {}, "`covariance` must be positive semidefinite"),
        (np.eye(4), {"coalition": [0]}, "`covariance` must not be set with"),
    ],
)
def test_a_covariance_that_fits_no_log(
    covariance: np.ndarray, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        privacy.audit([[1, 1, 1, 1]], effort=0, covariance=covariance, **settings)
