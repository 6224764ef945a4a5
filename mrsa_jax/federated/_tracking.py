"""What watches a training round by round: JSON Lines, TensorBoard, Weights & Biases.

A callback is any function of one dictionary. It is called on the host, between rounds,
with what the host receives anyway: the programs of a training are the same with and
without. Nothing here imports JAX, and each library is imported by the factory that
needs it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import pathlib
import re
import time
from collections.abc import Callable
from typing import Any

from mrsa_watch._base.errors import needed, require, writing

Metrics = dict[str, Any]
Callback = Callable[[Metrics], None]

# what tells trainings apart that share a callback
_IDENTITY = ("scheme", "seed", "run")
_MOST_NAME = 100


class JsonLines:
    """Appends each record to a file as a line of JSON; see `json_lines`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Look at what is there; nothing is written before the first record."""
        self.path = _checked_path(path, "path")
        require(not self.path.is_dir(), "path", "must be a file", str(self.path))
        if self.path.exists():
            _records(self.path)
        self._begun: set[Any] = set()

    def __call__(self, metrics: Metrics) -> None:
        """Write a line, and leave nothing of it in this process's memory."""
        who = _identity(metrics)
        with writing(self.path, "path"):
            if who not in self._begun:
                self._begin(who, metrics["step"])
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(metrics))

    def _begin(self, who: Any, step: int) -> None:
        """Forget what an earlier process has written of rounds that come again."""
        self._begun.add(who)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            kept = [
                own
                for own in _records(self.path)
                if own["step"] < step or _identity(own) != who
            ]
            part = self.path.with_name(f"{self.path.name}.part-{os.getpid()}")
            part.write_text("".join(map(_line, kept)), encoding="utf-8")
            part.replace(self.path)

    def close(self) -> None:
        """Do nothing: the file is open for the time of a line only."""


class TensorBoard:
    """Writes each record's numbers as scalars; see `tensorboard`."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Import the library; nothing is written before the first record."""
        self.folder = _checked_path(folder, "folder")
        self._library = needed(
            "tensorboardX.event_file_writer",
            "tensorboard",
            "`tensorboard` must not be set if tensorboardX is missing",
        )
        self._writers: dict[Any, Any] = {}

    def __call__(self, metrics: Metrics) -> None:
        """Write an event, and leave nothing of it in this process's memory."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        who, step = _identity(metrics), metrics["step"]
        values = [
            Summary.Value(tag=name, simple_value=float(value))
            for name, value in metrics.items()
            if name not in (*_IDENTITY, "step") and isinstance(value, int | float)
        ]
        with writing(self.folder, "folder"):
            if who not in self._writers:
                self._writers[who] = self._begin(who, step)
            event = Event(
                wall_time=time.time(), step=step, summary=Summary(value=values)
            )
            self._writers[who].write_event(event)
            self._writers[who].flush()

    def _begin(self, who: Any, step: int) -> Any:
        """Open a file whose first event takes back what was written of rounds that come again."""
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        folder = self.folder / _file_name(who) if who else self.folder
        folder.mkdir(parents=True, exist_ok=True)
        # the library's names have no more than the second: two that begin in one need
        # two names
        taken = (f".{os.getpid()}.{count}" for count in itertools.count())
        suffix = next(own for own in taken if not any(folder.glob(f"*{own}")))
        # `SummaryWriter` writes from a separate thread, and a kill would lose what is
        # in its queue: this is the writer below it
        writer = self._library.EventsWriter(str(folder / "events"), suffix)
        start = SessionLog(status=SessionLog.START)
        writer.write_event(Event(wall_time=time.time(), step=step, session_log=start))
        return writer

    def close(self) -> None:
        """Close the files; a record that comes later opens others."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


class Wandb:
    """Logs each record to a run of Weights & Biases; see `wandb`."""

    def __init__(
        self, folder: str | os.PathLike[str], mode: str | None, settings: Any
    ) -> None:
        """Import the library; a run begins with its first record."""
        self.folder = _checked_path(folder, "folder")
        known = (None, "offline", "online", "disabled")
        require(
            mode in known, "mode", "must be offline, online, disabled or None", mode
        )
        self._library = needed(
            "wandb", "wandb", "`wandb` must not be set if wandb is missing"
        )
        self._mode = os.environ.get("WANDB_MODE", "offline") if mode is None else mode
        self._settings = settings
        self._runs: dict[Any, Any] = {}

    def __call__(self, metrics: Metrics) -> None:
        """Log a record."""
        who = _identity(metrics)
        if who not in self._runs:
            self._runs[who] = self._begin(who)
        self._runs[who].log(
            {name: own for name, own in metrics.items() if name not in _IDENTITY}
        )

    def _begin(self, who: Any) -> Any:
        self.folder.mkdir(parents=True, exist_ok=True)
        given = {
            "project": "mrsa-jax",
            "name": _words(who) or None,
            "config": dict(who),
            "dir": str(self.folder),
            "mode": self._mode,
            "reinit": "create_new",  # several trainings may be on their way
            # only this process prints; offline there is nothing to report
            "settings": {"console": "off", "silent": self._mode == "offline"},
        }
        run = self._library.init(**given | self._settings)
        # not W&B's own step, which cannot go back: a resumed training repeats rounds
        run.define_metric("*", step_metric="step")
        return run

    def close(self) -> None:
        """Finish the runs; what ends the process finishes those that are left."""
        for run in self._runs.values():
            run.finish()
        self._runs.clear()


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


