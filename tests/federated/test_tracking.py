"""What is told of trainings round by round.

Equal to their results, whole after any kill.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import struct
import subprocess
import sys
import types
from typing import Any

import google_crc32c
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.federated import json_lines, tensorboard, wandb

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
from mrsa_jax.federated import json_lines, tensorboard
tell = json_lines(sys.argv[1] + "/own.jsonl"), tensorboard(sys.argv[1])
for step in range(40):
    for one in tell:
        one({"step": step, "loss": step / 8})
os.kill(os.getpid(), signal.SIGKILL)
"""


def _events(folder: pathlib.Path) -> dict[str, dict[int, float]]:
    """Read TensorBoard's files by their definition: scalars by tag and step.

    A frame is a length, its checksum, the event, its checksum; a start takes back all
    scalars from its step on.
    """
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    found: dict[str, dict[int, float]] = {}
    for file in sorted(folder.glob("events.out.tfevents.*")):
        raw, at = file.read_bytes(), 0
        while at < len(raw):
            (size,) = struct.unpack_from("<Q", raw, at)
            _check_sum(raw[at : at + 8], raw[at + 8 : at + 12])
            own = raw[at + 12 : at + 12 + size]
            _check_sum(own, raw[at + 12 + size : at + 16 + size])
            at += 16 + size
            event = Event.FromString(own)
            if event.session_log.status == SessionLog.START:
                for path in found.values():
                    for step in [step for step in path if step >= event.step]:
                        del path[step]
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = value.simple_value
    return {tag: path for tag, path in found.items() if path}


def _check_sum(content: bytes, stored: bytes) -> None:
    crc = google_crc32c.value(content)
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    assert struct.unpack("<I", stored) == (masked,)


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


def test_all_that_the_results_say_round_by_round(tmp_path: pathlib.Path) -> None:
    trackers = json_lines(tmp_path / "new" / "metrics.jsonl"), tensorboard(tmp_path)
    told: list[Any] = []
    done: list[int] = []

    def callback(metrics: dict[str, Any]) -> None:
        for tracker in trackers:
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
        assert [
            own for own in _lines(trackers[0].path) if own["run"] == run
        ] == expected
        scalars = _events(tmp_path / f"run {run}")
        numbers = {name for own in expected for name in own} - {"step", "run", "status"}
        assert set(scalars) == numbers
        for name in numbers:
            path = {
                own["step"]: np.float32(own[name]) for own in expected if name in own
            }
            assert scalars[name] == path
    assert done == sorted(done)
    assert done[-1] == len(told)  # a round is told before it is counted
    trackers[1].close()
    plain = _train([0.3, 3e38])
    for one, other in zip(results, plain, strict=True):
        np.testing.assert_array_equal(one.parameters, other.parameters)


def test_what_goes_on_from_a_checkpoint_repeats_no_round(
    tmp_path: pathlib.Path,
) -> None:
    """Stopped in round 5, of which nothing was saved; then again from the start."""
    whole: list[Any] = []
    _train([0.3, 0.1], callback=whole.append)

    def goes_on(stops: bool) -> None:
        trackers = (
            json_lines(tmp_path / "metrics.jsonl"),
            tensorboard(tmp_path / "board"),
        )

        def callback(metrics: dict[str, Any]) -> None:
            for tracker in trackers:
                tracker(metrics)
            if stops and (metrics["step"], metrics["run"]) == (4, 0):
                raise KeyboardInterrupt

        try:
            _train(
                [0.3, 0.1],
                callback=callback,
                checkpoints=mj.federated.checkpoints(tmp_path / "saved", every=2),
            )
        finally:
            trackers[1].close()

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
        scalars = _events(tmp_path / "board" / f"run {run}")
        assert list(scalars["cohort_size"]) == list(range(len(_HISTORY)))
        assert len(list((tmp_path / "board" / f"run {run}").iterdir())) == 2


