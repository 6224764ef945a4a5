"""Reports of folders.

What is refused, what a page holds, and that it needs no other file.
"""

from __future__ import annotations

import base64
import html.parser
import json
import pathlib
import re
import zlib
from typing import Any

import numpy as np
import pytest
import xarray as xr

from mrsa_jax import ConfigurationError, study
from mrsa_jax.study.publishing import _page, _report

EVIL = "<script>alert('x')</script>"


def png() -> bytes:
    """Return a picture of three pixels by two."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return len(data).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    head = (3).to_bytes(4, "big") + (2).to_bytes(4, "big") + bytes([8, 0, 0, 0, 0])
    rows = zlib.compress(b"\0abc" * 2)
    start = b"\x89PNG\r\n\x1a\n"
    return start + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def manifest(command: str = "demo", **more: Any) -> dict[str, Any]:
    config: Any = {"demo": study.DemoConfig, "simulate": study.SimulateConfig}.get(
        command
    )
    return {
        "schema": 1,
        "command": command,
        "config_hash": "0123456789abcdef",
        "config": study.to_dict(config(rounds=3)) if config else {},
        "seed": 5,
        "versions": {"mrsa_jax": "0.1.0", "jax": "0.10.2"},
        "commit": "abc",
        "created": "2026-01-01T00:00:00+00:00",
        **more,
    }


def write(folder: pathlib.Path, name: str, content: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def demo(tmp_path: pathlib.Path, results: xr.Dataset) -> pathlib.Path:
    """Return the folder of a study made by hand, with one figure."""
    folder = tmp_path / "demo"
    folder.mkdir()
    stored = results.assign_attrs(
        {name: json.dumps(own) for name, own in manifest().items()}
    )
    stored.to_zarr(folder / "results.zarr", consolidated=False, zarr_format=2)
    write(folder, "study.json", manifest())
    (folder / "accuracy.png").write_bytes(
        png() + b"not shown: it is drawn from the data"
    )
    (folder / "by hand.png").write_bytes(png())
    return folder


class Checker(html.parser.HTMLParser):
    """Collects what is wrong with a page, and what it refers to."""

    VOID = frozenset({"meta", "img", "br", "line", "link", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.levels: list[int] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "img" and not own.get("alt"):
            self.wrong.append("a picture without words")
        if tag == "svg" and not (own.get("aria-label") or own.get("aria-hidden")):
            self.wrong.append("a drawing without words")
        if tag == "th" and not (own.get("scope") or own.get("colspan")):
            self.wrong.append("a heading of neither rows nor columns")
        if re.fullmatch(r"h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if "id" in own:
            self.ids.append(str(own["id"]))
        if tag == "a" and str(own["href"]).startswith("#"):
            self.targets.append(str(own["href"])[1:])
        source = own.get("src") or (own.get("href") if tag == "link" else None)
        if source is not None and not source.startswith("data:"):
            self.fetched.append(source)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes something else")


def check(path: pathlib.Path) -> str:
    """Check that a page is sound, readable to all, and fetches nothing.

    Return its text.
    """
    text = path.read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.wrong == []
    assert checker.open == []
    assert checker.fetched == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert set(checker.targets) <= set(checker.ids)
    assert checker.levels[0] == 1
    assert checker.levels.count(1) == 1
    assert all(
        b <= a + 1 for a, b in zip(checker.levels, checker.levels[1:], strict=False)
    )
    assert '<html lang="en">' in text
    assert 'name="viewport"' in text
    assert "@import" not in text
    assert "url(" not in text
    assert "alert(" not in text.replace(
        EVIL.replace("<", "&lt;").replace(">", "&gt;").replace("'", "&#x27;"), ""
    )
    return text


def refused(folder: pathlib.Path, words: str, out: pathlib.Path | None = None) -> None:
    before = sorted(folder.rglob("*")) if folder.is_dir() else []
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        study.report(folder, out)
    assert (sorted(folder.rglob("*")) if folder.is_dir() else []) == before


def test_folders_that_are_none_of_ours(tmp_path: pathlib.Path) -> None:
    refused(tmp_path / "none", "`folder` must be a folder")
    write(tmp_path, "file", "x")
    refused(tmp_path / "file", "`folder` must be a folder")
    refused(tmp_path, "which has no study.json and no verdicts.json")
    write(tmp_path / "inner", "study.json", manifest())
    refused(tmp_path, "but these folders in it do: inner")
    write(tmp_path, "study.json", "not json")
    refused(tmp_path, "whose study.json cannot be read")


def test_half_written_folders(tmp_path: pathlib.Path, demo: pathlib.Path) -> None:
    run = tmp_path / "run"
    write(run, "run.json", manifest("train"))
    refused(run, "whose train is not complete: mrsa-jax train --resume continues it")
    alone = tmp_path / "alone"
    write(alone, "study.json", manifest())
    refused(alone, "has no results.zarr, scores.json, audit.json or advice.json")
    write(alone, "audit.json", {"title": "t", "sentences": [], "summary": []})
    refused(alone, "audit.json lacks ['findings']")
    write(
        alone,
        "audit.json",
        {"title": "t", "sentences": [], "summary": [], "findings": {"exposed": []}},
    )
    write(alone, "recipe.csv", "a,b\n1,2\n")
    refused(alone, "must hold a whole audit")
    attack = tmp_path / "attack"
    write(attack, "study.json", manifest("leastsquares"))
    write(attack, "scores.json", '{"summary": [')
    refused(attack, "cannot be read")
    write(attack, "scores.json", {"summary": [], "scores": []})
    refused(attack, "scores.json lacks ['sentences']")
    write(tmp_path / "paper", "verdicts.json", {"items": []})
    refused(tmp_path / "paper", "verdicts.json lacks ['manifest']")
    (tmp_path / "more" / "items").mkdir(parents=True)
    refused(tmp_path / "more", "whose reproduction is not complete")
    for name in (".zgroup", ".zattrs"):
        (demo / "results.zarr" / name).unlink(missing_ok=True)
    import shutil

    shutil.rmtree(demo / "results.zarr" / "strong_privacy")
    refused(demo, "must hold a whole study; the results in")


def test_another_schema_says_which_version_wrote_it(demo: pathlib.Path) -> None:
    write(demo, "study.json", manifest(schema=7, versions={"mrsa_jax": "9.9"}))
    refused(demo, "must hold results of schema 1 or 2; got 7")
    refused(demo, "written by mrsa_jax 9.9")


def test_pages_that_cannot_be_written(
    demo: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    refused(
        demo,
        "`out` must be a file in an existing folder",
        tmp_path / "no" / "page.html",
    )
    refused(demo, "`out` must be a file in an existing folder", tmp_path)


def test_a_study_s_page_holds_all_of_it(
    demo: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    saved = study.report(demo, tmp_path / "page.html")
    assert saved.path == tmp_path / "page.html"
    assert saved.command == "demo"
    assert "so2023securing" in saved.papers
    text = check(saved.path)
    assert "Random (from round 2)" in text  # what it found
    assert text.count("<img") == 1  # the picture that is not of the data
    assert base64.b64encode(png()).decode() + '"' in text
    assert 'width="3" height="2"' in text
    assert '<span class="changed">3</span>' in text  # rounds
    assert "changed; default 150" in text
    assert "1 setting changed from the default" in text
    assert "0123456789abcdef" in text
    assert "jax 0.10.2" in text
    assert "@inproceedings{so2023securing," in text
    assert len(re.findall(r"<circle [^>]*data-i=", text)) == 3 * 2
    leak, learnt = ">How well clients are hidden</h2>", ">Accuracy and loss</h2>"
    assert text.index(leak) < text.index(learnt) < text.index(">Findings</h2>")
    assert '<span class="badge bad">exposed</span>' in text
    assert '<span class="badge good">T lasts</span>' in text
    # one legend, whose boxes all figures obey
    assert text.count('type="checkbox"') == 2
    assert not [one.name for one in tmp_path.iterdir() if ".part-" in one.name]


@pytest.mark.parametrize(
    ("command", "first"), [("demo", "hidden"), ("train", "learnt")]
)
def test_a_comparison_opens_with_the_leak_and_a_training_with_accuracy(
    command: str, first: str, results: xr.Dataset
) -> None:
    page = _report.study_page(manifest(command), results)
    assert page.count(", seed 5") == 1
    headings = [">How well clients are hidden</h2>", ">Accuracy and loss</h2>"]
    places = [page.index(heading) for heading in headings]
    assert (places[0] < places[1]) == (first == "hidden")


def test_a_page_is_written_beside_its_results_by_default_and_again(
    demo: pathlib.Path,
) -> None:
    first = study.report(demo).path
    assert first == demo / "report.html"
    text = first.read_text(encoding="utf-8")
    assert study.report(demo).path.read_text(encoding="utf-8") == text


def _inches(path: pathlib.Path) -> float:
    return int.from_bytes(path.read_bytes()[16:20], "big") / 160


@pytest.mark.long
def test_figures_are_drawn_again_for_a_column(
    demo: pathlib.Path, results: xr.Dataset
) -> None:
    before = study.open_study(demo).load()
    for column, width in (("single", 3.5), ("double", 7.16)):
        saved = study.report(demo, column=column)
        names = {path.stem for path in saved.figures}
        assert names == {
            "strong_privacy",
            "exposed_clients",
            "fairness_gap",
            "aggregation_cardinality",
            "accuracy",
            "reconstruction_error",
        }
        for path in saved.figures:
            assert _inches(path) == pytest.approx(width, abs=0.01)
            own = (demo / "figures" / f"{path.stem}.svg").read_text()
            assert f'width="{72 * width:g}pt"' in own
            assert (
                (demo / "figures" / f"{path.stem}.pdf").read_bytes().startswith(b"%PDF")
            )
            assert path.with_suffix(".csv").is_file()
    assert study.open_study(demo).load().identical(before)
    # the picture by hand, as without
    assert check(demo / "report.html").count("<img") == 1


@pytest.mark.long
def test_figures_of_folders_without_a_data_set_are_drawn_again(
    tmp_path: pathlib.Path,
) -> None:
    own = audit_folder(tmp_path / "audit")
    assert {p.stem for p in study.report(own, column="single").figures} == {
        "weak_privacy",
        "exposed_clients",
    }
    advice = tmp_path / "advice"
    row = {
        "weak_lower": 2,
        "strong_privacy": 2,
        "hidden_worst": 2.0,
        "cardinality": 3.0,
        "cardinality_interval": [3.0, 3.0],
        "num_clients": 12,
        "scheme": "partition",
        "label": EVIL,
    }
    options = [{**row, "cohort_size": size} for size in (3, 4)]
    write(advice, "study.json", manifest("advise"))
    write(
        advice,
        "advice.json",
        {
            "title": EVIL,
            "sentences": [EVIL],
            "options": options,
            "chosen": {**options[1], "policy": "ignore"},
        },
    )
    (path,) = study.report(advice, column="single").figures
    assert _inches(path) == pytest.approx(3.5, abs=0.01)
    text = check(advice / "report.html")
    # once on top, legend, table
    assert text.count('<span class="badge good">take</span>') == 3
    assert text.count(" (K = 3)") == text.count(" (K = 4)") - 1 > 2
    rates = tmp_path / "rates"
    write(rates, "study.json", manifest("distinguish"))
    write(
        rates, "scores.json", {"summary": [], "sentences": [], "scores": told_apart()}
    )
    names = [path.stem for path in study.report(rates, column="double").figures]
    assert names == [
        f"true_against_false_positives_{kind}" for kind in ("known", "gaussian")
    ]


def test_a_column_for_what_is_not_drawn_from_numbers(tmp_path: pathlib.Path) -> None:
    write(
        tmp_path / "r",
        "verdicts.json",
        {"items": [], "manifest": manifest("reproduce")},
    )
    write(tmp_path / "i", "study.json", manifest("gradients"))
    write(tmp_path / "i", "scores.json", {"summary": [], "sentences": [], "scores": []})
    for name, column, words in (
        ("r", "single", "`column` must not be set"),
        ("i", "single", "`column` must not be set"),
        ("i", "wide", "`column` must be"),
    ):
        before = sorted((tmp_path / name).rglob("*"))
        with pytest.raises(ConfigurationError, match=words):
            study.report(tmp_path / name, column=column)
        assert sorted((tmp_path / name).rglob("*")) == before


def told_apart() -> list[dict[str, Any]]:
    """Return rates of a hostile scheme: a guess, and a client who is found always."""
    return [
        {
            "scheme": EVIL,
            "others": kind,
            "whose": whose,
            "mu": mu,
            "fpr": fpr,
            "tpr": tpr,
            "lower": tpr / 2,
            "upper": (1 + tpr) / 2,
            "formula": tpr,
        }
        for kind in ("known", "gaussian")
        for whose, mu in (("worst", None), ("median", 0.0))
        for fpr in (0.01, 0.1, 0.5)
        for tpr in (1.0 if mu is None else fpr,)
    ]


def test_an_attack_s_page_of_what_is_told_apart(tmp_path: pathlib.Path) -> None:
    """Infinite mu (null) finds always, mu of 0 as often as it errs.

    1, 10 and 50 % at log10.
    """
    write(tmp_path, "study.json", manifest("distinguish"))
    summary = [
        {"scheme": EVIL, "others": kind, "whose": "worst"}
        for kind in ("known", "gaussian")
    ]
    content = {
        "title": "t",
        "summary": summary,
        "scores": told_apart(),
        "sentences": [],
    }
    write(tmp_path, "scores.json", content)
    (tmp_path / "true_against_false_positives.png").write_bytes(png())
    text = check(study.report(tmp_path).path)
    assert "<img" not in text
    assert text.count('class="plot"') == 2
    assert text.count('d="M-2 1 -1 10 -0.30103 50"') == 2
    assert text.count('d="M-2 100 -0.30103 100"') == 2
    assert "Found, by false alarms (Gaussian updates)" in text
    assert (
        "worst client found in 100 %, median client found in 10 %, at 10 % false alarms"
        in text
    )
    assert '<span class="badge bad">found 100 %</span>' in text
    for row in summary:
        row |= {"ledger_mu": 1.0, "lower": 0.5}
    summary[0]["lower"] = None  # -inf in JSON: so few trials refute nothing
    write(tmp_path, "scores.json", content)
    text = check(study.report(tmp_path).path)
    assert '<span class="badge good">within the ledger</span>' in text
    assert "above the ledger" not in text
    summary[1]["verdict"] = "LESS NOISE THAN PLANNED"
    write(tmp_path, "scores.json", content)
    text = check(study.report(tmp_path).path)
    assert '<span class="badge bad">noise not as planned</span>' in text
    summary[1]["lower"] = 1.5
    write(tmp_path, "scores.json", content)
    assert '<span class="badge bad">above the ledger</span>' in check(
        study.report(tmp_path).path
    )


def test_attacks_whose_verdict_is_no_curve(tmp_path: pathlib.Path) -> None:
    members = [
        {"method": "likelihood_ratio", "seen": seen, "accuracy": 0.5, "auc": auc}
        for seen, auc in (("plain", 0.9), ("sum of 4", 0.5))
    ]
    recognized = [{"seen": EVIL, "identified": 9, "classes": 10, "by_chance": 1.0}]
    target = [
        {"pads": "plain", "recovered": True},
        {"pads": "bound", "recovered": False},
    ]
    for name, summary, scores, words in (
        (
            "membership",
            members,
            [],
            "likelihood ratio, plain: AUC 0.9, right about 50 %",
        ),
        (
            "modelinversion",
            recognized,
            [],
            '<span class="badge bad">9 of 10 recognized</span>',
        ),
        ("inconsistency", [], target, '<span class="badge good">not recovered</span>'),
        ("gradients", [{"seen": "plain", "psnr_db": None}], [], "inf dB"),
    ):
        write(tmp_path / name, "study.json", manifest(name))
        write(
            tmp_path / name,
            "scores.json",
            {"summary": summary, "scores": scores, "sentences": []},
        )
        (tmp_path / name / "images.png").write_bytes(png())
        text = check(study.report(tmp_path / name).path)
        assert words in text
        titles = ("At a glance", "Findings", "Pictures")  # first what was recovered
        order = [text.find(f">{title}</h2>") for title in titles]
        assert 0 < order[0] < order[2]
        assert name == "membership" or order[2] < text.find(">Settings</h2>")


def test_an_attack_s_page(tmp_path: pathlib.Path) -> None:
    rows = [{"scheme": EVIL, "error": 0.5, "found": True, "none": None}] * 230
    content = {
        "title": "Least squares",
        "is_complete": False,
        "summary": rows[:1],
        "scores": rows,
        "sentences": [EVIL],
    }
    write(tmp_path, "study.json", manifest("leastsquares"))
    write(tmp_path, "scores.json", content)
    (tmp_path / "errors.png").write_bytes(png())
    np.save(tmp_path / "estimates.npy", np.zeros(2))
    text = check(study.report(tmp_path).path)
    assert "Interrupted: this is what was finished by then." in text
    assert "mrsa_jax attack least-squares" in text
    assert "30 more rows in scores.csv" in text
    assert "estimates.npy" in text
    assert (
        text.count("<td>yes</td>") + text.count('<td class="text">yes</td>') == 1 + 200
    )


def audit_folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return the folder of an audit made by hand.

    230 exposed clients, a long certificate.
    """
    exposed = [{"client": f"{EVIL}{k}", "first_round": k} for k in range(230)]
    content = {
        "title": "log.csv: 9 rounds, 240 clients, plain sums",
        "sentences": [EVIL, "Somebody's update follows."],
        "summary": [{"question": "weak T", "answer": "1", "how_sure": "certified"}],
        "gate": {
            "target": 2,
            "definition": "weak",
            "passed": False,
            "reason": "T is 1, below 2",
        },
        "findings": {"exposed": exposed},
    }
    settings = {"file": "log.csv", "effort": 0.5, "layout": "auto"}
    own = manifest("audit", config=settings, log={"bytes": 123, "sha256": "ab" * 32})
    write(tmp_path, "study.json", {**own, "seed": None})
    write(tmp_path, "audit.json", content)
    write(
        tmp_path,
        "rounds.csv",
        "round,clients,exposed_clients,weak_lower,weak_upper\n"
        "7,2,0,1,3\n8,2,0,1,1\n9,1,230,1,1\n",
    )
    write(
        tmp_path,
        "recipe.csv",
        f'kind,name,coefficient\nround,7,-{"9" * 80}\nclient,"a,b",3\n',
    )
    (tmp_path / "weak_privacy.png").write_bytes(png())
    (tmp_path / "other.png").write_bytes(png())
    return tmp_path


