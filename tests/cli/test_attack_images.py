"""From sums to images in two commands: `attack least-squares`, `attack gradients`."""

from __future__ import annotations

import json
import pathlib
import shutil

import numpy as np
import pytest

from mrsa_jax import data
from mrsa_jax.cli import main

pytestmark = pytest.mark.long

_SUMS = "attack least-squares --frozen --local-steps 1 --batch-size 1 --dataset digits "
_SUMS += "--num-clients 3 --cohort-size 2 --rounds 8 --warm-up 0 --dropout-rates 0 "


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Solve sums of updates of one image each."""
    out = tmp_path_factory.mktemp("sums") / "out"
    words = [*_SUMS.split(), "--schemes", "uniform", "--out", str(out)]
    assert main(words) == 0
    return out


def _invert(
    folder: pathlib.Path,
    out: pathlib.Path,
    words: str = "--client 1",
    capsys: pytest.CaptureFixture[str] | None = None,
) -> tuple[int, str]:
    line = f"attack gradients --from {folder} {words} --iterations 300 "
    line += "--random-starts 1 --out"
    status = main([*line.split(), str(out)])
    return status, "" if capsys is None else " ".join(capsys.readouterr().err.split())


def test_an_update_of_softmax_regression_is_its_image(solved: pathlib.Path) -> None:
    """One image x of class c moves row c by (1 - p_c) x: the estimate shows x."""
    estimates = np.load(solved / "estimates.npy")
    images = data.load("digits").train_inputs.reshape(-1, 64).astype(np.float64)
    # ten biases come first
    for weight in estimates[:, 10:].reshape(-1, 64, 10):
        column = weight[:, np.abs(weight).sum(axis=0).argmax()]
        likeness = images @ column / np.linalg.norm(images, axis=1)
        assert np.abs(likeness).max() / np.linalg.norm(column) > 0.9999


def test_one_client_is_inverted(solved: pathlib.Path, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "images"
    assert _invert(solved, out)[0] == 0
    (row,) = json.loads((out / "scores.json").read_text())["scores"]
    assert row["label"] == row["label_seen"]
    original = np.load(out / "original.npy")
    pool = data.load("digits").train_inputs
    assert (np.asarray(pool) == original).all(axis=(1, 2, 3)).any()
    grey = -10 * np.log10(original.var())
    assert row["psnr_db"] > grey + 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--client 3", "`client` must be one of the 3 clients, counted from 0; got 3"),
        ("", "`client` must be set together with --from"),
        (
            "--client 1 --dataset digits",
            "`dataset` must not be set with --from, whose folder decides it",
        ),
        ("--client 1 --model mlp", "`model` must not be set with --from"),
        ("--client 1 --learning-rate 1", "`learning_rate` must not be set with --from"),
        ("--client 1 --num-images 9999", "`num_images` must be at most the"),
        ("--client 1 --known-labels", "`known_labels` must not be set unless"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    words: str,
    message: str,
    solved: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, error = _invert(solved, tmp_path / "images", words, capsys)
    assert status == 2
    assert message in error


@pytest.mark.parametrize("change", ["client", "entry", "model", "data", "gone", "none"])
def test_a_folder_that_does_not_fit_is_refused(
    change: str,
    solved: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "sums"
    shutil.copytree(solved, folder)
    estimates = np.load(folder / "estimates.npy")
    manifest = json.loads((folder / "study.json").read_text())
    if change == "client":
        np.save(folder / "estimates.npy", estimates[:2])
    elif change == "entry":
        np.save(folder / "estimates.npy", estimates[:, 1:])
    elif change in ("model", "data"):
        name, other = {
            "model": ("model", "mlp"),
            "data": ("dataset", "mnist_5k"),
        }[change]
        manifest["config"][name] = other
        (folder / "study.json").write_text(json.dumps(manifest))
    elif change == "gone":
        (folder / "estimates.npy").unlink()
    else:
        (folder / "study.json").unlink()
    status, error = _invert(folder, tmp_path / "images", capsys=capsys)
    assert status == 2
    assert "`from` must" in error


def test_sums_without_a_model_are_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = np.asarray([[1, 1, 0], [0, 1, 1], [1, 1, 1]], bool)
    np.save(tmp_path / "who.npy", history)
    np.save(tmp_path / "sums.npy", history @ np.ones((3, 4)))
    out = tmp_path / "solved"
    line = f"attack least-squares --aggregates {tmp_path}/sums.npy "
    line += f"--participation {tmp_path}/who.npy --out {out}"
    assert main(line.split()) == 0
    status, error = _invert(out, tmp_path / "images", capsys=capsys)
    assert status == 2
    assert "`from` must have a model" in error


def test_estimates_of_several_schemes_are_not_kept(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out"
    words = "--schemes uniform weighted --out"
    assert main([*_SUMS.split(), *words.split(), str(out)]) == 0
    assert not (out / "estimates.npy").exists()
