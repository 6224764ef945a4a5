"""Trainings of items that are kept: what names them, and items that were interrupted."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import pandas as pd
import pytest
from inside import inside

import mrsa_jax as mj
from mrsa_jax import federated
from mrsa_jax.study._progress import Silent
from mrsa_papers import ITEMS, ReproduceConfig, _driver, run_and_save
from mrsa_papers._config import usual_seconds, with_settings
from mrsa_papers.harness import Context
from mrsa_papers.harness._trainings import Trainings

training = inside("multiround.table5").training
BASE = training.Setting(
    "IID",
    "logistic",
    "iid",
    4,
    2,
    50,
    50_000,
    (0.1,),
    True,
    num_clients=12,
    cohort_size=6,
    targets=(2,),
)
SMALL = {
    "num_clients": 12,
    "cohort_size": 4,
    "privacy_targets": (2,),
    "window_lengths": (6, 8),
    "rate_factors": (1.0, 0.1),
    "rounds_before": 5,
    "num_seeds": 3,
}


class Named(Trainings):
    """Trainings whose folders' names are noted."""

    def of(self, *parts: Any) -> federated.Checkpoints:
        """Note the name."""
        place = super().of(*parts)
        self.name = place.directory.name
        return place


def _name(
    folder: pathlib.Path,
    setting: training.Setting = BASE,
    *,
    scheme: str = "Random",
    rate: float = 0.1,
    seed: int = 0,
    trial: int = 0,
) -> str:
    kept = Named(folder)
    context = Context(seed, dataset="digits", trainings=kept)
    list(training._train(context, setting, scheme, [trial], rate))
    return kept.name


@pytest.mark.long
def test_everything_that_a_training_is_made_of_names_it(
    tmp_path: pathlib.Path,
) -> None:
    def other(**fields: Any) -> str:
        return _name(tmp_path, dataclasses.replace(BASE, **fields))

    names = [
        _name(tmp_path),
        _name(tmp_path, scheme="User partition"),
        _name(tmp_path, rate=0.2),
        _name(tmp_path, seed=1),
        _name(tmp_path, trial=1),
        other(decays=False),
        other(rounds=6),
        other(every=1),
        other(batch=5_000),
        other(split="shards"),
        other(model="mlp"),
        other(dropout_rates=(0.3,)),
        other(cohort_size=4),
    ]
    assert len(set(names)) == len(names)
    assert _name(tmp_path) == names[0]


class Interruption(Exception):
    """An interruption between two trainings."""


class Interrupting(Silent):
    """Progress that ends in an exception when as many steps are done."""

    def __init__(self, steps: int) -> None:
        """Note the number of steps."""
        self.steps = steps

    def update(self, done: int, total: int) -> None:
        """Interrupt."""
        if done >= self.steps:
            raise Interruption


@pytest.mark.long
def test_an_interrupted_item_resumes_and_equals_one_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first of three trainings, and again after the second."""
    trained: list[int] = []
    train_many = federated.train_many

    def counted(*args: Any, progress: Any = None, **words: Any) -> Any:
        rounds: list[int] = []
        results = train_many(
            *args, progress=lambda done, _: rounds.append(done), **words
        )
        trained.append(len(rounds))
        return results

    monkeypatch.setattr(federated, "train_many", counted)

    def config(name: str, **words: Any) -> ReproduceConfig:
        out = tmp_path / name
        plain = ReproduceConfig(
            ("multiround.motion",), dataset="digits", out=out, **words
        )
        return with_settings(plain, SMALL)

    # two speeds and two schemes: four steps for each seed, of which the first trains
    for steps in (4, 8):
        with pytest.raises(Interruption):
            run_and_save(config("torn"), Interrupting(steps))
        assert list((tmp_path / "torn" / "items" / "trainings").iterdir())
    torn = run_and_save(config("torn"))
    whole = run_and_save(config("whole"))
    # a training that is kept trains no round again
    assert [bool(rounds) for rounds in trained] == [
        *(True,),
        *(False, True),
        *(False, False, True),
        *(True, True, True),
    ]
    assert torn.items[0].item.checks == whole.items[0].item.checks
    frames = [
        pd.read_csv(tmp_path / name / "items" / "multiround.motion" / "motion.csv")
        for name in ("torn", "whole")
    ]
    pd.testing.assert_frame_equal(*frames, check_exact=True)
    assert not (tmp_path / "torn" / "items" / "trainings").exists()
    # made again from the start where asked
    before = len(trained)
    run_and_save(config("whole", overwrite=True))
    assert all(trained[before:])


@pytest.mark.long
def test_a_damaged_training_is_named_and_not_used(
    tmp_path: pathlib.Path,
) -> None:
    _name(tmp_path)
    (place,) = tmp_path.iterdir()
    (step,) = place.iterdir()
    state = step / "state.npz"
    state.write_bytes(state.read_bytes()[:-9])
    with pytest.raises(mj.MrsaError, match="damaged"):
        _name(tmp_path)


def test_the_time_that_is_left_is_timed_after_the_first_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 3 trainings of 100 rounds, at 2 s per round and 30 s to compile."""
    clock = [0.0]
    monkeypatch.setattr(_driver.time, "perf_counter", lambda: clock[0])
    target = ("multiround", "table5")
    overall = _driver.Overall(Silent(), {target: 60.0})
    context = Context(progress=overall)
    overall.begin(target)
    context.expect(300)
    # nothing is timed yet: the catalogue's
    assert overall.seconds_left() == 60.0
    for training_number in range(3):
        tell = context.counted()
        clock[0] += 30.0
        tell(1, 100)
        for done in range(2, 101):
            clock[0] += 2.0
            tell(done, 100)
            if done == 3:
                assert overall.seconds_left() == 2.0 * (297 - 100 * training_number)
    assert overall.seconds_left() == 0.0
    # the next item begins without what this one has measured
    overall.begin(target)
    assert overall.seconds_left() > 0.0


