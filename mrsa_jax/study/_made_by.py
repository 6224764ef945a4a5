"""What a result depends on beside its settings: the package, a user's code, files that were read.

Finished results are kept only if nothing of it has changed. Digests hold no path, so that every
machine finds the same.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mrsa_jax._sources import digest_of
from mrsa_jax._version import __version__
from mrsa_jax.availability import _registry as availability
from mrsa_jax.graphs import _registry as graphs
from mrsa_jax.selection import _registry as schemes
from mrsa_jax.study._config import command_of, studied, to_dict
from mrsa_jax.study._kinds import kind_named

_FAMILIES: dict[str, Mapping[str, Any]] = {
    "scheme": schemes.ROWS,
    "graph": graphs.ROWS,
    "availability": availability.ROWS,
}
"""Registries that a user's own code may have a row of, by what its names are called."""

_ALIKE: tuple[tuple[str, ...], ...] = ()
"""Versions of the package that compute the same results, to the bit, a group each.

A version that stands nowhere computes like itself alone: at a release it is added to the group of
the one before only where no result of `simulate`, `train`, `secagg`, an attack or an item of
`reproduce` has changed.
"""


def made_by(
    config: Any, file_digest: Callable[[pathlib.Path], str] | None = None
) -> dict[str, str]:
    """Return what the result of a configuration depends on beside its settings.

    Args:
        config: Of any command.
        file_digest: Gives a file's digest, where many configurations read the same ones.

    Returns:
        The version, and of each other thing by its name a digest and the name of its file.
    """
    digest = file_digest or digest_of_file
    found = {"mrsa_jax": __version__}
    kind = kind_named(command_of(type(config)))
    row = None if kind is None else kind.attack
    if row is not None:
        found |= {f"attack {row.name}, {module}": own for module, own in row.code().items()}
    for table in _tables(studied(to_dict(config))):
        for text in _texts(table):
            found |= {
                f"{family} {name}, {module}": own
                for family, rows in _FAMILIES.items()
                for name in text.split(":")
                if name in rows
                for module, own in rows[name].code().items()
            }
            if text.startswith("replay:"):
                (path, _) = availability.parse_availability(text, ())[1]
                found[f"availability {path.name}"] = f"{digest(path)} {path.name}"
        if "directory" in table and "dataset" in table:
            from mrsa_jax.data._sources import source_files  # imports JAX

            for path in source_files(table["dataset"], table["directory"]):
                found[f"directory {path.name}"] = f"{digest(path)} {path.name}"
    return found


def digest_of_file(path: pathlib.Path) -> str:
    """Return the digest of a file's content."""
    return digest_of(path.read_bytes())


def _tables(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield content
    for value in content.values():
        if isinstance(value, dict):
            yield from _tables(value)


def _texts(value: Any) -> Iterator[str]:
    """Go through the texts of a table or list, other tables left out."""
    inner = value.values() if isinstance(value, dict) else value
    for one in inner:
        if isinstance(one, str):
            yield one
        elif isinstance(one, list):
            yield from _texts(one)


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
        return ("an earlier version of mrsa_jax, which kept no record of files and code",)
    found = []
    for name in sorted({*theirs, *ours}):
        was, now = str(theirs.get(name, "")), ours.get(name, "")
        if name == "mrsa_jax":
            if was != now and not any({was, now} <= set(group) for group in _ALIKE):
                found.append(f"mrsa_jax is {now} now and was {was}")
        elif was.split(" ")[0] != now.split(" ")[0]:
            (_, _, file), what = (now or was).partition(" "), name.partition(",")[0]
            what = what if what.startswith(("scheme ", "graph ", "attack ")) else what.split(" ")[0]
            verb = "has changed" if was and now else "is read now" if now else "is not read now"
            found.append(f"{file} {verb} ({what})")
    return tuple(dict.fromkeys(found))
