"""The documentation site builds without a warning, hangs together and leaves nothing out.

It is built once, as `make docs` does. Its code blocks are run by tests/test_how_to.py,
tests/test_readme.py and tests/test_extending.py; here no page may hold one that none of
them knows.
"""

from __future__ import annotations

import ast
import functools
import html.parser
import importlib
import importlib.util
import inspect
import os
import pathlib
import re
import shlex
import subprocess
import sys
import urllib.parse
from typing import Any

import matplotlib.pyplot as plt
import pytest

import mrsa_jax as mj
from mrsa_jax import cli

pytestmark = pytest.mark.long

yaml = pytest.importorskip("yaml")
pytest.importorskip("sphinx")
ROOT = pathlib.Path(__file__).resolve().parents[2]
GALLERY = ROOT / "docs" / "gallery"
# which registries of packages show too: not all take SVG
_OF_README = "plot_participation.png"


class Page(html.parser.HTMLParser):
    """What a page's HTML points to, and what can be pointed to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.sources: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = {name: value or "" for name, value in attrs}
        self.anchors |= {own[name] for name in ("id", "name") if name in own}
        if tag == "a" and "href" in own:
            self.links.append(own["href"])
        elif tag == "link" and own.get("rel") not in ("canonical", "prev", "next"):
            self.sources.append(own.get("href", ""))
        self.sources += [
            own[name] for name in ("src", "srcset", "data", "poster") if name in own
        ]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Build the site by the command of the Makefile, in a process of its own."""
    out = tmp_path_factory.mktemp("site")
    (line,) = re.findall(
        r"^\t(\$\(BIN\)/python -m sphinx .*)$",
        (ROOT / "Makefile").read_text(),
        re.MULTILINE,
    )
    words = shlex.split(line)[1:]
    assert {"-W", "-n", "--keep-going"} <= set(words)
    words[words.index("build/site")] = str(out)
    words += ["-D", "smartquotes=0"]  # a twentieth of the time, which nothing looks at
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": ""},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return out


@pytest.fixture(scope="session")
def pages(site: pathlib.Path) -> dict[pathlib.Path, Page]:
    paths = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    found = {path: Page(path.read_text(encoding="utf-8")) for path in paths}
    assert len(found) > 60
    return found


def test_links_lead_somewhere(
    pages: dict[pathlib.Path, Page], site: pathlib.Path
) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links + page.sources:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or link.startswith("#!"):
                continue
            target = (
                path.parent / urllib.parse.unquote(parts.path) if parts.path else path
            )
            target = pathlib.Path(os.path.normpath(target))
            if not target.is_file() or not target.is_relative_to(site):
                broken.append(f"{path.relative_to(site)}: {link}")
                continue
            anchor = urllib.parse.unquote(parts.fragment)
            if (
                anchor
                and target.suffix == ".html"
                and anchor not in pages[target].anchors
            ):
                broken.append(f"{path.relative_to(site)}: {link} has no such anchor")
    assert not broken, "\n".join(broken[:40])


def test_nothing_comes_from_the_network(
    pages: dict[pathlib.Path, Page], site: pathlib.Path
) -> None:
    for path, page in pages.items():
        for source in page.sources:
            parts = urllib.parse.urlsplit(source)
            is_local = parts.scheme in ("", "data") and not parts.netloc
            assert is_local, f"{path.relative_to(site)}: {source}"
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", text), path.name


def _families() -> dict[str, list[str]]:
    names = {
        "mrsa_jax": [n for n in mj.__all__ if not inspect.ismodule(getattr(mj, n))]
    }
    for name in mj.__all__:
        if inspect.ismodule(getattr(mj, name)):
            family = importlib.import_module(f"mrsa_jax.{name}")
            own = [
                one
                for one in family.__all__
                if not inspect.ismodule(getattr(family, one))
            ]
            names[f"mrsa_jax.{name}"] = own
    return names


