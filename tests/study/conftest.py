"""A small study and a small sweep made by hand, whose every number is known."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest
import xarray as xr

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # for browsing.py


@pytest.fixture
def results() -> xr.Dataset:
    """Two schemes, three rounds, four clients.

    One leaks clients 0 and 1, one leaks nobody.
    """
    return xr.Dataset(
        {
            "participation": (
                ("scheme", "round", "client"),
                np.array(
                    [
                        [[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1]],
                        [[0, 0, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0]],
                    ],
                    bool,
                ),
            ),
            "strong_privacy": (
                ("scheme", "round"),
                np.array([[2, 1, 1], [2, 2, 2]], np.float32),
            ),
            "guaranteed_privacy": ("scheme", np.array([1, 2], np.int32)),
            "rank": (("scheme", "round"), np.array([[1, 2, 3], [1, 1, 2]], np.int32)),
            "exposed_clients": (
                ("scheme", "round"),
                np.array([[0, 2, 2], [0, 0, 0]], np.int32),
            ),
            "first_exposure": (
                ("scheme", "client"),
                np.array([[1, 1, np.nan, np.nan], [np.nan] * 4], np.float32),
            ),
            "fairness_gap": (
                ("scheme", "round"),
                np.array([[1, 1, 1 / 3], [1, 0.5, 0]]),
            ),
            "aggregation_cardinality": (
                ("scheme", "round"),
                np.array([[2, 1.5, 5 / 3], [2, 1, 4 / 3]]),
            ),
            "skipped": (("scheme", "round"), np.array([[0, 0, 0], [0, 1, 0]], bool)),
            "dropout_rate": ("client", np.zeros(4, np.float32)),
            "expected_cardinality": ("scheme", np.array([1.75, 1.5])),
            "cardinality_deviation": ("scheme", np.array([0.3, 0.9])),
            "accuracy": (("scheme", "evaluation"), np.array([[0.5, 0.9], [0.4, 0.8]])),
            "reconstruction_error": (
                ("scheme", "client"),
                np.array([[1e-3, 1e-3, 0.5, 0.5], [0.5, 0.6, 0.7, 0.8]]),
            ),
        },
        coords={
            "scheme": ["Random", "User partition"],
            "round": np.arange(3),
            "client": np.arange(4),
            "evaluation": np.array([1, 3]),
        },
    )


@pytest.fixture
def swept() -> xr.Dataset:
    """Two schemes at two sizes, three trials; the last point is not done."""
    none = np.nan
    strong = np.array([[[1, 1, 2], [none, 1, 1]], [[2, 2, 2], [7, 7, 7]]])
    exposed = np.array([[[4, 2, 0], [3, 3, 3]], [[0, 0, 0], [9, 9, 9]]], np.int32)
    first = np.array([[[5, 3, none], [8, 9, 7]], [[none] * 3, [0, 0, 0]]])
    cardinality = np.array(
        [[[3.0, 4.0, 5.0], [2.0, 2.0, 2.0]], [[3.5] * 3, [99.0] * 3]]
    )
    dims = ("scheme", "num_clients", "trial")
    return xr.Dataset(
        {
            "strong_privacy": (dims, strong),
            "exposed_clients": (dims, exposed),
            "first_exposed_round": (dims, first),
            "aggregation_cardinality": (dims, cardinality),
            "rank_by_round": ((*dims, "round"), np.zeros((2, 2, 3, 4))),
            "guaranteed_privacy": (dims[:2], np.array([[1, 1], [2, 2]])),
            "largest_rank": (dims[:2], np.array([[8, 16], [8, 16]])),
            "rank": (dims, np.array([[[6, 7, 5], [9, 9, 9]], [[4, 4, 3], [8, 8, 8]]])),
            "accuracy": (dims[:2], np.array([[0.5, 0.25], [0.75, np.nan]])),
            "loss_of": (dims[:2], np.array([["a", "b"], ["c", "d"]])),
            "seconds": (dims[:2], np.array([[1.0, 2.0], [3.0, np.nan]])),
            "done": (dims[:2], np.array([[True, True], [True, False]])),
        },
        coords={
            "scheme": ["Random", "Multi-RoundSecAgg (T=2)"],
            "num_clients": [8, 16],
            "cohort_size": ("num_clients", [4, 6]),
        },
        attrs={
            "command": "sweep",
            "swept": "simulate",
            "seed": 0,
            "axes": [
                {"name": "scheme", "fields": ["scheme"]},
                {
                    "name": "num_clients",
                    "fields": ["population.num_clients", "population.cohort_size"],
                },
            ],
        },
    )
