"""Drift of updates in studies.

Against the training and the bits by themselves, and the page.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
import xarray as xr

from mrsa_jax import federated, plotting, privacy, study
from mrsa_jax.study.publishing import _summary
from mrsa_jax.study.runs import _measured

pytestmark = pytest.mark.long

_TEXT: dict[str, Any] = {"rounds": 9, "scheme": "uniform"}


def _config(**more: Any) -> study.TrainConfig:
    base = study.TrainConfig(**(_TEXT | more.pop("top", {})))
    parts = {
        "population": {"num_clients": 8, "cohort_size": 4, "dropout_rates": (0.2,)},
        "data": {"dataset": "digits"},
        "training": {"model": "mlp", "evaluate_every": 3},
    }
    for name, own in more.items():
        parts[name] = parts.get(name, {}) | own
    return dataclasses.replace(
        base,
        **{
            name: dataclasses.replace(getattr(base, name), **own)
            for name, own in parts.items()
        },
    )


@pytest.fixture(scope="module")
def trained() -> xr.Dataset:
    return study.run(_config())


def _kernel(results: xr.Dataset, rounds: np.ndarray) -> np.ndarray:
    lags = np.abs(np.subtract.outer(rounds, rounds))
    share, rho = float(results["update_lasting"][0]), float(results["update_memory"][0])
    return np.where(lags == 0, 1.0, share * rho**lags)


def test_mates_hide_by_the_drift_of_each(trained: xr.Dataset) -> None:
    """Pairs, of whom the first of each keeps its update and the other does not."""
    rng, who = np.random.default_rng(0), np.tile(np.arange(4), (30, 1))
    updates = rng.normal(size=(30, 4, 400))
    updates[:, [0, 2]] = updates[0, [0, 2]]
    drift = federated.measure_drift(updates, who)
    assert drift.client_memory[0] > 0.95
    pairs = np.tile([1, 1, 0, 0], (30, 1))
    pairs[1::2] = [0, 0, 1, 1]
    found = _measured._by_mates(drift, pairs)
    expected = privacy.hidden_among_mates(
        pairs,
        memory=drift.client_memory,
        share=drift.client_lasting,
        variance=drift.client_spread**2,
    )
    assert found == expected.min()
    assert 1 < found < 1.5  # a mate of the same drift would hide as among two
    more = np.concatenate([pairs, np.ones((30, 1), np.int64)], axis=1)
    assert np.isnan(_measured._by_mates(drift, more))  # of the fifth nothing is known
    assert float(trained["update_mates_worst"][0]) == 1  # nobody has a mate


def test_the_correlation_of_mates_caps_what_is_explained(trained: xr.Dataset) -> None:
    """kappa between mates.

    (1 + (T - 1) kappa) / T of an update, and all of it without mates.
    """
    caps = [
        _measured._capped(*own) for own in ((0.0, 4), (0.2, 4), (1.0, 3), (np.nan, 1))
    ]
    assert caps == pytest.approx([4, 2.5, 1, 1])
    assert _measured._capped(-0.5, 3) == np.inf
    assert np.isnan(_measured._capped(np.nan, 4))
    assert np.isnan(float(trained["update_mates_correlation"][0]))
    assert float(trained["update_mates_cap"][0]) == 1
    assert not any("mates hide" in sentence for sentence in _summary.sentences(trained))
    found = {"update_mates_cap": 2.5, "update_mates_correlation": 0.2}
    blocks = trained.assign({name: ("scheme", [own]) for name, own in found.items()})
    (sentence,) = [one for one in _summary.sentences(blocks) if "mates hide" in one]
    assert "an update among at least 2.50 under Random (kappa 0.2)." in sentence


def test_bits_are_those_of_the_measured_drift(trained: xr.Dataset) -> None:
    rows = trained["participation"].values[0]
    right = privacy.information(rows, _kernel(trained, np.arange(9)))
    np.testing.assert_allclose(trained["bits"].values[0], right, rtol=1e-9)
    assert trained["rounds_done"].values.tolist() == list(range(1, 10))
    worst = trained["bits_worst"].values[0]
    assert worst[-1] == pytest.approx(right.max())
    assert (np.diff(worst) > -1e-12).all()
    hidden = privacy.hidden_among(rows, memory=_kernel(trained, np.arange(9)))
    assert float(trained["update_hidden_worst"][0]) == hidden.min()
    assert float(trained["update_hidden_median"][0]) == np.median(hidden)
    share = float(trained["update_lasting"][0])
    assert 0 < share < 1
    sizes = privacy.hidden_among(rows, memory=1.0, share=share, of="lasting")
    assert float(trained["lasting_hidden_worst"][0]) == sizes.min()
    assert float(trained["lasting_hidden_median"][0]) == np.median(sizes)
    assert trained["bits_median"].values[0, -1] == pytest.approx(
        np.median(right[right > 0])
    )
    assert 0 < float(trained["update_spread"][0]) < 1
    assert trained["layer"].values.tolist() == ["Dense_0", "Dense_1", "Dense_2"]
    assert trained["lag"].values.tolist() == list(range(1, 9))
    pairs = (rows[:, None] & rows[None]).sum(axis=2)
    found = trained["correlation_pairs"].values[0]
    assert found.tolist() == [float(np.trace(pairs, lag)) for lag in range(1, 9)]


def test_training_is_the_same_without_it(trained: xr.Dataset) -> None:
    plain = study.run(_config(training={"measure_drift": False}))
    assert not {"bits", "update_memory", "lag", "layer"} & set(plain.variables)
    for name in ("accuracy", "loss", "status", "participation"):
        np.testing.assert_array_equal(plain[name].values, trained[name].values)
    (row,) = _summary.summarise(plain)
    assert row.bits_worst is None
    assert not any("drift" in sentence for sentence in _summary.sentences(plain))


def test_weights_of_a_mean_count() -> None:
    weighted = study.run(_config(aggregation={"weighted": True}))
    rows = weighted["participation"].values[0] * weighted["samples"].values.astype(
        np.int64
    )
    right = privacy.information(rows, _kernel(weighted, np.arange(9)))
    np.testing.assert_allclose(weighted["bits"].values[0], right, rtol=1e-9)


def test_a_training_of_one_round_has_spread_alone(tmp_path: Any) -> None:
    config = dataclasses.replace(_config(top={"rounds": 1}), out=tmp_path / "out")
    saved = study.run_and_save(config)
    (row,) = saved.rows
    assert row.update_spread > 0
    assert row.update_memory is None
    assert row.bits_worst is None
    opened = study.open_study(config.out)
    assert np.isnan(opened["bits"].values).all()
    page = (config.out / "report.html").read_text()
    assert "How updates drift" in page
    assert {"bits_worst", "correlation"}.isdisjoint(
        path.stem for path in config.out.glob("*.png")
    )


def test_the_page_sets_them_side_by_side(trained: xr.Dataset, tmp_path: Any) -> None:
    (row,) = _summary.summarise(trained)
    (sentence,) = [one for one in _summary.sentences(trained) if "drift" in one]
    assert row.update_mates_worst == float(trained["update_mates_worst"][0]) == 1
    assert sentence.startswith(
        f"Updates changed during training: {100 * row.update_lasting:.0f} %"
    )
    hidden = f"hidden among {row.update_hidden_worst:.2f}"
    assert (
        f"{hidden} under Random after 9 rounds. T limits what is learnt of each"
        in sentence
    )
    assert "The total grows with every participation for any T." in sentence
    assert f"the sums reveal {row.bits_worst:.3g} under Random, if" in sentence
    page = re.sub(r"<[^>]+>", " ", trained.mrsa.report(tmp_path).read_text())
    for words in (
        "Hidden among (worst)",
        "Update hidden (worst)",
        "Lasting share",
        "Dense_2",
        "By mates alone (at least)",
        f"{row.update_memory:.4g}",
        f"{row.bits_worst:.4g}",
        f"{row.bits_median:.4g}",
        f"{row.update_hidden_worst:.4g}",
        "So this is no guarantee",
        "Assumed, not shown",
    ):
        assert words in page, words


def test_figures_show_what_was_measured(trained: xr.Dataset) -> None:
    import matplotlib.pyplot as plt

    ax = plotting.plot_study(trained, "correlation")
    measured, fitted = (line.get_ydata() for line in ax.get_lines())
    is_known = trained["correlation_pairs"].values[0] >= 10
    assert 0 < is_known.sum() < is_known.size  # too few pairs tell nothing
    np.testing.assert_allclose(
        measured[is_known], trained["correlation"].values[0][is_known]
    )
    assert np.isnan(measured[~is_known]).all()
    np.testing.assert_allclose(fitted, _kernel(trained, np.arange(9))[0, 1:])
    ax = plotting.plot_study(trained, "bits_worst")
    worst, median = (line.get_ydata() for line in ax.get_lines())
    np.testing.assert_allclose(median, trained["bits_median"].values[0])
    np.testing.assert_allclose(worst, trained["bits_worst"].values[0])
    plt.close("all")
