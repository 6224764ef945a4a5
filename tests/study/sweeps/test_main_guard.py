"""Workers of a script without a main guard: one sentence, before any worker starts."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap

import pytest

from mrsa_jax.study.sweeps._main_guard import _is_guarded

pytest.importorskip("distributed")

SWEEP = """
import mrsa_jax as mj
def compute():
    study = {"rounds": 3, "trials": 2, "population": {"num_clients": 12, "cohort_size": 6}}
    found = mj.study.sweep(
        study | {"grid": {"scheme": ["uniform"]}},
        out="out", workers=1,
    )
    print(dict(found.sizes))
"""
FORMS = {
    "plain": ("compute()", False),
    "in a loop": ("for _ in range(1):\n    compute()", False),
    "in a condition": ("if True:\n    compute()", False),
    "guarded": ('if __name__ == "__main__":\n    compute()', True),
    "the other way round": (
        "if '__main__' == __name__:\n    for _ in [0]:\n        compute()",
        True,
    ),
    "otherwise": ('if __name__ != "__main__":\n    pass\nelse:\n    compute()', True),
    "below a guard": ('if __name__ == "__main__":\n    pass\ncompute()', False),
}


@pytest.mark.parametrize("form", FORMS)
def test_lines_below_a_guard(form: str, tmp_path: pathlib.Path) -> None:
    text, expected = FORMS[form]
    path = tmp_path / "script.py"
    path.write_text(SWEEP + text)
    line = (SWEEP + text).splitlines().index(
        next(own for own in text.splitlines() if own.strip() == "compute()")
    ) + 1
    assert _is_guarded(path, line) == expected


def test_what_is_no_text_is_not_judged(tmp_path: pathlib.Path) -> None:
    (tmp_path / "archive").write_bytes(b"PK\0")
    assert _is_guarded(tmp_path / "archive", 1)
    assert _is_guarded(tmp_path / "nothing.py", 1)


def _run(
    folder: pathlib.Path, *words: str, text: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        input=text,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_scripts(form: str, tmp_path: pathlib.Path) -> None:
    text, is_guarded = FORMS[form]
    (tmp_path / "script.py").write_text(SWEEP + textwrap.dedent(text))
    done = _run(tmp_path, "script.py")
    assert (done.returncode == 0) == is_guarded, done.stderr
    if is_guarded:
        assert done.stdout == "{'scheme': 1, 'trial': 2}\n"
        return
    assert "Nanny" not in done.stderr
    error = done.stderr.splitlines()[-1]
    assert "`workers` must be set below `if __name__ ==" in error
    assert "got 1 in script.py, line " in error
    assert done.stderr.count("Error: ") == 1


@pytest.mark.long
@pytest.mark.parametrize("words", [[], ["-"]])
def test_a_script_from_standard_input(words: list[str], tmp_path: pathlib.Path) -> None:
    done = _run(tmp_path, *words, text=SWEEP + "compute()")
    assert done.returncode == 1
    assert "`workers` must not be set in a script from standard input" in done.stderr
    assert "Nanny" not in done.stderr


@pytest.mark.long
def test_a_command_in_words_needs_no_guard(tmp_path: pathlib.Path) -> None:
    done = _run(tmp_path, "-c", SWEEP + "compute()")
    assert done.stdout == "{'scheme': 1, 'trial': 2}\n", done.stderr
