"""Every block of the how-tos and concepts runs, in order, in a folder of the page's own.

What a page (`docs/how_to/*.md`, `docs/concepts/*.md`, others of `PAGES`) may hold:

- `python`: run; names last to the end of the page. `pycon`: run as a doctest, with the
  same names.
- `bash`: each line runs in the page's folder: `mrsa-jax ...` in this process,
  `python FILE ...` in its own; `> FILE` keeps what is printed, `# exit status 3` is
  what must come instead of 0. Files of figures hold a word: to draw them takes more
  time than all else, and nothing looks at them. Comments and `pip install` are passed
  over; pipes, `&&` and variables are not understood.
- `text` as the next block after one that ran: all that this printed, `...` for what may
  differ.
- a PNG that a block saves under the name of one of the gallery's must be that picture.
- a block after `<!-- file: NAME -->` is written to that file of the folder, not run.
- `bash` after `<!-- parsed: WHY -->` is not run: bash parses it, and `mrsa-jax` its own
  lines.
- a block after `<!-- not run: WHY -->` is passed over. Have few.
- `{directive}` blocks are Sphinx's, and not looked at.
- `<!-- needs: MODULE -->` skips the page where that cannot be imported,
  `<!-- slow: WHY -->` leaves it to `make test-slow`. Any other language is an error.
"""

from __future__ import annotations

import contextlib
import doctest
import functools
import importlib.util
import io
import json
import pathlib
import re
import shlex
import subprocess
import sys
from typing import Any

import jax
import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure

import mrsa_jax as mj
from mrsa_jax import cli

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
PAGES = [
    page
    for page in [
        *sorted(DOCS.glob("concepts/*.md")),
        *sorted(DOCS.glob("how_to/*.md")),
        *(
            DOCS / f"tutorials/{name}.md"
            for name in (
                "attack",
                "compare_schemes",
                "one_round",
                "sweep",
                "train",
                "unequal_bandwidth",
            )
        ),
        *(
            DOCS / f"{name}.md"
            for name in (
                "certificates",
                "numbers",
                "participation_log",
                "sharp_edges",
                "reference/settings",
            )
        ),
    ]
    if page.name != "index.md"
]
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>file|not run|parsed): (?P<of>.+?) -->\n+)?"
    r"```(?P<language>.*)\n(?P<code>(?s:.*?))^```$",
    re.MULTILINE,
)
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_page(text: str, folder: pathlib.Path) -> int:
    """Run a page's blocks in a folder, which is the working one; return how many ran."""
    names: dict[str, Any] = {"__name__": "__main__"}  # as a script, so that guards run
    printed: str | None = None  # by the block before
    ran = 0
    for block in _BLOCK.finditer(text):
        language, code = block["language"], block["code"]
        line = text.count("\n", 0, block.start("code")) + 1
        if language.startswith("{"):
            continue
        if block["mark"] == "parsed":
            assert language == "bash", f"line {line}: {language!r} is not parsed"
            parse_shell(code)
            ran += 1
        elif block["mark"] == "file":
            (folder / block["of"]).write_text(code, encoding="utf-8")
        elif block["mark"] is None and language != "text":
            run = {
                "python": _run_python,
                "pycon": _run_session,
                "bash": _run_shell,
            }.get(language)
            assert run is not None, f"line {line}: no block of {language!r} can be run"
            with contextlib.redirect_stdout(io.StringIO()) as out:
                run(code, names, line)
            printed, ran = out.getvalue(), ran + 1
            continue
        elif block["mark"] is None and printed is not None:
            same = doctest.OutputChecker().check_output(code, printed, _FLAGS)
            assert same, (
                f"line {line}: it says\n{code}\nand this was printed:\n{printed}"
            )
        printed = None
    return ran


def _run_python(code: str, names: dict[str, Any], line: int) -> None:
    exec(compile("\n" * (line - 1) + code, "page", "exec"), names)


def _run_session(code: str, names: dict[str, Any], line: int) -> None:
    test = doctest.DocTestParser().get_doctest(code, names, "session", "page", line - 1)
    said: list[str] = []
    outcome = doctest.DocTestRunner(optionflags=_FLAGS).run(
        test, out=said.append, clear_globs=False
    )
    names.update(test.globs)
    assert outcome.failed == 0, "".join(said)


