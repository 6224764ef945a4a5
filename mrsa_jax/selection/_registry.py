"""Selection schemes by name, a row each: what flags, files, tables and citations know of them.

A scheme is written `name:parameters`. A user's own (`register`) is a row like the package's.
Nothing here imports JAX: settings are read and checked without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import inspect
import math
import re
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mrsa_jax._errors import ConfigurationError, MrsaError, nearest, require, shortened
from mrsa_jax.selection._checks import Fairness

if TYPE_CHECKING:
    from mrsa_jax.selection._types import Selector

__all__ = [
    "Scheme",
    "parse_scheme",
    "register",
    "scheme_label",
    "scheme_names",
    "scheme_papers",
    "with_fields",
]

_MULTIROUND = ("so2023securing",)


@dataclasses.dataclass(frozen=True)
class _Row:
    """What a name stands for.

    Attributes:
        build: (num_clients, cohort_size, *parameters) -> the selector.
        label: parameters -> what tables and figures show; of none, what all of the name share.
        papers: Keys of papers, or BibTeX entries.
        read: What is written, and its parts behind the name -> parameters.
        fields: Names of the parameters, by which axes of a sweep fill them.
        check: (num_clients, cohort_size, scheme) -> None; raises where it cannot be built.
        varies: (num_clients, cohort_size, *parameters) -> whether cohorts differ in size.
    """

    build: Callable[..., Any]
    label: Callable[..., str]
    papers: tuple[str, ...]
    read: Callable[[str, list[str]], tuple[Any, ...]]
    fields: tuple[str, ...] = ()
    check: Callable[[int, int, Scheme], None] = lambda n, k, scheme: None
    varies: Callable[..., bool] = lambda n, k, *parameters: False


@dataclasses.dataclass(frozen=True)
class Scheme:
    """A selection scheme as named in flags and files.

    Attributes:
        name: Of its row.
        parameters: What follows the name, read.
    """

    name: str
    parameters: tuple[Any, ...] = ()

    @property
    def written(self) -> str:
        """The scheme as flags and files write it."""
        return ":".join([self.name, *map(_written, self.parameters)])

    @property
    def label(self) -> str:
        """The name that tables and figures show."""
        return _ROWS[self.name].label(*self.parameters)

    def build(self, num_clients: int, cohort_size: int) -> Selector:
        """Return the selector over a population.

        Raises:
            ConfigurationError: If the sizes do not fit, or a user's factory gives no selector.
        """
        selector: Selector = _ROWS[self.name].build(num_clients, cohort_size, *self.parameters)
        return selector

    def check(self, num_clients: int, cohort_size: int) -> None:
        """Raise `ConfigurationError` if the scheme cannot be built over a population.

        Only a user's own scheme is built for that, which imports JAX.
        """
        _ROWS[self.name].check(num_clients, cohort_size, self)

    def varies(self, num_clients: int, cohort_size: int) -> bool:
        """Return whether any number of clients may be asked in a round, not K or nobody."""
        return _ROWS[self.name].varies(num_clients, cohort_size, *self.parameters)


def _written(parameter: Any) -> str:
    if isinstance(parameter, Scheme):
        return parameter.written
    return f"{parameter:g}" if isinstance(parameter, float) else str(parameter)


def parse_scheme(text: str) -> Scheme:
    """Read a scheme as written in flags and files.

    The form is a name and its parameters: `uniform`, `weighted`, `partition`,
    `batch_partitioning:T[:FAIRNESS]`, `bernoulli:CHANCE`, `poisson:CHANCE:CHANCE...` (dealt out to
    the clients in turn), `power_of_choice:CANDIDATES`, `minimum_separation:ROUNDS:SCHEME`, or the
    name of a scheme that `register` has added.

    Raises:
        ConfigurationError: For an unknown name (naming the nearest), or a missing or bad number.

    Examples:
        >>> parse_scheme("batch_partitioning:4").label
        'Multi-RoundSecAgg (T=4)'
        >>> parse_scheme("minimum_separation:2:weighted").label
        'Minimum separation (2, Weighted random)'
    """
    name, *rest = str(text).split(":")
    if name not in _ROWS:
        raise ConfigurationError(
            f"`scheme` must be a known scheme; got {name!r}; {_hint(str(text))}"
        )
    return Scheme(name, _ROWS[name].read(text, rest))


def _hint(text: str) -> str:
    """Return what may have been meant by a scheme that there is not."""
    if "," in text:
        return f"several are set apart by blanks: {' '.join(text.replace(',', ' ').split())}"
    words = {name.replace("_", " "): name for name in _ROWS}
    words |= {row.label().lower(): name for name, row in _ROWS.items()}
    plain = text.lower().split(":")[0].split(" (")[0].replace("_", " ")
    close = difflib.get_close_matches(plain, words, 1, 0.5)
    return nearest(words[close[0]] if close else text, _ROWS)


def scheme_label(text: Any) -> Any:
    """Return the label of a scheme as written in flags and files; what is none as it is.

    Examples:
        >>> scheme_label("batch_partitioning:4"), scheme_label("batch_partitioning")
        ('Multi-RoundSecAgg (T=4)', 'Multi-RoundSecAgg')
    """
    try:
        return parse_scheme(text).label
    except ConfigurationError:  # a name alone is a sweep's, whose parameters are other axes
        return _ROWS[text].label() if text in _ROWS else text


def scheme_names() -> tuple[str, ...]:
    """Return the names of all schemes, a user's own last."""
    return tuple(_ROWS)


