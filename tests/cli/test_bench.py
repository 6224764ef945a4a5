"""`mrsa-jax bench`.

Misuse, the list, small runs with their records, and its exit status.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from benchmarks import rivals
from mrsa_jax import bench
from mrsa_jax.cli import main


@pytest.fixture(autouse=True)
def no_peers(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in rivals.SYSTEMS:
        monkeypatch.delenv(f"MRSA_JAX_PEER_{name.upper()}", raising=False)
    monkeypatch.setenv(
        "JAX_NUM_CPU_DEVICES", os.environ.get("JAX_NUM_CPU_DEVICES", "1")
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnak"], "`topics` must be a known topic; did you mean 'rank'?"),
        (["--list", "--peers"], "`list` must stand without"),
        (["--record", "--quick"], "`record` must not be set with --quick"),
        (
            ["--out", "nowhere/records.jsonl"],
            "`out` must be a file or a folder in a folder that",
        ),
        (["--dry-run"], "`dry_run` must be used together with your own sizes"),
        (
            ["rank", "--n", "9", "--quick"],
            "`quick` must not be set with your own sizes",
        ),
        (["rank", "--against", "no.jsonl"], "`against` must be a file of records"),
        (["--n", "9"], "`topics` must be named with your own sizes"),
        (["sweep", "--n", "9"], "`topics` must be named with your own sizes"),
        (
            ["rank", "--dim", "9"],
            "`dim` must not be set: only pads, round, hetero read it",
        ),
        (["rank", "--n", "1.5"], "`n` must be a positive whole number"),
        (["rank", "--n", "0"], "`n` must be a positive whole number"),
        (["rank", "--n", "2**99"], "`n` must be a positive whole number"),
        (["rank", "--n", "90", "9e1"], "`n` must not contain duplicates"),
        (["rank", "--n", "9"], "`cohort_size` must be at most `n`"),
        (["rank", "--n", "1e6"], "`n` must fit into memory: about 5"),
        (["pads", "--n", "1"], "`n` must be at least 2"),
        (
            ["pads", "--modulus", "2**33"],
            "`modulus` must be a power of two up to 2**32",
        ),
        (["pads", "--graph", "harary"], "`graph` must be harary:X with its degree X"),
        (
            ["pads", "--graph", "harary:2.5"],
            "`graph` must be harary:X with its degree X",
        ),
        (["round", "--graph", "hararry:4"], "did you mean 'harary'?"),
        (["round", "--n", "9", "--graph", "harary:10"], "`degree` must"),
        (
            [
                "selection",
                "--n",
                "13",
                "--cohort-size",
                "4",
                "--scheme",
                "batch_partitioning:2",
            ],
            "`num_clients` must",
        ),
    ],
)
def test_misuse_is_answered_with_status_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    captured = capsys.readouterr()
    assert message in " ".join(captured.err.split())
    assert captured.out == ""


def test_records_need_a_checkout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pathlib.Path.is_dir", lambda _: False)
    assert main(["bench", "rank", "--record"]) == 2
    assert "here use --out FILE" in " ".join(capsys.readouterr().err.split())
    assert main(["bench", "rank", "--peers"]) == 2
    assert "`peers` must be used in a checkout" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize("words", [["--help"], ["--list"], ["rnak"]])
def test_no_jax_before_it_is_needed(words: list[str]) -> None:
    code = (
        f"import sys\nfrom mrsa_jax.cli import main\nmain(['bench', *{words!r}])\n"
        "sys.exit('jax' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode
        == 0
    )


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list"]) == 0
    printed = capsys.readouterr().out
    for topic in bench.TOPICS:
        assert f" {topic} " in printed
    assert printed.count("no environment here; make it:") == len(rivals.SYSTEMS)
    assert main(["bench", "round", "--list", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert list(content["topics"]) == ["round"]
    assert content["peers"]["flower"]["python"] is None
    assert len(content["peers"]["flower"]["make"]) == 2


def test_a_small_run_in_words_and_as_records(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "records.jsonl"
    assert (
        main(
            [
                "bench",
                "rank",
                "pads",
                "averaging",
                "--quick",
                "--peers",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    captured = capsys.readouterr()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["benchmark"] for row in rows] == ["rank"] * 3 + ["pads"] * 2
    for row in rows:
        assert row["case"] in captured.out
        assert row["ratio"] == min(row["peer_seconds"]) / min(row["seconds"])
    assert "cores" in captured.out  # the machine
    assert "left out: 1 case against FedJAX" in captured.err


_TINY = {
    "round": ["--n", "5", "8", "--dim", "40", "--graph", "harary:4", "--modulus", "1e3"],
    "pads": ["--n", "5", "--dim", "40", "90", "--modulus", "2**32"],
    "shares": ["--n", "5", "9"],
    "selection": ["--n", "12", "24", "--cohort-size", "4", "--scheme", "batch_partitioning:2",
                  "--rounds", "20", "--trials", "3"],
    "rank": ["--n", "8", "12", "--cohort-size", "4", "--trials", "5"],
    "failures": ["--n", "8", "12", "--trials", "50"],
    "hetero": ["--n", "20", "30", "--groups", "3", "--dim", "3000"],
    "training": ["--n", "2", "--samples", "4", "8"],
}  # fmt: skip


def test_every_topic_with_sizes_has_a_tiny_run() -> None:
    assert set(_TINY) == {name for name, topic in bench.TOPICS.items() if topic.sizes}


@pytest.mark.long("failures", "hetero", "round", "selection", "shares", "training")
@pytest.mark.parametrize("topic", _TINY)
def test_own_sizes_make_a_curve_and_can_be_compared(
    topic: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "bench",
        topic,
        *_TINY[topic],
        "--repeats",
        "2",
        "--out",
        str(tmp_path / "own"),
    ]
    assert main([*words, "--dry-run", "--json"]) == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert not (tmp_path / "own").exists()
    assert main([*words, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    rows = [
        json.loads(line)
        for line in (tmp_path / "own/records.jsonl").read_text().splitlines()
    ]
    assert rows == content["measurements"]
    assert [row["case"] for row in rows] == [case["case"] for case in cases]
    assert all(case["memory_bytes"] > 0 for case in cases)
    for row in rows:
        assert len(row["seconds"]) == len(row["peer_seconds"]) == 2
        assert row["made_bytes"] or topic in ("failures", "hetero", "training")
        assert (
            bool(row["machine"]["commit"])
            == pathlib.Path(__file__).parents[2].joinpath(".git").exists()
        )
    (curve,) = content["curves"]
    assert curve["x"] == [row["sizes"][curve["setting"]] for row in rows]
    assert (tmp_path / "own" / f"{topic}_{curve['setting']}.svg").is_file()


@pytest.mark.long
def test_an_unknown_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "training", "--model", "CNNN"]) == 2
    assert "`model` must be a known model" in " ".join(capsys.readouterr().err.split())


def test_a_slower_case_ends_with_status_3(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "rank", "--n", "12", "--trials", "5", "--repeats", "3"]
    assert main([*words, "--out", str(tmp_path / "now.jsonl")]) == 0
    row = json.loads((tmp_path / "now.jsonl").read_text())
    fast = [1e-7, 1.01e-7, 1.02e-7]
    for name, times, peers in (
        ("fast", fast, [1.0] * 3),
        ("slow", [1e3] * 3, [1.0] * 3),
    ):
        old = row | {"processor_seconds": times, "peer_processor_seconds": peers}
        (tmp_path / name).write_text(json.dumps(old))
    capsys.readouterr()
    assert main([*words, "--against", str(tmp_path / "fast")]) == 3
    assert "slower" in capsys.readouterr().out
    assert main([*words, "--against", str(tmp_path / "slow")]) == 0
    assert "faster" in capsys.readouterr().out
    row["machine"]["processor"] = "another"
    (tmp_path / "elsewhere").write_text(json.dumps(row))
    assert main([*words, "--against", str(tmp_path / "elsewhere")]) == 2
    assert "from a machine like this one" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "before").write_text(
        '{"benchmark": "rank", "case": "n", "seconds_min": 1.0}'
    )
    assert main([*words, "--against", str(tmp_path / "before")]) == 2
    assert "the times of every repeat" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_every_topic_at_the_small_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--quick", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    found = {row["benchmark"] for row in content["measurements"]}
    assert found == set(bench.TOPICS) - {"averaging"}
    assert content["failures"] == []
