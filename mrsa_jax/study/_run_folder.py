"""The folder of a training that can be continued.

Settings and checkpoints until it is complete.
A run that is under way has `run.json`, `run.toml` and `checkpoints/` in its folder, and
`run.tracking/` where it reports on its rounds, next to an older study that it is to
replace. When it is complete a whole study takes the folder's place, in one rename, and
what belonged to the run goes with the old folder. What made it is kept too: versions,
code and files.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mrsa_jax._core.sources import LIBRARIES, Code, library_versions
from mrsa_jax._core.state import digest_of
from mrsa_jax._version import __version__
from mrsa_jax.availability import registry as availability
from mrsa_jax.graphs import registry as graphs
from mrsa_jax.selection import registry as schemes
from mrsa_jax.study import _config
from mrsa_jax.study._config import Settings
from mrsa_jax.study._kinds import kind_named
from mrsa_jax.study._load import each_once, own_and_tables, to_toml
from mrsa_jax.study._parts import KINDS as parts
from mrsa_watch._base.errors import (
    ConfigurationError,
    MrsaError,
    OutputExistsError,
    require,
)
from mrsa_watch._base.files import write_whole
from mrsa_watch._base.locks import locked

_FAMILIES: dict[str, Mapping[str, Any]] = {
    "scheme": schemes.ROWS,
    "graph": graphs.ROWS,
    "availability": availability.ROWS,
    **{kind: own.rows for kind, own in parts.items()},
}
"""Registries that a user's own code may have a row of, by what its names are called."""

_ALIKE: tuple[tuple[str, ...], ...] = ()
"""Versions of the package that compute the same results, to the bit, a group each.

A version that stands nowhere computes like itself alone: at a release it is added to
the group of the one before only where no result of `simulate`, `train`, `secagg`, an
attack or an item of `reproduce` has changed.
"""


def made_by(config: Any) -> dict[str, str]:
    """Return what the result of any command depends on in addition to its settings.

    Returns:
        Versions, and of each other thing by its name a digest and the name of its file.
    """
    return Sources().of(config)


class Sources:
    """What results depend on besides settings, where each file and piece of code is read once.

    Args:
        is_check: Whether it is to be seen that nothing has changed while results were
            computed: values that the code keeps for itself as it runs, such as a cache,
            then change nothing.

    Attributes:
        digest: Of a file.
    """

    def __init__(self, *, is_check: bool = False) -> None:
        """Begin with nothing read."""
        self.digest = functools.cache(lambda path: digest_of(path.read_bytes()))
        self._code = functools.cache(
            lambda code: code.again() if is_check and isinstance(code, Code) else code()
        )
        self._of_table = each_once(self._of)

    def of(self, config: Any) -> dict[str, str]:
        """Return what `made_by` does."""
        kind = kind_named(_config.command_of(type(config)))
        row = None if kind is None else kind.attack
        found = {"mrsa_jax": __version__, **library_versions()}
        if row is not None:
            code = self._code(row.code)
            found |= {
                f"attack {row.name}, {module}": own for module, own in code.items()
            }
        return found | self._of(config)

    def _of(self, config: Any) -> dict[str, str]:
        own, tables = map(_config.studied, own_and_tables(config))
        found: dict[str, str] = {}
        for text in _texts(own):
            found |= {
                f"{family} {name}, {module}": code
                for family, rows in _FAMILIES.items()
                for name in text.split(":")
                if name in rows
                for module, code in self._code(rows[name].code).items()
            }
            if text.startswith("replay:"):
                (path, _) = availability.Model.parse(text).parameters
                found[f"availability {path.name}"] = f"{self.digest(path)} {path.name}"
        if "directory" in own and "dataset" in own:
            from mrsa_jax.data.sources import source_files  # imports JAX

            for path in source_files(own["dataset"], own["directory"]):
                found[f"directory {path.name}"] = f"{self.digest(path)} {path.name}"
        for table in tables.values():
            found |= self._of_table(table)
        return found


def _texts(value: Any) -> Iterator[str]:
    """Go through the texts of a table or list."""
    inner = value.values() if isinstance(value, dict) else value
    for one in inner:
        if isinstance(one, str):
            yield one
        elif isinstance(one, list):
            yield from _texts(one)


_WHOLE = (", ", ", depends")
"""How names end of all that code reaches, and of all that it depends on."""


