"""Each item as a function of its settings: `mrsa_papers.ccesa.fig3(num_trials=100)`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from mrsa_papers._catalog import ITEMS
from mrsa_papers.harness._rows import Row

_USUAL = ("fast", "seed", "dataset", "directory", "progress")


def give_items() -> None:
    """Make the items of each paper names of its package."""
    for paper, items in ITEMS.items():
        package = importlib.import_module(f"mrsa_papers.{paper}")
        get, listed = _item_functions(paper, sorted(items))
        package.__getattr__ = get  # type: ignore[method-assign]
        package.__dir__ = listed  # type: ignore[method-assign]


def _item_functions(
    paper: str, names: list[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a paper's package."""

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module 'mrsa_papers.{paper}' has no item {name!r}")
        return _function(paper, name)

    return get, lambda: names


def papers_and_items(
    names: Callable[[str], Any], listed: Callable[[], list[str]], public: list[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Add the papers, and items that one paper alone has, to the names of a package.

    Args:
        names: The package's `__getattr__`.
        listed: Its `__dir__`.
        public: Its `__all__`.
    """
    homes: dict[str, list[str]] = {}
    for paper, items in ITEMS.items():
        for name in items:
            homes.setdefault(name, []).append(paper)

    def get(name: str) -> Any:
        if name in ITEMS:
            return importlib.import_module(f"mrsa_papers.{name}")
        papers = homes.get(name, [])
        if not papers:
            return names(name)
        if len(papers) > 1:
            choice = " or ".join(f"mrsa_papers.{paper}.{name}" for paper in papers)
            raise AttributeError(f"several papers have an item {name!r}: {choice}")
        return _function(papers[0], name)

    return get, lambda: sorted({*listed(), *ITEMS, *homes}), public


def item_function(item: str) -> Callable[..., Any]:
    """Return the function of an item, `"PAPER.ITEM"`."""
    paper, _, name = item.partition(".")
    return _function(paper, name)


def _function(paper: str, name: str) -> Callable[..., Any]:
    """Return the function of one item, with its settings in signature and docstring."""
    row = ITEMS[paper][name]

    def make(**settings: Any) -> Any:
        from mrsa_papers._driver import remake

        (item,) = remake(f"{paper}.{name}", **settings)
        return item

    make.__name__ = name
    make.__qualname__ = f"{paper}.{name}"
    make.__module__ = f"mrsa_papers.{paper}"
    make.__doc__ = _docstring(row)
    make.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                each.name, inspect.Parameter.KEYWORD_ONLY, default=each.value
            )
            for each in row.settings
        ]
        + [inspect.Parameter("usual", inspect.Parameter.VAR_KEYWORD)]
    )
    return make


def _docstring(row: Row) -> str:
    """Describe an item and its settings."""
    settings = "".join(f"    {each.name}: {each.help}\n" for each in row.settings)
    return (
        f"Remake {row.title}.\n\nArgs:\n{settings}"
        f"    usual: {', '.join(_USUAL)}, as `remake` takes them.\n\n"
        "Returns:\n    An `Item`: claims with verdicts, data and caption.\n"
    )
