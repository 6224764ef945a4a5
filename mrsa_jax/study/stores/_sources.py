"""Record the code, versions and files that made a result, and say what has changed.

Results depend on them in addition to their settings.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from mrsa_jax._core.sources import LIBRARIES, Code, library_versions
from mrsa_jax._core.state import digest_of
from mrsa_jax._version import __version__
from mrsa_jax.availability import registry as availability
from mrsa_jax.graphs import registry as graphs
from mrsa_jax.selection import registry as schemes
from mrsa_jax.study.kinds import kind_named
from mrsa_jax.study.settings import _config
from mrsa_jax.study.settings._load import each_once, own_and_tables
from mrsa_jax.study.settings._parts import KINDS as parts

_FAMILIES: dict[str, Mapping[str, Any]] = {
    "scheme": schemes.ROWS,
    "graph": graphs.ROWS,
    "availability": availability.ROWS,
    **{kind: part.rows for kind, part in parts.items()},
}
"""Registries that a user's code may have a row of, by the noun of their names."""

_ALIKE: tuple[tuple[str, ...], ...] = ()
"""Versions of the package that compute the same results, to the bit, a group each.

A version that is in no group computes like itself alone: at a release it is added to
the group of the one before only if no result of `simulate`, `train`, `secagg`, an
attack or an item of `reproduce` has changed.
"""

_ALWAYS_HERE = "mnist_5k"  # the data set that the version of the package decides

_WHOLE = (", ", ", depends")
"""Ends of names of all that code reaches, and of all that it depends on."""


class Sources:
    """The dependencies of results besides settings; each file is read once.

    Args:
        is_check: Whether to see that nothing has changed while results were computed:
            values that the code keeps for itself as it runs, such as a cache, then
            change nothing.

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
        """Return the versions, and by name the digest and file of each other thing."""
        found = {"mrsa_jax": __version__, **library_versions()}
        kind = kind_named(_config.command_of(type(config)))
        row = None if kind is None else kind.attack
        if row is not None:
            for module, digest in self._code(row.code).items():
                found[f"attack {row.name}, {module}"] = digest
        return found | self._of(config)

    def _of(self, config: Any) -> dict[str, str]:
        settings, tables = map(_config.studied, own_and_tables(config))
        found: dict[str, str] = {}
        files: list[tuple[str, Any]] = []
        for text in _texts(settings):
            names = text.split(":")
            for family, rows in _FAMILIES.items():
                for name in names:
                    code = self._code(rows[name].code) if name in rows else {}
                    for module, digest in code.items():
                        found[f"{family} {name}, {module}"] = digest
            if names[0] == "replay":
                (path, _) = availability.Model.parse(text).parameters
                files.append(("availability", path))
        if settings.get("dataset", _ALWAYS_HERE) != _ALWAYS_HERE:
            from mrsa_jax.data.sources import source_files  # imports JAX

            # without a folder too: variables of the environment choose the default
            paths = source_files(settings["dataset"], settings.get("directory"))
            files += [("directory", path) for path in paths]
        for field, path in files:
            found[f"{field} {path.name}"] = f"{self.digest(path)} {path.name}"
        for table in tables.values():
            found |= self._of_table(table)
        return found


def made_by(config: Any) -> dict[str, str]:
    """Return the sources of the result of any command, as `Sources.of`."""
    return Sources().of(config)


def _texts(value: Any) -> Iterator[str]:
    """Go through the texts of a table or list."""
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            yield from _texts(item)


def changes(theirs: Any, ours: Mapping[str, str]) -> tuple[str, ...]:
    """Say what has changed between the recorded sources of a result and those now.

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
    differing = {}
    for name in sorted({*theirs, *ours}.difference(("mrsa_jax", *LIBRARIES))):
        # a digest, and the name of its file
        was, now = str(theirs.get(name, "")), ours.get(name, "")
        if was.split(" ")[0] != now.split(" ")[0]:
            differing[name] = was, now
    named = {name.rpartition(",")[0] for name in differing if not name.endswith(_WHOLE)}
    found = _versions_changed(theirs, ours)
    for name, (was, now) in differing.items():
        thing = name.rpartition(",")[0]
        if name.endswith(_WHOLE) and thing in named:
            continue  # it changes with the text or file that is named
        what = thing or name
        if not what.startswith(("scheme ", "graph ", "attack ")):
            what = what.split(" ")[0]
        verb = "has changed"
        if not (was and now):
            verb = "is read now" if now else "is not read now"
        file = (now or was).partition(" ")[2]
        found.append(f"{file} {verb} ({what})")
    return tuple(dict.fromkeys(found))


def _versions_changed(theirs: Mapping[str, Any], ours: Mapping[str, str]) -> list[str]:
    """Say which versions differ between two records of sources."""
    found = []
    was, now = str(theirs.get("mrsa_jax", "")), ours.get("mrsa_jax", "")
    if was != now and not any({was, now} <= set(group) for group in _ALIKE):
        found.append(f"mrsa_jax is {now} now and was {was}")
    recorded = [name for name in LIBRARIES if name in theirs]
    if ours.keys() & set(LIBRARIES) and not recorded:
        found.append(f"versions of {', '.join(LIBRARIES)} are recorded now")
    for name in recorded:
        if theirs[name] != ours.get(name):
            found.append(f"{name} is {ours.get(name)} now and was {theirs[name]}")
    return found


def changes_since(before: Mapping[str, str], config: Any) -> tuple[str, ...]:
    """Say what has changed since `made_by` was that of a configuration."""
    # no file is read, and no code but that of the package and of libraries
    is_alone = before.keys() <= {"mrsa_jax", *LIBRARIES}
    versions = {"mrsa_jax": __version__, **library_versions()}
    return changes(before, versions if is_alone else Sources(is_check=True).of(config))
