"""Files that this package holds; `data/files/README.md` says whose they are."""

from __future__ import annotations

import pathlib


def packaged_file(name: str) -> pathlib.Path:
    """Return the path of a file in `data/files`."""
    return pathlib.Path(__file__).parents[1] / "data" / "files" / name
