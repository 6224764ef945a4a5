"""The list of expected misses.

Each is a claim that its item really makes, and is explained.
Items are not trained here: their claims are made from made-up measurements. At the fast
size, `test_fast` runs everything.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inside import inside, values_of_item

from mrsa_jax import data, selection
from mrsa_papers import ITEMS, Check
from mrsa_papers.harness import ANY, Context, Miss, is_data_of, substitution

reliability = inside("ccesa.fig4")
unequal = inside("heterosag.fig3a")
accuracy = inside("multiround.table5")
windows = inside("multiround.fig9")
images = inside("multiround.fig10")
rounds = inside("multiround.fig4b")
training, Runs = accuracy.training, reliability.Runs

Patch = pytest.MonkeyPatch
EXPECTED: list[tuple[str, str, Miss]] = [
    (paper, name, miss)
    for paper, rows in ITEMS.items()
    for name, row in rows.items()
    for miss in row.misses
]


def _rows(**columns: Any) -> pd.DataFrame:
    """Return every combination of the columns' values."""
    return pd.DataFrame(itertools.product(*columns.values()), columns=list(columns))


def _context() -> Context:
    return Context(dataset="digits")


def _of_table(name: str) -> Callable[[Patch], tuple[Check, ...]]:
    def checks(patch: Patch) -> tuple[Check, ...]:
        def train(
            _: Any, setting: Any, scheme: str, trials: range, rate: float, *__: Any
        ) -> Any:
            return [
                {
                    "panel": setting.panel,
                    "scheme": scheme,
                    "seed": trial,
                    "rate": rate,
                    "round": r,
                    "trained rounds": r,
                    "accuracy": 0.5,
                    "loss": 1.0,
                    "diverged": False,
                    "most clipped": 0.0,
                }
                for trial in trials
                for r in (1, setting.rounds)
            ]

        patch.setattr(training, "_train", train)
        values = values_of_item(f"multiround.{name}")
        # whose images the items' models fit
        return getattr(accuracy, name)(Context(), values).checks  # type: ignore[no-any-return]

    return checks


def _of_windows(name: str, make: str) -> Callable[[Patch], tuple[Check, ...]]:
    def checks(patch: Patch) -> tuple[Check, ...]:
        def solved(_: Context, plan: Any, *__: object, **___: object) -> pd.DataFrame:
            frame = _rows(
                target=plan.targets,
                speed=plan.speeds,
                rounds=plan.lengths,
                seed=(0, 1),
                client=(0, 1),
            )
            frame["scheme"] = frame["target"].map(windows.label_of)
            for column in (
                "error",
                "frozen",
                "regularised",
                "predicted",
                "motion",
                "gain",
                "unattacked",
                "accuracy",
                "rounding",
                "clipped",
            ):
                frame[column] = 0.5
            return frame.assign(exposed=False, sums=40)

        patch.setattr(windows, "_solved", solved)
        values = values_of_item(f"multiround.{name}")
        return getattr(windows, make)(_context(), values).checks  # type: ignore[no-any-return]

    return checks


def _of_images(patch: Patch) -> tuple[Check, ...]:
    names = [
        images._name(t, together=both) for t in (1, 2, 4) for both in (False, True)
    ]
    frame = _rows(
        seen=[*dict.fromkeys(names), "mean of all images", images.PADDED], seed=(0, 1)
    )
    made = frame.assign(psnr=1.0, error=0.0, exposed=False)
    return tuple(images._checks(made, (2, 4)))


def _of_reliability(make: str, item: str) -> Callable[[Patch], tuple[Check, ...]]:
    def checks(patch: Patch) -> tuple[Check, ...]:
        def measured(runs: Runs) -> pd.DataFrame:
            own = runs
            tests = _rows(
                split=list(own.splits),
                q_total=own.totals,
                p=own.chances,
                seed=(0, 1),
                round=(2, own.rounds),
            )
            tests = tests.assign(
                measure="accuracy", accuracy=0.5, **{"learnt rounds": 1}
            )
            rates = _rows(q_total=own.totals, p=own.chances).assign(
                measure="failure", count=1, trials=10, rate=0.1, lower=0.01, upper=0.2
            )
            return pd.concat(
                [tests, rates.assign(**{"theorem 5": 0.5})], ignore_index=True
            )

        patch.setattr(reliability, "_measure", measured)
        patch.setattr(reliability, "_caption", lambda *_: "")
        patch.setattr(reliability, "_failing", lambda *_: "")
        patch.setattr(Runs, "same_model", lambda *_: True)
        # whose samples suffice for a thousand clients
        made = getattr(reliability, make)(Context(), values_of_item(item))
        return made.checks  # type: ignore[no-any-return]

    return checks


