"""What lasts of clients' updates: against the whole linear model, and in the gate."""

from __future__ import annotations

import itertools
import json
import pathlib

import numpy as np
import pytest

from mrsa_jax import privacy
from mrsa_jax.cli import main
from mrsa_jax.live import Recorder
from mrsa_jax.privacy import ParticipationLog
from mrsa_watch._command import main as watch_main
from mrsa_watch._updates import Updates

A = np.array([[1, 1, 1, 0], [1, 1, 0, 1], [0, 0, 1, 1]])


def by_the_whole_model(P: np.ndarray, rounds: list[str], share: float) -> np.ndarray:
    """Return 1/h of each l_i from sums of sqrt(a) l_i + sqrt(1-a) e_ir, every unknown a column."""
    count, clients = P.shape
    times = sorted({name.partition("/")[0] for name in rounds})
    seen = np.zeros((count, clients * (1 + len(times))))
    for j, i in itertools.product(range(count), range(clients)):
        seen[j, i] = np.sqrt(share) * P[j, i]
        fresh = clients * (1 + times.index(rounds[j].partition("/")[0])) + i
        seen[j, fresh] = np.sqrt(1 - share) * P[j, i]
    gains = np.linalg.pinv(seen @ seen.T) @ seen[:, :clients]
    with np.errstate(divide="ignore"):
        return np.asarray(1 / np.einsum("ji,ji->i", seen[:, :clients], gains))


def a_log(rng: np.random.Generator, rounds: int = 7, clients: int = 5) -> np.ndarray:
    P = rng.integers(1, 4, (rounds, clients)) * (rng.random((rounds, clients)) < 0.6)
    P[:, 0] |= (P[:, 0] == 0) & ~P.any(axis=1)  # each row has somebody
    return np.asarray(P)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
@pytest.mark.parametrize("per_round", [1, 2, 3])
def test_it_is_what_the_whole_model_says(share: float, per_round: int) -> None:
    """Also of several sums per round, which are of one fresh part."""
    P = a_log(np.random.default_rng(per_round))
    rounds = [f"{j // per_round}/{j % per_round}" for j in range(len(P))]
    log = ParticipationLog(P, tuple(rounds), tuple("abcde"))
    found = privacy.audit(log, effort=0, memory=0.5, share=share).lasting
    assert found is not None
    np.testing.assert_allclose(
        found.values, by_the_whole_model(P, rounds, share), rtol=1e-6
    )
    assert found.least == min(found.values)


@pytest.mark.parametrize("memory", [0.0, 0.6, 0.998, 1.0])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_gate_compares_the_smaller_of_two(memory: float, share: float) -> None:
    P = a_log(np.random.default_rng(9), 12, 8)
    found = privacy.audit(P, effort=0, memory=memory, share=share)
    noise = (1 - share) / share * (P.astype(float) ** 2).sum(axis=1)
    sizes = (
        privacy.hidden_among(P, memory=memory, share=share).min(),
        privacy.hidden_among(P, noise=noise).min(),
    )
    assert found.updates is not None
    assert found.lasting is not None
    assert (found.updates.least, found.lasting.least) == pytest.approx(sizes)
    least, most = (float(end(sizes)) for end in (min, max))
    for target in (max(1.0, least * 0.999), least * 1.001 + 1e-6, most * 1.001):
        gate = found.gate(target, "hidden")
        assert gate.passed == (target <= least)
        assert "the update of one round" in gate.reason
        assert "what lasts of the updates" in gate.reason
    named = "what lasts" if sizes[1] < sizes[0] else "the update of one round"
    assert found.gate(1, "hidden").reason.startswith(named)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_all_of_an_update_lasts_or_nothing(share: float) -> None:
    found = privacy.audit(A, effort=0, memory=0.5, share=share)
    assert found.lasting is None
    assert found.updates is not None
    assert found.gate(1.5, "hidden").passed
    assert "what lasts" not in " ".join(found.sentences())


def test_what_floats_do_not_know_passes_no_gate() -> None:
    P = np.array([[1, 10**160], [1, 1]], object)
    found = privacy.audit(P, effort=0, memory=0.5, share=0.5)
    assert found.lasting is not None
    # rows (0, 1) and (1, 1): M = [[2, 1], [1, 4]] / 2, (1, 1) M^-1 (1, 1) / 2 = 4/7
    assert found.lasting.values == pytest.approx([7 / 2, 7 / 4])
    # whose fresh parts are the same in both sums of a round
    log = ParticipationLog(P, ("0/a", "0/b"), ("x", "y"))
    found = privacy.audit(log, effort=0, memory=0.5, share=0.5)
    assert found.lasting is not None
    assert found.lasting.least is None
    assert not found.gate(1, "hidden").passed


