"""`mrsa-jax advise`: what it prints and writes, and its exit status."""

from __future__ import annotations

import csv
import json
import pathlib

import pytest

from mrsa_jax.cli import main

SMALL = "advise --num-clients 6 --cohort-size 3"
WORDS = [*SMALL.split(), "--dropout-rates", "0.1", "--trials", "0"]


@pytest.mark.smoke
def test_the_advice_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--loss-rate", "0.1"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Take partition: it has" in printed
    assert "whenever a client is lost inside a round, its block is excluded" in printed
    assert "partition, 10 % lost inside rounds, and then:" in printed


def test_what_cannot_be_had_is_status_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--want-privacy", "4", "--json"]) == 3
    content = json.loads(capsys.readouterr().out)
    assert content["chosen"] is None
    demands = content["demands"]
    assert {name for name, bound in demands.items() if bound is not None} == {
        "privacy",
        "prevalence",
    }
    assert demands["privacy"] == 4


def test_a_bound_on_tests_of_clients_is_met_or_status_3(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [*WORDS[:-4], "--dropout-rates", "0.1", "--trials", "0"]
    assert main([*words, "--max-auc", "0.82"]) == 0  # of blocks of 3: .8125
    printed = " ".join(capsys.readouterr().out.split())
    assert "better than AUC .812, after any number of rounds, if mates" in printed
    assert "stays visible (TPR .51 at FPR .01)" in printed
    assert main([*words, "--max-auc", "0.75"]) == 3  # of 5, more than a cohort
    assert "No scheme gives blocks of 5 or more" in capsys.readouterr().out
    for flags, message in (
        ("--prevalence 0.1", "`prevalence` must be used together with"),
        ("--max-auc 0.5", "`max_auc` must be above 0.5 and at most 1"),
    ):
        assert main([*words, *flags.split()]) == 2
        assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("advise", "`num_clients` must be given, or a log"),
        (
            "advise --num-clients 6 --cohort-size 7 --dropout-rates 0.1",
            "`cohort_size` must lie in",
        ),
        (f"{SMALL} --dropout-rates 1", "`dropout_rates` must be at least 0"),
        ("advise --log nowhere.jsonl", "nowhere.jsonl: expected a file"),
    ],
)
def test_misuse_is_status_2(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.long
def test_the_folder_holds_table_advice_and_figure(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "advice"
    assert main([*WORDS, "--json", "--out", str(out)]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content.pop("out") == str(out)
    assert json.loads((out / "advice.json").read_text()) == content
    with (out / "options.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["scheme"] for row in rows] == [
        one["scheme"] for one in content["options"]
    ]
    assert float(rows[-1]["cardinality"]) == content["options"][-1]["cardinality"]
    assert (out / "options.png").stat().st_size > 10_000
    assert main([*WORDS, "--out", str(out)]) == 0  # the same again
    assert main([*WORDS, "--seed", "1", "--out", str(out)]) == 2


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "--log participation.jsonl" in printed
    assert "--num-clients" in printed