def tensorboard(folder: str | os.PathLike[str]) -> TensorBoard:
    """Write the reports of a training for TensorBoard, which reads it while it runs.

    For `tensorboard --logdir FOLDER`; needs `tensorboardX` (extra `tensorboard`), and
    neither TensorFlow nor TensorBoard. Trainings that are distinguished by `scheme`,
    `seed` or `run` have a folder below `folder` each, whose name tells these. Each
    record is in its file before the next round begins; rounds that are repeated replace
    what was there, as for `json_lines`.

    Args:
        folder: Where the event files go; made if it is not there.

    Returns:
        A `callback` for `federated.train`, with a method `close` that closes its files.
        Numbers and booleans are scalars; text is not shown.

    Raises:
        ConfigurationError: If tensorboardX is not installed.
        StoreError: When called, if the files cannot be written.
    """
    return TensorBoard(folder)


def wandb(
    folder: str | os.PathLike[str], *, mode: str | None = None, **settings: Any
) -> Wandb:
    """Log the reports of a training to Weights & Biases.

    Offline, unless another mode is asked.
    Needs `wandb` (extra `wandb`). Offline nothing leaves this machine: `wandb sync`
    with a folder `FOLDER/wandb/offline-run-...` sends one later. Each training, told
    apart by `scheme`, `seed` and `run`, is a separate run with these in its config; a
    training that is resumed is another run of the same name. A process of W&B's own
    writes: a kill may lose what it received last (about the last tenth of a second).

    Args:
        folder: Where W&B's folder `wandb` goes.
        mode: "offline", "online" or "disabled"; what the environment variable
            `WANDB_MODE` says, or else offline, if None.
        settings: For `wandb.init`: `project` ("mrsa-jax" if it is left out), `name`,
            `group`, `config` ...

    Returns:
        A `callback` for `federated.train`, with a method `close` that finishes its
        runs; the end of the process does so too.

    Raises:
        ConfigurationError: If wandb is not installed, or for another mode.
    """
    return Wandb(folder, mode, settings)


def _checked_path(path: Any, argument: str) -> pathlib.Path:
    is_path = isinstance(path, str | os.PathLike) and bool(str(path))
    require(is_path, argument, "must be a path", path)
    own = pathlib.Path(path)
    there = next(folder for folder in own.absolute().parents if folder.exists())
    require(there.is_dir(), argument, "must lie in a folder", str(path))
    return own


def _identity(metrics: Metrics) -> tuple[tuple[str, Any], ...]:
    """Return which training a record is of, among those that share a callback."""
    return tuple((name, metrics[name]) for name in _IDENTITY if name in metrics)


def _words(who: tuple[tuple[str, Any], ...]) -> str:
    """Return a training's name, as in "Random, seed 0"."""
    return ", ".join(
        str(own) if name == "scheme" else f"{name} {own}" for name, own in who
    )


def _file_name(who: tuple[tuple[str, Any], ...]) -> str:
    """Return a training's name as one of a folder: any label of a scheme, no two alike."""
    words = _words(who)
    plain = re.sub(r"[^\w.,()= -]", "_", words)[:_MOST_NAME].strip(" .")
    if plain and plain == words:
        return plain
    return f"{plain}-{hashlib.sha256(words.encode()).hexdigest()[:8]}"


def _line(metrics: Metrics) -> str:
    return json.dumps(_plain(metrics), default=_json_value, allow_nan=False) + "\n"


def _plain(metrics: Metrics) -> Metrics:
    """Return a record without numbers that JSON has no word for."""
    return {
        name: None if isinstance(own, float) and not math.isfinite(own) else own
        for name, own in metrics.items()
    }


def _json_value(value: Any) -> Any:
    """Return what JSON has a word for: of arrays without axes their number."""
    own = value.item() if hasattr(value, "item") else str(value)
    return None if isinstance(own, float) and not math.isfinite(own) else own


def _records(path: pathlib.Path) -> list[Metrics]:
    """Return the records of a file; a last line that a kill cut off is none.

    Raises:
        ConfigurationError: If there is anything else in it: it is not to be written
            over.
    """
    with writing(path, "path"):
        *lines, last = path.read_bytes().split(b"\n")
    is_cut = last.startswith(b'{"') and not last.endswith(b"}")
    found = [
        _record(line) for line in (lines if is_cut or not last else [*lines, last])
    ]
    rule = "must be a new file, or hold records with a `step`"
    require(all(own is not None for own in found), "path", rule, str(path))
    return [own for own in found if own is not None]


def _record(line: bytes) -> Metrics | None:
    """Return the record of a line; None if it is none."""
    try:
        own = json.loads(line)
        return own if isinstance(own["step"], int) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
