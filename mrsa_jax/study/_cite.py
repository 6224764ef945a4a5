"""Cite the papers behind a scheme, a configuration or a study, without JAX.

The papers are in `papers.bib`; each setting and class names those that it comes from.
Settings are read by name, so a configuration, the settings in a file's provenance and a
data set's attributes are all the same here.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mrsa_jax._core.flags import Cites
from mrsa_jax._core.registry import read_member
from mrsa_jax._version import __version__
from mrsa_jax.availability import registry as availability
from mrsa_jax.graphs import registry as graphs
from mrsa_jax.selection import registry as schemes
from mrsa_jax.study.kinds import KINDS, attacks
from mrsa_jax.study.settings._attributes import attributes
from mrsa_jax.study.settings._config import command_of, to_dict
from mrsa_jax.study.settings._parts import KINDS as parts
from mrsa_watch._base.errors import ConfigurationError, check_known, require

if TYPE_CHECKING:
    import xarray as xr


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
        authors = [
            name.split(",")[0].strip() for name in fields["author"].split(" and ")
        ]
        *first, last = authors
        names = f"{', '.join(first)} and {last}" if first else last
        if len(authors) > 3:
            names = f"{authors[0]} et al."
        place = next((fields[name] for name in _PLACES if fields.get(name)), None)
        if place is None and "eprint" in fields:
            place = f"arXiv:{fields['eprint']}"
        end = ", ".join(part for part in (place, fields.get("year")) if part)
        title = fields["title"] + "." * (not fields["title"].endswith("?"))
        return f"{names}: {title}" + (f" {end}." if end else "")


_PLACES = ("journal", "booktitle", "institution", "publisher", "howpublished")


def read_bibtex(entry: str) -> Paper:
    """Return the paper of one entry of BibTeX.

    Raises:
        ConfigurationError: If it is none, or has neither author nor title.

    Examples:
        >>> entry = "@misc{me2026, author = {Me}, title = {The {JAX} of it}}"
        >>> read_bibtex(entry).reference
        'Me: The JAX of it.'
    """
    # type, key, and all fields in one group
    head = re.fullmatch(r"\s*@(\w+)\s*\{\s*([^\s,{}]+)\s*,(.*)\}\s*", entry, re.DOTALL)
    fields = {}
    for name, value in [] if head is None else _FIELD.findall(head[3]):
        fields[name.lower()] = value[1:-1] if value[0] in '{"' else value
    good = head is not None and {"author", "title"} <= set(fields)
    require(good, "papers", "must be BibTeX entries with author and title", entry)
    return Paper(head[1].lower(), head[2], tuple(fields.items()))  # type: ignore[index]


# three levels of braces inside each other: more than BibTeX's titles have
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_FIELD = re.compile(rf'(\w+)\s*=\s*({_BRACES}|"[^"]*"|\w+)')


_SPOKEN = {
    r"{\u{g}}": "ğ", r"{\c{s}}": "ş", r'{\"u}': "ü", r'{\"o}': "ö", r"{\`a}": "à",
    r"{\`e}": "è", r"{\'e}": "é", r"{\'o}": "ó", r"{\v{c}}": "č", r"{\'y}": "ý",
    r"{\ss}": "ß", r'{\"a}': "ä",
    r"{\'A}": "Á", r"{\'a}": "á",
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
    title = r"{mrsa\_jax}: A {JAX}-Accelerated Simulator of Multi-Round Secure"
    return Paper(
        "software",
        "mrsa_jax",
        (
            ("author", r"{The mrsa\_jax authors}"),
            ("title", f"{title} Aggregation in Federated Learning"),
            ("version", __version__),
        ),
    )


class _Source(NamedTuple):
    """A paper's key, what the paper stands for, and the value that names it."""

    key: str
    reason: str
    value: str = ""


class _Papers(NamedTuple):
    """Papers, and what they are cited for."""

    reason: str
    keys: tuple[str, ...]

    def sources(self, value: str) -> Iterator[_Source]:
        """Yield each paper as the source of a value."""
        for key in self.keys:
            yield _Source(key.strip(), self.reason, value)


_MULTIROUND = _Source("so2023securing", "multi-round privacy")
_SECAGG = ("bonawitz2017practical", "shamir1979share")
_PROTOCOL = "secure aggregation"
_RING_NOISE = "noise in the ring"
_NOISE = _Papers(
    _RING_NOISE,
    ("kairouz2021distributed", "agarwal2021skellam", "dong2022gaussian"),
)

