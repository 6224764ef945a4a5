"""Failures of CCESA rounds by simulation against a plain NumPy loop over rounds."""

import argparse
import pathlib

import numpy as np

import mrsa_jax as mj
from mrsa_jax.bench import Measurement, compare, record, table

PEER_ROUNDS = 300


def peer_round(
    rng: np.random.Generator, n: int, p: float, q: float, t: int
) -> tuple[bool, bool, bool]:
    """Return whether one random round is unreliable, not private, disconnected, with NumPy."""
    upper = np.triu(rng.random((n, n)) < p, 1)
    adjacency = upper | upper.T
    stays = rng.random((4, n)) >= q
    v2, v3, v4 = (np.logical_and.reduce(stays[:steps]) for steps in (2, 3, 4))
    informed = (adjacency & v4).sum(1) + v4 >= t
    beside = v2 & (adjacency & v3).any(1)
    reliable = informed[v3 | beside].all()
    parts, leaks, left = 0, False, v3.copy()
    while left.any():
        part = np.zeros(n, bool)
        grown = np.arange(n) == left.argmax()
        while (grown != part).any():
            part = grown
            grown = part | (adjacency[part].any(0) & v3)
        left &= ~part
        parts += 1
        leaks |= informed[part | (v2 & adjacency[part].any(0))].all()
    return not reliable, parts > 1 and leaks, parts > 1


def peer(seed: int, n: int, p: float, q: float, t: int, rounds: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.sum([peer_round(rng, n, p, q, t) for _ in range(rounds)], axis=0)


def agree(ours: mj.secagg.FailureRates, theirs: np.ndarray, rounds: int) -> None:
    """Raise unless both sides' rates agree within five standard errors."""
    for mine, count in zip(
        (ours.unreliable, ours.not_private, ours.disconnected), theirs, strict=True
    ):
        pooled = (mine.count + count) / (mine.trials + rounds)
        error = np.sqrt(pooled * (1 - pooled) * (1 / mine.trials + 1 / rounds))
        assert abs(mine.rate - count / rounds) <= 5 * error + 1e-12, (mine, count)


def same_rounds(n: int, p: float, q: float, t: int) -> None:
    """Raise unless our counts are those of the public predicates on the documented rounds."""
    import jax
    import jax.numpy as jnp

    from mrsa_jax._streams import Stream, as_key, round_key, trial_key

    graph, steps = mj.graphs.erdos_renyi(n, p), mj.availability.independent_steps(q)

    def one(trial: jax.Array) -> tuple[jax.Array, jax.Array]:
        own = trial_key(as_key(0), trial)
        survivors = steps.sample(round_key(own, 0, Stream.STEPS), jnp.ones(n, jnp.bool_))
        return graph.sample(round_key(own, 0, Stream.ASSIGNMENT)), survivors

    adjacency, survivors = jax.jit(jax.vmap(one))(jnp.arange(64, dtype=jnp.uint32))
    reliable = mj.secagg.is_reliable(adjacency, survivors, t)
    private = mj.secagg.is_private(adjacency, survivors, t)
    rates = mj.secagg.failure_rates(0, n, p, q, t, 64)
    assert rates.unreliable.count == (~reliable).sum()
    assert rates.not_private.count == (~private).sum()


def measure(case: str, n: int, p: float, q: float, t: int, rounds: int, note: str) -> Measurement:
    same_rounds(n, p, q, t)
    return compare(
        "failures",
        case,
        lambda: mj.secagg.failure_rates(0, n, p, q, t, rounds),
        lambda: peer(0, n, p, q, t, PEER_ROUNDS),
        work=rounds,
        unit="rounds",
        peer_name="NumPy, loop over rounds",
        peer_work=PEER_ROUNDS,
        check=lambda ours, theirs: agree(ours, theirs, PEER_ROUNDS),
        aim=10,
        repeats=3,
        note=note,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    record_it = parser.parse_args().record
    total = 0.1
    q = 1.0 - (1.0 - total) ** 0.25
    p = mj.secagg.connection_probability(100, total)
    t = mj.secagg.share_threshold(100, p)
    floor = (
        "aim 10,000 rounds/s; floor: 4,950 words of Threefry-2x32 a round, about 100 vector "
        "operations on 8 lanes each; graphs, losses and verdicts are bit sets"
    )
    rows = [
        measure(f"n = 100, p* = {p:.4f}, q_total = .1, t = {t}", 100, p, q, t, 100_000, floor),
        measure(
            "n = 100, p = .05, q_total = .1, t = 2: disconnected rounds",
            *(100, 0.05, q, 2, 100_000),
            "rounds with several components",
        ),
    ]
    print(table(rows))
    if record_it:
        record(rows, pathlib.Path(__file__).parent / "results" / "failures.jsonl")


if __name__ == "__main__":
    main()
