"""`mrsa-jax audit` as a pipeline meets it.

Misuse, a shell's log, gates, files, interrupts.
"""

from __future__ import annotations

import collections
import csv
import hashlib
import json
import math
import pathlib
import signal
import subprocess
import sys
import time
import types
from fractions import Fraction

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.cli import _audit, main

QUICK = ["--effort", "0.01"]
SHARES = ["--noise-multiplier", "2", "--clip-norm", "0.5", "--planned"]
# Sums of rounds 3 and 9 minus round 12: site-41 alone. Written as a shell would.
LOG = """round,client
3,site-17
3,site-18
3,site-41
9,site-50
9,site-60
12,site-17
12,site-18
12,site-60
12,site-50
"""


@pytest.fixture
def log(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a small log in which one client is exposed."""
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        (LOG + "13\n", [], "log.csv:11: expected 2 fields; found 1: '13'"),
        (LOG + "12,site-50\n", [], "log.csv:11: expected each client once in a round"),
        (
            "",
            [],
            "log.csv:1: expected a header or a row of participation; found an empty "
            "file",
        ),
        (LOG, ["--round-column", "when"], "log.csv:1: expected one column 'when'"),
        (LOG, ["--memory-gib", "1e-9"], "`memory_bytes` must"),
        (LOG, ["--memory-gib", "0"], "`memory_gib` must be positive; got 0.0"),
        (LOG, ["--memory-gib", "nan"], "`memory_gib` must be positive; got nan"),
        (LOG, ["--effort", "-1"], "`effort` must be a number of at least 0; got -1.0"),
        (LOG, ["--effort", "nan"], "`effort` must be a number of at least 0; got nan"),
        (
            LOG,
            ["--coalition", "site-1"],
            "`coalition` must name clients of the log; got 'site-1'",
        ),
        (
            LOG,
            ["--coalition", "site-41,"],
            "`coalition` must name clients of the log; got ''",
        ),
        (LOG, ["--fail-below", "0"], "`fail_below` must be at least 1; got 0"),
        (
            LOG,
            ["--fail-below-hidden", "0.5"],
            "`fail_below_hidden` must be a finite number of at",
        ),
        (
            LOG,
            ["--fail-below-hidden", "nan"],
            "`fail_below_hidden` must be a finite number of at",
        ),
        (LOG, ["--memory", "1.5"], "`memory` must lie in [0, 1]; got 1.5"),
        (LOG, ["--memory", "0.9999999"], "`memory` must be 1, or lie in [0, 0.999999]"),
        (LOG, ["--share", "0.5"], "`share` must be used together with memory; got 0.5"),
        (
            LOG,
            ["--memory", "0.5", "--drift", "x"],
            "`drift` must not be set with memory; got 'x'",
        ),
        (
            LOG,
            ["--noise-multiplier", "1"],
            "`clip_norm` must be given with noise_multiplier; got None",
        ),
        (
            LOG,
            ["--clip-norm", "1"],
            "`noise_multiplier` must be given with clip_norm; got None",
        ),
        (
            LOG,
            ["--spread", "1"],
            "`noise_multiplier` must be given with spread; got None",
        ),
        (
            LOG,
            ["--noise-multiplier", "0", "--clip-norm", "1"],
            "`noise_multiplier` must be positive",
        ),
        (
            LOG,
            ["--noise-multiplier", "1", "--clip-norm", "-1"],
            "`clip_norm` must be positive; got -1.0",
        ),
        (LOG, ["--target-delta", "1"], "`target_delta` must be below 1; got 1.0"),
        (
            LOG,
            ["--planned", "3"],
            "`noise_multiplier` must be given with planned; got None",
        ),
        (LOG, [*SHARES, "0"], "`planned` must be at least 1; got 0"),
        (LOG, [*SHARES, "2", "--spread", "1"], "`spread` must not be set with planned"),
        (LOG, ["--colluding", "a"], "`colluding` must be used together with planned"),
        (
            LOG,
            [*SHARES, "2", "--colluding", "nobody"],
            "`colluding` must name clients of the log",
        ),
        (
            LOG,
            ["--recipe-file", "none/x.csv"],
            "`recipe_file` must lie in an existing folder; got",
        ),
        (
            LOG,
            ["--overwrite"],
            "`overwrite` must be used together with --out; got True",
        ),
        (
            LOG,
            ["--out", "pyproject.toml"],
            "`out` must be a folder; got 'pyproject.toml'",
        ),
    ],
)
def test_misuse_is_answered_with_status_2(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    content: str,
    flags: list[str],
    message: str,
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(content)
    assert main(["audit", str(path), *flags]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.long
def test_a_coalition_by_its_names(
    log: pathlib.Path, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    out = str(tmp_path / "out")
    assert (
        main(
            ["audit", str(log), *QUICK, "--coalition", "site-17, site-50", "--out", out]
        )
        == 0
    )
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "knows the updates of clients site-17 and site-50; what follows is of all "
        "others" in printed
    )
    assert "client site-60 (from round 9 on)" in printed
    assert main(["report", out]) == 0
    capsys.readouterr()
    assert main(["audit", str(log), *QUICK, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["coalition"] == []
    said = {own["client"]: own["others"] for own in found["joining"]}
    assert said == {"site-17": ["site-18"], "site-18": ["site-17"]}


@pytest.mark.parametrize(
    "words", [[], ["x.csv", "--layout", "wide"], ["x.csv", "--definition", ""]]
)
def test_flags_that_do_not_parse(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", *words]) == 2
    assert capsys.readouterr().err


def test_no_such_file(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(tmp_path / "none.csv")]) == 2
    assert (
        "none.csv: expected a file; found none that can be read"
        in capsys.readouterr().err
    )


def test_the_findings_in_words(
    log: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(log), *QUICK]) == 0
    captured = capsys.readouterr()
    said = " ".join(captured.out.split())
    findings = [
        "1 of 5 clients are exposed",
        "client site-41 (from round 12 on)",
        "Hidden as well as in a single sum: the exposed among 1, client site-17 among "
        "2.00",
        "Weak T is 1 (proven)",
        "The sum of rounds 3 and 9 minus round 12 is client site-41's update alone.",
        "Strong T is 1",
    ]
    places = [said.index(finding) for finding in findings]
    assert places == sorted(places)  # the most urgent first
    assert "weak privacy" in captured.err  # progress goes elsewhere
    assert captured.err.count("device: CPU, ") == 1
    assert "[" not in captured.out


def test_json_is_all_that_is_printed(
    log: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", str(log), *QUICK, "--json", "--fail-below", "2"]
    assert main(words) == 3
    content = json.loads(capsys.readouterr().out)
    assert content["file"] == str(log)
    assert content["exposed"] == [{"client": "site-41", "first_round": 12}]
    assert content["weak_privacy"]["witness"] in (["1", "1", "-1"], ["-1", "-1", "1"])
    assert content["weak_privacy"]["certified"] is True
    assert content["gate"] == {
        "target": 2,
        "definition": "weak",
        "passed": False,
        "reason": "weak T is 1, below 2",
    }


@pytest.mark.parametrize(
    ("target", "definition", "status"),
    [
        (2, "weak", 0),
        (3, "weak", 3),
        (2, "strong", 0),
        (3, "strong", 3),
        (1, "weak", 0),
    ],
)
def test_gates(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    target: int,
    definition: str,
    status: int,
) -> None:
    """Blocks of two, all of whose sums are solved for."""
    path = tmp_path / "blocks.csv"
    path.write_text("1,1,0,0\n1,1,1,1\n")
    words = [
        "audit",
        str(path),
        *QUICK,
        "--fail-below",
        str(target),
        "--definition",
        definition,
    ]
    assert main(words) == status
    assert ("PASSED" if status == 0 else "FAILED") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "status"),
    [
        (["--fail-below-hidden", "2"], 0),
        (["--fail-below-hidden", "2.001"], 3),
        (["--fail-below-hidden", "2.001", "--fail-below", "2"], 3),
        (["--fail-below-hidden", "2", "--fail-below", "3"], 3),
        (["--fail-below-hidden", "2", "--fail-below", "2"], 0),
    ],
)
def test_gates_of_hidden_among(
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    status: int,
) -> None:
    """Blocks of two, all of whose sums are solved for: exactly two; each gate is said."""
    path = tmp_path / "blocks.csv"
    path.write_text("1,1,0,0\n1,1,1,1\n")
    assert main(["audit", str(path), *QUICK, *flags]) == status
    said = capsys.readouterr().out
    assert said.count("PASSED") + said.count("FAILED") == len(flags) // 2
    assert ("FAILED" in said) == (status == 3)
    assert main(["audit", str(path), *QUICK, *flags, "--json"]) == status
    content = json.loads(capsys.readouterr().out)
    assert content["gate_hidden"]["definition"] == "hidden"
    assert (content["gate"] is None) == ("--fail-below" not in flags)
    assert content["hidden_among"]["least"] == pytest.approx(2)


@pytest.mark.long
def test_noise_is_told_in_words_and_kept(
    log: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["audit", str(log), *QUICK, "--noise-multiplier", "2", "--clip-norm", "0.5"]
    assert (
        main([*words, "--spread", "0.1", "--target-delta", "1e-6", "--out", str(out)])
        == 0
    )
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "With noise of standard deviation 1 in each sum (noise multiplier 2, clip 0.5)"
        in said
    )
    assert "a guarantee of differential privacy, delta 1e-06" in said
    assert "distinguished, others Gaussian" in said
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text()
    assert "If all others&#x27; updates are known: a guarantee" in page
    assert "If they are Gaussian with spread 0.1: no guarantee" in page
    assert "Worst hidden of the others" in page
    worst = [float(row["hidden_among_worst"]) for row in rows_of(out / "rounds.csv")]
    assert worst == pytest.approx([3, 2, 1])


@pytest.mark.long
def test_shares_of_noise_are_counted_as_they_were_added(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand: of four planned shares three, two and three are there.

    Without c's one less.
    """
    path, out = tmp_path / "log.csv", tmp_path / "out"
    rows = [
        f"{r},{client}" for r, who in enumerate(("abc", "bc", "abd")) for client in who
    ]
    path.write_text("\n".join(("round,client", *rows)) + "\n")
    words = ["audit", str(path), *QUICK, *SHARES, "4", "--out", str(out), "--overwrite"]
    for names, added in (("", (3, 2, 3)), ("c", (2, 1, 3))):
        colluding = ["--colluding", names] if names else []
        assert main([*words, *colluding, "--json"]) == 0
        content = json.loads(capsys.readouterr().out)
        assert content["noise"] is None  # no claim that every sum had all of it
        shares = content["shares"]
        told = {one["client"]: one for one in shares["worst"]}
        for client, rounds in (("a", (0, 2)), ("b", (0, 1, 2)), ("d", (2,))):
            mu = math.sqrt(sum(4 / added[r] for r in rounds)) / 2
            assert told[client]["mu"] == pytest.approx(mu)
            assert told[client]["planned_mu"] == pytest.approx(
                math.sqrt(len(rounds)) / 2
            )
            assert told[client]["planned_epsilon"] < told[client]["epsilon"]
        assert ("c" in told) == (not names)
        assert shares["short"] == 3
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "of which each survivor adds one share in 4" in said
    assert (
        "3 of 3 sums have less noise than planned, at the least 2 of 4 shares" in said
    )
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text()
    assert "Noise that clients add" in page
    assert "epsilon as planned" in page


@pytest.mark.slow
def test_a_hidden_sum_of_eighteen_is_not_certified_away(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Non-negative weights, the lightest round of 19.

    A combination of all rounds has 18.
    Its entries are odd and every round has an even number of those, so only words of
    the binary code with 18 places lead to it; no round or guess comes near.
    """
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 60, (12, 34))
    rows[0] = 0
    rows[0, rng.permutation(34)[:19]] = rng.integers(1, 60, 19)
    for row in rows[:11]:
        row[np.flatnonzero(row)[0]] += row.sum() % 2
    hidden = np.zeros(34, np.int64)
    signs, sizes = rng.choice([-1, 1], 18), 2 * rng.integers(50, 150, 18) + 1
    hidden[rng.permutation(34)[:18]] = signs * sizes
    rows[11] = hidden + rng.integers(1, 5, 11) @ rows[:11]
    assert rows.min() >= 0
    path = tmp_path / "hidden.csv"
    np.savetxt(path, rows, "%d", delimiter=",")
    words = ["audit", str(path), "--layout", "matrix", "--json", "--fail-below", "19"]
    assert main(words) == 3
    found = json.loads(capsys.readouterr().out)["weak_privacy"]
    assert found["lower"] <= 18
    if found["upper"] == 18:
        witness = [int(z) for z in found["witness"]]
        assert np.count_nonzero(witness @ rows) == 18
    else:
        assert not found["certified"]


def test_a_history_of_nobody_fails_every_gate(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "zeros.csv"
    path.write_text("0,0\n0,0\n")
    assert main(["audit", str(path), *QUICK]) == 0
    assert "weak and strong T are undefined" in capsys.readouterr().out
    assert main(["audit", str(path), *QUICK, "--fail-below", "1", "--json"]) == 3
    content = json.loads(capsys.readouterr().out)
    assert content["weak_privacy"]["lower"] is None
    assert content["strong_privacy"] is None
    assert content["recipe"] is None


@pytest.mark.long
def test_the_whole_recipe_goes_to_a_file(tmp_path: pathlib.Path) -> None:
    """Long recipes are shortened on the screen; the file's arithmetic is exact."""
    rng = np.random.default_rng(2)
    history = rng.random((13, 14)) < 0.5
    np.save(tmp_path / "log.npy", history)
    recipe = tmp_path / "recipe.csv"
    words = ["audit", str(tmp_path / "log.npy"), *QUICK, "--recipe-file", str(recipe)]
    assert main(words) == 0
    with recipe.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    left = [0] * 14
    for row in rows:
        if row["kind"] == "round":
            # rounds are counted from 1
            for i in np.flatnonzero(history[int(row["name"]) - 1]):
                left[i] += int(row["coefficient"])
    wanted = {
        int(r["name"]): int(r["coefficient"]) for r in rows if r["kind"] == "client"
    }
    assert wanted
    assert {i: v for i, v in enumerate(left) if v} == wanted
    assert list(tmp_path.glob("*.part")) == []


def test_settings_may_come_from_a_file(
    tmp_path: pathlib.Path, log: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "audit.toml"
    settings.write_text("effort = 0.01\nfail_below = 2\njson = true\n")
    assert main(["audit", str(log), "--config", str(settings)]) == 3
    assert json.loads(capsys.readouterr().out)["gate"]["target"] == 2


def rows_of(path: pathlib.Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.long
def test_a_folder_for_a_later_reader(
    log: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every file says what the log says, and the certificate is checked from files alone."""
    out = tmp_path / "kept" / "audit"
    words = ["audit", str(log), *QUICK, "--out", str(out), "--fail-below", "2"]
    assert main(words) == 3  # a gate that fails keeps its findings
    assert f"mrsa-jax report {out}" in capsys.readouterr().out
    assert {one.name for one in out.iterdir()} == {
        "audit.json",
        "clients.csv",
        "exposed_clients.png",
        "figures",
        "recipe.csv",
        "rounds.csv",
        "study.json",
        "weak_privacy.png",
    }
    names = {
        f"{one}.{kind}"
        for one in ("exposed_clients", "weak_privacy")
        for kind in ("svg", "pdf")
    }
    assert {one.name for one in (out / "figures").iterdir()} == names
    assert [one.name for one in out.parent.iterdir()] == ["audit"]
    content = json.loads((out / "audit.json").read_text())
    assert content["findings"]["exposed"] == [{"client": "site-41", "first_round": 12}]
    assert content["gate"]["passed"] is False
    assert content["sentences"][0].startswith("1 of 5 clients are exposed")
    assert rows_of(out / "clients.csv")[2] == {
        "client": "site-41",
        "rounds": "1",
        "first_exposed": "12",
        "hidden_among": "1.0",
    }
    assert [
        (row["round"], row["exposed_clients"]) for row in rows_of(out / "rounds.csv")
    ] == [
        ("3", "0"),
        ("9", "0"),
        ("12", "1"),
    ]
    assert [row["weak_upper"] for row in rows_of(out / "rounds.csv")] == ["3", "2", "1"]
    manifest = json.loads((out / "study.json").read_text())
    assert manifest["command"] == "audit"
    assert manifest["config"]["fail_below"] == 2
    assert manifest["log"]["sha256"] == hashlib.sha256(LOG.encode()).hexdigest()
    members: dict[str, list[str]] = {}
    for row in rows_of(log):
        members.setdefault(row["round"], []).append(row["client"])
    left: collections.Counter[str] = collections.Counter()
    wanted: dict[str, int] = {}
    for row in rows_of(out / "recipe.csv"):
        if row["kind"] == "client":
            wanted[row["name"]] = int(row["coefficient"])
            continue
        for client in members[row["name"]]:
            left[client] += int(row["coefficient"])
    assert (
        {client: value for client, value in left.items() if value}
        == wanted
        == {"site-41": 1}
    )


@pytest.mark.long
def test_a_certificate_of_fractional_weights_multiplies_the_log_as_it_is(
    tmp_path: pathlib.Path,
) -> None:
    path, out = tmp_path / "log.csv", tmp_path / "out"
    path.write_text(
        "round,client,weight\n1,a,0.5\n1,b,0.25\n2,a,1.5\n2,b,0.125\n2,c,1\n3,c,2\n"
    )
    assert main(["audit", str(path), *QUICK, "--out", str(out)]) == 0
    weights = {
        (row["round"], row["client"]): Fraction(row["weight"]) for row in rows_of(path)
    }
    names = [one.name for one in out.glob("*.csv")]
    for name in {"recipe.csv", "plain_sum.csv"} & set(names):
        terms = {
            (row["kind"], row["name"]): int(row["coefficient"])
            for row in rows_of(out / name)
        }
        for client in "abc":
            left = sum(
                value * weights.get((label, client), 0)
                for (kind, label), value in terms.items()
                if kind == "round"
            )
            assert left == terms.get(("client", client), 0)
    assert "recipe.csv" in names


@pytest.mark.long
def test_what_is_in_the_way_is_left_alone(
    log: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", str(log), *QUICK, "--out"]
    assert main([*words, str(tmp_path)]) == 2  # the folder of the log itself
    assert "which holds other files" in capsys.readouterr().err
    # never what is no study of ours
    assert main([*words, str(tmp_path), "--overwrite"]) == 2
    assert [one.name for one in tmp_path.iterdir()] == ["log.csv"]
    out = tmp_path / "out"
    assert main([*words, str(out)]) == 0
    first = (out / "study.json").read_text()
    assert main([*words, str(out), "--layout", "long"]) == 2
    assert "`out` must not hold another study" in " ".join(
        capsys.readouterr().err.split()
    )
    assert (out / "study.json").read_text() == first
    assert main([*words, str(out), "--layout", "long", "--overwrite"]) == 0
    assert json.loads((out / "study.json").read_text())["config"]["layout"] == "long"
    with log.open("a") as stream:
        stream.write("13,site-17\n")
    # the log has grown: the same audit
    assert main([*words, str(out), "--layout", "long"]) == 0
    assert rows_of(out / "rounds.csv")[-1]["round"] == "13"


@pytest.mark.long
def test_columns_are_decided_printed_and_stored(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """site-17 is alone in round 3 only where failures count.

    Silence was PASSED and certified.
    """
    path, out = tmp_path / "log.csv", tmp_path / "out"
    lines = [
        "round,client,status,seconds",
        "3,site-17,completed,5",
        "3,site-18,failed,7",
    ]
    lines += ["4,site-18,completed,6", "4,site-19,completed,9"]
    path.write_text("\n".join(lines) + "\n")
    words = ["audit", str(path), *QUICK, "--fail-below", "2"]
    assert main(words) == 2
    assert (
        "a decision on column 'status' ('completed', 'failed')"
        in capsys.readouterr().err
    )
    assert main([*words, "--ignore-columns", "status,seconds"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "Columns used: round and client; columns ignored: status and seconds." in said
    )
    chosen = [*words, "--where", "status=completed", "--where", "round=3,4", "--json"]
    assert main([*chosen, "--out", str(out)]) == 3
    content = json.loads(capsys.readouterr().out)
    assert content["columns_used"] == ["round", "client", "status"]
    assert content["columns_ignored"] == ["seconds"]
    assert content["exposed"] == [{"client": "site-17", "first_round": 3}]
    assert json.loads((out / "audit.json").read_text())["findings"][
        "columns_ignored"
    ] == ["seconds"]
    settings = json.loads((out / "study.json").read_text())["config"]
    assert settings["where"] == ["status=completed", "round=3,4"]
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text()
    assert "Columns used: round, client and status; columns ignored: seconds." in page


@pytest.mark.long
def test_a_failure_on_the_way_leaves_nothing(
    log: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mrsa_jax import ConfigurationError

    def fail(*_: object, **__: object) -> None:
        raise ConfigurationError("the disk is full")

    monkeypatch.setattr("mrsa_jax.plotting.save_figure", fail)
    assert main(["audit", str(log), *QUICK, "--out", str(tmp_path / "out")]) == 2
    assert [one.name for one in tmp_path.iterdir()] == ["log.csv"]


@pytest.mark.long
def test_a_folder_of_a_history_of_nobody(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "zeros.csv", tmp_path / "out"
    path.write_text("0,0\n0,0\n")
    assert main(["audit", str(path), *QUICK, "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["out"] == str(out)
    assert not list(out.glob("*.png"))
    assert not (out / "recipe.csv").exists()
    assert main(["report", str(out)]) == 0
    assert "No client took part" in (out / "report.html").read_text()


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--help"]) == 0
    text = capsys.readouterr().out
    for flag in (
        "--fail-below",
        "--json",
        "--effort",
        "--round-column",
        "--memory-gib",
        "FILE",
        "--out",
        "--overwrite",
        "--where",
        "--ignore-columns",
        "--fail-below-hidden",
        "--noise-multiplier",
        "--clip-norm",
        "--spread",
        "--target-delta",
        "--planned",
        "--colluding",
    ):
        assert flag in text


def test_what_was_cut_short_passes_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though no gate was asked for, or all passed: not everything was looked at."""
    for is_complete, status in ((False, 130), (True, 0)):
        found = types.SimpleNamespace(content={}, gates=(), is_complete=is_complete)
        monkeypatch.setattr(
            _audit, "run_kind", lambda *_, found=found, **__: (found, 1.0)
        )
        assert _audit.run_audit(mj.study.AuditConfig(pathlib.Path("log"))) == status
        assert main(["audit", "log"]) == status


@pytest.mark.long
def test_an_interrupt_keeps_what_was_found_and_leaves_with_130(
    tmp_path: pathlib.Path,
) -> None:
    online = mj.availability.independent(0.1)
    history = mj.selection.rollout(1, mj.selection.uniform(120, 12), online, 90)
    np.save(tmp_path / "log.npy", np.asarray(history))
    words = ["audit", str(tmp_path / "log.npy"), "--effort", "50"]
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-m", "mrsa_jax", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert any(
            "exposed clients: 0; worst client hidden" in line for line in process.stderr
        )
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert "interrupted: what was found so far follows" in said
    assert process.returncode == 130, said
    assert "No client is exposed" in printed
    assert "not decided" in printed
    assert "Not finished: weak privacy, plain sums, who exposes whom." in printed


@pytest.mark.slow
def test_a_log_of_two_thousand_clients_is_answered_at_once_and_within_its_effort(
    tmp_path: pathlib.Path,
) -> None:
    rng = np.random.default_rng(0)
    lines = ["round,client"]
    for j in range(500):
        cohort = rng.permutation(2000)[: 1 if j == 250 else 40]
        lines += [f"round-{j:03},site-{i:04}" for i in cohort]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    words = ["audit", str(tmp_path / "log.csv"), "--effort", "0.3"]
    process = subprocess.Popen(
        [sys.executable, "-m", "mrsa_jax", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        first = next(line for line in process.stderr if "exposed clients: " in line)
        printed, _ = process.communicate(timeout=600)
    finally:
        process.kill()
        process.communicate()
    assert "exposed clients: 1, first after round round-250" in first
    assert process.returncode == 0
    assert "1 of 2000 clients are exposed" in printed


def test_a_covariance_is_read_by_names_if_the_log_has_names(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("round,client\n1,a\n1,b\n1,c\n")
    # of b, a and c, and of a client that no sum has
    table = "b,a,c,d\n2,0,0,0\n0,1,0,0\n0,0,3,0\n0,0,0,9\n"
    (tmp_path / "named.csv").write_text(table)
    (tmp_path / "plain.csv").write_text("1,0,0\n0,2,0\n0,0,3\n")
    np.save(tmp_path / "plain.npy", np.diag([1.0, 2.0, 3.0]))
    matrix = tmp_path / "log.npy"
    np.save(matrix, np.ones((1, 3), int))
    for source, name, clients in (
        (log, "named.csv", "abc"),
        (matrix, "plain.csv", [0, 1, 2]),
        (matrix, "plain.npy", [0, 1, 2]),
    ):
        words = f"audit {source} --json --effort 0 --covariance {tmp_path / name}"
        assert main(words.split()) == 0
        found = json.loads(capsys.readouterr().out)["hidden_among_resembling"]
        sizes = {each["client"]: each["hidden_among"] for each in found["worst"]}
        expected = dict(zip(clients, (6.0, 3.0, 2.0), strict=True))
        assert sizes == pytest.approx(expected)
    for name in ("plain.csv", "plain.npy"):
        words = f"audit {log} --effort 0 --covariance {tmp_path / name}"
        assert main(words.split()) == 2
        assert "first line names the clients" in " ".join(
            capsys.readouterr().err.split()
        )
    for text, message in (
        ("b,a,d\n1,0,0\n0,1,0\n0,0,1\n", "must name each client of the log once"),
        ("1,x\n0,1\n", "must be a matrix of numbers as NPY or CSV"),
        ("a,b,c\n1,0,0\n0,1,0\n0,0,x\n", "must be a matrix of numbers"),
    ):
        (tmp_path / "bad.csv").write_text(text)
        words = f"audit {log} --effort 0 --covariance {tmp_path / 'bad.csv'}"
        assert main(words.split()) == 2
        assert message in " ".join(capsys.readouterr().err.split())
