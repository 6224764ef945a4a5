"""Attacks on the data and the local training that `mrsa-jax train` takes."""

from __future__ import annotations

import json
import pathlib
import struct
from typing import Any

import numpy as np
import pytest

from mrsa_jax.cli import main
from mrsa_jax.study.attacks_on_sums import LeastSquaresConfig
from mrsa_jax.study.runs._histories import histories

_COUNT = 160  # pictures of each file

_SMALL = {
    "least-squares": "--num-clients 4 --cohort-size 2 --rounds 3 --warm-up 1 "
    "--schemes uniform --local-steps 2 --decay-rounds 2 --partition shards --no-single-label "
    "--assignment sorted",
    "attribute": "--num-clients 6 --cohort-size 2 --rounds 4 --schemes uniform "
    "--trainings 1 --client-size 8 --num-shadows 32 --dropout-rates 0 0.5 "
    "--assignment cyclic",
    "distinguish": "--num-clients 4 --cohort-size 2 --rounds 2 --schemes uniform "
    "--trainings 2 --warm-up 0 --others trained --clients median "
    "--assignment cyclic",
    "gradients": "--iterations 2 --seen plain --random-starts 1 --model logistic",
    "model-inversion": "--iterations 3 --local-steps 2 --num-clients 3 --seen plain "
    "--partition dirichlet_by_client",
    "membership": "--methods loss --local-steps 2 --client-size 8 --num-shadows 2 "
    "--seen plain --model logistic",
    "inconsistency": "--cohort-size 3 --hidden-size 4 --local-steps 2 --pads plain "
    "--partition shards --no-single-label",
}
"""Attacks that name a data set; `canaries` and `disaggregation` draw numbers."""


def _write(folder: pathlib.Path, name: str) -> None:
    """Write random pictures in the layout of the real files."""
    generator = np.random.default_rng(4)
    labels = np.resize(np.arange(10, dtype=np.uint8), _COUNT)
    if name == "idx":
        for part in ("train", "t10k"):
            pixels = generator.integers(0, 256, (_COUNT, 28, 28), dtype=np.uint8)
            for kind, array in (("images-idx3", pixels), ("labels-idx1", labels)):
                header = struct.pack(
                    f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape
                )
                path = folder / f"{part}-{kind}-ubyte"
                path.write_bytes(header + array.tobytes())
        return
    for part in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        records = generator.integers(0, 256, (_COUNT // 5, 3073), dtype=np.uint8)
        records[:, 0] = labels[: len(records)]
        (folder / f"{part}.bin").write_bytes(records.tobytes())


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["idx", "cifar"])
@pytest.mark.parametrize("attack", list(_SMALL))
def test_attacks_read_files_in_the_real_formats(
    attack: str, dataset: str, tmp_path: pathlib.Path
) -> None:
    folder, out = tmp_path / "files", tmp_path / "out"
    folder.mkdir()
    _write(folder, dataset)
    words = ["--dataset", dataset, "--directory", str(folder), "--out", str(out)]
    assert main(["attack", attack, *_SMALL[attack].split(), *words]) == 0
    found = json.loads((out / "scores.json").read_text())
    assert found["is_complete"]
    assert found["scores"]


@pytest.mark.parametrize("attack", list(_SMALL))
def test_a_folder_without_files_is_refused(
    attack: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--dataset", "idx", "--directory", str(tmp_path), "--out"]
    words += [str(tmp_path / "out")]
    assert main(["attack", attack, *_SMALL[attack].split(), *words]) == 2
    assert str(tmp_path) in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "least-squares --local-steps 2 --num-epochs 3",
            "`num_epochs` must not be set with local_steps; got 3",
        ),
        ("membership --local-steps 2 --num-epochs 3", "`num_epochs` must not be set"),
        ("model-inversion --local-steps 0", "`local_steps` must be at least 1"),
        ("least-squares --decay-rounds 8 4", "`decay_rounds` must ascend"),
        ("gradients --directory .", "`directory` must not be set without --dataset"),
    ],
)
def test_misuse_of_local_training(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attack", *words.split()]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_sorted_rates_are_those_of_clients_that_take_part_less() -> None:
    """Clients of the first half are always online, those of the second hardly ever."""
    settings: dict[str, Any] = {
        "num_clients": 8,
        "cohort_size": 2,
        "schemes": ("uniform",),
    }
    settings |= {"dropout_rates": (0.0, 0.99), "assignment": "sorted"}
    ((_, history),) = histories(LeastSquaresConfig(**settings), 60)
    assert history[:, :4].sum() > 10 * history[:, 4:].sum()


@pytest.mark.slow
def test_a_run_with_decay_and_local_steps_is_repeated(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = "--rounds 5 --scheme uniform --num-clients 4 --cohort-size 2 --devices 1 "
    words += "--dataset digits --model logistic --local-steps 3 --decay-rounds 2"
    assert main(["train", *words.split(), "--out", str(run)]) == 0
    attack = ["attack", "least-squares", "--run", str(run), "--out"]
    assert main([*attack, str(tmp_path / "sums")]) == 0
    config = (run / "config.toml").read_text()
    assert "local_steps = 3" in config
    for old, new in (
        ('server = "average"', 'server = "adam"'),
        ("weighted = false", "weighted = true"),
    ):
        (run / "config.toml").write_text(config.replace(old, new))
        capsys.readouterr()
        assert main([*attack, str(tmp_path / "refused")]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert f"this run has {new.replace(chr(34), '')};" in said
