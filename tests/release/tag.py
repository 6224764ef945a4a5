"""Says whether a tag may be published: `make tagged TAG=v1.2.3`.

The version, the change log, the stored surface and the page of versions must all be of
this release.
"""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def problems(tag: str, root: pathlib.Path = ROOT) -> list[str]:
    """Return what is not of this release yet, in words."""

    def text(path: str) -> str:
        return (root / path).read_text(encoding="utf-8")

    if not re.fullmatch(r"v\d+\.\d+\.\d+", tag):
        return [f"a tag must be v and a version, as v1.2.3; got {tag!r}"]
    version = tag[1:]
    found = []
    for path in ("mrsa_jax/_version.py", "watch/mrsa_watch/_version.py"):
        if f'__version__ = "{version}"' not in text(path):
            found.append(f"{path} must state {version}")
    unreleased, *released = re.split(r"^## ", text("CHANGELOG.md"), flags=re.MULTILINE)[
        1:
    ]
    if unreleased.strip() != "Unreleased":
        found.append("CHANGELOG.md must have an empty section Unreleased")
    if not released or released[0].split()[0] != version:
        found.append(f"the newest section of CHANGELOG.md must be {version}")
    if text("tests/release/surface.txt").splitlines()[0] != version:
        found.append(f"tests/release/surface.txt must be the surface of {version}")
    if f"\n## What breaks since {version}\n" not in text("docs/versions.md"):
        found.append(f"docs/versions.md must list what breaks since {version}")
    return found


if __name__ == "__main__":
    FOUND = problems(*sys.argv[1:2] or [""])
    sys.stderr.write("".join(f"{problem}\n" for problem in FOUND))
    sys.exit(bool(FOUND))