def parse_shell(code: str) -> list[Any]:
    """Let bash parse a script, and the command its own lines; return their settings."""
    done = subprocess.run(
        ["bash", "-n"], input=code, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = []
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        starts = [
            place for place, word in enumerate(words) if word.endswith("mrsa-jax")
        ]
        if starts and words[0] in (words[starts[0]], "srun"):
            found.append(cli._parse(words[starts[0] + 1 :]))
    return found


def _run_shell(code: str, names: dict[str, Any], line: int) -> None:
    del names
    for command in code.replace("\\\n", " ").splitlines():
        words = shlex.split(command, comments=True)
        if not words or words[:2] == ["pip", "install"]:
            continue
        told = re.search(r"#.*exit status (\d+)", command)
        where = words[-1] if words[-2:-1] == [">"] else None
        words = words[:-2] if where else words
        odd = {"|", "&&", "||", "&", ";", "<", ">", ">>"} & set(words)
        understood = words[0] in ("mrsa-jax", "python") and not odd
        assert understood, f"line {line}: cannot run {command!r}"
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = _run_words(words)
        expected = int(told[1]) if told else 0
        assert status == expected, (
            f"{command!r} gave exit status {status}:\n{out.getvalue()}"
        )
        if where:
            pathlib.Path(where).write_text(out.getvalue(), encoding="utf-8")
        else:
            sys.stdout.write(out.getvalue())


def _run_words(words: list[str]) -> int:
    if words[0] == "mrsa-jax":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Figure, "savefig", _named)
            return cli.main(words[1:])
    done = subprocess.run(
        [sys.executable, *words[1:]],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


def _named(unused: Figure, file: pathlib.Path, **settings: Any) -> None:
    file.write_bytes(b"not drawn")


def _parameter(page: pathlib.Path) -> Any:
    marks = (
        [pytest.mark.slow] if "<!-- slow: " in page.read_text(encoding="utf-8") else []
    )
    return pytest.param(page, marks=marks, id=page.stem)


@pytest.mark.long(
    "adversaries",
    "attack",
    "certificates",
    "choose_a_scheme",
    "compare_schemes",
    "differential_privacy",
    "enforce_blocks",
    "export",
    "figure_for_a_paper",
    "from_sums_to_an_image",
    "in_your_own_loop",
    "noise",
    "one_round",
    "papers_at_your_settings",
    "parts_of_the_vector",
    "privacy_target",
    "round",
    "settings",
    "sharp_edges",
    "statistics_under_secure_aggregation",
    "suite",
    "sweep",
    "train",
    "unequal_bandwidth",
    "your_own_training",
)
@pytest.mark.parametrize("page", [_parameter(page) for page in PAGES])
def test_a_page_runs(
    page: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = page.read_text(encoding="utf-8")
    for module in re.findall(r"^<!-- needs: (\S+) -->$", text, re.MULTILINE):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")
    monkeypatch.chdir(tmp_path)
    # a user's settings, not the suite's strict ones
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        assert run_page(text, tmp_path) > 0
    plt.close("all")
    check_pictures(text, tmp_path)


def check_pictures(text: str, folder: pathlib.Path) -> None:
    """Compare what a page has drawn with what it shows."""
    for drawn in folder.glob("*.svg"):
        stored = DOCS / "gallery/images" / drawn.name
        if f"gallery/images/{drawn.name})" in text:
            assert _pictures().differing(drawn, stored) <= _pictures().MOST, drawn.name


@functools.cache
def _pictures() -> Any:
    path = DOCS.parent / "tests/docs/pictures.py"
    spec = importlib.util.spec_from_file_location("pictures_of_pages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _page(*blocks: str) -> str:
    return "\n\nwords\n\n".join(blocks)


def test_names_files_and_what_is_printed_last(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = _page(
        "<!-- file: log.csv -->\n```csv\nround,client\n1,a\n1,b\n2,b\n2,c\n```",
        "```python\nx = 6 * 7\nprint(x, 'and more')\n```\n\n```text\n42 ...\n```",
        "```pycon\n>>> x\n42\n>>> y = x + 1\n```",
        "```python\nassert y == 43\n```",
        "```bash\n# a gate\n"
        "mrsa-jax audit log.csv --fail-below 9 --json > a.json  # exit status 3\n```",
        "<!-- not run: it cannot -->\n```bash\nrm -rf /\n```",
    )
    assert run_page(text, tmp_path) == 4
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["gate"]


@pytest.mark.parametrize(
    "text",
    [
        "```python\n1 / 0\n```",
        "```pycon\n>>> 1 + 1\n3\n```",
        "```python\nprint(1)\n```\n\n```text\n2\n```",
        "```bash\nmrsa-jax demo --rounds 0\n```",
        "```bash\nmrsa-jax --version # exit status 2\n```",
        "```bash\nls | wc\n```",
        "```bash\nmrsa-jax --version && true\n```",
        "```ruby\nputs 1\n```",
        "```\nuntold\n```",
    ],
)
def test_a_page_that_lies_fails(text: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises((AssertionError, ZeroDivisionError)):
        run_page(text, tmp_path)


def test_a_page_shows_what_it_draws(tmp_path: pathlib.Path) -> None:
    text = "![words](../gallery/images/plot_roc.svg)"
    image = (DOCS / "gallery/images/plot_roc.svg").read_bytes()
    (tmp_path / "plot_roc.svg").write_bytes(image)
    (tmp_path / "figure.svg").write_bytes(b"of the page's own")
    check_pictures(text, tmp_path)
    other = (DOCS / "gallery/images/plot_bits.svg").read_bytes()
    (tmp_path / "plot_roc.svg").write_bytes(other)
    with pytest.raises(AssertionError, match="plot_roc"):
        check_pictures(text, tmp_path)


def test_what_is_parsed_is_not_run(tmp_path: pathlib.Path) -> None:
    page = "<!-- parsed: slow -->\n```bash\n{}\n```"
    assert run_page(page.format("srun mrsa-jax demo --rounds 0"), tmp_path) == 1
    assert parse_shell("srun mrsa-jax demo --rounds 7")[0].rounds == 7
    for wrong in ("mrsa-jax demo --round-s 0", "if true; then"):
        with pytest.raises((AssertionError, SystemExit, mj.MrsaError)):
            run_page(page.format(wrong), tmp_path)