_ROWS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "scheme": ("selection of clients", schemes.ROWS),
    "graph": (_PROTOCOL, graphs.ROWS),
    "availability": ("who is online", availability.ROWS),
}
"""Registries by the setting that names a row, and what rows are cited for."""
_OWN = {
    "model": "model",
    "dataset": "data",
    "trainer": "training",
    "quantizer": "quantizer",
}
"""Reasons to cite for a user's own parts, by the setting that names one."""

_NAMES: dict[str, _Papers] = {
    "multiround": _Papers(_MULTIROUND.reason, (_MULTIROUND.key,)),
    "secagg": _Papers(_PROTOCOL, _SECAGG),
    "secagg_plus": _Papers(_PROTOCOL, ("bell2020secure", *_SECAGG)),
    "ccesa": _Papers(_PROTOCOL, ("choi2020communication", *_SECAGG)),
    "heterosag": _Papers(
        "segments and unequal quantizers", ("elkordy2022heterosag", *_SECAGG)
    ),
    "skellam": _Papers(_RING_NOISE, ("agarwal2021skellam",)),
    "discrete_gaussian": _Papers(_RING_NOISE, ("kairouz2021distributed",)),
}
"""Papers and protocols by name."""

_PAPERS = ("multiround", "ccesa", "heterosag")
_STUDIES = ("compare", "histories", "demo", "simulate", "train", "sweep", "reproduce",
            "audit", "advise")  # fmt: skip


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
    reasons: dict[str, dict[str, list[str]]] = {}
    for key, reason, value in map(_Source._make, _of(spec)):
        values = reasons.setdefault(key, {}).setdefault(reason, [])
        if value and value not in values:
            values.append(value)
    papers = [(_paper(key), _because(why)) for key, why in reasons.items()]
    return (*papers, (software(), "this package"), (PAPERS["jax2018github"], "arrays"))


def _paper(key: str) -> Paper:
    """Return the paper of a key, or of a BibTeX entry of a user's own scheme."""
    if key.startswith("@"):
        return read_bibtex(key)
    return PAPERS[check_known(key, "papers", PAPERS, "BibTeX entries or known keys")]