def test_an_audit_s_page(tmp_path: pathlib.Path) -> None:
    saved = study.report(audit_folder(tmp_path))
    text = check(saved.path)
    assert (saved.command, saved.papers[0]) == ("audit", "so2023securing")
    assert "mrsa_jax audit: what a participation log leaks, and proof" in text
    assert "<strong>Gate failed:</strong> T is 1, below 2." in text
    assert "30 more rows in clients.csv" in text
    assert "<img" not in text  # what it knows is drawn from the table
    assert 'd="M7 3H8V1H9"' in text  # weak T at most
    assert 'd="M7 0H9V230H9"' in text  # exposed clients
    assert '<span class="badge bad">exposed</span> 230 clients' in text
    assert '<span class="badge bad">gate failed</span> T is 1, below 2' in text
    assert "123 bytes and SHA-256 " + "ab" * 32 in text
    assert "-" + "9" * 56 + "..." in text  # cut in the table, whole in the file
    assert "a,b</th><td>3</td>" in text
    assert "1 setting changed from the default" in text  # effort; a file has no default
    assert ">seed<" not in text  # nothing is drawn


def test_an_audit_s_page_of_hidden_clients_and_of_noise(tmp_path: pathlib.Path) -> None:
    folder = audit_folder(tmp_path)
    content = json.loads((folder / "audit.json").read_text())
    told = [
        {"client": EVIL, "mu": 0.5, "epsilon": 1.25},
        {"client": 3, "mu": None, "epsilon": None},
    ]
    findings = {
        "exposed": [],
        "hidden_among": {
            "worst": [{"client": EVIL, "hidden_among": 1.0004}],
            "median": 12.0,
        },
        "noise": {
            "spread": None,
            "delta": 1e-5,
            "others_known": told,
            "others_gaussian": None,
        },
    }
    gate = {
        "target": 3,
        "definition": "hidden",
        "passed": True,
        "reason": "among 4, at least 3",
    }
    write(folder, "audit.json", {**content, "gate_hidden": gate, "findings": findings})
    text = check(study.report(folder).path)
    assert "<strong>Gate failed:</strong> T is 1, below 2." in text
    assert "<strong>Gate passed:</strong> among 4, at least 3." in text
    assert "<td>1.0004</td>" in text
    assert "the median client: 12.00" in text
    assert "epsilon at delta 1e-05" in text
    assert "<td>0.5</td><td>1.25</td>" in text
    assert "<td>inf</td><td>inf</td>" in text
    assert "Gaussian" not in text