def changes(theirs: Any, ours: Mapping[str, str]) -> tuple[str, ...]:
    """Say what has changed between a record of what made a result, and what would make it now.

    Examples:
        >>> now = {"mrsa_jax": "1.0.0", "scheme mine, mine": "1a2b mine.py"}
        >>> changes({"mrsa_jax": "1.0.0", "scheme mine, mine": "3c4d old.py"}, now)
        ('mine.py has changed (scheme mine)',)
        >>> changes({"mrsa_jax": "0.9.0"}, {"mrsa_jax": "1.0.0"})
        ('mrsa_jax is 1.0.0 now and was 0.9.0',)
    """
    if not isinstance(theirs, dict):
        return (
            "an earlier version of mrsa_jax, which kept no record of files and code",
        )
    names = {*theirs, *ours}.difference(("mrsa_jax", *LIBRARIES))
    differing = [
        name
        for name in sorted(names)
        if str(theirs.get(name, "")).split(" ")[0] != ours.get(name, "").split(" ")[0]
    ]
    named = {name.rpartition(",")[0] for name in differing if not name.endswith(_WHOLE)}
    found = _versions_changed(theirs, ours)
    for name in differing:
        was, now = str(theirs.get(name, "")), ours.get(name, "")
        (_, _, file), (thing, _, _) = (now or was).partition(" "), name.rpartition(",")
        if name.endswith(_WHOLE) and thing in named:
            continue  # it changes with the text or file that is named
        what = thing or name
        what = (
            what
            if what.startswith(("scheme ", "graph ", "attack "))
            else what.split(" ")[0]
        )
        verb = (
            "has changed"
            if was and now
            else "is read now"
            if now
            else "is not read now"
        )
        found.append(f"{file} {verb} ({what})")
    return tuple(dict.fromkeys(found))


def _versions_changed(theirs: Mapping[str, Any], ours: Mapping[str, str]) -> list[str]:
    """Say which versions differ between two records of what made a result."""
    found = []
    was, now = str(theirs.get("mrsa_jax", "")), ours.get("mrsa_jax", "")
    if was != now and not any({was, now} <= set(group) for group in _ALIKE):
        found.append(f"mrsa_jax is {now} now and was {was}")
    kept = [name for name in LIBRARIES if name in theirs]
    if ours.keys() & set(LIBRARIES) and not kept:
        found.append(f"versions of {', '.join(LIBRARIES)} are recorded now")
    for name in kept:
        if theirs[name] != ours.get(name):
            found.append(f"{name} is {ours.get(name)} now and was {theirs[name]}")
    return found


def changes_since(before: Mapping[str, str], config: Any) -> tuple[str, ...]:
    """Say what has changed since `made_by` was that of a configuration."""
    # no file is read, and no code but that of the package and of libraries
    is_alone = before.keys() <= {"mrsa_jax", *LIBRARIES}
    versions = {"mrsa_jax": __version__, **library_versions()}
    return changes(before, versions if is_alone else Sources(is_check=True).of(config))


_RUN = "run.json"
_SETTINGS = "run.toml"
_LOCK = "run.lock"
_PART = "run.json.part"
_CHECKPOINTS = "checkpoints"
# not `tracking`, which an older study next to the run may have
_TRACKING = "run.tracking"


class DivergedError(ConfigurationError):
    """A learning rate with which training diverges: nothing is left to continue.

    Attributes:
        diverged_round: The last round that was run.
        history: What the server can know of all rounds as they were rolled out, an
            `_trial.History`: who takes part does not depend on the updates.
    """

    def __init__(self, message: str, diverged_round: int, history: Any) -> None:
        """Keep what is known of the rounds."""
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
        folder = self.checkpoints
        return folder.is_dir() and any(one.name.isdigit() for one in folder.iterdir())


def unfinished_run(out: pathlib.Path) -> dict[str, Any] | None:
    """Return the manifest of the run that is under way in a folder.

    None if there is none.
    """
    return read_json(out / _RUN)


def read_json(path: pathlib.Path) -> dict[str, Any] | None:
    """Return a manifest; None where there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) and "config_hash" in content else None


def read_part(path: pathlib.Path, *names: str) -> dict[str, Any]:
    """Read a file of results; raise if it is broken or lacks a part."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"`folder` must hold whole results; {str(path)!r} cannot be read ({error})"
        ) from error
    missing = [n for n in names if not isinstance(content, dict) or n not in content]
    require(
        not missing,
        "folder",
        f"must hold whole results; {path.name} lacks {missing}",
        str(path.parent),
    )
    return dict(content)


def write_json(path: pathlib.Path, content: Any) -> None:
    """Write what is found for machines."""
    write_whole(path, json.dumps(content, indent=2) + "\n")


