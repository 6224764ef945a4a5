"""What a history leaks: exact questions, bounds in bulk, and certificates."""

import argparse
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

import mrsa_jax as mj
from mrsa_jax.bench import Measurement, compare, record, table

ONLINE = mj.availability.independent(0.3)
CLIENTS, COHORT, ROUNDS, TRIALS = 120, 12, 200, 200


def schemes() -> dict[str, Any]:
    blocks = {f"T = {t}": mj.selection.batch_partitioning(CLIENTS, COHORT, t) for t in (6, 4, 3)}
    return {
        "random": mj.selection.uniform(CLIENTS, COHORT),
        "weighted": mj.selection.weighted(CLIENTS, COHORT),
        "partition": mj.selection.partition(CLIENTS, COHORT),
        **blocks,
    }


def timed(case: str, run: Callable[[], Any], work: float, unit: str, note: str) -> Measurement:
    return compare("privacy", case, run, work=work, unit=unit, repeats=1, note=note)


def history(selector: Any, rounds: int) -> np.ndarray:
    return np.asarray(mj.selection.rollout(0, selector, ONLINE, rounds))


def certified(histories: np.ndarray) -> None:
    found = mj.privacy.weak_privacy_trajectory(histories)
    assert found.certified.all()


def exact_questions() -> list[Measurement]:
    rng = np.random.default_rng(0)
    wide = rng.random((1000, 100_000)) < 0.01
    square = history(mj.selection.uniform(1000, 100), 1000)
    return [
        timed("strong, [1000, 100000]", lambda: mj.privacy.strong_privacy(wide), 1, "histories",
              "aim: 1 s; floor: reading and transposing 12.5 MB of bits"),
        timed("first exposure, [1000, 1000]", lambda: mj.privacy.first_exposure(square), 1,
              "histories", "aim: 5 s"),
    ]  # fmt: skip


def in_bulk() -> list[Measurement]:
    rolled = {
        name: np.asarray(mj.selection.rollout_trials(0, scheme, ONLINE, ROUNDS, TRIALS))
        for name, scheme in schemes().items()
    }

    def bounds() -> None:
        for histories in rolled.values():
            mj.privacy.weak_privacy_trajectory(histories, "bounds")

    def proofs() -> None:
        for name in ("partition", "T = 6", "T = 4", "T = 3"):
            certified(rolled[name])

    size = f"{TRIALS} trials x [{ROUNDS}, {CLIENTS}]"
    return [
        timed(f"bounds, six schemes x {size}", bounds, 6 * TRIALS, "histories", "aim: 60 s"),
        timed(f"certified, four block schemes x {size}", proofs, 4 * TRIALS, "histories",
              "aim: 300 s; every round exact"),
    ]  # fmt: skip


def hard_ones() -> list[Measurement]:
    small = history(mj.selection.uniform(60, 10), 60)
    large = history(mj.selection.uniform(CLIENTS, COHORT), 96)
    return [
        timed("certified, random, [60, 60], K = 10", lambda: certified(small), 1, "histories",
              "aim: 300 s; every rank exact"),
        timed("certified, random, [96, 120], K = 12", lambda: certified(large), 1, "histories",
              "aim: 180 s; exact to rank 96"),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    record_it = parser.parse_args().record
    rows = exact_questions() + in_bulk() + hard_ones()
    print(table(rows))
    if record_it:
        record(rows, pathlib.Path(__file__).parent / "results" / "privacy.jsonl")


if __name__ == "__main__":
    main()
