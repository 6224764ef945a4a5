"""The mutants as data: one TOML file for each family, one table for each mutant."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import tomllib

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One small wrong change of the package.

    Attributes:
        family: Name of its file of rows.
        file: Source file, relative to the repository.
        old: Text that occurs exactly once in the file, however it is laid out.
        new: What replaces it.
        why: What would be wrong.
        tests: Test files or nodes of the default tier, one of which fails on the
            mutant.
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
        places = spans(source, self.old)
        if len(places) != 1:
            raise ValueError(f"{self.name}: old text occurs {len(places)} times")
        return replaced(source, places[0], self.new)


def replaced(source: str, place: tuple[int, int], new: str) -> str:
    """Return a source with another text at a place, which blanks neither open nor end."""
    start, end = place
    return source[:start] + new.strip() + source[end:]


def spans(source: str, text: str) -> list[tuple[int, int]]:
    """Return the places of a text in a source, whatever breaks the lines have.

    Blanks do not count, nor does the comma before a closing bracket.
    """
    kept = _significant(source)
    squeezed = "".join(source[place] for place in kept)
    wanted = "".join(text[place] for place in _significant(text))
    starts = [found.start() for found in re.finditer(re.escape(wanted), squeezed)]
    return [(kept[start], kept[start + len(wanted) - 1] + 1) for start in starts]


@functools.cache
def _significant(source: str) -> list[int]:
    """Return the places of the characters that are no blanks and no last commas."""
    found = re.finditer(r"(?!,\s*[)\]}])\S", source)
    return [letter.start() for letter in found]


@functools.cache
def mutants() -> list[Mutant]:
    """Return all rows, family by family."""
    found = []
    for path in sorted(FOLDER.glob("*.toml")):
        for row in tomllib.loads(path.read_text())["mutant"]:
            lists = {key: tuple(row.pop(key, ())) for key in ("tests", "long")}
            found.append(Mutant(path.stem, **row, **lists))
    return found
