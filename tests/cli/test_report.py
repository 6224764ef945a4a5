"""`mrsa-jax report`: misuse, the page it writes, and what it prints."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import webbrowser

import numpy as np
import pytest
import xarray as xr

from mrsa_jax.cli import main
from mrsa_jax.study import to_dict
from mrsa_jax.study.attacks_on_sums import LeastSquaresConfig


@pytest.fixture
def sweep(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return the folder of a sweep made by hand.

    An attack at two sizes, one of them done.
    """
    results = xr.Dataset(
        {
            "error": (("scheme", "num_clients"), np.array([[0.25, np.nan]])),
            "done": (("scheme", "num_clients"), np.array([[True, False]])),
        },
        coords={"scheme": ["Random"], "num_clients": [8, 16]},
    )
    base = to_dict(LeastSquaresConfig(rounds=9))
    axes = [
        {"name": "scheme", "fields": ["schemes"], "values": [[["uniform"]]]},
        {"name": "num_clients", "fields": ["num_clients"], "values": [[8], [16]]},
    ]
    content = {
        "schema": 1,
        "command": "sweep",
        "config_hash": "0" * 16,
        "seed": 3,
        "config": {
            "seed": 3,
            "swept": "attack least-squares",
            "base": base,
            "axes": axes,
        },
        "swept": "attack least-squares",
        "axes": [{"name": one["name"], "fields": one["fields"]} for one in axes],
    }
    folder = tmp_path / "sweep"
    folder.mkdir()
    stored = results.assign_attrs(
        {name: json.dumps(value) for name, value in content.items()}
    )
    stored = stored.assign_coords(scheme=stored["scheme"].astype("U"))
    stored.to_zarr(folder / "results.zarr", mode="w", consolidated=False, zarr_format=2)
    (folder / "study.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "words", [["report"], ["report", "a", "b"], ["report", ".", "--opn"]]
)
def test_misuse(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err


def test_a_folder_of_something_else(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "which has no study.json" in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


def test_help_says_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--help"]) == 0
    text = capsys.readouterr().out
    for word in ("--out", "--column", "--open", "--json", "BibTeX", "Exit status"):
        assert word in text


def test_a_sweep_of_an_attack(
    sweep: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert main(["report", str(sweep), "--out", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["page"] == str(out)
    assert printed["bytes"] == out.stat().st_size
    assert printed["command"] == "sweep"
    assert "so2023securing" in printed["papers"]
    text = out.read_text(encoding="utf-8")
    assert "1 of 2 points are done." in text
    assert "attack least-squares: 1 scheme x 2 num clients, seed 3" in text
    # rounds, against the attack's own default
    assert '<span class="changed">9</span>' in text
    assert ">warm_up</th>" in text
    assert ">num_clients</th><td>24" not in text  # it has no one value
    assert 'class="plot"' in text


@pytest.mark.long
def test_a_sweep_gets_figures_for_a_column(
    sweep: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(sweep), "--column", "wide"]) == 2
    assert not list(sweep.glob("*.png"))
    capsys.readouterr()
    assert main(["report", str(sweep), "--column", "single", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"] == [str(sweep / "error.png")]
    assert 'width="252pt"' in (sweep / "figures" / "error.svg").read_text()
    assert (
        (sweep / "points.csv").read_text().splitlines()[1].startswith("Random,8,0.25")
    )
    assert main(["report", str(sweep), "--column", "double"]) == 0
    assert "Drew error.png; as SVG and PDF in" in capsys.readouterr().out


@pytest.mark.smoke
def test_open_shows_the_page(
    sweep: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert main(["report", str(sweep), "--open"]) == 0
    assert opened == [(sweep / "report.html").absolute().as_uri()]
    assert "needs no other file" in capsys.readouterr().out


@pytest.mark.long
def test_a_report_needs_no_jax(sweep: pathlib.Path) -> None:
    code = (
        "import sys\nfrom mrsa_jax.cli import main\n"
        f"status = main(['report', {str(sweep)!r}])\n"
        "loaded = {'jax', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {loaded}' if loaded else status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
