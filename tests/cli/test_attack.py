"""`mrsa-jax attack`.

Misuse, each attack at its smallest, files of others, interruptions.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import re
from typing import Any

import numpy as np
import pytest

from mrsa_jax._core.statistics import binomial_interval
from mrsa_jax.cli import Bars, main
from mrsa_jax.study.attack import _gradients
from mrsa_jax.study.attack._attribute import _drawn
from mrsa_jax.study.attack._least_squares import _Sums, _unlike
from mrsa_jax.study.attacks_on_models import GradientsConfig
from mrsa_jax.study.attacks_on_sums import AttributeConfig, LeastSquaresConfig

SUMS = ["least-squares", "--num-clients", "6", "--cohort-size", "2", "--rounds", "30"]
SUMS += ["--schemes", "uniform"]
FAST = [
    *SUMS,
    "--warm-up",
    "0",
    "--frozen",
    "--dropout-rates",
    "0.1",
    "--batch-size",
    "200",
    # so that rounding is nothing next to an update
    "--learning-rate",
    "0.6",
]


def _json(
    words: list[str], out: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    status = main(["attack", *words, "--out", str(out), "--json"])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    content = json.loads(printed.out, parse_constant=refuse)
    saved = json.loads((out / "scores.json").read_text(), parse_constant=refuse)
    assert saved["scores"] == content["scores"]
    assert saved["summary"] == content["summary"]
    assert content["is_complete"] is True
    rows = (out / "scores.csv").read_text().splitlines()
    assert len(rows) == len(content["scores"]) + 1
    assert rows[0].split(",") == list(content["scores"][0])
    return content


@pytest.fixture
def files(tmp_path: pathlib.Path) -> dict[str, pathlib.Path]:
    """Sums of another framework: 5 clients, of whom 0 and 1 only move together."""
    generator = np.random.default_rng(3)
    history = generator.random((24, 5)) < 0.5
    history[:, 1] = history[:, 0]
    updates = generator.normal(size=(5, 30))
    arrays = {
        "participation": history,
        "aggregates": history @ updates,
        "updates": updates,
        "counts": history.reshape(3, 8, 5).sum(axis=1),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "both.npz", **arrays)
    return {name: tmp_path / f"{name}.npy" for name in arrays} | {
        "both": tmp_path / "both.npz"
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            [],
            "`attack` must be followed by the name of one: least-squares, distinguish, "
            "canaries",
        ),
        (["least-square"], "must be a known attack: did you mean 'least-squares'?"),
        (["--config", "x.toml"], "`attack` must be followed by the name of one"),
        (["membership", "--seed", "-1"], "`seed` must lie in [0, 2**32); got -1"),
        ([*SUMS, "--rounds", "0"], "`rounds` must be at least 1; got 0"),
        (
            [*SUMS, "--cohort-size", "7"],
            "`cohort_size` must lie in [2, num_clients]; got 7 and 6",
        ),
        (
            [*SUMS, "--schemes", "uniform", "uniform"],
            "`schemes` must not contain duplicates",
        ),
        ([*SUMS, "--schemes"], "`schemes` must name at least one"),
        ([*SUMS, "--schemes", "unifrom"], "did you mean 'uniform'?"),
        (
            [*SUMS, "--schemes", "batch_partitioning:4"],
            "must be a multiple of the privacy target of `schemes`",
        ),
        (
            [*SUMS, "--dropout-rates", "1"],
            "`dropout_rates` must lie in [0, 1); got 1.0",
        ),
        (
            [*SUMS, "--learning-rate", "nan"],
            "`learning_rate` must be finite and positive; got nan",
        ),
        ([*SUMS, "--ridge", "-1"], "`ridge` must be finite, from 0; got -1.0"),
        (
            [*SUMS, "--ridge", "1", "--update-change", "1"],
            "`update_change` must be 0 with --ridge",
        ),
        (
            [*SUMS, "--window", "31"],
            "`window` must be no longer than --rounds; got 31 and 30",
        ),
        ([*SUMS, "--window", "0"], "`window` must be at least 1"),
        ([*SUMS, "--run", "nowhere"], "`run` must be the folder of a complete run"),
        (
            [*SUMS, "--aggregates", "no.npy"],
            "`aggregates` must be an existing .npy or .npz file",
        ),
        (
            ["distinguish", "--shift", "0"],
            "`shift` must be finite and positive; got 0.0",
        ),
        (
            ["distinguish", "--shift", "-1"],
            "`shift` must be finite and positive; got -1.0",
        ),
        (
            ["distinguish", "--noise-variance", "-1"],
            "`noise_variance` must be finite, from 0; got -1.0",
        ),
        (["distinguish", "--trials", "0"], "`trials` must be at least 1; got 0"),
        (["distinguish", "--trainings", "0"], "`trainings` must be at least 1; got 0"),
        (
            ["distinguish", "--others", "trained", "trained"],
            "`others` must not contain duplicates",
        ),
        (["distinguish", "--clients"], "`clients` must name at least one"),
        (["distinguish", "--false-positive-rates", "1"], "must lie in (0, 1); got 1.0"),
        (
            ["distinguish", "--false-positive-rates", "0.1", "0.1"],
            "must not contain duplicates",
        ),
        (
            ["distinguish", "--client-size", "1"],
            "`client_size` must be at least 2; got 1",
        ),
        (
            ["attribute", "--mask", __file__],
            "`mask` must be an existing .npy or .npz",
        ),
        (
            ["attribute", "--estimators", "joint", "joint"],
            "must not contain duplicates",
        ),
        (["attribute", "--prevalence", "1"], "`prevalence` must lie in (0, 1)"),
        (
            ["attribute", "--num-held", "33"],
            "`num_held` must be at most client_size; got 33",
        ),
        (["attribute", "--local-steps", "9"], "must need at most client_size samples"),
        (
            ["attribute", "--noise-multiplier", "1"],
            "`clip_norm` must be set when `noise_multiplier` is positive",
        ),
        (
            ["attribute", "--concentration", "1"],
            "`concentration` must not be set unless --partition is dirichlet",
        ),
        (
            ["attribute", "--partition", "dirichlet", "--shards-per-client", "2"],
            "`shards_per_client` must not be set unless --partition is shards",
        ),
        (
            ["attribute", "--partition", "shards", "--shards-per-client", "10"],
            "`shards_per_client` must be at most the 9 classes to draw from; got 10",
        ),
        (["attribute", "--num-shadows", "31"], "`num_shadows` must be at least 32"),
        (
            ["attribute", "--target-class", "10"],
            "`target_class` must be a class with samples",
        ),
        (
            ["disaggregation", "--counts", __file__],
            "`counts` must be an existing .npy or .npz",
        ),
        (["disaggregation", "--interval", "0"], "`interval` must be at least 1"),
        (
            ["disaggregation", "--interval-lengths", "3"],
            "must not be set without --aggregates",
        ),
        (["gradients", "--num-summed", "1"], "`num_summed` must be at least 2; got 1"),
        (
            ["gradients", "--photo", "china", "--dataset", "digits"],
            "`photo` must not be set",
        ),
        (
            ["gradients", "--folder", "nowhere"],
            "`folder` must be a folder with pictures",
        ),
        (["gradients", "--step-size", "inf"], "`step_size` must be finite"),
        (["gradients", "--dataset", "mnits"], "`dataset` must be a known data set"),
        (
            ["model-inversion", "--connection-probability", "0"],
            "must lie in (0, 1]; got 0.0",
        ),
        (["model-inversion", "--num-clients", "1"], "`num_clients` must be at least 2"),
        (
            ["canaries", "--noise-multiplier", "0"],
            "`noise_multiplier` must be finite and positive",
        ),
        (
            ["canaries", "--clip-norm", "inf"],
            "`clip_norm` must be finite and positive; got inf",
        ),
        (
            ["canaries", "--target-delta", "1"],
            "`target_delta` must lie in (0, 1); got 1.0",
        ),
        (["canaries", "--modulus-bits", "33"], "`modulus_bits` must"),
        (["canaries", "--modulus-bits", "4"], "a chance of 1"),
        (
            ["membership", "--label-noise", "1.5"],
            "`label_noise` must lie in [0, 1]; got 1.5",
        ),
        (["membership", "--num-shadows", "1"], "`num_shadows` must be at least 2"),
        (
            ["membership", "--client-size", "400"],
            "`client_size` must be small enough for the data",
        ),
        (
            ["inconsistency", "--target", "8"],
            "`target` must be one of the round's clients",
        ),
        (
            ["inconsistency", "--pads", "plain", "plain"],
            "`pads` must not contain duplicates",
        ),
    ],
)
def test_misuse_is_answered_with_status_2(
    words: list[str],
    message: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["attack", *words]) == 2
    captured = capsys.readouterr()
    assert message in " ".join(captured.err.split())
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert not list(tmp_path.iterdir()) or list(tmp_path.rglob("*.json")) == []


@pytest.mark.parametrize(
    "words", [["gradients", "--method", "guess"], [*SUMS, "--rounds", "x"]]
)
def test_flags_that_do_not_parse(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attack", *words]) == 2
    assert capsys.readouterr().err


@pytest.mark.smoke("least-squares")
@pytest.mark.parametrize(
    "name",
    [
        "least-squares",
        "distinguish",
        "canaries",
        "disaggregation",
        "gradients",
        "model-inversion",
        "membership",
        "inconsistency",
    ],
)
def test_help_teaches_by_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attack", "--help"]) == 0
    assert f"mrsa-jax attack {name}" in " ".join(capsys.readouterr().out.split())
    assert main(["attack", name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.count(f"  mrsa-jax attack {name}") >= 2
    for flag in ("--seed", "--out", "--overwrite", "--json"):
        assert flag in shown


def test_settings_from_a_file(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "attack.toml"
    settings.write_text("rounds = 0\n")
    assert main(["attack", "least-squares", "--config", str(settings)]) == 2
    assert "`rounds` must be at least 1; got 0" in capsys.readouterr().err
    words = [
        "attack",
        "least-squares",
        "--config",
        str(settings),
        "--rounds",
        "3",
        "--seed",
        "-2",
    ]
    assert main(words) == 2
    assert "`seed` must lie in [0, 2**32); got -2" in capsys.readouterr().err


@pytest.mark.long
def test_who_is_predicted_exposed_is_recovered(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In pairs of clients, who is in no odd cycle is hidden by one other."""
    words = [*FAST, "--schemes", "uniform", "partition"]
    found = _json(words, tmp_path / "out", capsys)
    assert len(found["scores"]) == 12
    for row in found["scores"]:
        if row["exposed_in_sum"] is not None:
            assert row["predicted_error"] == 0
            assert row["error"] < 1e-3  # of rounding to 2**16 levels
        else:
            assert row["error"] > 1e-2
    random, pairs = found["summary"]
    assert random["exposed"] >= 3
    assert pairs["exposed"] == 0
    assert pairs["strong_T"] == 2
    assert pairs["predicted_error"] == pytest.approx(0.5)
    errors = [
        row["error"] for row in found["scores"] if row["scheme"] == pairs["scheme"]
    ]
    assert pairs["least_error"] == pytest.approx(min(errors))
    attained, computed = (
        found["sentences"][1].split("hidden among: ")[1].split("; computed for ")
    )
    assert attained.startswith("the best-known client ")
    assert computed.startswith("clients that are alike: the worst among 2.00, the")
    assert (tmp_path / "out" / "errors.png").stat().st_size > 1000
    # the same study may be written again, another not
    other = ["attack", *words, "--out", str(tmp_path / "out"), "--seed", "5"]
    assert main(other) == 2
    assert "`out` must not hold another study" in " ".join(
        capsys.readouterr().err.split()
    )


