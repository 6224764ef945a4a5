"""The papers' bounds against exact Renyi divergences, computed from masses."""

import itertools
import math

import flint
import numpy as np
import pytest

from mrsa_jax.dp._laws import departures, renyi_bound

ORDERS = (2, 3, 4, 8, 20, 50)


def skellam_logs(mu: float, reach: int) -> np.ndarray:
    """Return log P(X = k), |k| <= reach, each from its Bessel function."""
    with flint.ctx.workprec(200):
        half = [
            float((flint.arb(mu).bessel_i(flint.arb(k)) * (-flint.arb(mu)).exp()).log())
            for k in range(reach + 1)
        ]
    return np.asarray(half[:0:-1] + half)


def sum_logs(sigma: float, count: int, reach: int) -> np.ndarray:
    """Return log P(sum = k) of discrete Gaussians, by convolving masses of wide floats."""
    k = np.arange(-reach, reach + 1).astype(np.longdouble)
    one = np.exp(-k * k / (2 * np.longdouble(sigma) ** 2))
    one /= one.sum()
    total = one
    for _ in range(count - 1):
        total = np.convolve(total, one)
    middle = len(total) // 2
    return np.log(total[middle - reach : middle + reach + 1])


def exact(logs: np.ndarray, shift: int, order: float) -> float:
    """Return the Renyi divergence of a law shifted from the law itself."""
    if shift == 0:
        return 0.0
    terms = order * logs[:-shift] + (1 - order) * logs[shift:]
    top = terms.max()
    # what is cut off must not matter: the terms have fallen at both ends
    assert max(terms[0], terms[-1]) < top - 40
    return float((top + np.log(np.exp(terms - top).sum())) / (order - 1))


SHIFTS = ((1,), (2,), (5,), (1, 1), (3, 1), (1, 1, 1, 1, 1, 1), (4, 0, 2))


def norms(shift: tuple[int, ...]) -> dict[str, float]:
    return {
        "l2": math.hypot(*shift),
        "l1": float(sum(map(abs, shift))),
        "dim": len(shift),
    }


@pytest.mark.long
def test_skellam_bound_holds_and_is_near() -> None:
    for mu in (0.3, 1.0, 4.0, 30.0, 300.0):
        logs = skellam_logs(mu, int(60 + 6 * 50 + 3 * mu))
        for shift, order in itertools.product(SHIFTS, ORDERS):
            if order * max(shift) > len(logs) / 5:
                continue
            found = sum(exact(logs, one, order) for one in shift)
            for count in (1, 3):
                bound = renyi_bound(
                    "skellam", order, variance=mu / count, count=count, **norms(shift)
                )
                assert found <= bound * (1 + 1e-9)
            # within what the theorem adds to the Gaussian's
            assert (
                bound
                <= order * math.hypot(*shift) ** 2 / (2 * mu) * (1 + 8 / mu) + 1e-12
            )
            if mu == 300.0 and order < 10:
                assert bound <= 1.05 * found
        for order in (1.02, 1.1, 1.37, 1.9, 2.5, 7.25):
            for shift in SHIFTS:
                if order * max(shift) > len(logs) / 5:
                    continue
                found = sum(exact(logs, one, order) for one in shift)
                bound, above = renyi_bound(
                    "skellam",
                    [order, math.ceil(order)],
                    variance=mu,
                    count=1,
                    **norms(shift),
                )
                assert found <= bound * (1 + 1e-9)
                assert bound <= above
                if mu == 300.0 and shift == (5,):
                    assert bound <= found * (1.02 + 0.02 / (order - 1))


def test_orders_between_integers_pay_for_the_part_beyond() -> None:
    """Step 3 of the proof.

    A coordinate that moves s costs c a (1 - a) / 2, a part of alpha s.
    """
    for mu, order, shift in itertools.product(
        (30.0, 300.0), (2.5, 4.5), ((1,), (1, 1), (1, -1, 1))
    ):
        curvature = -math.log1p(-(1 / mu + 2.5 / mu**2))
        beyond = sum((order * s % 1) * (1 - order * s % 1) for s in shift)
        squares = sum(s * s for s in shift)
        proven = curvature / 2 * (order * squares + beyond / (order - 1))
        above, bound = renyi_bound(
            "skellam", [math.ceil(order), order], variance=mu, count=1, **norms(shift)
        )
        assert proven * (1 - 1e-12) <= bound
        assert bound <= above


