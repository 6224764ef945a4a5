"""`mrsa-jax reproduce` as a user meets it.

Misuse, a folder of figures, the exit status.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from inside import inside

import mrsa_jax as mj
import mrsa_papers as reproduce
from mrsa_jax import data
from mrsa_jax.cli import main
from mrsa_jax.study.settings._parts import KINDS
from mrsa_jax.study.stores import _sources
from mrsa_papers import ITEMS
from mrsa_papers._summary import judged
from mrsa_papers.harness import Context, Found, Miss, Values
from mrsa_watch._base.errors import DataNotFoundError

families = inside("multiround.table1")

FAST = ["reproduce", "multiround.table1", "multiround.fig2", "--fast"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "multirond"], "did you mean 'multiround'"),
        (["reproduce", "multiround.fig4d"], "did you mean 'multiround.fig4"),
        (
            ["reproduce", "ccesa", "theorem4"],
            "'ccesa.theorem4' or 'heterosag.theorem4'?",
        ),
        (["reproduce", "--seed", "-1"], "`seed` must lie in [0, 2**32); got -1"),
        (
            ["reproduce", "ccesa.tableg2", "--dataset", "mnist"],
            "`dataset` must not be set",
        ),
        (["reproduce", "ccesa.fig4", "--dataset", "cifar"], "`directory` must"),
        (["reproduce", "--dataset", "mnits"], "did you mean 'mnist'"),
    ],
)
def test_misuse_is_answered_in_one_line(
    words: list[str],
    message: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_misspelt_names_and_lists_need_no_jax(tmp_path: pathlib.Path) -> None:
    code = (
        "import sys; from mrsa_jax.cli import main\n"
        "assert main(['reproduce', 'multiround.fg4a']) == 2\n"
        "assert main(['reproduce', '--list']) == 0\n"
        "assert 'jax' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "did you mean 'multiround.fig4a'" in done.stderr


def test_the_list_has_every_item(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", "--json"]) == 0
    rows = {row["item"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == [f"{paper}.{item}" for paper in ITEMS for item in ITEMS[paper]]
    assert rows["heterosag.fig3b"]["trains"]
    assert rows["heterosag.fig3b"]["data"] == "Fashion-MNIST"
    assert not rows["ccesa.tableg2"]["trains"]
    assert rows["ccesa.tableg2"]["runtime"] == "seconds"
    assert rows["multiround.table3"]["runtime"] == "tens of minutes"
    assert main(["reproduce", "--list", "ccesa.fig4"]) == 0
    out = capsys.readouterr().out
    assert "CIFAR-10" in out
    assert "tableg2" not in out
    # those times are of the data that are always here, and of the items' defaults
    words = ["reproduce", "--list", "--json", "--dataset", "cifar100"]
    assert main(words) == 0
    rows = {row["item"]: row for row in json.loads(capsys.readouterr().out)}
    for name, row in rows.items():
        assert (row["runtime"] == "not timed") == row["trains"], name
    words = ["reproduce", "ccesa.tableg2", "--list", "--json", "--num-sizes", "100"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)[0]["runtime"] == "not timed"


def test_a_folder_of_something_else_is_left_alone(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("chapter 1")
    assert main([*FAST, "--out", str(tmp_path), "--overwrite"]) == 2
    assert "`out` must be empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.long
@pytest.mark.usefixtures("drawn_figures")
def test_items_are_written_with_their_data(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main([*FAST, "--out", str(out), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in content["items"]] == ["table1", "fig2"]
    assert [item["verdict"] for item in content["items"]] == [
        "paper errs",
        "reproduced",
    ]
    assert all(item["seconds"] >= 0 for item in content["items"])
    for check in content["items"][0]["checks"]:
        assert check["standing"] == "as expected"
        assert all(check[name] for name in ("paper", "ours", "tolerance"))
    first = content["summary"][0]
    assert first["item"] == "multiround.table1"
    assert (first["reproduced"], first["paper_errs"], first["differs"]) == (5, 1, 0)
    assert content["as_expected"] is True
    assert json.loads((out / "verdicts.json").read_text()) == content
    assert content["manifest"]["command"] == "reproduce"
    assert {path.name for path in out.iterdir()} == {
        "items",
        "verdicts.json",
        "verdicts.md",
        "report.html",
    }
    for name in ("table1", "fig2"):
        own = {path.name for path in (out / "items" / f"multiround.{name}").iterdir()}
        assert own == {f"{name}.{end}" for end in ("png", "svg", "pdf", "csv")} | {
            "item.json",
            "study.json",
        }
    assert pd.read_csv(out / "items/multiround.fig2/fig2.csv")["member"].sum() == 24
    page = (out / "report.html").read_text()
    assert page.count("<svg viewBox=") == 1
    # of who is in which cohort, as pixels
    assert page.count("data:image/png;base64,") == 1
    assert '<span class="badge good">5 reproduced</span>' in page
    assert '<span class="badge told">1 paper errs</span>' in page
    assert "91390" in (out / "verdicts.md").read_text()
    assert "5 reproduced, 1 paper errs" in (out / "verdicts.md").read_text()


def _counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Context]:
    """Count how often an item is made."""
    make, calls = getattr(families, name), []

    def counted(context: Context, settings: Values) -> Found:
        calls.append(context)
        return make(context, settings)

    monkeypatch.setattr(families, name, counted)
    return calls


def test_a_rerun_takes_what_is_there(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = ["--out", str(tmp_path / "out")]
    one, two = (
        _counted(monkeypatch, "family_sizes"),
        _counted(monkeypatch, "family_figure"),
    )
    assert main(["reproduce", "multiround.table1", "--fast", *out]) == 0
    assert main([*FAST, *out]) == 0
    assert (len(one), len(two)) == (1, 1)
    assert "paper errs" in capsys.readouterr().out
    text = (tmp_path / "out/verdicts.json").read_text()
    assert [item["name"] for item in json.loads(text)["items"]] == ["table1", "fig2"]
    assert main([*FAST, *out, "--overwrite"]) == 0
    assert (len(one), len(two)) == (2, 2)
    before = (tmp_path / "out/items/multiround.fig2/study.json").read_text()
    assert main([*FAST, *out, "--seed", "1"]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (len(one), len(two)) == (2, 2)
    assert (tmp_path / "out/items/multiround.fig2/study.json").read_text() == before


def _spoilt(monkeypatch: pytest.MonkeyPatch, verdict: str) -> None:
    """Make one claim of Figure 2 come out otherwise."""
    make = families.family_figure

    def spoilt(context: Context, settings: Values) -> Found:
        found = make(context, settings)
        check = dataclasses.replace(found.checks[0], verdict=verdict, claim="spoilt")
        return found._replace(checks=(*found.checks, check))

    monkeypatch.setattr(families, "family_figure", spoilt)


@pytest.mark.parametrize(
    ("known", "verdict", "status", "words"),
    [
        (None, "differs", 1, "Not expected."),
        ("spoilt", "differs", 0, "noise decides"),
        ("another claim", "differs", 1, "Not expected."),
        ("spoilt", "reproduced", 0, "Was expected to differ"),
    ],
)
def test_the_exit_status_goes_by_what_was_expected(
    known: str | None,
    verdict: str,
    status: int,
    words: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _spoilt(monkeypatch, verdict)
    misses = (Miss(known, "noise decides", "fast", None),) if known else ()
    row = dataclasses.replace(ITEMS["multiround"]["fig2"], misses=misses)
    monkeypatch.setitem(ITEMS["multiround"], "fig2", row)
    assert main(["reproduce", "multiround", "--list"]) == 0
    assert main([*FAST, "--out", str(tmp_path / "out")]) == status
    assert words in capsys.readouterr().out
    page, table = (
        (tmp_path / "out" / name).read_text() for name in ("report.html", "verdicts.md")
    )
    content = json.loads((tmp_path / "out/verdicts.json").read_text())
    (check,) = (c for c in content["items"][1]["checks"] if c["claim"] == "spoilt")
    assert content["as_expected"] is (status == 0)
    if known == "spoilt":
        assert check["why"].endswith("noise decides")
        assert "noise decides" in page
        assert "noise decides" in table
    else:
        assert check["standing"] == "missed"
        assert "1 not expected" in page


def test_expected_misses_hold_for_a_size_and_a_data_set() -> None:
    check = reproduce.Check("c", "1", "2", "exact", "differs", key="stable")
    assert check.name == "stable"
    for size, dataset, wanted in (
        ("fast", None, True),
        ("full", None, False),
        ("both", "x", False),
    ):
        misses = (Miss("stable", "why", size, dataset),)  # type: ignore[arg-type]
        row = dataclasses.replace(ITEMS["ccesa"]["fig4"], misses=misses)
        config = reproduce.ReproduceConfig(fast=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(ITEMS["ccesa"], "fig4", row)
            for item, is_explained in (("fig4", wanted), ("fig3", False)):
                found = reproduce.Item(item, "", (check,), pd.DataFrame(), "")
                (own,) = judged(reproduce.Made("ccesa", found, 0.0), config)
                assert (own.why == "why") is is_explained
                assert (own.standing == "explained") is is_explained


def test_items_of_another_version_are_named(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make = _counted(monkeypatch, "family_sizes")
    words = ["reproduce", "multiround.table1", "--fast", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    monkeypatch.setattr(_sources, "__version__", "9.0")
    capsys.readouterr()
    assert main(words) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "where mrsa_jax is 9.0 now and was" in said
    assert said.endswith("with --overwrite and these targets alone: multiround.table1")
    assert len(make) == 1
    assert main([*words, "--overwrite"]) == 0
    assert main(words) == 0
    assert len(make) == 2


def test_a_failure_half_way_keeps_what_was_finished(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(context: Context, settings: Values) -> Found:
        raise RuntimeError("out of memory")

    make = _counted(monkeypatch, "family_sizes")
    names = ("multiround.table1", "multiround.fig2")
    config = reproduce.ReproduceConfig(names, fast=True, out=tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(families, "family_figure", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            reproduce.run_and_save(config)
    assert os.listdir(tmp_path / "out") == ["items"]
    assert os.listdir(tmp_path / "out/items") == ["multiround.table1"]
    saved = reproduce.run_and_save(config)
    assert len(make) == 1
    assert [(made.name, made.is_kept) for made in saved.items] == [
        (names[0], True),
        (names[1], False),
    ]
    assert saved.is_as_expected
    assert saved.items[0].item.verdict == "paper errs"
    (fresh,) = reproduce.remake(["multiround.table1"])
    assert saved.items[0].item.checks == fresh.checks
    assert saved.items[0].item.data["ours"].tolist() == fresh.data["ours"].tolist()


def test_a_failure_in_the_middle_of_writing_leaves_no_half_item(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = reproduce.ReproduceConfig(
        ("multiround.fig2",), fast=True, out=tmp_path / "out"
    )

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("mrsa_papers._folder.write_file", full)
        with pytest.raises(OSError, match="no space"):
            reproduce.run_and_save(config)
    assert os.listdir(tmp_path / "out/items") == []
    assert reproduce.run_and_save(config).is_as_expected


def test_missing_data_are_a_verdict_and_the_rest_runs_on(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise DataNotFoundError(
            "data set 'mnist' is missing: mrsa-jax data prepare mnist gets it"
        )

    monkeypatch.setattr(data, "load", missing)
    words = [
        "reproduce",
        "multiround.fig2",
        "ccesa.fig4",
        "heterosag.matrices",
        "--fast",
    ]
    out = tmp_path / "out"
    assert main([*words, "--out", str(out), "--dataset", "mnist"]) == 1
    said = capsys.readouterr().out
    assert "no data" in said
    assert "data prepare" in said
    content = json.loads((out / "verdicts.json").read_text())
    assert [item["verdict"] for item in content["items"]] == [
        "reproduced",
        "no data",
        "reproduced",
    ]
    assert "prepare mnist" in content["items"][1]["checks"][0]["note"]
    assert sorted(os.listdir(out / "items")) == [
        "heterosag.matrices",
        "multiround.fig2",
    ]
    assert "mrsa-jax data prepare mnist" in (out / "report.html").read_text()


@pytest.mark.long
def test_an_interrupt_is_exit_status_130(tmp_path: pathlib.Path) -> None:
    words = ["reproduce", "multiround.theorem3", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-m", "mrsa_jax", *words], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert "1 item to make" in process.stderr.readline()
        assert process.stderr.readline().startswith("device: ")
        assert "Theorem 3" in process.stderr.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
    assert "interrupted" in said
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_killed_run_loses_only_the_item_in_hand(tmp_path: pathlib.Path) -> None:
    """Kill -9 at several moments, then let it end: all items whole, none made twice."""
    names = [
        f"multiround.{name}"
        for name in ("table1", "fig2", "remark7", "fig3", "theorem3")
    ]
    words = ["reproduce", *names, "--fast", "--out", str(tmp_path / "out")]
    folder = tmp_path / "out/items"
    seen: dict[str, str] = {}
    for wait_for in (1, 2, 4):
        process = subprocess.Popen([sys.executable, "-m", "mrsa_jax", *words])
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and process.poll() is None:
            if folder.is_dir() and len(_whole(folder)) >= wait_for:
                break
            time.sleep(0.01)
        process.kill()
        process.wait()
        for name, text in _whole(folder).items():
            assert seen.setdefault(name, text) == text
    done = subprocess.run([sys.executable, "-m", "mrsa_jax", *words], check=False)
    assert done.returncode == 0
    whole = _whole(folder)
    assert sorted(whole) == sorted(names)
    assert all(whole[name] == text for name, text in seen.items())
    assert len(os.listdir(folder)) == len(names)  # no half-written folder is left
    fresh = tmp_path / "fresh"
    assert main([*words[:-1], str(fresh)]) == 0
    for name in names:
        end = f"{name}/{name.split('.')[1]}.csv"
        assert (folder / end).read_text() == (fresh / "items" / end).read_text()


def _whole(folder: pathlib.Path) -> dict[str, str]:
    """Return the finished items' time stamps by name, having read all of their files."""
    if not folder.is_dir():
        return {}
    found = {}
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        name = path.name.split(".")[1]
        assert json.loads((path / "item.json").read_text())["name"] == name
        assert len(pd.read_csv(path / f"{name}.csv"))
        found[path.name] = json.loads((path / "study.json").read_text())["created"]
    return found


def test_items_train_on_data_of_your_own(tmp_path: pathlib.Path) -> None:
    def blobs(seed: int, people: int) -> mj.data.Dataset:
        labels = np.arange(4 * people, dtype=np.int32) % people
        inputs = np.random.default_rng(seed).random((len(labels), 2, 2, 1), np.float32)
        return mj.data.Dataset("blobs", inputs, labels, inputs, labels, people)

    mj.study.register("dataset", "blobs", blobs)
    try:
        context = Context(seed=3, dataset="blobs:5")
        assert context.images.num_classes == 5
        assert np.array_equal(context.images.train_inputs, blobs(3, 5).train_inputs)
        with pytest.raises(mj.ConfigurationError, match="`directory` must not be set"):
            Context(dataset="blobs:5", directory=tmp_path)
        with pytest.raises(mj.ConfigurationError, match="did you mean 'blobs'"):
            Context(dataset="blob")
    finally:
        del KINDS["dataset"].rows["blobs"]
