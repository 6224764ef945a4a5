"""The folder of a training that can be resumed: settings and checkpoints.

A run that is under way has `run.json`, `run.toml` and `checkpoints/` in its folder, and
`run.tracking/` for its reports on rounds, next to an older study that it is to replace.
When it is complete a whole study takes the folder's place, in one rename, and the files
of the run go with the old folder. `run.json` also records the versions, code and files
that the run depends on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

from mrsa_jax.study.settings import _config
from mrsa_jax.study.settings._config import Settings
from mrsa_jax.study.settings._load import to_toml
from mrsa_jax.study.stores._files import read_json
from mrsa_jax.study.stores._sources import changes, made_by
from mrsa_watch._base.errors import ConfigurationError, MrsaError, OutputExistsError
from mrsa_watch._base.locks import locked

_RUN = "run.json"
_SETTINGS = "run.toml"
_LOCK = "run.lock"
_PART = "run.json.part"
_CHECKPOINTS = "checkpoints"
# not `tracking`, which an older study next to the run may have
_TRACKING = "run.tracking"


class DivergedError(ConfigurationError):
    """A learning rate with which training diverges: it cannot be resumed.

    Attributes:
        diverged_round: The last round that was run.
        history: What the server can know of all rounds as they were rolled out, an
            `_trial.History`: participation does not depend on the updates.
    """

    def __init__(self, message: str, diverged_round: int, history: Any) -> None:
        """Keep the diverged round and the history."""
        super().__init__(message)
        self.diverged_round = diverged_round
        self.history = history


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The folder of a run that is under way.

    Attributes:
        path: The folder.
    """

    path: pathlib.Path

    @property
    def checkpoints(self) -> pathlib.Path:
        """Folder of its checkpoints."""
        return self.path / _CHECKPOINTS

    @property
    def tracking(self) -> pathlib.Path:
        """Folder of the reports on its rounds."""
        return self.path / _TRACKING

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a complete one; those being written have longer names."""
        return any(path.name.isdigit() for path in self.checkpoints.glob("*"))


def unfinished_run(out: pathlib.Path) -> dict[str, Any] | None:
    """Return the manifest of the run that is under way in a folder, or None."""
    return read_json(out / _RUN)


def is_resumed(config: Settings, manifest: dict[str, Any] | None) -> bool:
    """Return whether a command asks to continue this very run."""
    if manifest is None or not getattr(config, "resume", False):
        return False
    return bool(manifest["config_hash"] == _config.config_hash(config))


def check_unfinished(config: Settings, manifest: dict[str, Any]) -> None:
    """Check that a command may continue in a folder with an unfinished run.

    Raises:
        ConfigurationError: If it is to resume a run of other settings.
        OutputExistsError: If it is neither to resume nor to overwrite it.
    """
    theirs, ours = manifest["config_hash"], _config.config_hash(config)
    where = f"{str(config.out)!r}"
    created = manifest.get("created")
    if getattr(config, "resume", False):
        if theirs == ours:
            changed = changes(manifest.get("made_by"), made_by(config))
            if changed:
                raise ConfigurationError(
                    "`resume` must continue a run of the same code and files; got "
                    f"{where}, and since {created} {'; '.join(changed)}: choose "
                    "another --out, or start anew with --overwrite and without --resume"
                )
            return
        raise ConfigurationError(
            f"`resume` must continue a run of the same settings; got {ours}, and "
            f"{where} holds {theirs} of {created}: {_differences(config, manifest)}"
        )
    if config.overwrite:
        return
    if theirs == ours:
        raise OutputExistsError(
            f"`out` must not hold an unfinished run; got {where}, which holds one of "
            f"the same settings ({theirs}, started {created}): "
            "--resume continues it, --overwrite starts anew"
        )
    raise OutputExistsError(
        f"`out` must not hold another run; got {where}, which holds the unfinished "
        f"{manifest.get('command')} {theirs} of {created} (this one is {ours}): choose "
        "another --out, or replace it with --overwrite"
    )


def _differences(config: Settings, manifest: dict[str, Any]) -> str:
    """Say in which settings a run differs, and how to repeat its settings."""
    command = _config.command_of(type(config))
    if manifest.get("command") != command:
        return f"it is of the command {manifest.get('command')}"
    differing = _config.different_settings(
        manifest.get("config", {}), _config.to_dict(config)
    )
    words = "; ".join(
        f"{name} is {ours} now and was {theirs}" for name, theirs, ours in differing[:3]
    )
    if len(differing) > 3:
        words += f" and {len(differing) - 3} more"
    file = config.out / _SETTINGS
    return f"{words}; --config {file} repeats its settings" if file.is_file() else words


@contextlib.contextmanager
def run_folder(config: Settings, manifest: dict[str, Any]) -> Iterator[RunFolder]:
    """Open the folder of a run: a new one, of this manifest, or the one to resume.

    An interruption leaves it to be resumed; so does any failure, except a mistake in
    the settings that shows before the first checkpoint, or a training that diverges:
    these leave the folder as it was.
    """
    out = config.out.absolute()
    is_there = out.exists()
    out.mkdir(parents=True, exist_ok=True)
    with _locked(out):
        # under the lock: another process may have begun a run meanwhile
        if not is_resumed(config, unfinished_run(out)):
            _forget(out)
            _begin(config, out, manifest)
        run = RunFolder(out)
        try:
            yield run
        except MrsaError as error:
            # neither can be resumed: a diverged training, a run without a checkpoint
            if isinstance(error, DivergedError) or not run.has_checkpoint:
                _forget(out)
                (out / _LOCK).unlink(missing_ok=True)
                # a folder that was made for this run
                if not is_there or not any(out.iterdir()):
                    with contextlib.suppress(OSError):
                        out.rmdir()
            raise


def _begin(config: Settings, out: pathlib.Path, manifest: dict[str, Any]) -> None:
    """Write settings and manifest to a new folder; `run.json`, last, makes it a run."""
    (out / _SETTINGS).write_text(
        to_toml(_config.without_wishes(config)), encoding="utf-8"
    )
    part = out / _PART
    with part.open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2)
        file.flush()
        # on disk before the rename that makes it valid
        os.fsync(file.fileno())
    part.replace(out / _RUN)


def _forget(out: pathlib.Path) -> None:
    """Remove the files of a run, and leave a finished study next to it alone."""
    for name in (_RUN, _PART, _SETTINGS):
        (out / name).unlink(missing_ok=True)
    for name in (_CHECKPOINTS, _TRACKING):
        shutil.rmtree(out / name, ignore_errors=True)


def is_free(out: pathlib.Path) -> bool:
    """Return whether a folder is missing, empty, or holds a run that never began."""
    names = {path.name for path in out.iterdir()} if out.exists() else set()
    # `run.json` is written last: without it nothing began
    return names <= {_LOCK, _PART, _SETTINGS}


def check_not_in_use(out: pathlib.Path) -> None:
    """Raise if a living process trains in a folder."""
    if (out / _LOCK).exists():
        with _locked(out):
            pass


@contextlib.contextmanager
def _locked(out: pathlib.Path) -> Iterator[None]:
    """Hold the folder; the system lets go of it however the process ends."""
    with (out / _LOCK).open("a", encoding="utf-8") as file:
        if not locked(file):
            raise OutputExistsError(
                f"`out` must not be in use; got {str(out)!r}, in which another process "
                "trains"
            )
        yield
