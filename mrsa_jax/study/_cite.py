"""Which papers a scheme, a configuration or a study stands on.

Nothing here imports JAX.
The papers are in `papers.bib`; each setting and class says which it comes from.
Settings are read by name, so a configuration, the settings in a file's provenance and a
data set's attributes are all the same here.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mrsa_jax._core.flags import Cites
from mrsa_jax._core.registry import read_member
from mrsa_jax._version import __version__
from mrsa_jax.availability import registry as availability
from mrsa_jax.graphs import registry as graphs
from mrsa_jax.selection import registry as schemes
from mrsa_jax.study._attributes import attributes
from mrsa_jax.study._config import command_of, to_dict
from mrsa_jax.study._parts import KINDS as parts
from mrsa_jax.study.kinds import KINDS, attacks
from mrsa_watch._base.errors import ConfigurationError, check_known, require


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
            who = " and ".join(
                [", ".join(authors[:-1]), authors[-1]] if authors[1:] else authors
            )
        places = [
            fields.get(name)
            for name in (
                "journal",
                "booktitle",
                "institution",
                "publisher",
                "howpublished",
            )
        ]
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
    paper.key: paper
    for paper in map(read_bibtex, re.findall(r"^@.*?^}$", _ENTRIES, re.M | re.S))
}
"""Every source, by its key."""


def software() -> Paper:
    """Return the entry of this package, at its installed version."""
    title = r"{mrsa\_jax}: A {JAX}-Accelerated Simulator of Multi-Round Secure Aggregation in"
    return Paper(
        "software",
        "mrsa_jax",
        (
            ("author", r"{The mrsa\_jax authors}"),
            ("title", f"{title} Federated Learning"),
            ("version", __version__),
        ),
    )


# a paper's key, what it stands for, the value that names it
_Found = tuple[str, str, str]

_MULTIROUND = "so2023securing"
_SECAGG = ("bonawitz2017practical", "shamir1979share")
_SELECTION = "selection of clients"
_PROTOCOL = "secure aggregation"
_NOISE = ("noise in the ring",
          ("kairouz2021distributed", "agarwal2021skellam", "dong2022gaussian"))  # fmt: skip

_ROWS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "scheme": (_SELECTION, schemes.ROWS),
    "graph": (_PROTOCOL, graphs.ROWS),
    "availability": ("who is online", availability.ROWS),
}
_OWN = {
    "model": "model",
    "dataset": "data",
    "trainer": "training",
    "quantizer": "quantizer",
}
"""What parts of a user's own stand for, by the setting that names one."""
"""What the rows of a registry stand for, by the setting that names one.

Each has its papers.
"""

_NAMES: dict[str, tuple[str, tuple[str, ...]]] = {
    "multiround": ("multi-round privacy", (_MULTIROUND,)),
    "secagg": (_PROTOCOL, _SECAGG),
    "secagg_plus": (_PROTOCOL, ("bell2020secure", *_SECAGG)),
    "ccesa": (_PROTOCOL, ("choi2020communication", *_SECAGG)),
    "heterosag": (
        "segments and unequal quantizers",
        ("elkordy2022heterosag", *_SECAGG),
    ),
    "skellam": ("noise in the ring", ("agarwal2021skellam",)),
    "discrete_gaussian": ("noise in the ring", ("kairouz2021distributed",)),
}
"""Papers and protocols by name, and what they stand for."""

_PAPERS = ("multiround", "ccesa", "heterosag")
_STUDIES = ("compare", "histories", "demo", "simulate", "train", "sweep", "reproduce", "audit",
            "advise")  # fmt: skip


def cite(spec: Any) -> str:
    """Return BibTeX entries of the papers, data and software that a spec stands on.

    Args:
        spec: A scheme's text (`"batch_partitioning:4"`), a protocol, an attack or a
            data set by name (`"ccesa"`, `"least-squares"`, `"mnist_5k"`); a
            configuration of any command; a scheme that is a value (a selector, a graph,
            a quantizer, an attack); a study's data set; or a list of such.

    Returns:
        One entry for each, this package and JAX last, a blank line between two.

    Raises:
        ConfigurationError: If nothing is known of the spec.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.cite("batch_partitioning:4").splitlines()[0]
        '@inproceedings{so2023securing,'
        >>> "choi2020communication" in mj.cite(
        ...     mj.study.TrainConfig(protocol=mj.study.ProtocolConfig("erdos_renyi"))
        ... )
        True
    """
    return "\n\n".join(paper.bibtex for paper, _ in papers_behind(spec)) + "\n"


