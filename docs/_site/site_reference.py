"""The reference.

A page for each family of the package, made from its public names' docstrings.
A line `.. family:: mrsa_jax.selection` of a page becomes the family's head, a table of
its names and an entry for each, under the first lines of the modules that they come
from. Signatures are shown as the source has them: shapes as in
`Bool[Array, "rounds clients"]` are lost if evaluated.
"""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import inspect
import pathlib
import re
import sys
from typing import Annotated, Any, ForwardRef, get_origin

from docutils import nodes
from site_docstrings import to_rst
from sphinx import addnodes
from sphinx.util.docutils import ReferenceRole

PACKAGE = "mrsa_jax"
ROOT = pathlib.Path(__file__).resolve().parents[2]
# the second is the small distribution that the first offers too
OWN = (PACKAGE, "mrsa_watch")
_LINE = re.compile(r"^\.\. family:: (\S+)(?: (.+))?$", re.MULTILINE)


def public_names(module: str) -> list[str]:
    """Return the public names of a module, without other modules."""
    door = importlib.import_module(module)
    names = door.__all__ if hasattr(door, "__all__") else sorted(vars(door))
    own = [name for name in names if hasattr(door, "__all__") or _is_own(door, name)]
    return [name for name in own if not inspect.ismodule(getattr(door, name))]


def _is_own(door: Any, name: str) -> bool:
    made_in = getattr(getattr(door, name), "__module__", "")
    return not name.startswith("_") and made_in.startswith(door.__name__)


@functools.cache
def families() -> dict[str, tuple[str, ...]]:
    """Return the public names of each family, its rooms, and the package itself, by module."""
    top = importlib.import_module(PACKAGE)
    found = {PACKAGE: tuple(public_names(PACKAGE))}
    for name in top.__all__:
        if inspect.ismodule(getattr(top, name)):
            found[f"{PACKAGE}.{name}"] = tuple(public_names(f"{PACKAGE}.{name}"))
            door = getattr(top, name)
            rooms = [
                one for one in door.__all__ if inspect.ismodule(getattr(door, one))
            ]
            for room in (f"{PACKAGE}.{name}.{one}" for one in rooms):
                found[room] = tuple(public_names(room))
    return found


@functools.cache
def received(module: str) -> tuple[type, ...]:
    """Return the classes that a family's functions return, and that no family names.

    The package's own functions may return a family's: that has its entry there.
    """
    named = {name for names in families().values() for name in names}
    if module == PACKAGE:
        named |= {
            own.__name__
            for other in families()
            if other != PACKAGE
            for own in received(other)
        }
    found: dict[str, type] = {}
    for name in public_names(module):
        function = inspect.unwrap(getattr(importlib.import_module(module), name))
        if not inspect.isfunction(function):
            continue
        for word in re.findall(
            r"\w+", str(inspect.signature(function).return_annotation)
        ):
            value = function.__globals__.get(word)
            is_own = inspect.isclass(value) and value.__module__.startswith(OWN)
            if is_own and word not in named:
                found[word] = value
    return tuple(found[word] for word in sorted(found))


@functools.cache
def _full_names() -> dict[str, list[str]]:
    """Return, for each short name, the full names that it may stand for."""
    found: dict[str, list[str]] = {}
    for module, names in families().items():
        for name in names:
            found.setdefault(name, []).append(f"{module}.{name}")
    for module in families():
        for value in received(module):
            own = f"{value.__module__}.{value.__name__}"
            if own not in found.setdefault(value.__name__, []):
                found[value.__name__].append(own)
    return found


@functools.cache
def _own_types() -> frozenset[str]:
    """Return the names of all classes and aliases of types in the package, private ones too."""
    found = set()
    paths = [
        *(ROOT / PACKAGE).rglob("*.py"),
        *(ROOT / "watch" / "mrsa_watch").rglob("*.py"),
    ]
    for path in paths:
        for one in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(one, ast.ClassDef):
                found.add(one.name)
            elif isinstance(one, ast.Assign | ast.AnnAssign):
                targets = one.targets if isinstance(one, ast.Assign) else [one.target]
                found |= {
                    target.id for target in targets if isinstance(target, ast.Name)
                }
            elif hasattr(ast, "TypeAlias") and isinstance(one, ast.TypeAlias):
                found.add(one.name.id)
    return frozenset(found)


def full_name(text: str, module: str) -> str | None:
    """Return the public name that a text of a docstring stands for, if it is one.

    Args:
        text: Such as "uniform", "privacy.audit" or "mj.privacy.audit".
        module: The family whose docstring it is.
    """
    *path, name = text.removesuffix("()").split(".")
    path = [part for part in path if part not in ("mj", PACKAGE)]
    candidates = _full_names().get(name, [])
    if path:
        wanted = ".".join([PACKAGE, *path, name])
        return wanted if wanted in candidates else None
    own = f"{module}.{name}"
    if own in candidates:
        return own
    return candidates[0] if len(candidates) == 1 and name[:1].isupper() else None


# -- pages
# ----


