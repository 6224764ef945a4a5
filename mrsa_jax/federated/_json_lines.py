"""Write the reports of a training to a file as JSON lines, while the training runs.

A callback is any function of one dictionary. It is called on the host, between rounds,
with values that the host receives anyway: the programs of a training are the same with
and without it. Nothing here imports JAX.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Callable
from typing import Any

from mrsa_watch._base.errors import require, writing

Metrics = dict[str, Any]
Callback = Callable[[Metrics], None]
Identity = tuple[tuple[str, Any], ...]

# the keys of a record that distinguish trainings which share a callback
_IDENTITY = ("scheme", "seed", "run")


class JsonLines:
    """Appends each record to a file as a line of JSON; see `json_lines`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Check the file; nothing is written before the first record."""
        self.path = _checked_path(path)
        if self.path.exists():
            _records(self.path)
        self._begun: set[Identity] = set()

    def __call__(self, metrics: Metrics) -> None:
        """Write a line, and keep nothing of it in this process's memory."""
        training = _identity(metrics)
        with writing(self.path, "path"):
            if training not in self._begun:
                self._begin(training, metrics["step"])
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(metrics))

    def _begin(self, training: Identity, step: int) -> None:
        """Remove records of an earlier process for rounds that will be repeated."""
        self._begun.add(training)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            remaining = [
                record
                for record in _records(self.path)
                if record["step"] < step or _identity(record) != training
            ]
            part = self.path.with_name(f"{self.path.name}.part-{os.getpid()}")
            part.write_text("".join(map(_line, remaining)), encoding="utf-8")
            # Replaced in one step: a kill leaves either the old file or the new one.
            part.replace(self.path)

    def close(self) -> None:
        """Do nothing: the file is open for the time of a line only."""


def json_lines(path: str | os.PathLike[str]) -> JsonLines:
    """Write the reports of a training to a file, one JSON object per line.

    What pandas (`read_json(path, lines=True)`), jq and every other program read. Each
    record is in the file before the next round begins: a kill loses nothing of the
    rounds that are done.

    A file that is there must be of such records. A training that continues from a
    checkpoint, or starts again, takes back what was written of the rounds that it
    repeats, of the same `scheme`, `seed` and `run`.

    Args:
        path: The file; its folder is made.

    Returns:
        A `callback` for `federated.train`, with a method `close`. A number that is not
        finite (the loss of a model that overflows) is null.

    Raises:
        ConfigurationError: If the file holds something else.
        StoreError: When called, if the file cannot be written.

    Examples:
        >>> import mrsa_jax as mj
        >>> import pathlib
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tell = mj.federated.json_lines(f"{folder}/metrics.jsonl")
        ...     tell({"step": 0, "accuracy": 0.5})
        ...     tell({"step": 1, "loss": float("inf")})
        ...     print(pathlib.Path(tell.path).read_text(), end="")
        {"step": 0, "accuracy": 0.5}
        {"step": 1, "loss": null}
    """
    return JsonLines(path)


def _checked_path(path: Any) -> pathlib.Path:
    is_path = isinstance(path, str | os.PathLike) and bool(str(path))
    require(is_path, "path", "must be a path", path)
    file = pathlib.Path(path)
    nearest = next(folder for folder in file.absolute().parents if folder.exists())
    require(nearest.is_dir(), "path", "must lie in a folder", str(path))
    require(not file.is_dir(), "path", "must be a file", str(path))
    return file


def _identity(metrics: Metrics) -> Identity:
    """Return the entries that distinguish a record's training from others."""
    return tuple((name, metrics[name]) for name in _IDENTITY if name in metrics)


def _line(metrics: Metrics) -> str:
    record = {name: _finite(value) for name, value in metrics.items()}
    return json.dumps(record, default=_json_value, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """Replace a float that JSON cannot write by None."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _json_value(value: Any) -> Any:
    """Return the number of an array without axes, and the text of anything else."""
    return _finite(value.item()) if hasattr(value, "item") else str(value)


def _records(path: pathlib.Path) -> list[Metrics]:
    """Return the records of a file, without a last line that a kill cut off.

    Raises:
        ConfigurationError: If there is anything else in it, which must not be
            overwritten.
    """
    with writing(path, "path"):
        *lines, last = path.read_bytes().split(b"\n")
    # Every whole line ends in a newline; the rest of an object without its end was cut
    # off.
    is_cut = last.startswith(b'{"') and not last.endswith(b"}")
    if last and not is_cut:
        lines.append(last)
    records = [_record(line) for line in lines]
    rule = "must be a new file, or hold records with a `step`"
    require(None not in records, "path", rule, str(path))
    return [record for record in records if record is not None]


def _record(line: bytes) -> Metrics | None:
    """Return the record of a line; None if the line is invalid."""
    try:
        record = json.loads(line)
        return record if isinstance(record["step"], int) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
