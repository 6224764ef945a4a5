"""The figure of exposure by any route shows the chances that it is given."""

from __future__ import annotations

import functools
import inspect

import matplotlib.pyplot as plt
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.plotting import plot_exposure_routes, scheme_colour
from mrsa_jax.privacy import collusion_risk

P = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 1, 1, 0, 1]], bool)
FRACTIONS = [0.4, 0.0, 0.2]
_sums = functools.cache(lambda: collusion_risk(0, P, FRACTIONS, 200))
_both = functools.cache(
    lambda: collusion_risk(0, P[::-1], FRACTIONS, 200, degree=2, threshold=1)
)


def test_rejects_what_it_cannot_show() -> None:
    many = collusion_risk(0, np.stack([P, P]), 0.2, 10)
    for results in ({}, {"many": many}):
        with pytest.raises(
            mj.ConfigurationError, match="`results` must map labels to chances of"
        ):
            plot_exposure_routes(results)
    with pytest.raises(
        mj.ConfigurationError, match="`who` must be a known choice of clients"
    ):
        inspect.unwrap(plot_exposure_routes)({"mine": _sums()}, who="all")  # type: ignore[arg-type]


@pytest.mark.parametrize("who", ["each", "any"])
def test_lines_are_the_rates_in_order(who: str) -> None:
    ax = plot_exposure_routes({"Random": _sums(), "mine": _both()}, who=who)  # type: ignore[arg-type]
    lines = [line for line in ax.get_lines() if line.get_label() != "_coinciding"]
    assert [line.get_color() for line in lines] == [scheme_colour("Random")] * 2 + [
        scheme_colour("mine")
    ] * 3
    order = np.argsort(FRACTIONS)
    for line, route in zip(
        lines,
        (
            _sums().either,
            _sums().sums,
            _both().either,
            _both().sums,
            _both().neighbours,
        ),
        strict=True,
    ):
        assert route is not None
        np.testing.assert_allclose(line.get_xdata(), [0.0, 20.0, 40.0])
        rates = route.any_client.rate
        if who == "each":
            rates = route.exposed.sum(axis=1) / route.honest.sum(axis=1)
        np.testing.assert_allclose(line.get_ydata(), rates[order])
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "Random, by any route",
        "Random, by the sums",
        "mine, by any route",
        "mine, by the sums",
        "mine, by corrupt neighbours",
    ]
    plt.close("all")


def test_sums_alone_need_no_routes() -> None:
    ax = plot_exposure_routes({"mine": _sums()})
    assert len(ax.get_lines()) == 1
    plt.close("all")