def test_the_last_update_of_those_that_drift(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Client 0 is alone in the second sum; client 1 is estimated from (3, 1) by hand."""
    np.save(tmp_path / "who.npy", np.asarray([[1, 1], [1, 0]]))
    np.save(tmp_path / "sums.npy", np.asarray([[3.0], [1.0]]))
    words = [
        "least-squares",
        "--aggregates",
        str(tmp_path / "sums.npy"),
        "--participation",
        str(tmp_path / "who.npy"),
        "--memory",
        "0.5",
    ]
    found = _json(words, tmp_path / "out", capsys)
    # M = [[2, 1/2], [1/2, 1]], c = (1, 0): c^T M^-1 = (4, -2) / 7
    estimates = np.load(tmp_path / "out" / "estimates.npy")
    np.testing.assert_allclose(estimates, [[1.0], [(4 * 3 - 2 * 1) / 7]], rtol=1e-12)
    errors = [row["predicted_error"] for row in found["scores"]]
    assert errors == pytest.approx([0.0, 1 - 4 / 7])
    assert main(["attack", "least-squares", "--share", "0.5"]) == 2
    assert "`share` must be given with --memory" in capsys.readouterr().err


@pytest.mark.long
def test_sums_of_another_framework(
    files: dict[str, pathlib.Path],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["least-squares", "--aggregates", str(files["aggregates"])]
    words += ["--participation", str(files["both"])]
    blind = _json(words, tmp_path / "blind", capsys)
    updates, history = np.load(files["updates"]), np.load(files["participation"])
    estimates = np.load(tmp_path / "blind" / "estimates.npy")
    np.testing.assert_allclose(estimates[2:], updates[2:], atol=1e-9)
    pair = updates[:2].mean(axis=0)
    np.testing.assert_allclose(estimates[:2], np.stack([pair, pair]), atol=1e-9)
    assert [row["sums"] for row in blind["scores"]] == history.sum(axis=0).tolist()
    assert [row["exposed_in_sum"] is None for row in blind["scores"]] == [True] * 2 + [
        False
    ] * 3
    assert "error" not in blind["scores"][0]
    scored = _json(
        [*words, "--updates", str(files["updates"])], tmp_path / "scored", capsys
    )
    expected = np.square(updates[0] - pair).sum() / np.square(updates[0]).sum()
    assert scored["scores"][0]["error"] == pytest.approx(expected)
    assert scored["summary"][0]["recovered"] == 3


@pytest.mark.long
def test_a_window_of_the_sums(
    files: dict[str, pathlib.Path],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["least-squares", "--aggregates", str(files["aggregates"])]
    words += ["--participation", str(files["participation"])]
    found = _json([*words, "--window", "2"], tmp_path / "out", capsys)
    history = np.load(files["participation"])[-2:]
    assert [row["sums"] for row in found["scores"]] == history.sum(axis=0).tolist()
    assert (
        main(["attack", *words, "--window", "25", "--out", str(tmp_path / "no")]) == 2
    )
    assert (
        "`window` must be no longer than the history; got 25 and 24"
        in capsys.readouterr().err
    )


@pytest.mark.long
def test_broken_files(
    files: dict[str, pathlib.Path],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def said(aggregates: pathlib.Path, participation: pathlib.Path) -> str:
        words = ["--aggregates", str(aggregates), "--participation", str(participation)]
        assert (
            main(["attack", "least-squares", *words, "--out", str(tmp_path / "no")])
            == 2
        )
        assert not (tmp_path / "no").exists()
        return " ".join(capsys.readouterr().err.split())

    broken = tmp_path / "broken.npy"
    broken.write_bytes(files["aggregates"].read_bytes()[:200])
    assert "`aggregates` must be a sound array file" in said(
        broken, files["participation"]
    )
    objects = tmp_path / "objects.npy"
    np.save(objects, np.array([{}]), allow_pickle=True)
    assert "`aggregates` must be a sound array file" in said(
        objects, files["participation"]
    )
    many = tmp_path / "many.npz"
    np.savez(many, a=np.ones(2), b=np.ones(2))
    assert "`aggregates` must hold one array, or one named" in said(
        many, files["participation"]
    )
    short = tmp_path / "short.npy"
    np.save(short, np.load(files["aggregates"])[:-1])
    assert "with a row for each row of `participation`" in said(
        short, files["participation"]
    )
    fractions = tmp_path / "fractions.npy"
    np.save(fractions, np.load(files["participation"]) / 2)
    assert "`participation` must" in said(files["aggregates"], fractions)
    np.save(short, np.ones((5, 29)))
    only = ["attack", "least-squares", "--aggregates", str(files["aggregates"])]
    words = ["--participation", str(files["participation"]), "--updates", str(short)]
    assert main([*only, *words, "--out", str(tmp_path / "no")]) == 2
    assert (
        "`updates` must be [clients, d]; got (5, 29) and (5, 30)"
        in capsys.readouterr().err
    )
    sums = np.load(files["aggregates"])
    sums[3, 3] = np.nan
    np.save(short, sums)
    assert "`aggregates` must be finite" in said(short, files["participation"])
    assert main(only) == 2
    assert "`aggregates` must be given with --participation" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_is_repeated_to_attack_it(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = [
        "--rounds",
        "5",
        "--scheme",
        "uniform",
        "--num-clients",
        "4",
        "--cohort-size",
        "2",
    ]
    words += ["--dataset", "digits", "--model", "logistic", "--devices", "1"]
    assert main(["train", *words, "--out", str(run), "--batch-size", "200"]) == 0
    capsys.readouterr()
    found = _json(["least-squares", "--run", str(run)], tmp_path / "out", capsys)
    assert len(found["scores"]) == 4
    assert found["summary"][0]["clients"] >= 2
    assert all(row["error"] is None or row["error"] >= 0 for row in found["scores"])
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(
        config.replace('server = "average"', 'server = "adam"')
    )
    assert (
        main(
            ["attack", "least-squares", "--run", str(run), "--out", str(tmp_path / "n")]
        )
        == 2
    )
    assert "`run` must be of plain averaging" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.long
def test_who_was_in_the_sums_of_another_framework(
    files: dict[str, pathlib.Path],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["disaggregation", "--aggregates", str(files["aggregates"])]
    blind = _json(
        [*words, "--counts", str(files["counts"])], tmp_path / "blind", capsys
    )
    history = np.load(files["participation"])
    np.testing.assert_array_equal(
        np.load(tmp_path / "blind" / "participation_0.npy"), history
    )
    assert [row["shared"] for row in blind["scores"]] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert "right" not in blind["scores"][0]
    words += ["--participation", str(files["participation"]), "--interval", "8"]
    scored = _json(words, tmp_path / "scored", capsys)
    assert scored["summary"][0]["columns_right"] == 5
    bad = [
        *words[:3],
        "--counts",
        str(files["counts"]),
        "--interval-lengths",
        "8",
        "8",
        "9",
    ]
    assert main(["attack", *bad, "--out", str(tmp_path / "no")]) == 2
    assert "`interval_lengths` must be positive and add up" in capsys.readouterr().err
    np.save(tmp_path / "wide.npy", np.ones((3, 6), int))
    bad = [
        *words[:-2],
        "--counts",
        str(tmp_path / "wide.npy"),
        "--out",
        str(tmp_path / "no"),
    ]
    assert main(["attack", *bad]) == 2
    assert (
        "`participation` must have a column for each client" in capsys.readouterr().err
    )


def test_nobody_took_part(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, array in (("s", np.zeros((3, 4))), ("p", np.zeros((3, 2), bool))):
        np.save(tmp_path / f"{name}.npy", array)
    words = ["least-squares", "--aggregates", str(tmp_path / "s.npy")]
    words += ["--participation", str(tmp_path / "p.npy")]
    found = _json(words, tmp_path / "out", capsys)
    assert found["summary"][0]["clients"] == 0
    assert not np.load(tmp_path / "out" / "estimates.npy").any()


@pytest.mark.long
def test_images_from_updates(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "gradients",
        "--dataset",
        "digits",
        "--model",
        "logistic",
        "--iterations",
        "250",
    ]
    words += ["--random-starts", "1", "--smoothness", "0", "--seen", "plain", "padded"]
    found = _json(words, tmp_path / "out", capsys)
    assert [row["seen"] for row in found["scores"]] == ["plain", "padded"]
    plain, padded = found["summary"]
    original = np.load(tmp_path / "out" / "original.npy")
    images = np.load(tmp_path / "out" / "plain.npy")
    assert original.shape == (1, 8, 8, 1)
    error = np.square(images[0] - original[0]).mean()
    assert plain["psnr_db"] == pytest.approx(-10 * np.log10(error), abs=1e-3)
    # one image's direction is all that softmax regression sends
    assert plain["psnr_db"] > 20
    assert padded["psnr_db"] < 12
    assert found["scores"][0]["label"] == found["scores"][0]["label_seen"]
    assert (tmp_path / "out" / "images.png").stat().st_size > 1000


def test_pictures_of_a_folder(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    pixels = np.zeros((40, 64, 3), np.uint8)
    pixels[:, 32:] = 255
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name in ("a.png", "b.jpg"):
        Image.fromarray(pixels).save(folder / name)
    (folder / "note.txt").write_text("no picture")
    images, labels, _ = _gradients._chosen_images(GradientsConfig(folder=folder), 2)
    assert images.shape == (2, 32, 32, 3)
    assert images[:, :, :14].max() < 0.02
    assert images[:, :, 18:].min() > 0.98
    assert labels.tolist() == [0, 1]
    words = ["gradients", "--folder", str(folder), "--num-summed", "3"]
    assert main(["attack", *words, "--out", str(tmp_path / "no")]) == 2
    assert "`folder` must hold the 3 pictures" in capsys.readouterr().err


@pytest.mark.long
def test_classes_of_models(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "model-inversion",
        "--dataset",
        "digits",
        "--num-clients",
        "3",
        "--num-epochs",
        "3",
    ]
    found = _json([*words, "--iterations", "60"], tmp_path / "out", capsys)
    plain, padded, aggregate = found["summary"]
    assert plain["identified"] >= 8
    assert aggregate["identified"] >= 8
    # chance is 1 in 10 each: 9 of 10 have a probability below 1e-8
    assert padded["identified"] < 8
    assert np.load(tmp_path / "out" / "padded.npy").shape == (10, 8, 8, 1)
    assert (tmp_path / "out" / "images.png").stat().st_size > 1000


def test_sample_photographs() -> None:
    images, _, _ = _gradients._chosen_images(GradientsConfig(photo="china"), 4)
    assert images.shape == (4, 32, 32, 3)
    assert 0 <= images.min() < images.max() <= 1
    assert len(np.unique(images.reshape(4, -1), axis=0)) == 4
    swapped, _, _ = _gradients._chosen_images(GradientsConfig(), 2)  # flower first
    np.testing.assert_array_equal(swapped[::-1], images[:2])


@pytest.mark.slow
def test_images_of_a_sum(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "gradients",
        "--dataset",
        "digits",
        "--model",
        "mlp",
        "--iterations",
        "400",
    ]
    found = _json([*words, "--seen", "sum", "plain"], tmp_path / "out", capsys)
    assert [row["seen"] for row in found["scores"]] == ["sum of 2", "sum of 2", "plain"]
    both = np.load(tmp_path / "out" / "sum.npy")
    original = np.load(tmp_path / "out" / "original.npy")
    assert original.shape == both.shape == (2, 8, 8, 1)
    straight = np.square(both - original).mean()
    # in the originals' order
    assert straight <= np.square(both[::-1] - original).mean()


@pytest.mark.slow
def test_members_of_models(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "membership",
        "--model",
        "logistic",
        "--client-size",
        "20",
        "--num-summed",
        "2",
    ]
    words += ["--num-epochs", "60", "--learning-rate", "0.5", "--label-noise", "0.8"]
    words += ["--num-shadows", "4", "--methods", "loss", "likelihood_ratio"]
    found = _json(words, tmp_path / "out", capsys)
    assert [row["seen"] for row in found["summary"]] == [
        "plain",
        "sum of 2",
        "padded",
    ] * 2
    for row in found["summary"]:
        if row["seen"] == "plain":
            assert row["auc"] > 0.8
        if row["seen"] == "padded":  # 40 and 40: a deviation of 0.065, five of them
            assert 0.17 < row["auc"] < 0.83
    assert len(found["scores"]) == 2 * 3 * 2


@pytest.mark.long
def test_shifts_are_told_as_often_as_the_formula_says(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["distinguish", "--num-clients", "8", "--cohort-size", "4", "--rounds", "5"]
    words += [
        "--schemes",
        "batch_partitioning:2",
        "--warm-up",
        "0",
        "--trainings",
        "300",
    ]
    found = _json([*words, "--client-size", "5"], tmp_path / "out", capsys)
    assert [row["whose"] for row in found["summary"]] == ["worst", "median"] * 2
    for row in found["summary"]:
        assert row["hidden_among"] >= 2
        expected = (row["hidden_among"] - 1) ** -0.5
        assert row["formula_mu"] == pytest.approx(expected)
        # what the kernel of drifting updates changes is little, as they hardly drift
        slack = 1e-9 if row["others"] == "gaussian" else 0.2
        assert row["mu"] == pytest.approx(expected, abs=slack)
        assert row["auc"] == pytest.approx(row["formula_auc"], abs=0.1)
    for row in found["scores"]:
        count = {"gaussian": 20_000, "trained": 300}[row["others"]]
        for rate, expected in (
            (row["tpr"], row["formula"]),
            (row["measured_fpr"], row["fpr"]),
        ):
            low, high = binomial_interval(round(rate * count), count, 1 - 1e-6)
            # updates are not Gaussian
            slack = 0.0 if row["others"] == "gaussian" else 0.03
            assert low - slack <= expected <= high + slack
        assert row["lower"] <= row["tpr"] <= row["upper"]
    for kind in ("gaussian", "trained"):
        name = f"true_against_false_positives_{kind}.png"
        assert (tmp_path / "out" / name).exists()
    said = " ".join(found["sentences"])
    for part in ("excess kurtosis", "no guarantee", "from one round to the next"):
        assert part in said


@pytest.mark.long
def test_the_exposed_are_told_with_certainty(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "distinguish",
        "--num-clients",
        "4",
        "--cohort-size",
        "2",
        "--rounds",
        "20",
    ]
    words += ["--schemes", "uniform", "--others", "gaussian", "--clients", "worst"]
    (row,) = _json([*words, "--shift", "0.01"], tmp_path / "out", capsys)["summary"]
    assert row["hidden_among"] == 1
    assert row["mu"] is None  # infinite
    assert row["auc"] == 1
    assert row["rates_inside"] == row["rates"]


@pytest.mark.long
def test_canaries_are_found_as_often_as_the_ledger_says(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["canaries", "--num-clients", "6", "--cohort-size", "4", "--rounds", "5"]
    words += ["--schemes", "batch_partitioning:2", "--dim", "16", "--trials", "600"]
    words += [
        "--noise-multiplier",
        "2",
        "--dropout-rates",
        "0.2",
        "--modulus-bits",
        "16",
    ]
    found = _json([*words, "--clients", "worst"], tmp_path / "out", capsys)
    known, gaussian = found["summary"]
    assert (known["others"], gaussian["others"]) == ("known", "gaussian")
    for row in found["summary"]:
        assert row["ledger_mu"] == pytest.approx(math.sqrt(row["sums"]) / 2, rel=1e-3)
        # rounding is in its sensitivity
        assert row["ledger_mu"] > math.sqrt(row["sums"]) / 2
        assert row["ledger_mu"] < row["smallest_found"] < row["ledger_mu"] + 0.6
        assert abs(row["noise_scale"] - 1) < row["noise_margin"] < 0.1
        assert row["correlation"] < row["correlation_margin"] < 0.1
        assert row["verdict"] == "within the ledger, noise as planned"
        assert row["lower"] <= row["mu"] <= row["upper"]
        assert abs(row["measured_mu"] - row["mu"]) < 0.25
        assert row["rates_inside"] >= row["rates"] - 1
    assert known["mu"] == pytest.approx(known["ledger_mu"], rel=1e-3)
    assert gaussian["mu"] < gaussian["ledger_mu"]
    said = " ".join(found["sentences"])
    assert said.count("within the ledger") == 2
    assert said.count("would have found a mu from") == 2
    assert "MORE THAN" not in said
    for kind in ("known", "gaussian"):
        name = f"true_against_false_positives_{kind}.png"
        assert (tmp_path / "out" / name).exists()


@pytest.mark.slow
def test_a_server_that_lies(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "inconsistency",
        "--cohort-size",
        "3",
        "--hidden-size",
        "4",
        "--target",
        "2",
    ]
    plain, bound = _json(words, tmp_path / "out", capsys)["scores"]
    assert plain["recovered"] is True
    assert plain["error"] < 1e-3
    assert bound["recovered"] is False
    assert bound["error"] > 1


@pytest.mark.long
def test_the_tables_that_are_printed(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*FAST, "--schemes", "partition", "--out", str(tmp_path / "out")]
    assert main(["attack", *words]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for part in ("predicted error", "User partition", "errors.png"):
        assert part in printed
    # headings of several lines
    assert re.search(
        r"exposed predicted .*strong .*median least .*T exposed error", printed
    )


class _Interrupt:
    """Interrupt the bars when a stage of this number starts."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, *_: object) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.long
@pytest.mark.parametrize("finished", [0, 1])
def test_an_interruption_leaves_what_was_finished(
    finished: int,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    words = ["attack", *FAST, "--schemes", "uniform", "partition", "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(Bars, "stage", _Interrupt(finished))
        assert main(words) == 130
    said = capsys.readouterr().err
    assert "interrupted" in said
    if finished:
        saved = json.loads((out / "scores.json").read_text())
        assert saved["is_complete"] is False
        assert {row["scheme"] for row in saved["scores"]} == {"Random"}
        assert str(out) in said
    else:
        assert not out.exists()
    assert main(words) == 0  # the same again, whole
    assert json.loads((out / "scores.json").read_text())["is_complete"] is True
    whole = (out / "scores.csv").read_text()
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(Bars, "stage", _Interrupt(1))
        assert main(words) == 130
    assert (out / "scores.csv").read_text() == whole  # not replaced by half of it
    assert not list(tmp_path.glob(".*"))


def _attribute(*words: str) -> list[str]:
    few = ["--num-clients", "24", "--cohort-size", "8", "--rounds", "40"]
    return ["attribute", *few, "--num-shadows", "100", "--client-size", "16", *words]


@pytest.mark.long
def test_what_clients_are_shows_in_random_sums_and_less_in_blocks(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = _attribute(
        "--estimators", "joint", "--trainings", "4", "--local-steps", "0"
    )
    words += ["--schemes", "uniform", "batch_partitioning:4"]
    random, blocks = _json(words, tmp_path / "out", capsys)["summary"]
    assert random["bound_auc"] is None
    assert blocks["bound_auc"] == pytest.approx(0.7734375)
    assert blocks["strong_T"] == 4
    assert random["auc"] > 0.85 > blocks["auc"]
    # the number of mates with the attribute is all that a block reveals
    assert blocks["auc"] <= blocks["counted_auc"] + 0.05
    for row in (random, blocks):
        assert row["lower"] <= row["auc"] <= row["upper"]
        assert row["predicted_share"] == pytest.approx(row["attained_share"], abs=0.2)


@pytest.mark.long
def test_noise_in_the_sums_hides_an_attribute_at_the_price_of_accuracy(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = _attribute(
        "--estimators", "joint", "--trainings", "3", "--clip-norm", "0.3"
    )
    words += ["--schemes", "uniform"]
    rows = {}
    for noise in ("0", "0.5", "8"):
        folder = tmp_path / noise
        content = _json([*words, "--noise-multiplier", noise], folder, capsys)
        (rows[noise],) = content["summary"]
    assert rows["0"]["auc"] > rows["0.5"]["auc"] - 0.05
    assert rows["0.5"]["auc"] > rows["8"]["auc"]
    assert rows["8"]["auc"] < 0.75
    assert rows["0"]["accuracy"] > rows["8"]["accuracy"] + 0.1
    # a server that knows the noise predicts what it learns
    for row in rows.values():
        assert row["predicted_share"] == pytest.approx(row["attained_share"], abs=0.2)


def test_mixtures_of_classes_are_those_of_the_partition() -> None:
    """Pairs of one client's samples that share a class, against the closed forms."""
    labels, clients, size = np.repeat(np.arange(9), 20), 600, 32
    settings = {"client_size": size, "num_held": 1}
    for words, alike in (
        ({}, 1 / 9),
        ({"partition": "shards", "shards_per_client": 3}, 1 / 3),
        # a Dirichlet mixture w of C classes: E sum w^2 = (c + 1) / (C c + 1)
        ({"partition": "dirichlet", "concentration": 0.5}, 1.5 / 5.5),
        ({"partition": "dirichlet", "concentration": 0.1}, 1.1 / 1.9),
    ):
        config = AttributeConfig(**settings, **words)
        generator = np.random.default_rng(0)
        drawn = _drawn(config, generator, labels, np.arange(len(labels)), clients)
        counts = np.stack([np.bincount(labels[row], minlength=9) for row in drawn])
        pairs = (counts * (counts - 1)).sum(axis=1) / (size * (size - 1))
        near = 5 * pairs.std() / np.sqrt(clients)
        assert pairs.mean() == pytest.approx(alike, abs=near), words
        # no class is favoured
        assert counts.mean(axis=0) == pytest.approx(np.full(9, size / 9), abs=1.5)
        if words.get("partition") == "shards":
            assert ((counts > 0).sum(axis=1) <= 3).all()


@pytest.mark.long
def test_the_attribute_of_a_mask_and_of_a_record(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mask = np.arange(24) < 9
    np.save(tmp_path / "mask.npy", mask)
    words = _attribute("--trainings", "1", "--mask", str(tmp_path / "mask.npy"))
    words += ["--schemes", "uniform", "--prevalence", "0.375"]
    content = _json(words, tmp_path / "class", capsys)
    methods = [row["method"] for row in content["summary"]]
    assert methods == ["joint", "prolin"]
    assert all(row["auc"] > 0.7 for row in content["summary"])
    assert content["summary"][1]["predicted_share"] is None
    rounds = [row["rounds"] for row in content["scores"] if row["method"] == "joint"]
    assert rounds == [5, 10, 15, 20, 25, 30, 35, 40]
    words[words.index("--mask") + 1] = str(tmp_path / "short.npy")
    np.save(tmp_path / "short.npy", mask[:-1])
    assert main(["attack", *words, "--out", str(tmp_path / "no")]) == 2
    assert "`mask` must be 24 booleans" in capsys.readouterr().err
    np.save(tmp_path / "short.npy", mask | True)
    assert main(["attack", *words, "--out", str(tmp_path / "no")]) == 2
    assert "clients with the attribute and clients without" in capsys.readouterr().err
    record = ["--attribute", "record", "--local-steps", "1", "--estimators", "joint"]
    content = _json(
        _attribute("--trainings", "1", *record), tmp_path / "record", capsys
    )
    assert [row["scheme"] for row in content["summary"]] == [
        "Random",
        "Multi-RoundSecAgg (T=4)",
    ]


@pytest.mark.slow
def test_blocks_hide_what_a_client_is_as_far_as_the_bound_says(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Forty trainings of whole epochs, as single ones scatter by .04 around their mean."""
    sizes = (2, 4, 6, 12)
    words = ["attribute", "--trainings", "40", "--estimators", "joint", "--schemes"]
    words += [f"batch_partitioning:{size}" for size in sizes]
    rows = _json(words, tmp_path / "out", capsys)["summary"]
    for row, reference in zip(rows, (0.866, 0.750, 0.710, 0.642), strict=True):
        assert row["auc"] < row["bound_auc"]
        assert row["auc"] == pytest.approx(reference, abs=0.02)
        # nearly as good as the number of mates with the class, all that a block reveals
        assert row["counted_auc"] - 0.012 < row["auc"] < row["counted_auc"] + 1e-9
        # mates tie: on average a fraction (T - 1) / (N - 1) of the pairs
        gap = (row["strong_T"] - 1) / 119 * (row["bound_auc"] - 0.5)
        # three standard errors of forty draws of 120 clients
        expected = pytest.approx(row["bound_auc"] - gap, abs=0.018)
        assert row["counted_auc"] == expected


@pytest.mark.slow
def test_random_sums_reveal_what_a_client_is_though_each_update_is_hidden(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One step on four samples in a round: most of an update is new, the class is not."""
    words = ["attribute", "--trainings", "3", "--schemes", "uniform", "--rounds", "400"]
    words += ["--batch-size", "4", "--local-steps", "1"]
    content = _json(words, tmp_path / "out", capsys)
    scores = [row for row in content["scores"] if row["method"] == "joint"]
    for stop, least in ((200, 0.83), (400, 0.90)):
        rows = [row for row in scores if row["rounds"] == stop]
        assert np.mean([row["auc"] for row in rows]) >= least
        assert min(row["hidden_among_worst"] for row in rows) > 7.5
        assert max(row["lasting_hidden_worst"] for row in rows) < 4.5
    after_200 = [row for row in scores if row["rounds"] == 200]
    assert min(row["hidden_among_worst"] for row in after_200) > 8.5
    joint, prolin = content["summary"]
    assert joint["predicted_share"] == pytest.approx(joint["attained_share"], abs=0.05)
    assert joint["auc"] > prolin["auc"]


def test_three_predictions_stand_next_to_the_errors_attained(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Long updates are known better; a server that knows lengths predicts it."""
    generator = np.random.default_rng(0)
    lengths = generator.permutation(np.linspace(2, 6, 60))
    updates = generator.normal(size=(60, 1500)) * lengths[:, None]
    blocks = np.kron(np.eye(15, dtype=bool), np.ones((1, 4), bool))
    for name, array in (
        ("who", blocks),
        ("sums", blocks @ updates),
        ("updates", updates),
    ):
        np.save(tmp_path / f"{name}.npy", array)
    words = ["least-squares", "--aggregates", str(tmp_path / "sums.npy")]
    words += ["--participation", str(tmp_path / "who.npy")]
    words += ["--updates", str(tmp_path / "updates.npy")]
    content = _json(words, tmp_path / "out", capsys)
    sizes = [row["predicted_sizes"] for row in content["scores"]]
    # alone in a block of four: v_i / sum of the mates' v is explained
    squares = lengths.reshape(15, 4) ** 2
    expected = 1 - squares / squares.sum(axis=1, keepdims=True)
    assert sizes == pytest.approx(expected.ravel().tolist(), abs=0.08)
    alike = [row["predicted_error"] for row in content["scores"]]
    assert alike == pytest.approx([0.75] * 60)
    # unrelated updates resemble each other by what centring makes alone
    resembling = [row["predicted_resemblance"] for row in content["scores"]]
    assert resembling == pytest.approx(sizes, abs=0.1)
    (sentence,) = content["sentences"]
    assert "if the server knows the lengths of all updates" in sentence
    assert "if it also knows which clients resemble each other" in sentence
    attained = [row["error_resemblance"] for row in content["scores"]]
    assert attained == pytest.approx(resembling, abs=0.02)
    assert "not predicted" not in sentence
    # what is new in each sum, and was not stated as a share, is no part of the figure
    fresh = 4 * generator.normal(size=(15, 1500))
    np.save(tmp_path / "sums.npy", blocks @ updates + fresh)
    content = _json(words, tmp_path / "fresh", capsys)
    (sentence,) = content["sentences"]
    assert "correlation over clients 0.9" in sentence
    assert sentence.endswith(
        "because updates change in other ways than a memory and a share."
    )


def test_noise_of_sums_is_predicted_for_a_server_that_knows_sizes() -> None:
    """It takes v_i / sum of v off the sum of a block, and as much of the noise with it."""
    generator = np.random.default_rng(1)
    lengths = generator.uniform(0.5, 2.0, 60)
    updates = generator.normal(size=(60, 1500)) * lengths[:, None]
    blocks = np.kron(np.eye(15, dtype=bool), np.ones((1, 4), bool))
    noise = 1.5 * generator.normal(size=(15, 1500))
    sums = _Sums("", blocks, blocks @ updates + noise, updates, sum_noise=1.5)
    settings = LeastSquaresConfig()
    known = _unlike(settings, sums, blocks, sums.aggregates)
    squares = lengths.reshape(15, 4) ** 2
    part = squares / squares.sum(axis=1, keepdims=True)
    expected = 1 - part + 1.5**2 * part**2 / squares
    assert known["predicted_sizes"] == pytest.approx(expected.ravel(), abs=0.1)
    attained = known["error_resemblance"]
    assert attained == pytest.approx(known["predicted_resemblance"], abs=0.05)
    quiet = dataclasses.replace(sums, sum_noise=0.0)
    without = _unlike(settings, quiet, blocks, sums.aggregates)
    gap = (attained - without["predicted_resemblance"]).mean()
    assert gap == pytest.approx(1.5**2 * (part**2 / squares).mean(), rel=0.2)