def _of_experiment_1(patch: Patch) -> tuple[Check, ...]:
    values = values_of_item("heterosag.fig3a")
    frame = _rows(
        classes=("sorted classes",),
        scheme=("K = 2", "SC", "MC", "K = 12"),
        factor=(1.0, *values.clip_factors),
        seed=range(values.num_seeds),
        round=(5, 100),
    )
    return unequal._accuracy_checks(frame.assign(accuracy=0.5), values, 0.04)


def _of_expected_shares(patch: Patch) -> tuple[Check, ...]:
    gap = selection.ExpectedGap(0.05, 0.0, 0.05, 0.05, True)
    patch.setattr(rounds.selection, "expected_fairness_gap", lambda *_, **__: gap)
    values = values_of_item(
        "multiround.fig4b", num_trials=1, num_assignments=1, num_rounds=10, num_draws=1
    )
    return rounds.fairness_over_rounds(_context(), values).checks  # type: ignore[no-any-return]


CLAIMS: dict[tuple[str, str], Callable[[Patch], tuple[Check, ...]]] = {
    **{
        ("multiround", name): _of_table(name) for name in ("table3", "table4", "table5")
    },
    ("multiround", "fig9"): _of_windows("fig9", "updates_over_a_window"),
    ("multiround", "fig8_2021"): _of_windows("fig8_2021", "models_of_2021"),
    ("multiround", "fig10"): _of_images,
    ("multiround", "fig4b"): _of_expected_shares,
    ("ccesa", "fig4"): _of_reliability("objects", "ccesa.fig4"),
    ("ccesa", "figb1"): _of_reliability("faces", "ccesa.figb1"),
    ("heterosag", "fig3a"): _of_experiment_1,
}
"""Each item's claims at full size, from made-up measurements."""


def test_misses_are_listed_once_and_explained() -> None:
    keys = [(paper, item, miss.claim, miss.size) for paper, item, miss in EXPECTED]
    assert len(set(keys)) == len(keys) == 25
    for paper, item, known in EXPECTED:
        assert known.size in ("full", "fast", "both")
        assert 60 < len(known.why) < 400, known.why
        assert known.why.endswith(".")
        assert ITEMS[paper][item].trains or known.dataset is None


@pytest.mark.parametrize(
    "item",
    sorted({(paper, item) for paper, item, miss in EXPECTED if miss.size != "fast"}),
)
def test_each_is_a_claim_that_its_item_makes(
    item: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {check.name for check in CLAIMS[item](monkeypatch)}
    paper, name = item
    listed = {miss.claim for miss in ITEMS[paper][name].misses if miss.size != "fast"}
    assert listed <= made, made


def test_the_made_up_items_would_show_a_misspelt_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = {check.name for check in CLAIMS["multiround", "fig9"](monkeypatch)}
    assert "mean error of random selection" not in made
    assert len(made) > 5


@pytest.mark.smoke
def test_data_in_place_of_the_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(name: str, samples: int, classes: int) -> data.Dataset:
        nothing = np.zeros((0, 1, 1, 1), np.float32)
        labels = np.zeros(samples, np.int64)
        return data.Dataset(name, nothing, labels, nothing, labels[:0], classes)

    # what the samples are decides (tests/data/test_recognise.py), and no name
    true = {"x:mnist": "mnist", "kept:olivetti": "olivetti", "any": "cifar100"}
    monkeypatch.setattr(data, "recognise", lambda dataset: true.get(dataset.name, ""))
    cases = [
        ("x:mnist", 60_000, 10, "mnist", True),
        ("x:mnist", 60_000, 10, "fashion_mnist", False),
        ("x:mnist", 4_000, 10, "mnist", False),
        ("mnist", 60_000, 10, "mnist", False),
        ("idx:MNIST", 60_000, 10, "mnist", False),
        ("any", 50_000, 100, "cifar100", True),
        ("any", 50_000, 100, "cifar10", False),
        ("kept:olivetti", 320, 40, "olivetti", True),
        ("olivetti", 320, 40, "olivetti", False),
    ]
    for name, samples, classes, known, is_same in cases:
        assert is_data_of(named(name, samples, classes), known) is is_same, name
    assert substitution(named("x:mnist", 60_000, 10), "mnist") == ("MNIST", "")
    doubtful = "mnist (not recognised)"
    assert substitution(named("mnist", 60_000, 10), "mnist") == ("MNIST", doubtful)
    assert substitution(named("mnist_5k", 4_000, 10), "olivetti") == (
        "the AT&T faces",
        "mnist_5k",
    )
    assert substitution(named("mnist_5k", 4_000, 10), ANY) == ("", "mnist_5k")
