"""The suite measures selectors: figures against other computations, and real cards."""

from __future__ import annotations

import fractions
import json
import math
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import cli
from mrsa_jax.selection.registry import ROWS
from mrsa_jax.study.runs import _train_points
from mrsa_jax.study.stores._runner import TRAJECTORIES, Machine
from mrsa_jax.study.suite import _points, _run, fresh_seeds, read_card, verify_card
from mrsa_jax.study.suite._others import fcp_sampling, flower_sampling, lotto_random
from mrsa_jax.study.suite._scenarios import SUITE, Version, settings_of

pytestmark = pytest.mark.usefixtures("as_before")

MINE = """
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mrsa_jax as mj

class State(NamedTuple):
    counts: Any

@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class First:
    cohort_size: int = dataclasses.field(metadata={"static": True})
    num_clients: int = dataclasses.field(metadata={"static": True})

    def init(self):
        return State(jnp.zeros(self.num_clients, jnp.int32))

    def select(self, key, state, available):
        cohort = available & (jnp.cumsum(available, dtype=jnp.int32) <= self.cohort_size)
        return cohort, State(state.counts + cohort.astype(jnp.int32))

mj.selection.register("first_online", lambda n, k: First(k, n), label="First online")
"""


def histories(selector: Any, rate: float, rounds: int) -> np.ndarray:
    online = mj.availability.independent(rate)
    return np.asarray(mj.selection.rollout(0, selector, online, rounds))


