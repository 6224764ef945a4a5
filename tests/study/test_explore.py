"""What is explored by hand: each state is what the package's own functions find of it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import mrsa_jax as mj
from mrsa_jax.study.advice._by_hand import shown, state_of
from mrsa_jax.study.publishing._accessor import register

SMALL = {"num_clients": 26, "cohort_size": 7, "privacy_target": 3, "dropout_rate": 0.2,
         "availability": "independent", "rounds": 40, "seed": 5}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [{}, {"privacy_target": 1}, {"availability": "markov:5"}, {"privacy_target": 24}],
)
def test_a_state_is_what_its_code_makes(
    changes: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found = state_of({**SMALL, **changes})
    names: dict[str, Any] = {}
    exec(found.code, names)
    plt.close("all")
    own = np.asarray(names["history"])
    np.testing.assert_array_equal(found.history, own)
    np.testing.assert_array_equal(found.first_exposure, mj.privacy.first_exposure(own))
    wanted = mj.privacy.hidden_among_trajectory(own, quantiles=(0.0, 0.5))
    np.testing.assert_allclose(found.hidden, wanted, rtol=1e-6)
    assert found.fairness_gap == pytest.approx(
        float(mj.selection.fairness_gap(own)[-1])
    )
    mean = mj.selection.aggregation_cardinality(own)
    assert found.cardinality == pytest.approx(float(mean[-1]))
    values = found.values
    advice = mj.study.advise(
        values["num_clients"],
        values["cohort_size"],
        0.2,
        trials=0,
        availability=values["availability"],
    )
    assert found.advice == advice.sentences[0]
    assert (
        f"{np.asarray(mj.privacy.hidden_among(own)).min()}"[:6]
        in capsys.readouterr().out
    )


@pytest.mark.long
def test_sizes_become_multiples_of_t_and_the_page_says_all() -> None:
    found = shown({**SMALL, "cohort_size": 8, "num_clients": 30, "privacy_target": 4})
    assert found.values["num_clients"] == 28
    assert found.values["cohort_size"] == 8
    assert found.html.count('class="plot"') == 2
    for words in (
        "hidden among",
        "exposed clients",
        "0 of 28",
        "Take ",
        "T = 4",
        "batch_partitioning(28, 8, 4)",
    ):
        assert words in found.html
    assert found.code.startswith("import mrsa_jax as mj")


@pytest.mark.long
def test_a_widget_answers_what_is_asked_and_says_what_cannot_be() -> None:
    explorer = mj.explore(24, 6, 3, rounds=30)
    panel = explorer.widget
    assert panel.html == explorer.html
    panel.asked = {"count": 1, "values": {"privacy_target": 2}}
    assert explorer.values["privacy_target"] == panel.values["privacy_target"] == 2
    assert panel.shown == 1
    assert "batch_partitioning(24, 6, 2)" in panel.code == explorer.code
    panel.asked = {"count": 2, "values": {"availability": "cyclic"}}
    assert "must be independent or markov:ROUNDS" in panel.html
    assert explorer.values["availability"] == "independent"
    bundle = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/html"] == explorer.html
    assert bundle["text/plain"] == repr(explorer)
    assert "privacy_target 2" in repr(explorer)
    assert "\n" not in repr(explorer)
    panel.close()


@pytest.mark.long
def test_without_anywidget_a_page_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    explorer = mj.explore(24, 6, 3, rounds=30)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    bundle = explorer._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/html"].startswith(explorer.html)
    assert "pip install &#x27;anywidget" in bundle["text/html"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"num_clients": 3}, "`num_clients` must be a number from 4 to 240"),
        ({"dropout_rate": 0.9}, "`dropout_rate` must be a number from 0 to 0.8"),
        (
            {"availability": "cyclic"},
            "`availability` must be independent or markov:ROUNDS",
        ),
        ({"seed": -1}, "`seed`"),
    ],
)
def test_what_no_slider_has_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=said):
        mj.explore(**settings)


@pytest.mark.long
def test_nothing_of_a_notebook_is_imported_until_it_is_shown() -> None:
    code = "import mrsa_jax as mj; mj.explore; import sys; print('anywidget' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_any_column_of_points_is_drawn() -> None:
    register()
    rng = np.random.default_rng(0)
    points = xr.Dataset(
        {
            name: (("size", "rate"), rng.uniform(1, 2, (3, 2)))
            for name in ("cost", "gain")
        }
        | {"done": (("size", "rate"), np.ones((3, 2), bool))},
        coords={"size": [1, 2, 4], "rate": [0.1, 0.2]},
    )
    curves = points.mrsa.explore(x="size", y="cost", colour="rate").html
    assert curves.count('class="plot"') == 1
    assert curves.count("<g class=") == 2
    marks = points.mrsa.explore(x="gain", y="cost", facet="rate")
    assert marks.html.count('class="plot"') == 2
    assert [
        marks.html.count(f'<circle class="s0" data-i="{row}"') for row in range(6)
    ] == [1] * 6
    assert len(repr(marks)) < 120
    with pytest.raises(mj.ConfigurationError, match="`colour` must be a column"):
        points.mrsa.explore(colour="colour")