def scheme_papers(name: str) -> tuple[str, ...] | None:
    """Return the papers behind a scheme's name, as keys or BibTeX; None if there is no such."""
    return _ROWS[name].papers if name in _ROWS else None


def with_fields(text: str, values: dict[str, Any]) -> str:
    """Return a scheme's text with parameters that are given apart, as axes of a sweep are.

    Args:
        text: As it is written, perhaps without its last parameters.
        values: Parameters by name. None, and those that the scheme does not have, change nothing.

    Raises:
        ConfigurationError: If a parameter is given twice, or the scheme makes no sense.

    Examples:
        >>> with_fields("batch_partitioning", {"privacy_target": 3, "fairness": None})
        'batch_partitioning:3'
        >>> with_fields("uniform", {"privacy_target": 3})
        'uniform'
    """
    name, *rest = text.split(":")
    for place, field in enumerate(_ROWS[name].fields if name in _ROWS else ()):
        value = values.get(field)
        if value is None:
            continue
        require(place >= len(rest), field, "must be given once, in `scheme` or by itself",
                text, value)  # fmt: skip
        if place == len(rest):  # else one before it is missing, as `parse_scheme` says
            rest.append(str(value))
    text = ":".join([name, *rest])
    parse_scheme(text)
    return text


# --- reading --------------------------------------------------------------------------------------


def _nothing(text: str, rest: list[str]) -> tuple[Any, ...]:
    name = text.split(":")[0]
    require(not rest, "scheme", f"must be plain {name!r} (it has no parameter)", text)
    return ()


def _blocks(text: str, rest: list[str]) -> tuple[Any, ...]:
    rule = "must give a privacy target, as in 'batch_partitioning:4'"
    require(1 <= len(rest) <= 2 and rest[0].isdigit(), "scheme", rule, text)
    target, (fairness, *_) = int(rest[0]), [*rest[1:], "least_used"]
    known = typing.get_args(Fairness)
    if fairness not in known:
        raise ConfigurationError(
            f"`fairness` must be a known rule; got {fairness!r}; {nearest(fairness, known)}"
        )
    return (target,) if fairness == "least_used" else (target, fairness)


def _chances(most: int | float, example: str) -> Callable[[str, list[str]], tuple[Any, ...]]:
    def read(text: str, rest: list[str]) -> tuple[Any, ...]:
        try:
            values = tuple(float(part) for part in rest)
        except ValueError:
            values = (math.nan,)
        good = 1 <= len(values) <= most and all(0 < value <= 1 for value in values)
        require(good, "scheme", f"must give {example}", text)
        return values

    return read


def _count(text: str, rest: list[str], rule: str) -> int:
    require(bool(rest) and rest[0].isdigit() and int(rest[0]) >= 1, "scheme", rule, text)
    return int(rest[0])


def _candidates(text: str, rest: list[str]) -> tuple[Any, ...]:
    rule = "must give a number of candidates, as in 'power_of_choice:24'"
    require(len(rest) == 1, "scheme", rule, text)
    return (_count(text, rest, rule),)


def _separated(text: str, rest: list[str]) -> tuple[Any, ...]:
    rule = "must give rounds and a scheme, as in 'minimum_separation:3:uniform'"
    require(len(rest) >= 2, "scheme", rule, text)
    return _count(text, rest, rule), parse_scheme(":".join(rest[1:]))


# --- checking -------------------------------------------------------------------------------------


def _whole_blocks(num_clients: int, cohort_size: int, scheme: Scheme) -> None:
    """Check that blocks fit; those of user partition are cohorts."""
    (target, *_), of = [*scheme.parameters, cohort_size], "privacy_target"
    of = of if scheme.parameters else "cohort_size"
    require(target >= 1, of, "must be at least 1", target)
    for argument, size in (("cohort_size", cohort_size), ("num_clients", num_clients)):
        if size % target:  # a scheme that nobody chose may ask for it: one of the defaults
            raise ConfigurationError(
                f"`{argument}` must be a multiple of `{of}`; got {size} and {target}, which the "
                f"scheme {scheme.written!r} asks for: take another size, or name other schemes"
            )


