"""A small study made by hand, whose every number is known."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr


@pytest.fixture
def results() -> xr.Dataset:
    """Two schemes, three rounds, four clients: one leaks clients 0 and 1, one leaks nobody."""
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
            "strong_privacy": (("scheme", "round"), np.array([[2, 1, 1], [2, 2, 2]], np.int32)),
            "rank": (("scheme", "round"), np.array([[1, 2, 3], [1, 1, 2]], np.int32)),
            "exposed_clients": (("scheme", "round"), np.array([[0, 2, 2], [0, 0, 0]], np.int32)),
            "first_exposure": (
                ("scheme", "client"),
                np.array([[1, 1, -1, -1], [-1, -1, -1, -1]], np.int32),
            ),
            "fairness_gap": (("scheme", "round"), np.array([[1, 1, 1 / 3], [1, 0.5, 0]])),
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