def test_a_kill_loses_nothing_that_was_told(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path)], timeout=120, check=False
    )
    assert done.returncode == -9
    assert _lines(tmp_path / "own.jsonl") == [
        {"step": k, "loss": k / 8} for k in range(40)
    ]
    assert _events(tmp_path) == {"loss": {k: k / 8 for k in range(40)}}


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


def test_misuse(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(mj.ConfigurationError, match="`path` must be a file; got"):
        json_lines(tmp_path)
    with pytest.raises(
        mj.ConfigurationError, match="`mode` must be offline, online, disabled or"
    ):
        wandb(tmp_path, mode="of")
    for name, module in (
        ("wandb", "wandb"),
        ("tensorboard", "tensorboardX.event_file_writer"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        rule = f"`{name}` must not be set if {module[:12]}.* is missing .*: pip install '{name}"
        with pytest.raises(mj.ConfigurationError, match=rule):
            getattr(mj.federated, name)(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(mj.ConfigurationError, match="`path` must lie in a folder; got"):
        json_lines(tmp_path / "file" / "x")
    tell = json_lines(tmp_path / "own" / "x")
    (tmp_path / "own" / "x").mkdir(parents=True)
    with pytest.raises(mj.MrsaError, match="`path` must have room to be written; got"):
        tell({"step": 0})


def test_hostile_and_odd_values(tmp_path: pathlib.Path) -> None:
    """Labels are names of folders in the folder, and no two alike.

    Numbers without a word null.
    """
    labels = [
        "../../x",
        "..",
        "/etc/x",
        "a/b",
        "a\\b",
        "a_b",
        "x" * 300,
        "x" * 301,
        "\x1b[2J\n",
        "",
    ]
    board, lines = tensorboard(tmp_path / "in" / "board"), json_lines(tmp_path / "own")
    for step, label in enumerate(labels):
        metrics = {
            "step": step,
            "scheme": label,
            "loss": float("nan"),
            "more": np.float32(np.inf),
        }
        board(metrics | {"array": np.float32(2.0)})
        lines(metrics | {"kind": pathlib.PurePosixPath("a")})
    board.close()
    folders = [path for path in (tmp_path / "in" / "board").iterdir() if path.is_dir()]
    assert len(folders) == len(labels)
    assert {path.name for path in tmp_path.iterdir()} == {"in", "own"}
    assert all(path.name.isprintable() for path in folders)
    for own, label in zip(_lines(tmp_path / "own"), labels, strict=True):
        assert (own["scheme"], own["loss"], own["more"], own["kind"]) == (
            label,
            None,
            None,
            "a",
        )


def test_each_training_is_a_run_of_weights_and_biases_offline(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a stand-in that notes its calls; the library itself was tried by hand."""
    calls: list[Any] = []

    def init(**settings: Any) -> Any:
        calls.append(settings)
        name = settings["name"]
        return types.SimpleNamespace(
            define_metric=lambda *_, **own: calls.append((name, own)),
            log=lambda own: calls.append((name, own)),
            finish=lambda: calls.append((name, "finished")),
        )

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    tell = wandb(tmp_path, group="mine")
    for run in (0, 1):
        tell({"step": 3, "scheme": "Random", "run": run, "loss": 0.5})
    tell.close()
    begun = [own for own in calls if isinstance(own, dict)]
    assert [own["mode"] for own in begun] == ["offline"] * 2
    assert begun[1]["config"] == {"scheme": "Random", "run": 1}
    assert begun[1]["group"] == "mine"
    name = "Random, run 1"
    said = [
        own
        for who, own in (pair for pair in calls if isinstance(pair, tuple))
        if who == name
    ]
    assert said == [{"step_metric": "step"}, {"step": 3, "loss": 0.5}, "finished"]
    monkeypatch.setenv("WANDB_MODE", "disabled")
    wandb(tmp_path)({"step": 0})
    assert [own for own in calls if isinstance(own, dict)][-1]["mode"] == "disabled"