def papers_behind(spec: Any) -> tuple[tuple[Paper, str], ...]:
    """Return each paper behind a spec once, with what of the spec it stands for.

    Args:
        spec: As of `cite`.

    Raises:
        ConfigurationError: If nothing is known of the spec.

    Examples:
        >>> [(paper.key, why) for paper, why in papers_behind("mnist")][0]
        ('lecun1998gradient', 'data (mnist)')
    """
    reasons: dict[str, dict[str, dict[str, None]]] = {}
    for key, reason, value in _of(spec):
        of_reason = reasons.setdefault(key, {}).setdefault(reason, {})
        if value:
            of_reason[value] = None
    found = [(_paper(key), _because(why)) for key, why in reasons.items()]
    return (*found, (software(), "this package"), (PAPERS["jax2018github"], "arrays"))


def _paper(key: str) -> Paper:
    """Return the paper of a key, or of a BibTeX entry, as a user's own scheme may have it."""
    if key.startswith("@"):
        return read_bibtex(key)
    return PAPERS[check_known(key, "papers", PAPERS, "BibTeX entries or known keys")]


def _because(reasons: Mapping[str, Iterable[str]]) -> str:
    parts = [(reason, ", ".join(values)) for reason, values in reasons.items()]
    return "; ".join(
        f"{reason} ({values})" if values else reason for reason, values in parts
    )


def _of(spec: Any) -> Iterator[_Found]:
    """Yield papers' keys, each with what it stands for and the value that names it."""
    if isinstance(spec, str):
        yield from _of_text(spec)
    elif isinstance(
        getattr(spec, "attrs", None), Mapping
    ):  # a data set is a mapping, too
        yield from _of_results(spec)
    elif isinstance(spec, Mapping):
        yield from _of_settings(spec)
    elif isinstance(spec, list | tuple) and not hasattr(spec, "_fields"):
        for one in spec:
            yield from _of(one)
    elif dataclasses.is_dataclass(spec) and not isinstance(spec, type):
        is_config = type(spec).__name__.endswith(("Config", "Command"))
        settings = (
            {"command": command_of(type(spec)), "config": to_dict(spec)}
            if is_config
            else {}
        )
        yield from _of_settings(settings) if is_config else papers_of_value(spec)
    else:
        raise ConfigurationError(
            "`spec` must be a scheme, a configuration, a study's data set or a name; "
            f"got {type(spec).__name__}"
        )


def _of_text(text: str) -> Iterator[_Found]:
    name, *rest = text.split(":")
    known, row, others = _registered(), None, _settings()["dataset"] | _NAMES
    if name not in known:
        check_known(text, "spec", [*known, *others], "a known name")
    what, row = known.get(name, ("", None))
    if row is None:
        yield from _row(others[text], text)
        return
    for argument, (_, rows) in _ROWS.items():
        if rest and name in rows:
            # says what is wrong with its numbers
            read_member(text, rows, argument, argument)
    yield from _row((what, row.papers), text)


def _registered() -> dict[str, tuple[str, Any]]:
    """Return all that is registered by name: what it is, and its row."""
    found = {row.name: (row.about, row) for row in attacks().values()}
    for what, rows in _ROWS.values():
        found |= {name: (what, row) for name, row in rows.items()}
    return found


def _settings() -> dict[str, dict[str, tuple[str, tuple[str, ...]]]]:
    """Return the papers of settings' values, by the setting's name, wherever it stands."""
    return _settings_of(tuple(kind.config for kind in KINDS.values()))


@functools.cache
def _settings_of(
    configs: tuple[type, ...],
) -> dict[str, dict[str, tuple[str, tuple[str, ...]]]]:
    papers = {name: _NAMES[name] for name in _PAPERS}
    found, left = {"paper": papers, "target": papers}, list(configs)
    while left:
        for name, hint in typing.get_type_hints(
            left.pop(), include_extras=True
        ).items():
            for own in getattr(hint, "__metadata__", ()):
                if isinstance(own, Cites):
                    found[name] = {
                        value: _told(text) for value, text in own.values.items()
                    }
            left += (
                [hint]
                if isinstance(hint, type) and dataclasses.is_dataclass(hint)
                else []
            )
    return found


def _told(text: str) -> tuple[str, tuple[str, ...]]:
    """Return what a text says that something stands for, and keys.

    Or what a name stands for.
    """
    what, colon, keys = text.partition(":")
    if colon:
        return what, tuple(keys.split())
    rows = {called.replace("-", "_"): both for called, both in _registered().items()}
    return (
        (rows[what][0], rows[what][1].papers)
        if what in rows
        else _NAMES.get(what, ("", ()))
    )


