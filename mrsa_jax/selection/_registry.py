"""Selection schemes by name, a row each: what flags, files, tables and citations know of them.

A scheme is written `name:parameters`. A user's own (`register`) is a row like the package's.
Nothing here imports JAX: settings are read and checked without it.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mrsa_jax._core.errors import ConfigurationError, nearest, require
from mrsa_jax._core.plugins import label_of_words, written
from mrsa_jax.selection._checks import Fairness, check_grids

if TYPE_CHECKING:
    from mrsa_jax._core.selector import Selector

_MULTIROUND = ("so2023securing",)


def _nothing(text: str, rest: list[str]) -> tuple[Any, ...]:
    name = text.split(":")[0]
    require(not rest, "scheme", f"must be plain {name!r} (it has no parameter)", text)
    return ()


@dataclasses.dataclass(frozen=True)
class Row:
    """What a name stands for.

    Attributes:
        build: (num_clients, cohort_size, *parameters) -> the selector.
        label: parameters -> what tables and figures show; of none, what all of the name share.
        read: What is written, and its parts behind the name -> parameters; there are none.
        fields: Names of the parameters, by which axes of a sweep fill them.
        check: (num_clients, cohort_size, scheme) -> None; raises where it cannot be built.
        varies: (num_clients, cohort_size, *parameters) -> whether cohorts differ in size.
        depends_on_data: (num_clients, cohort_size, *parameters) -> whether clients' data decide who
            is asked; None where nobody says.
        papers: Keys of papers, or BibTeX entries.
        code: () -> digests of a user's code, by module; the package's own has its version.
    """

    build: Callable[..., Any]
    label: Callable[..., str]
    read: Callable[[str, list[str]], tuple[Any, ...]] = _nothing
    fields: tuple[str, ...] = ()
    check: Callable[[int, int, Scheme], None] = lambda n, k, scheme: None
    varies: Callable[..., bool] = lambda n, k, *parameters: False
    depends_on_data: Callable[..., bool | None] = lambda n, k, *parameters: False
    papers: tuple[str, ...] = _MULTIROUND
    code: Callable[[], dict[str, str]] = dict


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
        parts = (getattr(own, "written", None) or written(own) for own in self.parameters)
        return ":".join([self.name, *parts])

    @property
    def label(self) -> str:
        """The name that tables and figures show."""
        return ROWS[self.name].label(*self.parameters)

    def build(self, num_clients: int, cohort_size: int) -> Selector:
        """Return the selector over a population.

        Raises:
            ConfigurationError: If the sizes do not fit, or a user's factory gives no selector.
        """
        selector: Selector = ROWS[self.name].build(num_clients, cohort_size, *self.parameters)
        return selector

    def check(self, num_clients: int, cohort_size: int) -> None:
        """Raise `ConfigurationError` if the scheme cannot be built over a population.

        Only a user's own scheme is built for that, which imports JAX.
        """
        ROWS[self.name].check(num_clients, cohort_size, self)

    def varies(self, num_clients: int, cohort_size: int) -> bool:
        """Return whether any number of clients may be asked in a round, not K or nobody."""
        return ROWS[self.name].varies(num_clients, cohort_size, *self.parameters)

    def depends_on_data(self, num_clients: int, cohort_size: int) -> bool | None:
        """Return whether clients' data decide who is asked; None if a user's own does not say."""
        return ROWS[self.name].depends_on_data(num_clients, cohort_size, *self.parameters)

    @staticmethod
    def parse(text: str) -> Scheme:
        """Read a scheme as written in flags and files.

        The form is a name and its parameters: `uniform`, `weighted`, `partition`,
        `batch_partitioning:T[:FAIRNESS]`, `crossing_partitions:T[:FAIRNESS]`, `bernoulli:CHANCE`,
        `poisson:CHANCE:CHANCE...` (dealt out to the clients in turn), `balls_in_bins:BINS`,
        `power_of_choice:CANDIDATES`, `minimum_separation:ROUNDS:SCHEME`, or the name of a
        scheme that `register` has added.

        Raises:
            ConfigurationError: For an unknown name (naming the nearest), or a missing or bad
                number.

        Examples:
            >>> Scheme.parse("batch_partitioning:4").label
            'Multi-RoundSecAgg (T=4)'
            >>> Scheme.parse("minimum_separation:2:weighted").label
            'Minimum separation (2, Weighted random)'
        """
        name, *rest = str(text).split(":")
        if name not in ROWS:
            raise ConfigurationError(
                f"`scheme` must be a known scheme; got {name!r}; {_hint(str(text))}"
            )
        return Scheme(name, ROWS[name].read(text, rest))

    @staticmethod
    def label_of(text: Any) -> Any:
        """Return the label of a scheme as written in flags and files; what is none as it is.

        Examples:
            >>> Scheme.label_of("batch_partitioning:4"), Scheme.label_of("batch_partitioning")
            ('Multi-RoundSecAgg (T=4)', 'Multi-RoundSecAgg')
        """
        try:
            return Scheme.parse(text).label
        except ConfigurationError:  # a name alone is a sweep's, whose parameters are other axes
            return ROWS[text].label() if text in ROWS else text

    @staticmethod
    def names() -> tuple[str, ...]:
        """Return the names of all schemes, a user's own last."""
        return tuple(ROWS)

    @staticmethod
    def filled(text: str, values: dict[str, Any]) -> str:
        """Return a scheme's text with parameters that are given apart, as axes of a sweep are.

        Args:
            text: As it is written, perhaps without its last parameters.
            values: Parameters by name. None, and those that the scheme does not have, change
                nothing.

        Raises:
            ConfigurationError: If a parameter is given twice, or the scheme makes no sense.

        Examples:
            >>> Scheme.filled("batch_partitioning", {"privacy_target": 3, "fairness": None})
            'batch_partitioning:3'
            >>> Scheme.filled("uniform", {"privacy_target": 3})
            'uniform'
        """
        name, *rest = text.split(":")
        for place, field in enumerate(ROWS[name].fields if name in ROWS else ()):
            value = values.get(field)
            if value is None:
                continue
            require(place >= len(rest), field, "must be given once, in `scheme` or by itself",
                    text, value)  # fmt: skip
            if place == len(rest):  # else one before it is missing, as `Scheme.parse` says
                rest.append(str(value))
        text = ":".join([name, *rest])
        Scheme.parse(text)
        return text