def _expand(app: Any, docname: str, source: list[str]) -> None:
    if docname.startswith("docs/reference/"):
        source[0] = _LINE.sub(lambda found: _family(found[1]), source[0])


def _family(module: str) -> str:
    door = importlib.import_module(module)
    lines = [*to_rst(inspect.getdoc(door) or ""), "", f".. py:module:: {module}", ""]
    groups: dict[str, list[str]] = {}
    uses = {name: _uses(module, name) for name in public_names(module)}
    for name in sorted(uses, key=lambda own: -uses[own]):
        groups.setdefault(_group(getattr(door, name), name, module), []).append(name)
    ordered = sorted(groups, key=lambda title: title == _OTHERS)
    for title in ordered:
        lines += ["", title, "-" * len(title), "", *_summary(module, groups[title])]
        for name in groups[title]:
            lines += ["", *_entry(module, name, getattr(door, name))]
    returned = received(module)
    if returned:
        lines += ["", _RETURNED, "-" * len(_RETURNED), ""]
    for value in returned:
        lines += ["", *_entry(value.__module__, value.__name__, value)]
    return "\n".join(lines)


@functools.cache
def _prose() -> str:
    """Return pages and notebooks as one text."""
    paths = [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("notebooks/*.ipynb"),
    ]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def _uses(module: str, name: str) -> int:
    """Return how often pages and notebooks call a name.

    A family opens with the most used.
    """
    family = "mj" if module == PACKAGE else module.rpartition(".")[2]
    return len(re.findall(rf"\b{family}\.{name}\b", _prose()))


_OTHERS, _RETURNED = "Constants and aliases", "What these functions return"


def _group(value: Any, name: str, module: str) -> str:
    """Return the heading of a name: the first line of the module that it comes from."""
    home = sys.modules.get(getattr(value, "__module__", None) or "")
    if not _is_documented(value) or home is None or not home.__name__.startswith(OWN):
        return _OTHERS
    if home.__name__ == PACKAGE:
        return "Errors"
    first = (inspect.getdoc(home) or module).partition("\n\n")[0]
    title = " ".join(first.split()).removesuffix(".")
    return re.split(r"[:;]\s|\.\s", title.replace("`", ""))[0]


def _is_documented(value: Any) -> bool:
    return inspect.isclass(value) or (callable(value) and hasattr(value, "__name__"))


def _summary(module: str, names: list[str]) -> list[str]:
    lines = [".. list-table::", "   :class: names", "   :widths: auto", ""]
    door = importlib.import_module(module)
    for name in names:
        value = getattr(door, name)
        text = inspect.getdoc(value) if _is_documented(value) else None
        first = " ".join(to_rst((text or "").partition("\n\n")[0])).strip()
        lines += [f"   * - :py:obj:`{name} <{module}.{name}>`", f"     - {first}"]
    return lines


def _entry(module: str, name: str, value: Any) -> list[str]:
    home = _home(module, name)
    if home != module:
        return [f".. py:data:: {name}", "", f"   The same as `{home}.{name}`.", ""]
    if not _is_documented(value):
        shown = _shown(value)
        return [f".. py:data:: {name}", *([f"   :value: {shown}"] if shown else []), ""]
    if not inspect.isclass(value):
        return [f".. autofunction:: {module}.{name}", "", *_picture(name)]
    members = ", ".join(_members(value))
    return [
        f".. autoclass:: {module}.{name}",
        *([f"   :members: {members}"] if members else []),
        "",
    ]


def _picture(name: str) -> list[str]:
    """Return the gallery's figure of a plot, which leads to the script that drew it."""
    for path in (ROOT / "docs" / "gallery" / "images").glob(f"{name}.*"):
        words = ast.get_docstring(
            ast.parse((path.parents[1] / f"{name}.py").read_text("utf-8"))
        )
        return [
            f".. image:: /docs/gallery/images/{path.name}",
            f"   :alt: {words}",
            f"   :target: ../gallery/index.html#{name.replace('_', '-')}",
            "",
        ]
    return []


def _home(module: str, name: str) -> str:
    """Return the family whose page describes a name, which others may list too."""
    value = getattr(importlib.import_module(module), name)
    homes = [
        family
        for family in families()
        if name in families()[family]
        and getattr(importlib.import_module(family), name) is value
        and _is_documented(value)
    ]
    return max(homes, key=lambda family: family.count("."), default=module)


def _members(cls: type) -> list[str]:
    fields = set(getattr(cls, "_fields", ()))
    return [
        name
        for name, value in vars(cls).items()
        if not name.startswith("_")
        and name not in fields
        and (
            callable(value) or isinstance(value, property | classmethod | staticmethod)
        )
        and (
            getattr(value, "__doc__", None)
            or getattr(getattr(value, "__func__", 0), "__doc__", 0)
        )
    ]


def _shown(value: Any) -> str:
    text = repr(value).replace("typing.", "")
    return "" if "<" in text or len(text) > 150 else text


# -- signatures, as they are written
# --------------------------------------------------------------


