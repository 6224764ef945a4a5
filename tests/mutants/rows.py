"""The mutants as data: one TOML file for each family, one table for each mutant."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import tomllib

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One small wrong change of the package.

    Attributes:
        family: Name of its file of rows.
        file: Source file, relative to the repository.
        old: Text that occurs exactly once in the file.
        new: What replaces it.
        why: What would be wrong.
        tests: Test files or nodes of the default tier, one of which fails on the mutant.
        long: More of them, of the long tier.
    """

    family: str
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]
    long: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Where it is, and what it would make wrong."""
        return f"{self.file.removeprefix('mrsa_jax/')}: {self.why}"

    def text(self, root: pathlib.Path = ROOT) -> str:
        """Return the file's text with the change made."""
        source = (root / self.file).read_text()
        if source.count(self.old) != 1:
            raise ValueError(f"{self.name}: old text occurs {source.count(self.old)} times")
        return source.replace(self.old, self.new)


@functools.cache
def mutants() -> list[Mutant]:
    """Return all rows, family by family."""
    found = []
    for path in sorted(FOLDER.glob("*.toml")):
        for row in tomllib.loads(path.read_text())["mutant"]:
            lists = {key: tuple(row.pop(key, ())) for key in ("tests", "long")}
            found.append(Mutant(path.stem, **row, **lists))
    return found
