"""Lays out what is published: the site of this commit, and that of the newest release.

`make site` runs it after `make docs`. `build/pages` then holds `latest`, `stable` where a
release is tagged, and a front page that leads to the one or the other.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FRONT = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>mrsa_jax</title>
<meta http-equiv="refresh" content="0; url={0}/index.html">
<a href="{0}/index.html">mrsa_jax</a></html>
"""


def newest(tags: list[str]) -> str | None:
    """Return the tag of the highest release; candidates for one are none."""
    numbers = {
        tag: tuple(map(int, tag[1:].split(".")))
        for tag in tags
        if re.fullmatch(r"v\d+\.\d+\.\d+", tag)
    }
    return max(numbers, key=lambda tag: numbers[tag], default=None)


def lay_out(
    latest: pathlib.Path, stable: pathlib.Path | None, out: pathlib.Path
) -> None:
    """Copy the built sites into a new folder, with a front page."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(latest, out / "latest")
    if stable is not None:
        shutil.copytree(stable, out / "stable")
    front = FRONT.format("latest" if stable is None else "stable")
    (out / "index.html").write_text(front, encoding="utf-8")
    # a host that would hide folders whose names begin with an underscore does not
    (out / ".nojekyll").touch()


def build(tag: str, folder: pathlib.Path) -> pathlib.Path:
    """Build the site of a tag as that release did, and return its folder."""
    shutil.rmtree(folder, ignore_errors=True)
    _run("git", "worktree", "prune")
    _run("git", "worktree", "add", "--quiet", "--detach", str(folder), tag)
    _run("make", "docs", f"PYTHON={sys.executable}", cwd=folder)
    return folder / "build" / "site"


def _run(*words: str, cwd: pathlib.Path = ROOT) -> str:
    done = subprocess.run(words, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


if __name__ == "__main__":
    TAG = newest(_run("git", "tag", "--list").split())
    STABLE = None if TAG is None else build(TAG, ROOT / "build" / "stable")
    lay_out(ROOT / "build" / "site", STABLE, ROOT / "build" / "pages")