class Saying(Silent):
    """Progress that keeps what it is to show."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.said: list[str] = []
        self.noted: list[str] = []

    def say(self, text: str) -> None:
        """Keep a line."""
        self.said.append(text)

    def note(self, text: str) -> None:
        """Keep a remark."""
        self.noted.append(text)


def test_no_time_is_shown_before_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items of data never timed: 40 days of rounds are 40 days by the second."""
    clock = [0.0]
    monkeypatch.setattr(_driver.time, "perf_counter", lambda: clock[0])
    known, unknown = ("multiround", "fig2"), ("multiround", "table3")
    shown = Saying()
    overall = _driver.Overall(shown, {known: 5.0, unknown: None})
    overall.begin(known)
    assert overall.seconds_left() is None
    clock[0] += 5.0
    overall.end("reproduced")
    context = Context(progress=overall)
    overall.begin(unknown)
    rounds = 40 * 24 * 100  # a hundred rounds per hour
    context.expect(rounds)
    tell = context.counted()
    clock[0] += 300.0
    tell(1, rounds)
    assert overall.seconds_left() is None
    for done in (2, 3, 4):
        clock[0] += 36.0
        tell(done, rounds)
    assert overall.seconds_left() == pytest.approx(40 * 86400, rel=0.001)
    assert shown.said == [
        "2 items to make, about 5 s for 1 of them",
        "1 of 2 done: multiround.fig2, reproduced, 5.0 s",
        "multiround.table3: about 40 days, by its first rounds",
    ]
    assert shown.noted[-1].endswith("about 40 days left in all")
    alone = Saying()
    _driver.Overall(alone, {unknown: None})
    assert alone.said == ["1 item to make"]


def test_usual_times_are_of_the_data_and_settings_that_were_timed() -> None:
    """A run of other data or settings has no usual time, whichever item it is."""
    plain = ReproduceConfig()
    for paper, rows in ITEMS.items():
        for name, row in rows.items():
            target = (paper, name)
            elsewhere = dataclasses.replace(plain, dataset="cifar10")
            assert usual_seconds(target, plain) == row.seconds
            fast = dataclasses.replace(plain, fast=True)
            assert usual_seconds(target, fast) == row.fast_seconds
            assert (usual_seconds(target, elsewhere) is None) == row.trains
    own = with_settings(ReproduceConfig(("multiround.fig4b",)), {"num_trials": 7})
    assert usual_seconds(("multiround", "fig4b"), own) is None


@pytest.mark.parametrize("rates", [(0.1,), (0.1, 0.01)])
def test_skipped_rounds_are_no_rounds_to_train(rates: tuple[float, ...]) -> None:
    """Against rounds with a sum in histories of 400 rounds, all clients alike.

    Equal rates, so that no assignment matters: each scheme has the expected share of
    rounds, within five standard errors of a coin of 400 x 40 throws.
    """
    setting = dataclasses.replace(
        BASE, rounds=400, dropout_rates=(0.3,), rates=rates, searched=(12, 6)
    )
    summed = sum(
        float(
            mj.selection.rollout_trials(
                0, selector, mj.availability.independent(0.3), 400, 40
            )
            .any(axis=2)
            .mean()
        )
        for selector in setting.schemes.values()
    )
    # two seeds, and the pilot's search of both rates
    times = 2 + (len(rates) if len(rates) > 1 else 0)
    expected = training.rounds_to_train([setting], 2)
    assert expected == pytest.approx(400 * summed * times, rel=0.02)
    assert expected < 0.9 * 400 * len(setting.schemes) * times