def test_every_public_name_has_its_entry(
    pages: dict[pathlib.Path, Page], site: pathlib.Path
) -> None:
    families = _families()
    assert sum(map(len, families.values())) > 300
    for family, names in families.items():
        page = pages[site / "docs/reference" / f"{_page_of(family)}.html"]
        missing = {f"{family}.{name}" for name in names} - page.anchors
        assert not missing, f"no entry for {sorted(missing)}"


def _page_of(family: str) -> str:
    return family.partition(".")[2] or "package"


def test_an_entry_says_what_its_docstring_says(site: pathlib.Path) -> None:
    text = (site / "docs/reference/privacy.html").read_text(encoding="utf-8")
    entry = text.split('id="mrsa_jax.privacy.first_exposure"')[1].split("</dl>\n</dd>")[
        0
    ]
    plain = re.sub(r"<[^>]+>", "", entry)
    for said in (
        "Parameters",
        "Returns",
        "Raises",
        "Source",
        "&gt;&gt;&gt;",
        "clients",
    ):
        assert said in plain
    assert "docutils literal" in entry


def test_references_open_with_what_is_used_most_and_show_plots(
    site: pathlib.Path,
) -> None:
    reference = site / "docs/reference"
    text = (reference / "selection.html").read_text(encoding="utf-8")
    names = ("rollout", "batch_partitioning", "bernoulli", "family_size")
    places = [text.index(f'id="mrsa_jax.selection.{name}"') for name in names]
    assert places[:2] == sorted(places)[:2]
    plots = (reference / "plotting.html").read_text(encoding="utf-8")
    figures = [name for name in mj.plotting.__all__ if name.startswith("plot_")]
    assert all(f"_images/{name}." in plots for name in figures)
    for path in reference.glob("*.html"):
        for sign in re.findall(
            r'<dt class="sig.*?</dt>', path.read_text("utf-8"), re.DOTALL
        ):
            own = re.sub(r"<[^>]+>", "", sign).replace("__version__", "")
            assert not re.search(r"ForwardRef|tyro\.conf\.|(?<![\w.])_[A-Za-z]", own), (
                own
            )


def test_every_notebook_and_figure_appears(
    pages: dict[pathlib.Path, Page], site: pathlib.Path
) -> None:
    listed = pages[site / "docs/notebooks.html"].links
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        assert f"../notebooks/{notebook.stem}.html" in listed
        assert (site / "notebooks" / f"{notebook.stem}.html").exists()
    shown = (site / "docs/gallery/index.html").read_text(encoding="utf-8")
    figures = [name for name in mj.plotting.__all__ if name.startswith("plot_")]
    scripts = {path.stem for path in GALLERY.glob("*.py")}
    assert scripts >= set(figures)
    pictures = {path.stem: path.name for path in (GALLERY / "images").iterdir()}
    assert scripts == set(pictures)
    assert [name for name in pictures.values() if not name.endswith(".svg")] == [
        _OF_README
    ]
    for name, picture in pictures.items():
        assert f"_images/{picture}" in shown
        code = (GALLERY / f"{name}.py").read_text(encoding="utf-8")
        drawn = re.findall(r"mj\.plotting\.(plot_\w+)\(", code)
        # each example draws by the package, but for one that shows how to by hand
        assert set(drawn) <= set(figures)
        assert drawn or name == "plot_expected_fairness", name
        assert name not in figures or f"mj.plotting.{name}(" in code
        assert f'savefig("{picture}")' in code


def test_the_map_is_that_of_the_house() -> None:
    text = (ROOT / "docs" / "developers.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    architecture = ast.parse(
        (ROOT / "tests/test_architecture.py").read_text(encoding="utf-8")
    )
    (order,) = (
        ast.literal_eval(one.value)
        for one in architecture.body
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "ORDER"
    )
    folders = {path.parent.name for path in (ROOT / "mrsa_jax").glob("*/__init__.py")}
    assert listed == [name for name in order if name in folders]


