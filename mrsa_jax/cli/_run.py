"""Run commands from settings: checks, then JAX, then bars, then words or JSON.

Checks, then JAX, then bars, then words or JSON.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import tyro

from mrsa_jax._core.compile_cache import use_compile_cache
from mrsa_jax.cli.console import Bars, drawn, print_json, use_cores
from mrsa_jax.study import validate

INTERRUPTED = 130
"""Exit status of what was interrupted."""


def union_of(members: Iterable[tuple[str, type, bool, dict[str, Any]]]) -> Any:
    """Return a type of which a command's words choose one: a command, or an attack.

    Args:
        members: The word of each, its settings, whether their whole docstring is its
            help, else the first paragraph, and what else `tyro` needs.
    """
    result: Any = None
    for name, settings, is_full, more in members:
        words = inspect.getdoc(settings) or ""
        if not is_full:
            words = " ".join(words.partition("\n\n")[0].split())
        mark = tyro.conf.subcommand(name, description=words, **more)
        member: Any = Annotated[settings, mark]
        result = member if result is None else result | member
    return result


def run_kind(
    config: Any,
    show: Callable[[Any], None],
    *,
    as_json: Callable[[Any], object] = operator.attrgetter("content"),
    devices: int | None = 1,
    early: Callable[[Any, Bars], None] | None = None,
) -> tuple[Any, float]:
    """Run a command from its settings; return what it found, and its seconds.

    What is found is printed before it is saved, which may fail.

    Args:
        config: The settings.
        show: Prints what was found.
        as_json: Gives what is printed of it as JSON, where the settings ask for that.
        devices: How many a CPU is to be; one a core if None.
        early: Shows what is found before all of it is, except where JSON is asked for.
    """
    validate(config)  # before JAX is imported: a misuse is answered at once
    use_compile_cache()
    use_cores(devices)
    from mrsa_jax import study

    def run(config: Any, bars: Bars, show_found: Callable[[Any], None]) -> Any:
        if hasattr(config, "out"):
            return study.run_and_save(config, bars, show_found)
        findings = study.run(config, bars)
        show_found(findings)
        return findings

    # what is found early is not valid JSON, so it is not printed then
    printed = (lambda findings: print_json(as_json(findings))) if config.json else show
    return drawn(run, config, printed, None if config.json else early)