def test_an_audit_s_page_without_findings_or_gate(tmp_path: pathlib.Path) -> None:
    folder = audit_folder(tmp_path)
    content = json.loads((folder / "audit.json").read_text())
    write(folder, "audit.json", {**content, "gate": None, "findings": {"exposed": []}})
    (folder / "recipe.csv").unlink()
    (folder / "rounds.csv").unlink()
    text = check(study.report(folder).path)
    assert "<p>No client.</p>" in text
    assert "Certificate" not in text
    assert "Gate" not in text
    assert "<img" not in text


def test_a_reproduction_s_page(tmp_path: pathlib.Path) -> None:
    one = {
        "claim": "C",
        "paper": "8.75",
        "ours": "8.8",
        "tolerance": "0.1",
        "verdict": "reproduced",
        "note": EVIL,
    }
    tiny = "at most 7.105427358e-15 of 1.234567e-3"
    items = [
        {
            "paper": "multiround",
            "name": "table1",
            "title": "Sizes",
            "verdict": "reproduced",
            "seconds": 1.5,
            "own_data": "",
            "checks": [one, one],
        },
        {
            "paper": "ccesa",
            "name": "table1",
            "title": "Costs",
            "verdict": "differs",
            "seconds": 2.0,
            "own_data": "digits",
            "checks": [{**one, "verdict": "differs", "ours": tiny}],
        },
    ]
    write(
        tmp_path, "verdicts.json", {"items": items, "manifest": manifest("reproduce")}
    )
    place = tmp_path / "items" / "multiround.table1"
    write(place, "item.json", {"caption": "How many cohorts"})
    (place / "table1.png").write_bytes(png())
    drawing = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9">{}<text>{}</text></svg>'
    own = tmp_path / "items" / "ccesa.table1"
    write(own, "table1.svg", drawing.format("", "drawn as a drawing"))
    (own / "table1.png").write_bytes(png())
    write(place, "table1.svg", drawing.format("<image/>", "not drawn as a drawing"))
    text = check(study.report(tmp_path).path)
    assert "<text>drawn as a drawing</text>" in text
    assert "not drawn" not in text
    assert "2 items, 3 claims: 2 reproduced, 1 differs." in text
    assert "How many cohorts" in text
    assert text.count("<img") == 1
    assert "Data instead of the paper&#x27;s" in text
    assert '<span class="badge good">2 reproduced</span>' in text
    assert '<span class="badge bad">1 differs</span>' in text
    assert [text.count(f">{name}</h2>") for name in ("Multi-RoundSecAgg", "CCESA")] == [
        1,
        1,
    ]
    assert ">at most 7.1e-15 of 1.234567e-3</td>" in text


