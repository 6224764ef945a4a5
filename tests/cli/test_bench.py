"""`mrsa-jax bench`: misuse, the list, small runs with their records, and its exit status."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from mrsa_jax import bench
from mrsa_jax.cli import main


@pytest.fixture(autouse=True)
def no_peers(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in bench.PEERS:
        monkeypatch.delenv(f"MRSA_JAX_PEER_{name.upper()}", raising=False)
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", os.environ.get("JAX_NUM_CPU_DEVICES", "1"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnak"], "`topics` must be a known topic; did you mean 'rank'?"),
        (["--list", "--peers"], "`list` must stand without"),
        (["--record", "--quick"], "`record` must be left out with --quick"),
        (["--out", "nowhere/records.jsonl"], "`out` must be a file in a folder that exists"),
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


@pytest.mark.parametrize("words", [["--help"], ["--list"], ["rnak"]])
def test_no_jax_before_it_is_needed(words: list[str]) -> None:
    code = (
        f"import sys\nfrom mrsa_jax.cli import main\nmain(['bench', *{words!r}])\n"
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list"]) == 0
    printed = capsys.readouterr().out
    for topic in bench.TOPICS:
        assert f" {topic} " in printed
    assert printed.count("no environment here; make it:") == len(bench.PEERS)
    assert main(["bench", "secagg", "--list", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert list(content["topics"]) == ["secagg"]
    assert content["peers"]["flower"]["python"] is None
    assert len(content["peers"]["flower"]["make"]) == 2


def test_a_small_run_in_words_and_as_records(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "records.jsonl"
    assert main(["bench", "rank", "pads", "rounds", "--quick", "--peers", "--out", str(out)]) == 0
    captured = capsys.readouterr()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["benchmark"] for row in rows] == ["rank"] * 3 + ["pads"] * 2
    for row in rows:
        assert row["case"] in captured.out
        assert row["ratio"] == row["peer_seconds_min"] / row["seconds_min"]
    assert "cores" in captured.out  # the machine
    assert "left out: 1 case beside FedJAX" in captured.err


@pytest.mark.slow
def test_every_topic_at_the_small_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--quick", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    found = {row["benchmark"] for row in content["measurements"]}
    assert found == set(bench.TOPICS) - {"rounds"}
    assert content["failures"] == []
