"""Files that reports are made from: templates, style sheets, scripts and sentences."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import TYPE_CHECKING, Any

from mrsa_watch._base.html import Markup, shown, tidy

if TYPE_CHECKING:
    from jinja2.environment import TemplateModule


@functools.cache
def asset(name: str) -> str:
    """Return a file that reports carry inside, or are made from.

    Args:
        name: A file of `study/assets`. Its scripts only ever add text as text.
    """
    folder = resources.files("mrsa_jax.study") / "assets"
    return (folder / name).read_text(encoding="utf-8")


@functools.cache
def text_of(name: str) -> str:
    """Return a text of reports by its name in `words.toml`."""
    return str(tomllib.loads(asset("words.toml"))[name])


def piece(name: str, *values: Any, **named: Any) -> Markup:
    """Return a piece of HTML: a macro of `pieces.html`, filled with values.

    Args:
        name: Of the macro.
        *values: What it is filled with; everything but `Markup` is escaped.
        **named: The same by name.
    """
    macro = getattr(_pieces(), name)
    return Markup(macro(*values, **named))


@functools.cache
def _pieces() -> TemplateModule:
    import jinja2  # only a process that writes reports needs it

    # HTML shows line breaks as spaces, so the template's own lines are joined
    lines = map(str.strip, asset("pieces.html").splitlines())
    environment = jinja2.Environment(autoescape=True, finalize=_escaped)
    environment.filters["shown"] = shown
    return environment.from_string("".join(lines)).module


def _escaped(value: Any) -> Any:
    """Escape a value as `tidy` does, which takes out control characters too."""
    return value if hasattr(value, "__html__") else Markup(tidy(value))