def _hint(text: str) -> str:
    """Return what may have been meant by a scheme that there is not."""
    if "," in text:
        return f"several are set apart by blanks: {' '.join(text.replace(',', ' ').split())}"
    words = {name.replace("_", " "): name for name in ROWS}
    words |= {row.label().lower(): name for name, row in ROWS.items()}
    plain = text.lower().split(":")[0].split(" (")[0].replace("_", " ")
    close = difflib.get_close_matches(plain, words, 1, 0.5)
    return nearest(words[close[0]] if close else text, ROWS)


# --- reading --------------------------------------------------------------------------------------


def _blocks(text: str, rest: list[str]) -> tuple[Any, ...]:
    rule = f"must give a privacy target, as in '{text.split(':')[0]}:4'"
    require(1 <= len(rest) <= 2 and rest[0].isdecimal(), "scheme", rule, text)
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
    require(bool(rest) and rest[0].isdecimal() and int(rest[0]) >= 1, "scheme", rule, text)
    return int(rest[0])


def _candidates(text: str, rest: list[str]) -> tuple[Any, ...]:
    rule = "must give a number of candidates, as in 'power_of_choice:24'"
    require(len(rest) == 1, "scheme", rule, text)
    return (_count(text, rest, rule),)


def _bins(text: str, rest: list[str]) -> tuple[Any, ...]:
    rule = "must give a number of bins from 1 to 2^16, as in 'balls_in_bins:10'"
    require(len(rest) == 1, "scheme", rule, text)
    bins = _count(text, rest, rule)
    require(bins <= 2**16, "scheme", rule, text)
    return (bins,)


def _separated(text: str, rest: list[str]) -> tuple[Any, ...]:
    rule = "must give rounds and a scheme, as in 'minimum_separation:3:uniform'"
    require(len(rest) >= 2, "scheme", rule, text)
    return _count(text, rest, rule), Scheme.parse(":".join(rest[1:]))


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