def test_parts_are_looked_at_apart() -> None:
    """Of part y the server has {a, b} twice.

    Of x, which c is in too, it has {a, b, c} once.
    """
    P = np.array([[1, 1, 1], [1, 1, 0], [1, 1, 0]])
    log = ParticipationLog(
        P, ("0[x]", "0[y]", "1[y]"), ("a", "b", "c"), parts=("x", "y", "y")
    )
    found = privacy.audit(log, effort=0, memory=0.5, share=0.5)
    assert found.lasting is not None
    # M = [[4, 2], [2, 4]] and p = (1, 1): h = 1/3; alone in one sum with noise of 3: h
    # = 1/6
    assert found.lasting.values == pytest.approx([3, 3, 6])
    assert (
        "in part y: the update of one round of client a"
        in found.gate(2.5, "hidden").reason
    )
    assert (
        "what lasts of the updates among 3.00 (client a)"
        in found.gate(2.5, "hidden").reason
    )


def random_log() -> np.ndarray:
    """Return 200 sums of 12 of 120 clients, each drawn by itself."""
    rng = np.random.default_rng(0)
    return np.array(
        [np.isin(np.arange(120), rng.choice(120, 12, False)) for _ in range(200)]
    )


@pytest.mark.long
def test_an_update_that_is_hidden_does_not_hide_what_lasts(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The update of one round is hidden among more than 8, what lasts among fewer than 5."""
    np.save(tmp_path / "log.npy", random_log())
    words = [
        "audit",
        str(tmp_path / "log.npy"),
        "--effort",
        "0",
        "--json",
        "--memory",
        "0.998",
        "--share",
        "0.15",
        "--fail-below-hidden",
        "5",
    ]
    assert main(words) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["hidden_among_updates"]["least"] > 8
    assert found["hidden_among_lasting"]["least"] < 5
    assert "what lasts of the updates of client" in found["gate_hidden"]["reason"]
    assert "; the update of one round among 8." in found["gate_hidden"]["reason"]


@pytest.mark.long
@pytest.mark.parametrize("share", [0.1, 0.6])
def test_a_watch_knows_after_every_sum_what_the_audit_knows(share: float) -> None:
    P = a_log(np.random.default_rng(4), 15, 9)
    updates = Updates(0.9, share)
    for j, row in enumerate(P, start=1):
        own = np.flatnonzero(row)
        # a sum's scale does not matter
        updates.add(j, own.tolist(), (1e100 * row[own]).tolist())
        found = privacy.audit(P[:j], effort=0, memory=0.9, share=share).lasting
        worst = updates.lasting()
        assert found is not None
        assert worst is not None
        assert worst.hidden == pytest.approx(found.least, rel=1e-9)
        assert worst.client == found.least_client
    updates.add(15, [0, 1])
    assert updates.lasting() == (None, None), (
        "a second sum of a round is of the same fresh part"
    )
    assert Updates(0.9).lasting() is None
    assert Updates(0.9, 0.0).lasting() is None


def test_parts_of_a_watch_are_looked_at_apart() -> None:
    updates = Updates(0.5, 0.5)
    updates.add(0, ["a", "b", "c"], part="x")
    updates.add(0, ["a", "b"], part="y")
    updates.add(1, ["a", "b"], part="y")
    worst = updates.lasting()
    assert worst is not None
    assert worst.hidden == pytest.approx(3)


@pytest.mark.parametrize("run", [main, watch_main])
def test_a_watch_stops_where_what_lasts_is_known_too_well(
    run: object, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, metrics = tmp_path / "log.jsonl", tmp_path / "metrics"
    with Recorder(log, system="s", aggregation="secagg", salt=b"") as recorder:
        for j in range(3):
            recorder.record(j, ["a", "b", "c"])
    words = [
        "watch",
        str(log),
        "--once",
        "--memory",
        "0.5",
        "--share",
        "0.5",
        "--fail-below-hidden",
        "2.9",
        "--metrics",
        str(metrics),
    ]
    assert run(words) == 0  # type: ignore[operator]
    printed = capsys.readouterr().out
    assert (
        "the update of one round, of alike clients: worst update hidden among 3.00"
        in printed
    )
    assert (
        "what lasts of updates, of alike clients: worst client hidden among 4.00"
        in printed
    )
    assert "mrsa_watch_lasting_hidden_among{" in metrics.read_text()
    with Recorder(log, system="s", aggregation="secagg", salt=b"") as recorder:
        recorder.record(3, ["a", "b"])
        recorder.record(4, ["a", "c"])
    assert run([*words, "--keep-going"]) == 3  # type: ignore[operator]
    printed = capsys.readouterr().out
    assert printed.count("BREACH: the update of one round") == 1
    assert printed.count("BREACH: what lasts of updates") == 1
    assert run([*words, "--keep-going", "--json"]) == 3  # type: ignore[operator]
    *_, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert last["lasting_hidden"] < 2.9
