"""Read and write files and folders of results: whole, or not at all."""

from __future__ import annotations

import csv
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from mrsa_watch._base.errors import ConfigurationError, require
from mrsa_watch._base.files import write_whole


def read_json(path: pathlib.Path) -> dict[str, Any] | None:
    """Return a manifest; None if there is none that can be read."""
    try:
        content = _read(path)
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) and "config_hash" in content else None


def read_part(path: pathlib.Path, *names: str) -> dict[str, Any]:
    """Read a file of results; raise if it is broken or lacks a part."""
    try:
        content = _read(path)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"`folder` must hold whole results; {str(path)!r} cannot be read ({error})"
        ) from error
    missing = [n for n in names if not isinstance(content, dict) or n not in content]
    rule = f"must hold whole results; {path.name} lacks {missing}"
    require(not missing, "folder", rule, str(path.parent))
    return dict(content)


def _read(path: pathlib.Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: pathlib.Path, content: Any) -> None:
    """Write results for machines."""
    write_whole(path, json.dumps(content, indent=2) + "\n")


def write_rows(path: pathlib.Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV; a column that a row lacks is empty in it."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, names, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows)


def replace(new: pathlib.Path, target: pathlib.Path) -> None:
    """Put a folder in the place of another, which comes back if that fails."""
    old = target.parent / f".{target.name}.replaced-{os.getpid()}"
    if target.exists():
        target.rename(old)
    try:
        new.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def restore_replaced(out: pathlib.Path) -> None:
    """Remove half-written folders of killed processes, and put replaced ones back."""
    for kind in ("partial", "replaced"):
        for folder in out.parent.glob(f".{out.name}.{kind}-*"):
            pid = folder.name.rsplit("-", 1)[1]
            if pid.isdigit() and not _is_running(int(pid)):
                if kind == "replaced" and not out.exists():
                    # killed between two renames: put the old study back
                    folder.rename(out)
                else:
                    shutil.rmtree(folder, ignore_errors=True)


def _is_running(pid: int) -> bool:
    if pid == os.getpid():
        return False
    if sys.platform == "win32":  # signal 0 would end the process there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