def _whole_grids(num_clients: int, cohort_size: int, scheme: Scheme) -> None:
    """Check that blocks fit, and that there is a grid of them."""
    _whole_blocks(num_clients, cohort_size, scheme)
    check_grids(num_clients, cohort_size, scheme.parameters[0])


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


def _crossing(num_clients: int, cohort_size: int, *parameters: Any) -> Any:
    from mrsa_jax.selection._lines import crossing_partitions

    return crossing_partitions(num_clients, cohort_size, *parameters)


def _power_of_choice(num_clients: int, cohort_size: int, candidates: int) -> Any:
    from mrsa_jax.selection._power_of_choice import power_of_choice

    return power_of_choice(num_clients, cohort_size, candidates)


def _balls_in_bins(num_clients: int, cohort_size: int, bins: int) -> Any:
    from mrsa_jax.selection._balls_in_bins import balls_in_bins

    return balls_in_bins(num_clients, bins)


def _poisson(num_clients: int, cohort_size: int, *chances: float) -> Any:
    from mrsa_jax.selection._bernoulli import poisson

    del cohort_size
    turns = [chances[i % len(chances)] for i in range(num_clients)]
    return poisson(num_clients, turns if len(chances) > 1 else chances[0])


def _separation(num_clients: int, cohort_size: int, rounds: int, inner: Scheme) -> Any:
    from mrsa_jax.selection._separation import minimum_separation

    return minimum_separation(inner.build(num_clients, cohort_size), rounds)


# --- labels ---------------------------------------------------------------------------------------


def _blocks_label(words: str) -> Callable[..., str]:
    """Return the label of words and, in parentheses, a privacy target and a rule if any."""

    def label(target: int | None = None, fairness: str = "") -> str:
        rule = f", {fairness}" if fairness else ""
        return words + (f" (T={target}{rule})" if target is not None else "")

    return label


ROWS: dict[str, Row] = {
    "uniform": Row(
        _by_name("uniform"),
        label_of_words("Random"),
        papers=("mcmahan2017communication", *_MULTIROUND),
    ),
    "weighted": Row(_by_name("weighted"), label_of_words("Weighted random")),
    "partition": Row(_by_name("partition"), label_of_words("User partition"), check=_whole_blocks),
    "batch_partitioning": Row(
        _by_name("batch_partitioning"),
        _blocks_label("Multi-RoundSecAgg"),
        _blocks,
        ("privacy_target", "fairness"),
        _whole_blocks,
    ),
    "crossing_partitions": Row(
        _crossing,
        _blocks_label("Crossing partitions"),
        _blocks,
        ("privacy_target", "fairness"),
        _whole_grids,
    ),
    "bernoulli": Row(
        _poisson,
        label_of_words("Bernoulli"),
        _chances(1, "a probability in (0, 1], as in 'bernoulli:0.1'"),
        varies=lambda n, k, *chances: True,
    ),
    "poisson": Row(
        _poisson,
        label_of_words("Poisson"),
        _chances(math.inf, "probabilities in (0, 1], as in 'poisson:0.05:0.2'"),
        varies=lambda n, k, *chances: True,
    ),
    "balls_in_bins": Row(
        _balls_in_bins,
        label_of_words("Balls in bins"),
        _bins,
        varies=lambda n, k, bins: True,
    ),
    "power_of_choice": Row(
        _power_of_choice,
        label_of_words("Power of choice"),
        _candidates,
        check=_enough_candidates,
        depends_on_data=lambda n, k, candidates: True,
        papers=("cho2020client",),
    ),
    "minimum_separation": Row(
        _separation,
        label_of_words("Minimum separation"),
        _separated,
        check=lambda n, k, scheme: scheme.parameters[1].check(n, k),
        varies=lambda n, k, rounds, inner: inner.varies(n, k),
        depends_on_data=lambda n, k, rounds, inner: inner.depends_on_data(n, k),
    ),
}
"""Every scheme by the name that flags and files use."""
BUILT_IN = tuple(ROWS)
