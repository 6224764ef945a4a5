"""A user's own selection schemes: rows of the registry like the package's. Imports no JAX."""

from __future__ import annotations

import contextlib
import inspect
import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mrsa_jax._errors import ConfigurationError, MrsaError, require, shortened
from mrsa_jax._plugins import loading
from mrsa_jax._sources import code_of
from mrsa_jax.selection._registry import BUILT_IN, ROWS, Row, label_of_words

if TYPE_CHECKING:
    from mrsa_jax._selector import Selector


def register(
    name: str,
    factory: Callable[..., Selector],
    *,
    label: str | Callable[..., str] | None = None,
    papers: str | Sequence[str] = (),
) -> None:
    """Add a selection scheme of your own, which flags, files, sweeps and `cite` then know.

    It is written as the package's schemes are: `name`, or `name:3:0.5` where the factory takes
    parameters behind N and K. A sweep's axes `privacy_target` and `fairness` fill parameters of
    these names. On the command line, `--plugin FILE.py` runs the file that registers it.
    Registering a name again replaces it, so that a notebook's cell can run twice.

    Args:
        name: Lower-case letters, digits and underscores; none of the package's own.
        factory: `(num_clients, cohort_size, *parameters) -> selector`, a `Selector` that is a
            pytree. Parameters are an int or a float where they are written as one, else text;
            a `ConfigurationError` that it raises is shown as the settings' own. If its class does
            not say `depends_on_data = False`, a training with noise is refused.
        label: What tables and figures show, followed by the parameters in parentheses; or what
            makes all of it from the parameters; `name` when None.
        papers: BibTeX entries for `cite`, or keys of papers that it knows.

    Raises:
        ConfigurationError: If the name is taken or ill-formed, or the factory cannot take N and K.

    Examples:
        >>> import mrsa_jax as mj
        >>> register("pairs", lambda n, k: mj.selection.batch_partitioning(n, k, 2), label="Pairs")
        >>> study = mj.study.SimulateConfig(rounds=9, trials=2, schemes=("pairs",))
        >>> mj.study.run(study).mrsa.table()[["scheme", "strong_privacy"]].values.tolist()
        [['Pairs', 2]]
    """
    good = isinstance(name, str) and re.fullmatch("[a-z][a-z0-9_]*", name) is not None
    require(good, "name", "must be lower-case letters, digits and underscores", name)
    require(name not in BUILT_IN, "name", "must be none of the package's own schemes", name)
    require(callable(factory), "factory", "must be a function of N, K and parameters", factory)
    fields, least, most = _parameters(factory)
    good = label is None or isinstance(label, str) or callable(label)
    require(good, "label", "must be text or a function that returns it", label)
    keys = (papers,) if isinstance(papers, str) else tuple(papers)
    require(all(isinstance(key, str) for key in keys), "papers", "must be text", papers)

    def read(text: str, rest: list[str]) -> tuple[Any, ...]:
        form = ":".join([name, *map(str.upper, fields)])
        require(least <= len(rest) <= most, "scheme", f"must be written {form}", text)
        return tuple(map(_value, rest))

    ROWS[name] = Row(
        lambda n, k, *parameters: _built(factory, n, k, *parameters),
        label if callable(label) else label_of_words(label or name),
        read,
        fields,
        lambda n, k, scheme: _built(factory, n, k, *scheme.parameters),
        lambda n, k, *parameters: not hasattr(_built(factory, n, k, *parameters), "cohort_size"),
        lambda n, k, *parameters: getattr(
            _built(factory, n, k, *parameters), "depends_on_data", None
        ),
        keys,
        code_of(factory, sys._getframe(1).f_globals.get("__name__", "__main__"), loading()),
    )


def _built(factory: Callable[..., Any], num_clients: int, cohort_size: int, *values: Any) -> Any:
    """Return what a user's factory makes, checked."""
    from mrsa_jax._selector import check_selector

    try:
        selector = check_selector(factory(num_clients, cohort_size, *values))
    except MrsaError:
        raise
    except Exception as error:  # a user's code raises what it likes
        got = ", ".join(map(shortened, (num_clients, cohort_size, *values)))
        raise ConfigurationError(
            f"`factory` must make a selector; of ({got}) it raised {type(error).__name__}: {error}"
        ) from error
    own, rule = selector.num_clients, f"must make a selector over {num_clients} clients"
    require(own == num_clients, "factory", rule, own)
    return selector


def _parameters(factory: Callable[..., Any]) -> tuple[tuple[str, ...], int, int | float]:
    """Return the names of a factory's parameters behind N and K; how many it needs, and takes."""
    own = list(inspect.signature(factory).parameters.values())
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in own)
    places = [p for p in own if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in own if p.default is p.empty and p.kind is p.KEYWORD_ONLY]
    rule = "must take the number of clients, the cohort size and parameters by their place"
    require((len(places) >= 2 or takes_any) and not needed, "factory", rule, factory)
    behind = places[2:]
    least = sum(p.default is p.empty for p in behind)
    return tuple(p.name for p in behind), least, math.inf if takes_any else len(behind)


def _value(text: str) -> Any:
    """Return text as an integer or a finite real number where it is one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            if math.isfinite(kind(text)):
                return kind(text)
    return text
