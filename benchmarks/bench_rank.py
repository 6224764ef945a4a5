"""Exact ranks of participation matrices against a loop over `numpy.linalg.matrix_rank`."""

import argparse
import os
import pathlib

# Matrices this small gain nothing from threads, and a loaded machine makes them a hundred times
# slower: the peer gets its better setting.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from mrsa_jax.bench import Measurement, compare, record, table
from mrsa_jax.modular import rank

PEER_MATRICES = 200


def histories(count: int, clients: int, cohort: int, block: int, seed: int) -> np.ndarray:
    """Random cohorts of whole blocks: `block` 1 is random selection, else batch partitioning."""
    rng = np.random.default_rng(seed)
    chosen = np.zeros((count, clients, clients // block), bool)
    for history in chosen:
        for row in history:
            row[rng.choice(clients // block, cohort // block, replace=False)] = True
    return np.repeat(chosen, block, axis=-1)


def measure(case: str, matrices: np.ndarray, note: str) -> Measurement:
    floats = matrices[:PEER_MATRICES].astype(float)
    return compare(
        "rank",
        case,
        lambda: rank(matrices),
        lambda: np.asarray([np.linalg.matrix_rank(matrix) for matrix in floats]),
        work=len(matrices),
        unit="matrices",
        peer_name="numpy.linalg.matrix_rank, loop",
        peer_work=len(floats),
        check=lambda ours, theirs: np.testing.assert_array_equal(ours[: len(theirs)], theirs),
        aim=5,
        repeats=3,
        note=note,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    record_it = parser.parse_args().record
    floor = (
        "floor: 120**3 / 3 multiply-adds mod p in exact float32, 4 vector operations each on 8 "
        "lanes, is 0.1 ms a matrix; kept rows cost 1.7 times that"
    )
    rows = [
        measure("random, 1,000 x [120, 120], K = 12", histories(1000, 120, 12, 1, 0), floor),
        measure(
            "blocks of 3, 1,000 x [120, 120], K = 12",
            histories(1000, 120, 12, 3, 1),
            "rank 40 is proven by the number of distinct columns; " + floor,
        ),
    ]
    open_case = histories(300, 120, 12, 1, 2).astype(np.int32)
    open_case[:, -1] = open_case[:, 0] + open_case[:, 1] - open_case[:, 2]
    rows.append(
        measure(
            "dependent round, 300 x [120, 120], K = 12",
            open_case,
            "rank 119, which nothing proves: all three primes run, two of them of 31 bits",
        )
    )
    print(table(rows))
    if record_it:
        record(rows, pathlib.Path(__file__).parent / "results" / "rank.jsonl")


if __name__ == "__main__":
    main()