def test_curvature_of_skellam_masses() -> None:
    """-log of two masses' product over a square.

    At most -log(1 - 1/mu - 5/(2 mu^2)) anywhere.
    """
    with flint.ctx.workprec(200):
        for mu in (4.0, 7.3, 20.0, 111.0, 3e3, 1e6, 2.0**40):
            most = -math.log1p(-(1 / mu + 2.5 / mu**2))
            places = {
                *range(12),
                *(int(mu * u) for u in (0.02, 0.1, 0.3, 0.5, 1.0, 3.0)),
            }
            for k in places:
                before, here, after = (
                    flint.arb(mu).bessel_i(flint.arb(abs(n)), scaled=True)
                    for n in (k - 1, k, k + 1)
                )
                found = float((here * here / (before * after)).log())
                assert 0 < found <= most
                # the largest is at 0, where it is 1/mu and little more
                assert k > 0 or found >= most * (1 - 3 / mu)


def test_bound_on_sums_of_discrete_gaussians() -> None:
    for sigma in (0.5, 0.6, 0.8, 1.1, 2.0):
        for count in (1, 2, 3, 6):
            logs = sum_logs(sigma, count, int(120 * sigma))
            for shift, order in itertools.product(SHIFTS, (1.01, 1.5, *ORDERS[:-1])):
                if order * max(shift) > 80 * sigma:
                    continue
                found = sum(exact(logs, one, order) for one in shift)
                bound = renyi_bound(
                    "discrete_gaussian",
                    order,
                    variance=sigma**2,
                    count=count,
                    **norms(shift),
                )
                assert found <= bound * (1 + 1e-9)
                gaussian = order * math.hypot(*shift) ** 2 / (2 * count * sigma**2)
                # the discrete Gaussian's own: that of the Gaussian, and tight
                if count == 1:
                    assert bound == pytest.approx(gaussian, rel=1e-12)
                    assert found == pytest.approx(gaussian, rel=1e-3) or sigma < 0.8
                if sigma >= 1.1:
                    assert bound <= gaussian * 1.01
                    assert found >= gaussian * 0.99


def test_departure_is_the_papers_sum_and_covers_the_ratio_of_masses() -> None:
    for sigma in (0.5, 0.7, 1.0):
        for count in range(6):
            own = 10 * sum(
                math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1))
                for k in range(1, count)
            )
            assert departures(sigma**2, count) == pytest.approx(
                own, rel=1e-12, abs=1e-300
            )
        for count in (2, 4):
            logs = sum_logs(sigma, count, 100)[60:141].astype(float)
            k = np.arange(-40, 41)
            weights = -(k**2) / (2 * count * sigma**2)
            far = np.arange(-400, 401)
            theta = np.log(np.exp(-(far**2) / (2 * count * sigma**2)).sum())
            gap = np.abs(logs - weights + theta).max()
            assert gap <= departures(sigma**2, count)


def test_skellam_bound_in_units_of_updates() -> None:
    # as the authors' published code has it: sensitivities and variance before scaling
    # by s
    random = np.random.default_rng(3)
    for _ in range(50):
        a = int(random.integers(2, 60))
        s, mu, l2 = (float(x) for x in np.exp(random.normal(size=3)))
        l1 = l2 * float(random.uniform(1, 3))
        far = ((2 * a - 1) * s * l2**2 + 6 * l1) / (4 * s**3 * mu**2)
        own = a * l2**2 / (2 * mu) + min(far, 3 * l1 / (2 * s * mu))
        bound = renyi_bound(
            "skellam", a, l2=s * l2, l1=s * l1, dim=9, variance=s**2 * mu / 4, count=4
        )
        assert bound == pytest.approx(own, rel=1e-12)


def test_shapes_and_nobody() -> None:
    bound = renyi_bound(
        "discrete_gaussian",
        [2.0, 3.0],
        l2=2.0,
        l1=4.0,
        dim=5,
        variance=1.0,
        count=np.asarray([[0], [1], [4]]),
    )
    assert bound.shape == (3, 2)
    assert np.isinf(bound[0]).all()
    assert (bound[1] > bound[2]).all()