@pytest.mark.smoke
def test_a_reproduction_of_one_paper_as_once_written(tmp_path: pathlib.Path) -> None:
    one = {
        "claim": "C",
        "paper": "1",
        "ours": "1",
        "tolerance": "exact",
        "verdict": "reproduced",
        "note": "",
    }
    items = [
        {"name": "fig2", "title": "A family", "verdict": "reproduced", "checks": [one]}
    ]
    write(
        tmp_path, "verdicts.json", {"items": items, "manifest": manifest("reproduce")}
    )
    (tmp_path / "fig2.png").write_bytes(png())
    text = check(study.report(tmp_path).path)
    assert "fig2: A family" in text
    assert text.count("<img") == 1
    assert ">Note</th>" not in text  # nothing was noted


def _luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    whole = digits if len(digits) == 6 else "".join(2 * one for one in digits)
    parts = [int(whole[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    linear = [
        p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(scheme: str) -> None:
    """WCAG 2 asks for a contrast of 4.5 at least."""
    light, dark = re.findall(r":root \{([^}]*--ink[^}]*)\}", _page.page("", [], []))[:2]
    chosen = light if scheme == "light" else dark
    colours = dict(re.findall(r"--(\w+): (#\w+)", chosen))
    assert {"ink", "soft", "paper", "link", "mark", "shade"} <= set(colours)
    for text in ("ink", "soft", "link", "mark"):
        for ground in ("paper", "shade"):
            one, other = sorted(
                (_luminance(colours[text]), _luminance(colours[ground]))
            )
            assert (other + 0.05) / (one + 0.05) >= 4.5, (scheme, text, ground)


def test_a_table_keeps_its_numbers_to_the_right_and_escapes() -> None:
    table = _page.data_table(
        ("a", "b", EVIL), [(EVIL, "1.5 %", "-"), ("y", "2", "z")], "c"
    )
    assert "<script" not in table
    assert "<td>1.5 %</td>" in table
    assert '<td class="text">z</td>' in table
    tall = _page.data_table(
        ("a",), [(str(k),) for k in range(500)], "c", most=30, where="x.csv"
    )
    assert tall.count("<tr>") == 31
    assert "470 more rows in x.csv" in tall
    assert 'class="wide tall"' in tall


def test_a_section_s_name_is_a_safe_anchor() -> None:
    assert _report.Section("Table 1: T & C!", "").anchor == "table-1-t-c"
    assert _report.Section("§", "").anchor == "section"
    assert _page.page("t", [], [_report.Section("Empty", "")]).count("<h2") == 0


def test_settings_of_an_unknown_command_are_shown_without_defaults() -> None:
    text = _page.settings_section(
        {"a": 1, "b": {"c": EVIL}, "json": True}, None
    ).content
    assert "changed" not in text
    assert "<script" not in text
    assert "json" not in text
    assert _report.defaults_of("nothing") is None


def test_a_history_without_sums_has_no_privacy(results: xr.Dataset) -> None:
    nobody = results.assign(
        strong_privacy=xr.full_like(results["strong_privacy"], np.nan)
    )
    (row, _) = study.summarise(nobody)
    assert row.strong_privacy is None
    assert _report.cells(row)[_report.COLUMNS.index("Strong T")] == "-"


@pytest.mark.smoke
def test_cells_count_rounds_from_one(results: xr.Dataset) -> None:
    everyone = results.assign(
        first_exposure=xr.ones_like(results["first_exposure"]).astype(np.int32)
    )
    row, _ = study.summarise(everyone)
    text = _report.cells(row)
    assert len(text) == len(_report.COLUMNS)
    assert text[_report.COLUMNS.index("From")] == "2"
    assert text[_report.COLUMNS.index("Expected C")] == "1.75 ± 0.17"


def test_defaults_of_all_attacks_are_known() -> None:
    assert (
        _report.defaults_of("leastsquares")["rounds"]
        == study.attacks_on_sums.LeastSquaresConfig().rounds
    )
    for kind in study.KINDS.values():
        name = kind.config.__name__.removesuffix("Config").lower()
        assert _report.defaults_of(name) is not None