def _because(reasons: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(
        f"{reason} ({', '.join(values)})" if values else reason
        for reason, values in reasons.items()
    )


def _of(spec: Any) -> Iterator[_Source]:
    """Yield the sources of a spec, of whichever type it is."""
    if isinstance(spec, str):
        yield from _of_text(spec)
    elif isinstance(getattr(spec, "attrs", None), Mapping):
        yield from _of_results(spec)  # a data set is a mapping, too
    elif isinstance(spec, Mapping):
        yield from _of_settings(spec)
    elif isinstance(spec, list | tuple) and not hasattr(spec, "_fields"):
        for part in spec:
            yield from _of(part)
    elif not dataclasses.is_dataclass(spec) or isinstance(spec, type):
        raise ConfigurationError(
            "`spec` must be a scheme, a configuration, a study's data set or a name; "
            f"got {type(spec).__name__}"
        )
    elif type(spec).__name__.endswith(("Config", "Command")):
        manifest = {"command": command_of(type(spec)), "config": to_dict(spec)}
        yield from _of_settings(manifest)
    else:
        yield from papers_of_value(spec)


def _of_text(text: str) -> Iterator[_Source]:
    name, *numbers = text.split(":")
    rows = _registered()
    others = _settings()["dataset"] | _NAMES
    if name not in rows:
        check_known(text, "spec", [*rows, *others], "a known name")
        yield from others[text].sources(text)
        return
    for argument, (_, family) in _ROWS.items():
        if numbers and name in family:
            read_member(text, family, argument, argument)  # checks the numbers
    yield from rows[name].sources(text)


def _registered() -> dict[str, _Papers]:
    """Return the papers of all that is registered by name."""
    papers = {row.name: _Papers(row.about, row.papers) for row in attacks().values()}
    for reason, rows in _ROWS.values():
        papers |= {name: _Papers(reason, row.papers) for name, row in rows.items()}
    return papers


def _settings() -> dict[str, dict[str, _Papers]]:
    """Return the papers of settings' values, by the setting's name in any table."""
    return _settings_of(tuple(kind.config for kind in KINDS.values()))


@functools.cache
def _settings_of(configs: tuple[type, ...]) -> dict[str, dict[str, _Papers]]:
    items = {name: _NAMES[name] for name in _PAPERS}
    papers = {"paper": items, "target": items}
    tables = list(configs)
    for table in tables:  # which grows by the tables inside
        for name, hint in typing.get_type_hints(table, include_extras=True).items():
            for mark in getattr(hint, "__metadata__", ()):
                if isinstance(mark, Cites):
                    papers[name] = {
                        value: _cited(text) for value, text in mark.values.items()
                    }
            if isinstance(hint, type) and dataclasses.is_dataclass(hint):
                tables.append(hint)
    return papers


def _cited(text: str) -> _Papers:
    """Read "reason: keys", or the name of something that has papers."""
    reason, colon, keys = text.partition(":")
    if colon:
        return _Papers(reason, tuple(keys.split()))
    names = {name.replace("-", "_"): papers for name, papers in _registered().items()}
    return (_NAMES | names).get(text, _Papers("", ()))


def _of_settings(content: Mapping[str, Any]) -> Iterator[_Source]:
    """Yield the sources of settings, or of a study's provenance, which holds them."""
    command = str(content.get("command", "")).lower().replace("_", "-")
    config = content.get("config", content)
    if command in _STUDIES and content.get("swept", "train") in _STUDIES:
        yield _MULTIROUND
    for row in attacks().values():
        if command.replace("-", "") == row.name.replace("-", ""):
            yield from _Papers(row.about, row.papers).sources(row.name)
    if "swept" in content:
        yield from _of_sweep(str(content["swept"]), config)
    else:
        yield from _of_fields(config)


def _of_sweep(swept: str, config: Mapping[str, Any]) -> Iterator[_Source]:
    """Yield the sources of a sweep: of the command, of what changes, of what stays."""
    _, _, command = swept.rpartition(" ")
    yield from _of_settings({"command": command, "config": {}})
    changing = set()
    for axis in config.get("axes", ()):
        names = [field.rpartition(".")[2] for field in axis["fields"]]
        for name in names:
            changing |= {name, f"{name}s"}
        for row in axis.get("values", ()):
            for name, value in zip(names, row, strict=True):
                yield from _of_field(name, value)
    # a field on an axis has no one value in the base
    base = config.get("base", config)
    yield from _of_fields({name: base[name] for name in base if name not in changing})


def _of_fields(config: Mapping[str, Any]) -> Iterator[_Source]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _of_fields(value)
            continue
        if name == "targets":  # items of papers, as "ccesa.table1"; none are all
            name = "target"
            value = [str(item).split(".")[0] for item in value] or list(_PAPERS)
        for item in value if isinstance(value, list | tuple) else (value,):
            yield from _of_field(name, item)


def _of_field(name: str, value: Any) -> Iterator[_Source]:
    """Yield the sources of one setting's value, or of one value of an axis."""
    name = name.rpartition(".")[2]
    if isinstance(value, int | float):
        if name == "proximal" and value > 0:
            yield _Source("li2020federated", "FedProx")
        elif name == "clip_norm":
            yield from _NOISE.sources("")
        return
    if not isinstance(value, str):
        return
    member, _, _ = value.partition(":")
    family = name.removesuffix("s")
    if family in _ROWS:
        reason, rows = _ROWS[family]
        if member in rows:
            yield from _Papers(reason, rows[member].papers).sources(value)
        elif family == "scheme":  # a label of a scheme, not its name
            yield from _Papers(reason, (_MULTIROUND.key,)).sources(value)
        return
    part = parts[name].rows.get(member) if name in parts else None
    if part is not None and part.papers:
        yield from _Papers(_OWN[name], part.papers).sources(value)
    elif value in (papers := _settings().get(name, {})):
        yield from papers[value].sources(value)


def _of_results(results: xr.Dataset) -> Iterator[_Source]:
    """Yield the sources of a study's data set: its provenance, or else its schemes."""
    manifest = attributes(results)
    yield from _of_settings(manifest)
    yield from map(_Source._make, manifest.get("papers", ()))
    if "config" in manifest:
        return
    yield _MULTIROUND
    if "scheme" in results.coords:
        for label in results["scheme"].values.ravel().tolist():
            yield from _of_field("scheme", label)


def _of_class(cls: type) -> _Papers:
    """Return the papers that a class names, or those of the row of its name."""
    # BatchPartitioning -> batch_partitioning, as rows are named
    name = re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
    return _cited(getattr(cls, "cites", name))


def papers_of_value(value: Any) -> Iterator[_Source]:
    """Yield the sources of a scheme that is a value, and of the schemes inside it."""
    name = type(value).__name__
    sources = list(_of_class(type(value)).sources(name))
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if dataclasses.is_dataclass(inner) and _of_class(type(inner)).keys:
            sources += papers_of_value(inner)
        elif field.name == "method" and isinstance(inner, str):
            for setting in ("method", "methods"):
                sources += _of_field(setting, inner)
    if not sources:
        raise ConfigurationError(f"`spec` must be a scheme with papers; got a {name}")
    yield from sources