def _row(row: tuple[str, Iterable[str]], value: str) -> Iterator[_Found]:
    reason, keys = row
    for key in keys:
        yield key.strip(), reason, value


def _of_settings(content: Mapping[str, Any]) -> Iterator[_Found]:
    """Yield the papers of settings, or of a study's provenance, which holds them."""
    command = str(content.get("command", "")).lower().replace("_", "-")
    config = content.get("config", content)
    if command in _STUDIES and content.get("swept", "train") in _STUDIES:
        yield _MULTIROUND, "multi-round privacy", ""
    for row in attacks().values():
        if command.replace("-", "") == row.name.replace("-", ""):
            yield from _row((row.about, row.papers), row.name)
    if "swept" in content:
        yield from _of_sweep(content["swept"], config)
    else:
        yield from _of_fields(config)


def _of_sweep(swept: Any, config: Mapping[str, Any]) -> Iterator[_Found]:
    """Yield the papers of a sweep: of the command, of what stays and of what changes."""
    words = str(swept).split()
    yield from _of_settings({"command": words[-1] if words else "", "config": {}})
    changing = set()
    for axis in config.get("axes", ()):
        names = [field.rsplit(".", 1)[-1] for field in axis["fields"]]
        changing |= {*names, *(name + "s" for name in names)}
        for row in axis.get("values", ()):
            for name, value in zip(names, row, strict=True):
                yield from _of_field(name, value)
    base = config.get("base", config)
    yield from _of_fields(
        {name: value for name, value in base.items() if name not in changing}
    )


def _of_fields(config: Mapping[str, Any]) -> Iterator[_Found]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _of_fields(value)
            continue
        if name == "targets":  # items of papers, as "ccesa.table1"; none are all
            value = [str(one).split(".")[0] for one in value] or list(_PAPERS)
            name = "target"
        for one in value if isinstance(value, list | tuple) else (value,):
            yield from _of_field(name, one)


def _of_field(name: str, value: Any) -> Iterator[_Found]:
    """Yield the papers of one setting's value, or of one value of an axis."""
    last = name.rsplit(".", 1)[-1]
    if last.removesuffix("s") in _ROWS and isinstance(value, str):
        what, rows = _ROWS[last.removesuffix("s")]
        name = value.split(":")[0]
        usual = (_MULTIROUND,) if rows is schemes.ROWS else ()  # of a scheme's label
        papers = rows[name].papers if name in rows else usual
        yield from _row((what, papers), value)
    elif last == "proximal" and isinstance(value, int | float) and value > 0:
        yield "li2020federated", "FedProx", ""
    elif last == "clip_norm" and isinstance(value, int | float):
        yield from _row(_NOISE, "")
    elif isinstance(value, str) and (row := _own_part(last, value)):
        yield from _row((_OWN[last], row.papers), value)
    elif isinstance(value, str) and value in (own := _settings().get(last, {})):
        yield from _row(own[value], value)


def _own_part(kind: str, text: str) -> Any:
    """Return the row of a part that names its papers, None for any other value."""
    row = parts[kind].rows.get(text.split(":")[0]) if kind in parts else None
    return row if row is not None and row.papers else None


def _of_results(results: Any) -> Iterator[_Found]:
    """Yield the papers of a study's data set: its provenance, or else its schemes."""
    told = attributes(results)
    yield from _of_settings(told)
    yield from map(tuple, told.get("papers", ()))
    if "config" not in told:
        yield _MULTIROUND, "multi-round privacy", ""
    if "config" not in told and "scheme" in results.coords:
        for label in results["scheme"].values.ravel().tolist():
            yield from _of_field("scheme", label)


def _of_class(cls: type) -> tuple[str, tuple[str, ...]]:
    """Return what a class stands for, and its papers.

    As it says, or as the row it is named by.
    """
    own = re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
    return _told(getattr(cls, "cites", own))


def papers_of_value(value: Any) -> Iterator[_Found]:
    """Yield the papers of a scheme that is a value, and of the schemes inside it."""
    name = type(value).__name__
    found = list(_row(_of_class(type(value)), name))
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if dataclasses.is_dataclass(inner) and _of_class(type(inner))[1]:
            found += papers_of_value(inner)
        elif field.name == "method" and isinstance(inner, str):
            for names in ("method", "methods"):
                found += _of_field(names, inner)
    if not found:
        raise ConfigurationError(f"`spec` must be a scheme with papers; got a {name}")
    yield from found