def test_a_newcomer_finds_what_is_asked_in_two_files() -> None:
    text = (ROOT / "docs" / "developers.md").read_text(encoding="utf-8")
    asked = re.findall(r"^\| (.+\?) \| (.+) \|$", text, re.MULTILINE)
    assert len(asked) == 10
    for question, answer in asked:
        found = re.findall(r"`(\S+/\S+)` `(\w+)`", answer)
        assert 1 <= len(found) <= 2, question
        for path, name in found:
            code = (ROOT / path).read_text(encoding="utf-8")
            assert re.search(rf"^(def |class )?{name}\b", code, re.MULTILINE), (
                path,
                name,
            )


def _commands(text: str) -> list[list[str]]:
    lines = text.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [one[one.index("mrsa-jax") + 1 :] for one in words if "mrsa-jax" in one]


def test_files_of_clusters_parse() -> None:
    folder = ROOT / "docs/how_to/files"
    commands = []
    for path in sorted(folder.glob("*.sbatch")):
        script = path.read_text(encoding="utf-8")
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        head = script.partition("\n\n")[0].splitlines()
        assert head[0] == "#!/bin/bash"
        assert all(re.fullmatch(r"#SBATCH --[a-z-]+(=\S+)?", line) for line in head[1:])
        commands += _commands(script)
    (path,) = folder.glob("*.yaml")
    parts = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    kinds = {part["kind"]: part for part in parts}
    assert set(kinds) == {"ConfigMap", "PersistentVolumeClaim", "Job"}
    pod = kinds["Job"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["mrsa-jax"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    (study,) = kinds["ConfigMap"]["data"]
    assert container["args"][1] == f"/study/{study}"
    from mrsa_jax.study.sweeps import parse_sweep

    points = list(parse_sweep(kinds["ConfigMap"]["data"][study]).points())
    assert len(points) == 20
    assert not [point.problem for point in points if point.problem]
    for words in [*commands, container["args"]]:
        config = cli._parse(words)
        assert config.out == pathlib.Path(words[words.index("--out") + 1])
    assert len(commands) == 1


def test_no_page_holds_code_that_nothing_looks_at() -> None:
    """Each page with code is one that other tests run or parse, but for a few parsed here."""
    run = {page.relative_to(ROOT).as_posix() for page in _how_to().PAGES}
    run |= {
        "README.md",
        "docs/install.md",
        "docs/tour.md",
        "docs/extending.md",
        "docs/hidden_among.md",
    }
    pages = [
        *ROOT.glob("*.md"),
        *ROOT.glob("benchmarks/*.md"),
        *ROOT.glob("docs/**/*.md"),
    ]
    for page in pages:
        name, text = page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
        code = re.findall(r"^```([a-z]+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        if not code or name in run or name.startswith("docs/tutorials/"):
            continue
        assert {language for language, _ in code} <= {"bash", "text"}, name
        for language, block in code:
            if language == "bash":
                found = _how_to().parse_shell(block)
                targets = set(re.findall(r"^make ([a-z-]+)", block, re.MULTILINE))
                modules = set(
                    re.findall(r"^python -m (benchmarks\.[a-z_]+)", block, re.MULTILINE)
                )
                other = re.findall(r"^papermill notebooks/", block, re.MULTILINE)
                assert found or targets or modules or other, (
                    f"{name}: nothing of {block!r} is known"
                )
                for module in modules:
                    assert (ROOT / module.replace(".", "/") / "__main__.py").exists(), (
                        module
                    )
                for target in targets:
                    assert f"\n{target}:" in (ROOT / "Makefile").read_text(
                        encoding="utf-8"
                    )


@functools.cache
def _how_to() -> Any:
    """Return the module that runs pages."""
    return _module("test_how_to.py")


def _module(name: str) -> Any:
    path = ROOT / "tests" / name
    spec = importlib.util.spec_from_file_location(f"of_the_site_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_DRAW = """
import pathlib, runpy, sys
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
for path in sys.argv[1:]:
    before = set(pathlib.Path().iterdir())
    runpy.run_path(path, run_name="__main__")
    plt.close("all")
    (drawn,) = set(pathlib.Path().iterdir()) - before
    assert drawn.stem == pathlib.Path(path).stem, (path, drawn)
"""


@pytest.mark.slow
def test_the_gallery_shows_what_its_scripts_draw(tmp_path: pathlib.Path) -> None:
    """All scripts in one process, as compiled programs are shared.

    None knows of another.
    """
    pictures = _module("docs/pictures.py")
    scripts = sorted(GALLERY.glob("*.py"))
    subprocess.run(
        [sys.executable, "-c", _DRAW, *map(str, scripts)],
        cwd=tmp_path,
        check=True,
        timeout=900,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    found = {
        path.stem: pictures.differing(tmp_path / path.name, path)
        for path in (GALLERY / "images").iterdir()
    }
    assert len(found) >= 24
    stale = {name: pixels for name, pixels in found.items() if pixels > pictures.MOST}
    assert not stale, f"`make gallery` draws these anew (pixels that differ): {stale}"


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_another_curve_is_another_picture_and_other_hinting_is_not(
    kind: str, tmp_path: pathlib.Path
) -> None:
    pictures = _module("docs/pictures.py")

    def draw(
        name: str,
        ends: float = 0.8,
        colour: str = "#0072B2",
        label: str = "of four",
        width: float = 6.0,
        tone: float = 0.2,
        hinting: str = "default",
    ) -> Any:
        path = tmp_path / f"{name}.{kind}"
        with plt.rc_context({"text.hinting": hinting, "svg.fonttype": "none"}):
            figure = plt.figure(figsize=(width, 2.5))
            ax = figure.add_axes((0.1, 0.2, 0.5, 0.7))
            ax.plot([0, 1, 2, 3], [0.0, 0.5, 0.7, ends], color=colour, label=label)
            ax.plot([0, 1, 2, 3], [0.1, 0.2, 0.3, 0.4], color="black", label="random")
            ax.set(
                xlim=(0, 3), ylim=(0, 1), xlabel="rounds", ylabel="test accuracy (%)"
            )
            ax.legend(loc="upper left")
            image = figure.add_axes((0.7, 0.2, 0.2, 0.7))
            image.imshow([[0, tone] * 8] * 16, vmin=0, vmax=1, interpolation="none")
            figure.savefig(path)
            plt.close(figure)
        return path

    stored = draw("stored")
    for same in (draw("again"), draw("hinted", hinting="none")):
        assert pictures.differing(same, stored) <= pictures.MOST
    for other in (
        {"ends": 0.75},
        {"colour": "#D55E00"},
        {"label": "_none"},
        {"width": 6.2},
        {"tone": 0.8},
    ):
        found = draw("other", **other)
        for pair in ((found, stored), (stored, found)):
            assert pictures.differing(*pair) > 2 * pictures.MOST, other


@pytest.mark.slow
def test_pages_fit_and_search_works_without_a_network(site: pathlib.Path) -> None:
    browsing = _module("study/browsing.py")
    if browsing.drivers() is None:
        pytest.skip("needs Chromium and chromedriver on the PATH")
    paths = [
        path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts
    ]
    wrong = []
    with browsing.browser() as page:
        for width, theme in ((390, "light"), (1400, "light"), (1400, "dark")):
            for path in paths:
                if path.name in ("index.html", "search.html") and path.parent == site:
                    continue  # one leads on, the other is asked below
                page.open(path, width, theme)
                wrong += [
                    f"{path.relative_to(site)} at {width}: {words}"
                    for kind, words in page.faults()
                    if (kind == "overflow" and width == 390)
                    or (kind == "network" and not words.startswith("file:"))
                ]
        assert not wrong, "\n".join(wrong[:30])
        page.driver.get(f"{(site / 'search.html').as_uri()}?q=first_exposure")
        page.driver.implicitly_wait(20)
        first = page.all("#search-results li a")[0]
        assert first.text == "mrsa_jax.privacy.first_exposure"
