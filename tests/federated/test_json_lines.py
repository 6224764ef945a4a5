"""Reports of trainings round by round: equal to their results, whole after any kill."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.federated import json_lines

_CLIENTS = 4
_HISTORY = np.array(
    [
        [0, 0, 0, 0],
        [1, 1, 0, 0],
        [1, 0, 1, 1],
        [0, 0, 0, 0],
        [0, 1, 1, 0],
        [1, 1, 1, 1],
        [0, 0, 0, 0],
    ],
    bool,
)
_KILLED = """
import os, signal, sys
from mrsa_jax.federated import json_lines
tracker = json_lines(sys.argv[1] + "/own.jsonl")
for step in range(40):
    tracker({"step": step, "loss": step / 8})
os.kill(os.getpid(), signal.SIGKILL)
"""


def _lines(path: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _train(rates: list[float], **more: Any) -> list[mj.federated.TrainingResult]:
    dataset = mj.data.load("digits", seed=0)
    small = dataclasses.replace(
        dataset,
        train_inputs=dataset.train_inputs[:40],
        train_labels=dataset.train_labels[:40],
    )
    model = mj.federated.logistic(10)
    clients = mj.data.iid(0, small, num_clients=_CLIENTS)
    trainings = [
        mj.federated.Training(
            model,
            clients,
            _HISTORY,
            mj.federated.local_sgd(model, rate, batch_size=8),
            mj.secagg.ring_average(mj.quantize.stochastic(2**12, 0.5), 4, 650),
            test=(dataset.test_inputs[:50], dataset.test_labels[:50]),
            evaluate_every=3,
        )
        for rate in rates
    ]
    return mj.federated.train_many(0, trainings, **more)


def _expected(result: mj.federated.TrainingResult, run: int) -> list[dict[str, Any]]:
    """Return what a result says of each round that was over."""
    last = len(_HISTORY) - 1 if result.diverged_round is None else result.diverged_round
    records = []
    for index in range(last + 1):
        own = {
            "step": index,
            "run": run,
            "status": mj.Status(result.status[index]).name,
            "cohort_size": int(_HISTORY[index].sum()),
            "summed_clients": int(result.participation[index].sum()),
            "wrapped": int(result.wrapped[index]),
            "failed_uploads": int(result.failed_uploads[: index + 1].sum()),
        }
        if _HISTORY[index].any():
            own["clipped_fraction"] = float(result.clipped_fraction[index])
        if index == result.diverged_round:
            own["diverged"] = True
        elif index in result.evaluated_rounds:
            at = result.evaluated_rounds.tolist().index(index)
            own |= {
                "accuracy": float(result.accuracy[at]),
                "loss": float(result.loss[at]),
            }
        records.append(own)
    return records


@pytest.mark.long
def test_all_that_the_results_say_round_by_round(tmp_path: pathlib.Path) -> None:
    tracker = json_lines(tmp_path / "new" / "metrics.jsonl")
    told: list[Any] = []
    done: list[int] = []

    def callback(metrics: dict[str, Any]) -> None:
        tracker(metrics)
        told.append(metrics)

    def progress(rounds: int, _total: int) -> None:
        done.append(len(told))

    results = _train([0.3, 3e38], callback=callback, progress=progress)
    assert results[0].diverged_round is None
    assert results[1].diverged_round is not None
    for run, result in enumerate(results):
        expected = _expected(result, run)
        assert [own for own in told if own["run"] == run] == expected
        assert [own for own in _lines(tracker.path) if own["run"] == run] == expected
    assert done == sorted(done)
    assert done[-1] == len(told)  # a round is told before it is counted
    plain = _train([0.3, 3e38])
    for one, other in zip(results, plain, strict=True):
        np.testing.assert_array_equal(one.parameters, other.parameters)


@pytest.mark.long
def test_what_goes_on_from_a_checkpoint_repeats_no_round(
    tmp_path: pathlib.Path,
) -> None:
    """Stopped in round 5, of which nothing was saved; then again from the start."""
    whole: list[Any] = []
    _train([0.3, 0.1], callback=whole.append)

    def goes_on(stops: bool) -> None:
        tracker = json_lines(tmp_path / "metrics.jsonl")

        def callback(metrics: dict[str, Any]) -> None:
            tracker(metrics)
            if stops and (metrics["step"], metrics["run"]) == (4, 0):
                raise KeyboardInterrupt

        _train(
            [0.3, 0.1],
            callback=callback,
            checkpoints=mj.federated.checkpoints(tmp_path / "saved", every=2),
        )

    with pytest.raises(KeyboardInterrupt):
        goes_on(True)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "run')  # a kill in the middle of a line
    goes_on(False)
    for run in (0, 1):
        expected = [own for own in whole if own["run"] == run]
        assert [
            own for own in _lines(tmp_path / "metrics.jsonl") if own["run"] == run
        ] == expected


def test_a_kill_loses_nothing_that_was_told(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path)], timeout=120, check=False
    )
    assert done.returncode == -9
    assert _lines(tmp_path / "own.jsonl") == [
        {"step": k, "loss": k / 8} for k in range(40)
    ]


@pytest.mark.parametrize(
    "content",
    [
        "hello",
        "hello\n",
        '{"a": 1}',
        '[{"step": 1}]\n',
        '{"step": 0}\n[]\n',
        "[]\n" * 3,
    ],
)
def test_other_files_are_not_written_over(content: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x"
    path.write_text(content)
    with pytest.raises(
        mj.ConfigurationError, match="`path` must be a new file, or hold records"
    ):
        json_lines(path)
    assert path.read_text() == content


def test_misuse(tmp_path: pathlib.Path) -> None:
    with pytest.raises(mj.ConfigurationError, match="`path` must be a file; got"):
        json_lines(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(mj.ConfigurationError, match="`path` must lie in a folder; got"):
        json_lines(tmp_path / "file" / "x")
    tell = json_lines(tmp_path / "own" / "x")
    (tmp_path / "own" / "x").mkdir(parents=True)
    with pytest.raises(mj.MrsaError, match="`path` must have room to be written; got"):
        tell({"step": 0})


def test_odd_values(tmp_path: pathlib.Path) -> None:
    """Numbers that JSON cannot write are null, and labels are kept as they are."""
    labels = ["../../x", "a\\b", "x" * 300, "\x1b[2J\n", ""]
    tracker = json_lines(tmp_path / "lines")
    for step, label in enumerate(labels):
        tracker(
            {
                "step": step,
                "scheme": label,
                "loss": float("nan"),
                "more": np.float32(np.inf),
                "array": np.float32(2.0),
                "kind": pathlib.PurePosixPath("a"),
            }
        )
    for record, label in zip(_lines(tmp_path / "lines"), labels, strict=True):
        assert record["scheme"] == label
        assert (record["loss"], record["more"]) == (None, None)
        assert (record["array"], record["kind"]) == (2.0, "a")