@pytest.mark.long
def test_rules_of_others_have_the_stated_sizes() -> None:
    n, k, rate, rounds = 60, 12, 0.5, 400
    online = 1.0 - rate
    # Flower: the whole part of K / N of the online clients, at least two
    sizes = histories(flower_sampling(n, k), rate, rounds).sum(axis=1)
    assert set(sizes.tolist()) <= {max(2, k * m // n) for m in range(n + 1)}
    expected = sum(
        math.comb(n, m) * online**m * rate ** (n - m) * max(2, k * m // n)
        for m in range(2, n + 1)
    )
    assert abs(sizes.mean() - expected) < 4 * sizes.std() / math.sqrt(rounds)
    # FCP: all K, or those that are online if they reach the goal, or none
    sizes = histories(fcp_sampling(n, 36), rate, rounds).sum(axis=1)
    assert sizes.max() == 36
    assert set(sizes.tolist()) <= {0, *range(18, 37)}
    assert (sizes == 36).mean() < 0.2
    # Lotto: a binomial number of online clients, cut at K
    sizes = histories(lotto_random(n, k), rate, rounds).sum(axis=1)
    chance = online * 1.3 * k / n
    expected = sum(
        math.comb(n, m) * chance**m * (1 - chance) ** (n - m) * min(m, k)
        for m in range(2, n + 1)
    )
    assert abs(sizes.mean() - expected) < 4 * sizes.std() / math.sqrt(rounds)


@pytest.mark.long
def test_rules_of_others_draw_all_clients_alike() -> None:
    for factory in (flower_sampling, fcp_sampling, lotto_random):
        history = histories(factory(40, 8), 0.2, 2000)
        counts = history.sum(axis=0)
        mean = counts.mean()
        # chi-square of 39 degrees of freedom, whose 1e-6 quantile is below 105
        assert ((counts - mean) ** 2 / mean).sum() < 105


def rank_of(rows: list[list[fractions.Fraction]]) -> int:
    rows, rank = [row[:] for row in rows], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((r for r in range(rank, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for r in range(rank + 1, len(rows)):
            factor = rows[r][column] / rows[rank][column]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[rank], strict=True)]
        rank += 1
    return rank


def exposed_by_fractions(history: np.ndarray) -> int:
    rows = [[fractions.Fraction(int(bit)) for bit in row] for row in history]
    rank, count = rank_of(rows), 0
    for client in range(history.shape[1]):
        unit = [fractions.Fraction(int(k == client)) for k in range(history.shape[1])]
        count += rank_of([*rows, unit]) == rank
    return count


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["uniform", "partition"])
def test_figures_agree_with_other_computations(scheme: str) -> None:
    config = settings_of("v1", "whole_numbers", scheme, 1)
    values = _points.measure(config)
    selector = ROWS[scheme].build(24, 6)
    history = np.asarray(
        mj.selection.rollout(1, selector, mj.availability.independent(0.0), 60)
    )
    assert values["history"] == _points.history_digest(history)
    counts = history.sum(axis=0)
    assert values["cardinality"] == history.sum() / 60
    assert values["fairness_gap"] == (counts.max() - counts.min()) / 60
    assert values["skipped_rounds"] == int((history.sum(axis=1) == 0).sum())
    assert values["exposed_clients"] == exposed_by_fractions(history)
    before = values["rounds_unexposed"]
    assert exposed_by_fractions(history[:before]) == 0
    if before < 60:
        assert exposed_by_fractions(history[: before + 1]) > 0
    columns, sizes = np.unique(history.T, axis=0, return_counts=True)
    assert values["strong_privacy"] == sizes[columns.any(axis=1)].min()
    # the leverage of a client is the diagonal of the projection on the rows
    rows = history[:50].astype(np.float64)
    leverage = np.diag(np.linalg.pinv(rows) @ rows)
    assert values["update_hidden_worst_50"] == pytest.approx(1 / leverage.max())
    assert values["update_hidden_median_50"] == pytest.approx(np.median(1 / leverage))
    assert values["update_hidden_worst_200"] is None
    # Gaussian noise of deviation 1 in each of a client's sums: mu = sqrt(sums)
    mu, epsilon = math.sqrt(counts.max()), values["epsilon"]

    def normal(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    delta = normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal(
        -mu / 2 - epsilon / mu
    )
    assert delta == pytest.approx(1e-5, rel=1e-3)
    bound = 0.5 + math.comb(2 * values["strong_privacy"], values["strong_privacy"]) / (
        4 ** values["strong_privacy"]
    )
    assert values["attribute_bound"] == pytest.approx(
        bound if scheme != "uniform" else 1
    )


@pytest.mark.long
def test_a_server_exposes_all_unless_clients_enforce_blocks() -> None:
    blocks = "batch_partitioning:{privacy_target}"
    free = _points.measure(settings_of("v1", "free_server", blocks, 0))
    kept = _points.measure(settings_of("v1", "enforced_blocks", blocks, 0))
    assert free["exposed_clients"] == 24
    assert (kept["exposed_clients"], kept["strong_privacy"]) == (0, 3)
    # a scheme without blocks has none to enforce
    alone = _points.measure(settings_of("v1", "enforced_blocks", "uniform", 0))
    assert alone["exposed_clients"] == 24


@pytest.fixture
def few(suite_of: Callable[..., Version]) -> Version:
    """A version of two scenarios, whose cards are quick."""
    return suite_of("whole_numbers", "enforced_blocks")


@pytest.mark.long
def test_a_user_s_file_gets_a_card_that_is_verified(
    few: Version,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    pathlib.Path("first.py").write_text(MINE)
    plugin = ["--plugin", "first.py"]
    words = ["suite", *plugin, "--schemes", "first_online", "--out", "out", "--json"]
    with jax.numpy_dtype_promotion("standard"):
        assert cli.main(words) == 0
    (printed,) = json.loads(capsys.readouterr().out)["cards"]
    path = tmp_path / "out" / "first_online" / "card.json"
    card = read_card(path)
    assert card == printed
    assert card["label"] == "First online"
    assert [name for name in card["code"] if "first" in name]
    figures = card["scenarios"]["whole_numbers"]["figures"]
    # six clients in every round: one block, and the others in no sum
    assert figures["strong_privacy"]["values"] == [6, 6, 6]
    # the class does not state that it looks at no data
    assert figures["epsilon"]["value"] is None
    assert "First online" in (path.parent / "card.html").read_text()
    with jax.numpy_dtype_promotion("standard"):
        assert cli.main(["suite", "verify", str(path), "--all", *plugin]) == 0
        assert "6 of 6 points recomputed; the card holds" in capsys.readouterr().out
        verify = ["suite", "verify", str(path), *plugin]
        assert cli.main([*verify, "--fresh-seeds", "2"]) == 0
        printed = capsys.readouterr().out
        assert "2 of 6 points recomputed; the card holds" in printed
        assert "0 figures worse beyond the intervals with 2 fresh seeds" in printed
        (draw,) = re.findall(r"drawn by --draw (\d+)", printed)
        assert cli.main([*verify, "--draw", draw, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["draw"] == int(draw)
        # values that fit their means, but not the history
        entry = figures["cardinality"]
        entry |= {"value": 7.0, "low": 7.0, "high": 7.0, "values": [7.0, 7.0, 7.0]}
        path.write_text(json.dumps(card))
        assert cli.main(["suite", "verify", str(path), "--all", *plugin]) == 1
        printed = capsys.readouterr().out
        assert "scenarios.whole_numbers.figures.cardinality.values[2] is 7.0" in printed
        # other code of the same name
        pathlib.Path("first.py").write_text(MINE.replace("<=", "<"))
        assert cli.main(["suite", "verify", str(path), *plugin]) == 1
        assert "  code is " in capsys.readouterr().out


@pytest.mark.long
def test_a_suite_resumes_and_grows(few: Version, tmp_path: pathlib.Path) -> None:
    measured: list[tuple[str, int]] = []
    whole = _points.measure

    def counted(config: Any) -> Any:
        measured.append((config.scenario, config.seed))
        if len(measured) == 3:
            raise KeyboardInterrupt
        return whole(config)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_points, "measure", counted)
        with pytest.raises(KeyboardInterrupt):
            _run.run_suite("uniform", out=tmp_path)
        first = _run.run_suite("uniform", out=tmp_path)
        assert len(measured) == 7  # six, and the one that was interrupted
        assert _run.run_suite("uniform", out=tmp_path) == first
        assert len(measured) == 7
        more = _run.run_suite("uniform", out=tmp_path, seeds=4)
        assert measured[7:] == [("whole_numbers", 3), ("enforced_blocks", 3)]
    for name, entry in first["scenarios"].items():
        assert more["scenarios"][name]["histories"][:3] == entry["histories"]
    assert verify_card(more, every=True).holds
    third = verify_card(more, seed=5)
    assert len(third.cases) == 3
    assert third == verify_card(more, seed=5)


@pytest.mark.long
def test_workers_find_the_same_and_a_suite_grows_by_them(
    tmp_path: pathlib.Path,
) -> None:
    names = ["whole_numbers", "enforced_blocks"]
    here = _run.run_suite("uniform", out=tmp_path / "here", scenarios=names)
    workers = {"out": tmp_path / "workers", "scenarios": names, "workers": 1}
    assert _run.run_suite("uniform", **workers) == here
    more = _run.run_suite("uniform", **workers, seeds=4)["scenarios"]
    for name, entry in here["scenarios"].items():
        assert more[name]["histories"][:3] == entry["histories"]
        assert len({*more[name]["histories"]}) == 4
    # another scheme has its own folder, and changes nothing of this
    before = {p: p.read_bytes() for p in tmp_path.glob("*/uniform/**/*") if p.is_file()}
    _run.run_suite("weighted", **workers | {"workers": None})
    assert before == {path: path.read_bytes() for path in before}
    assert (tmp_path / "workers" / "weighted").is_dir()


@pytest.mark.long
def test_a_training_adds_to_a_card_and_is_of_the_same_rounds(
    suite_of: Callable[..., Version], tmp_path: pathlib.Path
) -> None:
    version = suite_of("mixed_shuffled", "training")
    without = _run.run_suite("partition", out=tmp_path, trainings=False)
    assert (without["parts"], [*without["scenarios"]]) == (
        ["histories"],
        ["mixed_shuffled"],
    )
    assert verify_card(without, seed=1).holds
    card = _run.run_suite("partition", out=tmp_path)
    # what was measured is not measured again, and is not lost
    rounds = card["scenarios"]["mixed_shuffled"]
    assert rounds == without["scenarios"]["mixed_shuffled"]
    trained = card["scenarios"]["training"]
    assert trained["histories"] == rounds["histories"]
    with pytest.raises(mj.OutputExistsError):
        _run.run_suite("partition", out=tmp_path, trainings=False)
    # the same training by the command's own runner
    config = version.scenarios["training"].training("partition", 2)
    (values,) = _train_points.run_points([config], Machine(), (TRAJECTORIES,), 1)
    accuracy = np.asarray(values["accuracy_by_evaluation"], np.float64)
    figures = {name: entry["values"][2] for name, entry in trained["figures"].items()}
    assert figures["accuracy"] == pytest.approx(accuracy[-1], abs=1e-6)
    reached = values["evaluated_round"][accuracy >= 0.8 - 1e-6]
    expected = int(reached[0]) if reached.size else None
    assert figures["rounds_to_accuracy"] == expected
    third = verify_card(card, seed=2)
    assert third.holds
    assert {name for name, _ in third.cases} == {"mixed_shuffled", "training"}


def peeking(num_clients: int, cohort_size: int) -> Any:
    """Return another selector under the seeds of cards, which the call stack shows."""
    frame = sys._getframe()
    while frame is not None:
        seed = getattr(frame.f_locals.get("config"), "seed", 0)
        if seed >= 2**20:
            return mj.selection.uniform(num_clients, cohort_size)
        frame = frame.f_back
    return mj.selection.partition(num_clients, cohort_size)


@pytest.mark.long
def test_other_seeds_do_not_confirm_a_selector_that_knows_them(
    suite_of: Callable[..., Version], tmp_path: pathlib.Path
) -> None:
    suite_of("whole_numbers", "thousand_rounds")
    mj.selection.register("peeking", peeking)
    card = _run.run_suite("peeking", out=tmp_path)
    assert verify_card(card, every=True).holds
    worse = {
        (row.scenario, row.figure)
        for row in fresh_seeds(card, 3, seed=0)
        if (0, 1) in row.better
    }
    for name in card["scenarios"]:
        assert {(name, "strong_privacy"), (name, "exposed_clients")} <= worse
    honest = _run.run_suite("partition", out=tmp_path)
    assert not any((0, 1) in row.better for row in fresh_seeds(honest, 3, seed=0))
    with pytest.raises(mj.ConfigurationError, match="`count`"):
        fresh_seeds(honest, 1)


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["verify", "card.json", "--schemes", "uniform"], "schemes"),
        (["verify", "card.json", "--no-train"], "train"),
        (["compare", "card.json", "card.json", "--all"], "all"),
        (["--draw", "3"], "draw"),
        (["--fresh-seeds", "3"], "fresh_seeds"),
        (["--workers", "1", "--scheduler", "tcp://host:1"], "workers"),
        (["verify", "card.json", "--all", "--draw", "3"], "draw"),
    ],
)
def test_flags_of_another_task_are_refused(
    words: list[str], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["suite", *words]) == 2
    assert f"`{field}` must not be set" in capsys.readouterr().err


@pytest.mark.long
def test_a_scheme_that_does_not_fit_says_why(
    few: Version, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(mj.ConfigurationError, match="must be a multiple"):
        _run.run_suite("batch_partitioning:5", out=tmp_path)
    assert SUITE.name == "suite"


PROGRAM = pathlib.Path(__file__).with_name("machines.py")
PRODUCT = "import numpy; numpy.ones((50, 1000)) @ numpy.ones((1000, 2))"
MACHINES = [
    {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": threads}
    for core in ("Haswell", "SkylakeX", "Zen")
    for threads in ("1", "2")
] + [{"XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"}]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["loops", "xla"])
def test_stored_cards_hold_on_all_kinds_of_processors(form: str) -> None:
    """The cards are of one machine and one Python; each other that runs this agrees."""
    for number, machine in enumerate(MACHINES):
        threads = machine.get("OPENBLAS_NUM_THREADS", "1")
        changes = machine | {"MRSA_JAX_FORM": form, "OMP_NUM_THREADS": threads}
        # some builds of OpenBLAS crash as another kind of processor, without this package
        product = [sys.executable, "-c", PRODUCT]
        if subprocess.run(product, env=os.environ | changes, check=False).returncode:
            continue
        # another seed and scheme on each
        scheme = ("batch_partitioning", "bernoulli", "lotto_random")[number % 3]
        done = subprocess.run(
            [sys.executable, PROGRAM, str(number % 3), scheme],
            env=os.environ | changes,
            capture_output=True,
            text=True,
            check=True,
        )
        found = json.loads(done.stdout)
        assert found == {"differences": [], "points": 17}, (form, machine)