def write_rows(path: pathlib.Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV; a column that a row has not is empty in it."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, names, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows)


def is_resumed(config: Settings, manifest: dict[str, Any] | None) -> bool:
    """Return whether a command asks to continue this very run."""
    wants = getattr(config, "resume", False)
    return (
        wants
        and manifest is not None
        and manifest["config_hash"] == _config.config_hash(config)
    )


def check_unfinished(config: Settings, manifest: dict[str, Any]) -> None:
    """Check that a command may continue in a folder with a run, or with a study it is to resume.

    Raises:
        ConfigurationError: If it is to resume a run of other settings.
        OutputExistsError: If it is neither to resume nor to overwrite it.
    """
    theirs, ours = manifest["config_hash"], _config.config_hash(config)
    where = f"{str(config.out)!r}"
    if getattr(config, "resume", False):
        if theirs == ours:
            changed = changes(manifest.get("made_by"), made_by(config))
            rule = "must continue a run of the same code and files; got"
            if changed:
                raise ConfigurationError(
                    f"`resume` {rule} {where}, and since {manifest.get('created')} "
                    f"{'; '.join(changed)}: choose another --out, or start anew with "
                    "--overwrite "
                    "and without --resume"
                )
            return
        raise ConfigurationError(
            f"`resume` must continue a run of the same settings; got {ours}, and "
            f"{where} holds "
            f"{theirs} of {manifest.get('created')}: {_differences(config, manifest)}"
        )
    if config.overwrite:
        return
    if theirs == ours:
        raise OutputExistsError(
            f"`out` must not hold an unfinished run; got {where}, which holds one of "
            "the same "
            f"settings ({theirs}, started {manifest.get('created')}): "
            "--resume continues it, --overwrite starts anew"
        )
    raise OutputExistsError(
        f"`out` must not hold another run; got {where}, which holds the unfinished "
        f"{manifest.get('command')} {theirs} of {manifest.get('created')} (this one is "
        f"{ours}): "
        "choose another --out, or replace it with --overwrite"
    )


def _differences(config: Settings, manifest: dict[str, Any]) -> str:
    """Say in which settings a run differs, and how to repeat its own."""
    command = _config.command_of(type(config))
    if manifest.get("command") != command:
        return f"it is of the command {manifest.get('command')}"
    differing = _config.different_settings(
        manifest.get("config", {}), _config.to_dict(config)
    )
    shown = [
        f"{name} is {ours} now and was {theirs}" for name, theirs, ours in differing[:3]
    ]
    more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
    there = config.out / _SETTINGS
    advice = f"; --config {there} repeats its settings" if there.is_file() else ""
    return "; ".join(shown) + more + advice


@contextlib.contextmanager
def run_folder(config: Settings, manifest: dict[str, Any]) -> Iterator[RunFolder]:
    """Give the folder of a run.

    A new one, of this manifest, or that of the run to continue.
    An interruption leaves it to be resumed; so does any failure, except a mistake in
    the settings that shows before the first checkpoint, or a training that diverges:
    these leave the folder as it was.
    """
    out = config.out.absolute()
    is_there = out.exists()
    out.mkdir(parents=True, exist_ok=True)
    with _locked(out):
        if not is_resumed(config, unfinished_run(out)):
            _forget(out)
            _begin(config, out, manifest)
        run = RunFolder(out)
        try:
            yield run
        except MrsaError as error:
            if isinstance(error, DivergedError) or not run.has_checkpoint:
                _forget(out)
                (out / _LOCK).unlink(missing_ok=True)
                if not is_there or not any(out.iterdir()):
                    with contextlib.suppress(OSError):
                        out.rmdir()
            raise


def _begin(config: Settings, out: pathlib.Path, manifest: dict[str, Any]) -> None:
    """Write what the run is to a new folder.

    `run.json`, which makes it one, last and whole.
    """
    (out / _SETTINGS).write_text(
        to_toml(_config.without_wishes(config)), encoding="utf-8"
    )
    part = out / _PART
    with part.open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    part.replace(out / _RUN)


def _forget(out: pathlib.Path) -> None:
    """Remove what belongs to a run, and leave a finished study next to it alone."""
    for name in (_RUN, _PART, _SETTINGS):
        (out / name).unlink(missing_ok=True)
    for name in (_CHECKPOINTS, _TRACKING):
        shutil.rmtree(out / name, ignore_errors=True)


def is_free(out: pathlib.Path) -> bool:
    """Return whether a folder is not there, empty, or holds a run that never began."""
    return not out.exists() or {one.name for one in out.iterdir()} <= {
        _LOCK,
        _PART,
        _SETTINGS,
    }


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
    """Clean up after killed processes.

    Half-written folders go, half-replaced ones come back.
    """
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