def _enough_candidates(num_clients: int, cohort_size: int, scheme: Scheme) -> None:
    (number,) = scheme.parameters
    rule = "must give from `cohort_size` to `num_clients` candidates"
    fits = cohort_size <= number <= num_clients
    require(fits, "scheme", rule, scheme.written, f"{cohort_size} to {num_clients}")


# --- building; what makes selectors imports JAX ---------------------------------------------------


def _by_name(name: str) -> Callable[..., Any]:
    """Return the factory of a scheme of blocks by its name."""

    def build(num_clients: int, cohort_size: int, *parameters: Any) -> Any:
        from mrsa_jax.selection import _blocks

        return getattr(_blocks, name)(num_clients, cohort_size, *parameters)

    return build


def _power_of_choice(num_clients: int, cohort_size: int, candidates: int) -> Any:
    from mrsa_jax.selection._power_of_choice import power_of_choice

    return power_of_choice(num_clients, cohort_size, candidates)


def _poisson(num_clients: int, cohort_size: int, *chances: float) -> Any:
    from mrsa_jax.selection._poisson import poisson

    del cohort_size
    turns = [chances[i % len(chances)] for i in range(num_clients)]
    return poisson(num_clients, turns if len(chances) > 1 else chances[0])


def _separation(num_clients: int, cohort_size: int, rounds: int, inner: Scheme) -> Any:
    from mrsa_jax.selection._separation import minimum_separation

    return minimum_separation(inner.build(num_clients, cohort_size), rounds)


# --- labels ---------------------------------------------------------------------------------------


def _blocks_label(target: int | None = None, fairness: str = "") -> str:
    rule = f", {fairness}" if fairness else ""
    return "Multi-RoundSecAgg" + (f" (T={target}{rule})" if target is not None else "")


def _label(words: str) -> Callable[..., str]:
    """Return the label of words and, in parentheses, parameters."""

    def label(*parameters: Any) -> str:
        shown = [p.label if isinstance(p, Scheme) else _written(p) for p in parameters]
        return f"{words} ({', '.join(shown)})" if shown else words

    return label


_ROWS: dict[str, _Row] = {
    "uniform": _Row(
        _by_name("uniform"),
        _label("Random"),
        ("mcmahan2017communication", *_MULTIROUND),
        _nothing,
    ),
    "weighted": _Row(_by_name("weighted"), _label("Weighted random"), _MULTIROUND, _nothing),
    "partition": _Row(
        _by_name("partition"),
        _label("User partition"),
        _MULTIROUND,
        _nothing,
        check=_whole_blocks,
    ),
    "batch_partitioning": _Row(
        _by_name("batch_partitioning"),
        _blocks_label,
        _MULTIROUND,
        _blocks,
        ("privacy_target", "fairness"),
        _whole_blocks,
    ),
    "bernoulli": _Row(
        _poisson,
        _label("Bernoulli"),
        _MULTIROUND,
        _chances(1, "a probability in (0, 1], as in 'bernoulli:0.1'"),
        varies=lambda n, k, *chances: True,
    ),
    "poisson": _Row(
        _poisson,
        _label("Poisson"),
        _MULTIROUND,
        _chances(math.inf, "probabilities in (0, 1], as in 'poisson:0.05:0.2'"),
        varies=lambda n, k, *chances: True,
    ),
    "power_of_choice": _Row(
        _power_of_choice,
        _label("Power of choice"),
        ("cho2020client",),
        _candidates,
        check=_enough_candidates,
    ),
    "minimum_separation": _Row(
        _separation,
        _label("Minimum separation"),
        _MULTIROUND,
        _separated,
        check=lambda n, k, scheme: scheme.parameters[1].check(n, k),
        varies=lambda n, k, rounds, inner: inner.varies(n, k),
    ),
}
"""Every scheme by the name that flags and files use."""
BUILT_IN = tuple(_ROWS)


# --- a user's own ---------------------------------------------------------------------------------


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
            a `ConfigurationError` that it raises is shown as the settings' own.
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

    _ROWS[name] = _Row(
        lambda n, k, *parameters: _built(factory, n, k, *parameters),
        label if callable(label) else _label(label or name),
        keys,
        read,
        fields,
        lambda n, k, scheme: _built(factory, n, k, *scheme.parameters),
        lambda n, k, *parameters: not hasattr(_built(factory, n, k, *parameters), "cohort_size"),
    )


def _built(factory: Callable[..., Any], num_clients: int, cohort_size: int, *values: Any) -> Any:
    """Return what a user's factory makes, checked."""
    from mrsa_jax.selection._types import check_selector

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