def _signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: Any, returns: Any
) -> tuple[str, str | None] | None:
    if what in ("module", "attribute", "property", "data"):
        return None
    if signature is None:
        return None
    if inspect.isclass(obj) and (
        _has_no_fields(obj) or getattr(obj, "_is_protocol", False)
    ):
        return "", None
    try:
        found = inspect.signature(obj)
    except (TypeError, ValueError):
        return None
    parameters = [
        one for one in found.parameters.values() if not one.name.startswith("_")
    ]
    if what == "method" and parameters[:1] and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    text = _of_parameters(parameters)
    back = None if inspect.isclass(obj) else _annotation(found.return_annotation)
    meant = _private_types(inspect.unwrap(obj).__module__)

    def public(words: str) -> str:
        return re.sub(
            r"(?<![\w.])_[A-Z]\w+", lambda own: meant.get(own[0], own[0][1:]), words
        )

    return public(text), back and public(back)


@functools.cache
def _private_types(module: str) -> dict[str, str]:
    """Return what a module's private names of types stand for."""
    found = {}
    for one in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(one, ast.Assign) and isinstance(
            one.value, ast.Subscript | ast.BinOp
        ):
            value = _annotation(ast.unparse(one.value)) or ""
            found |= {own.id: value for own in one.targets if isinstance(own, ast.Name)}
    return found


def _has_no_fields(obj: type) -> bool:
    return issubclass(obj, enum.Enum | Exception)


def _of_parameters(parameters: list[inspect.Parameter]) -> str:
    shown, star = [], False
    for place, one in enumerate(parameters):
        if one.kind is one.VAR_POSITIONAL:
            star = True
        if one.kind is one.KEYWORD_ONLY and not star:
            shown.append("*")
            star = True
        shown.append(_parameter(one))
        after = parameters[place + 1].kind if place + 1 < len(parameters) else None
        if one.kind is one.POSITIONAL_ONLY and after is not one.POSITIONAL_ONLY:
            shown.append("/")
    return f"({', '.join(shown)})"


def _parameter(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    annotation = _annotation(one.annotation)
    text = f"{stars}{one.name}" + (f": {annotation}" if annotation else "")
    if one.default is one.empty:
        return text
    default = _default(one.default)
    return f"{text} = {default}" if annotation else f"{text}={default}"


def _default(value: Any) -> str:
    if inspect.isfunction(value) or inspect.isclass(value):
        return value.__name__
    text = repr(str(value) if isinstance(value, pathlib.PurePath) else value)
    return text if not re.search(r"<|\n", text) and len(text) < 60 else "..."


def _annotation(value: Any) -> str | None:
    if value is inspect.Parameter.empty:
        return None
    if get_origin(value) is Annotated:  # what the command line makes of it
        return _annotation(value.__origin__)
    if isinstance(value, ForwardRef):
        value = value.__forward_arg__
    while isinstance(value, str) and value.startswith(("Annotated[", "tyro.conf.")):
        inside: Any = ast.parse(value, mode="eval").body
        if not isinstance(inside, ast.Subscript):
            break
        value = ast.unparse(getattr(inside.slice, "elts", [inside.slice])[0])
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    text = re.sub(r"ForwardRef\('([^']*)'[^)]*\)", r"\1", text)
    # how jaxtyping has a single axis written
    text = re.sub(r"""(?<=, )(['"]) """, r"\1", text)
    return (
        text.replace("collections.abc.", "")
        .replace("jaxlib._jax.", "")
        .replace("jax.Array", "Array")
    )


# -- references
# ----------------------------------------------------------------------------------


class Code(ReferenceRole):
    """Text in single backticks: code, which links to the public name that it is."""

    def run(self) -> tuple[list[Any], list[Any]]:
        """Return a reference that may lead nowhere."""
        literal = nodes.literal(self.rawtext, self.text, classes=["py"])
        node = addnodes.pending_xref(
            self.rawtext,
            literal,
            reftype="obj",
            refdomain="py",
            reftarget=self.text,
            refdoc=self.env.docname,
            optional=True,
            family=self.env.ref_context.get("py:module") or "",
        )
        return [node], []


def _resolve(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    module = node.get("family") or node.get("py:module") or ""
    name = full_name(target, module)
    if name is not None:
        domain = env.get_domain("py")
        found = domain.resolve_xref(
            env, node["refdoc"], app.builder, "obj", name, node, contnode
        )
        if found is not None:
            return found
    short = target.rpartition(".")[2]
    is_text = node.get("optional") or target[:1] in "'\""  # an axis of a shape
    return contnode if is_text or short in _own_types() else None


def _docstring(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    lines[:] = to_rst("\n".join(lines))
    if what in ("attribute", "property"):
        lines.insert(0, "\\")  # or napoleon takes what stands before a colon for a type


def setup(app: Any) -> dict[str, Any]:
    """Connect the pages, the signatures and the references."""
    app.add_role("name", Code())
    app.connect("source-read", _expand)
    app.connect("autodoc-process-signature", _signature)
    # before napoleon
    app.connect("autodoc-process-docstring", _docstring, priority=400)
    app.connect("missing-reference", _resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
