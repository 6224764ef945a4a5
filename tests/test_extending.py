"""The tutorial's code runs, and what its comments promise holds."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.graphs import GraphModel
from mrsa_jax.selection import Selector

TEXT = (pathlib.Path(__file__).resolve().parent.parent / "docs" / "extending.md").read_text("utf-8")


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 3
    found: dict[str, Any] = {"__name__": "__main__"}
    # a user's settings, not the suite's strict ones
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec(compile("\n".join(blocks), "docs/extending.md", "exec"), found)
    return found


def test_the_selector(names: dict[str, Any]) -> None:
    assert isinstance(names["selector"], Selector)
    history = np.asarray(names["history"])
    sizes = history.sum(axis=1)
    assert set(sizes.tolist()) <= {0, 12}
    # in turns: nobody is in a sum twice more often than somebody who was never away for long
    assert float(names["fairness"]) < 0.05
    assert int(names["exposed"]) == 120
    always = mj.selection.rollout(0, names["selector"], mj.availability.independent(0.0), 20)
    assert (np.asarray(always)[:10].sum(axis=0) == 1).all()
    assert (np.asarray(always)[10:].sum(axis=0) == 1).all()


def test_the_graph(names: dict[str, Any]) -> None:
    model = names["Cliques"](np.int32(4), 12)
    assert isinstance(model, GraphModel)
    graph = np.asarray(names["cliques"])
    assert (graph == graph.T).all()
    assert (graph.sum(axis=1) == 3).all()
    assert names["is_private"] is False
    assert np.asarray(names["apart"]).sum(axis=1).tolist() == [4, 4, 4]
    assert names["rates"].not_private.rate == 1.0


def test_the_attack(names: dict[str, Any]) -> None:
    isolated = np.asarray(mj.privacy.first_exposure(names["who"])) >= 0
    by_difference = names["error"] < 1e-20
    assert by_difference.any()
    assert not (by_difference & ~isolated).any()
    assert ((names["solved"] < 1e-20) == isolated).all()
    with pytest.raises(mj.ConfigurationError, match="`view` must be a AggregateView"):
        names["Differences"]().run(None, "a view")
