"""The papers behind the schemes, of `papers.bib`; nothing here imports JAX."""

from __future__ import annotations

import dataclasses
import pathlib
import re

from mrsa_jax._errors import require
from mrsa_jax._version import __version__


@dataclasses.dataclass(frozen=True)
class Paper:
    """A source that can be cited.

    Attributes:
        kind: BibTeX's type of entry.
        key: Its key.
        fields: Its fields in order, as BibTeX has them.
    """

    kind: str
    key: str
    fields: tuple[tuple[str, str], ...]

    @property
    def bibtex(self) -> str:
        """The entry as BibTeX."""
        width = max(len(name) for name, _ in self.fields)
        lines = [f"  {name:{width}} = {{{value}}}," for name, value in self.fields]
        return "\n".join([f"@{self.kind}{{{self.key},", *lines, "}"])

    @property
    def link(self) -> str | None:
        """Where it can be read, if that is known."""
        fields = dict(self.fields)
        if "doi" in fields:
            return f"https://doi.org/{fields['doi']}"
        if "eprint" in fields:
            return f"https://arxiv.org/abs/{fields['eprint']}"
        return fields.get("url")

    @property
    def reference(self) -> str:
        """The entry as a line of plain text: authors, title, where, year."""
        fields = {name: _spoken(value) for name, value in self.fields}
        authors = [one.split(",")[0].strip() for one in fields["author"].split(" and ")]
        if len(authors) > 3:
            who = f"{authors[0]} et al."
        else:
            who = " and ".join([", ".join(authors[:-1]), authors[-1]] if authors[1:] else authors)
        places = [fields.get(name) for name in ("journal", "booktitle", "institution", "publisher",
                                                 "howpublished")]  # fmt: skip
        where = next((place for place in places if place), None)
        if where is None and "eprint" in fields:
            where = f"arXiv:{fields['eprint']}"
        last = ", ".join(part for part in (where, fields.get("year")) if part)
        title = fields["title"] + "." * (not fields["title"].endswith("?"))
        return f"{who}: {title}" + (f" {last}." if last else "")


def read_bibtex(entry: str) -> Paper:
    """Return the paper of one entry of BibTeX.

    Raises:
        ConfigurationError: If it is none, or has neither author nor title.

    Examples:
        >>> read_bibtex("@misc{me2026, author = {Me}, title = {The {JAX} of it}}").reference
        'Me: The JAX of it.'
    """
    head = re.fullmatch(r"\s*@(\w+)\s*\{\s*([^\s,{}]+)\s*,(.*)\}\s*", entry, re.DOTALL)
    found = [] if head is None else _FIELD.findall(head[3])
    fields = {name.lower(): v[1:-1] if v[0] in '{"' else v for name, v in found}
    good = head is not None and {"author", "title"} <= set(fields)
    require(good, "papers", "must be BibTeX entries with author and title", entry)
    return Paper(head[1].lower(), head[2], tuple(fields.items()))  # type: ignore[index]


_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_FIELD = re.compile(rf'(\w+)\s*=\s*({_BRACES}|"[^"]*"|\w+)')


_SPOKEN = {
    r"{\u{g}}": "ğ", r"{\c{s}}": "ş", r'{\"u}': "ü", r'{\"o}': "ö", r"{\`a}": "à", r"{\`e}": "è",
    r"{\'e}": "é", r"{\'o}": "ó", r"{\v{c}}": "č", r"{\'y}": "ý", r"{\ss}": "ß", r'{\"a}': "ä",
    "--": "\u2013",
    r"\_": "_", r"\&": "&",
}  # fmt: skip


def _spoken(value: str) -> str:
    """Return a field's text without BibTeX's marks."""
    for written, letter in _SPOKEN.items():
        value = value.replace(written, letter)
    return value.replace("{", "").replace("}", "")


_ENTRIES = (pathlib.Path(__file__).parent / "papers.bib").read_text(encoding="utf-8")
PAPERS: dict[str, Paper] = {
    paper.key: paper for paper in map(read_bibtex, re.findall(r"^@.*?^}$", _ENTRIES, re.M | re.S))
}
"""Every source, by its key."""


def software() -> Paper:
    """Return the entry of this package, at its installed version."""
    title = r"{mrsa\_jax}: A {JAX}-Accelerated Simulator of Multi-Round Secure Aggregation in"
    return Paper("software", "mrsa_jax", (
        ("author", r"{The mrsa\_jax authors}"), ("title", f"{title} Federated Learning"),
        ("version", __version__),
    ))  # fmt: skip
