"""Selection schemes by name, a row each.

What flags, files, tables and citations know of them.
A scheme is written `name:parameters`. A user's own (`register`) is a row like the
package's. Nothing here imports JAX: settings are read and checked without it.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mrsa_jax._core.registry import (
    Parameters,
    Reader,
    built_by,
    label_of_words,
    load_installed,
    made,
    no_parameters,
    own_row,
    read_member,
    written,
)
from mrsa_jax.selection.checks import Fairness, check_grids
from mrsa_watch._base.errors import (
    ConfigurationError,
    MrsaError,
    check_known,
    require,
)

if TYPE_CHECKING:
    from mrsa_jax._core.selector import Selector

_MULTIROUND = ("so2023securing",)


@dataclasses.dataclass(frozen=True)
class Row:
    """Row of a scheme's name.

    Attributes:
        build: (num_clients, cohort_size, *parameters) -> the selector.
        label: parameters -> what tables and figures show; of none, what all of the name
            share.
        rule: What the text must be, where it has parameters.
        read: Parts behind the name -> parameters; there are none.
        fields: Names of the parameters, by which axes of a sweep fill them.
        check: (num_clients, cohort_size, scheme) -> None; raises where it cannot be
            built.
        varies: (num_clients, cohort_size, *parameters) -> whether cohorts differ in
            size.
        depends_on_data: (num_clients, cohort_size, *parameters) -> whether clients'
            data decide who is asked; None where nobody says.
        papers: Keys of papers, or BibTeX entries.
        code: () -> digests of a user's code, by module; the package's own has its
            version.
    """

    build: Callable[..., Any]
    label: Callable[..., str]
    rule: str = ""
    read: Reader = no_parameters
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
    parameters: Parameters = ()

    @property
    def written(self) -> str:
        """The scheme as flags and files write it."""
        parts = (
            getattr(parameter, "written", None) or written(parameter)
            for parameter in self.parameters
        )
        return ":".join([self.name, *parts])

    @property
    def label(self) -> str:
        """The name that tables and figures show."""
        return ROWS[self.name].label(*self.parameters)

    def build(self, num_clients: int, cohort_size: int) -> Selector:
        """Return the selector over a population.

        Raises:
            ConfigurationError: If the sizes do not fit, or a user's factory gives no
                selector.
        """
        selector: Selector = ROWS[self.name].build(
            num_clients, cohort_size, *self.parameters
        )
        return selector

    def check(self, num_clients: int, cohort_size: int) -> None:
        """Raise `ConfigurationError` if the scheme cannot be built over a population.

        Only a user's own scheme is built for that, which imports JAX.
        """
        ROWS[self.name].check(num_clients, cohort_size, self)

    def varies(self, num_clients: int, cohort_size: int) -> bool:
        """Return whether any number of clients may be asked, not K or nobody."""
        return ROWS[self.name].varies(num_clients, cohort_size, *self.parameters)

    def depends_on_data(self, num_clients: int, cohort_size: int) -> bool | None:
        """Return whether clients' data decide who is asked.

        None if a user's own does not say.
        """
        return ROWS[self.name].depends_on_data(
            num_clients, cohort_size, *self.parameters
        )

    @staticmethod
    def parse(text: str) -> Scheme:
        """Read a scheme as written in flags and files.

        The form is a name and its parameters: `uniform`, `weighted`, `partition`,
        `batch_partitioning:T[:FAIRNESS]`, `crossing_partitions:T[:FAIRNESS]`,
        `bernoulli:CHANCE`, `poisson:CHANCE:CHANCE...` (dealt out to the clients in
        turn), `balls_in_bins:BINS`, `power_of_choice:CANDIDATES`,
        `minimum_separation:ROUNDS:SCHEME`, or the name of a scheme that `register` has
        added.

        Raises:
            ConfigurationError: For an unknown name (naming the nearest), or a missing
                or bad number.

        Examples:
            >>> import mrsa_jax as mj
            >>> mj.selection.Scheme.parse("batch_partitioning:4").label
            'Multi-RoundSecAgg (T=4)'
            >>> mj.selection.Scheme.parse("minimum_separation:2:weighted").label
            'Minimum separation (2, Weighted random)'
        """
        return Scheme(*read_member(text, ROWS, "scheme", "scheme"))

    @staticmethod
    def label_of(text: Any) -> Any:
        """Return the label of a scheme as written in flags and files.

        What is none as it is.

        Examples:
            >>> import mrsa_jax as mj
            >>> (
            ...     mj.selection.Scheme.label_of("batch_partitioning:4"),
            ...     mj.selection.Scheme.label_of("batch_partitioning"),
            ... )
            ('Multi-RoundSecAgg (T=4)', 'Multi-RoundSecAgg')
        """
        try:
            return Scheme.parse(text).label
        except (
            ConfigurationError
        ):  # a name alone is a sweep's, whose parameters are other axes
            return ROWS[text].label() if text in ROWS else text

    @staticmethod
    def names() -> tuple[str, ...]:
        """Return the names of all schemes, a user's own last."""
        return tuple(ROWS)

    @staticmethod
    def filled(text: str, values: dict[str, Any]) -> str:
        """Fill parameters that a sweep's axes give apart into a scheme's text.

        Args:
            text: As it is written, perhaps without its last parameters.
            values: Parameters by name. None, and those that the scheme does not have,
                change nothing.

        Raises:
            ConfigurationError: If a parameter is given twice, or the scheme makes no
                sense.

        Examples:
            >>> import mrsa_jax as mj
            >>> mj.selection.Scheme.filled(
            ...     "batch_partitioning", {"privacy_target": 3, "fairness": None}
            ... )
            'batch_partitioning:3'
            >>> mj.selection.Scheme.filled("uniform", {"privacy_target": 3})
            'uniform'
        """
        name, *rest = text.split(":")
        load_installed("scheme", name, ROWS.keys)
        for place, field in enumerate(ROWS[name].fields if name in ROWS else ()):
            value = values.get(field)
            if value is None:
                continue
            require(
                place >= len(rest),
                field,
                "must be given once, in `scheme` or by itself",
                text,
                value,
            )
            # else one before it is missing, as `Scheme.parse` says
            if place == len(rest):
                rest.append(str(value))
        text = ":".join([name, *rest])
        Scheme.parse(text)
        return text


def _whole(text: str, least: int = 1) -> int:
    if not text.isdecimal() or int(text) < least:
        raise ValueError
    return int(text)


def _blocks(rest: list[str]) -> Parameters:
    target, (fairness, *more) = (
        _whole(rest[0], 0) if rest else -1,
        [*rest[1:], "least_used"],
    )
    if target < 0 or len(more) > 1:
        raise ValueError
    check_known(fairness, "fairness", typing.get_args(Fairness), "a known rule")
    return (target,) if fairness == "least_used" else (target, fairness)


def _chances(rest: list[str]) -> Parameters:
    values = tuple(map(float, rest))
    if not values or not all(0 < value <= 1 for value in values):
        raise ValueError
    return values


def _chance(rest: list[str]) -> Parameters:
    (part,) = rest
    return _chances([part])


def _candidates(rest: list[str]) -> Parameters:
    (number,) = map(_whole, rest)
    return (number,)


def _bins(rest: list[str]) -> Parameters:
    (bins,) = map(_whole, rest)
    if bins > 2**16:
        raise ValueError
    return (bins,)


def _separated(rest: list[str]) -> Parameters:
    rounds, name, *more = rest
    return _whole(rounds), Scheme.parse(":".join([name, *more]))


def _whole_blocks(num_clients: int, cohort_size: int, scheme: Scheme) -> None:
    """Check that blocks fit; those of user partition are cohorts."""
    (target, *_), of = [*scheme.parameters, cohort_size], "privacy_target"
    of = of if scheme.parameters else "cohort_size"
    require(target >= 1, of, "must be at least 1", target)
    for argument, size in (("cohort_size", cohort_size), ("num_clients", num_clients)):
        # a scheme that nobody chose may ask for it: one of the defaults
        if size % target:
            raise ConfigurationError(
                f"`{argument}` must be a multiple of `{of}`; got {size} and {target}, "
                "which the "
                f"scheme {scheme.written!r} asks for: take another size, or name other "
                "schemes"
            )


def _whole_grids(num_clients: int, cohort_size: int, scheme: Scheme) -> None:
    """Check that blocks fit, and that there is a grid of them."""
    _whole_blocks(num_clients, cohort_size, scheme)
    check_grids(num_clients, cohort_size, scheme.parameters[0])


def _enough_candidates(num_clients: int, cohort_size: int, scheme: Scheme) -> None:
    (number,) = scheme.parameters
    require(
        cohort_size <= number <= num_clients,
        "scheme",
        "must give from `cohort_size` to `num_clients` candidates",
        scheme.written,
        f"{cohort_size} to {num_clients}",
    )


def _poisson(num_clients: int, cohort_size: int, *chances: float) -> Any:
    from mrsa_jax.selection._bernoulli import poisson

    del cohort_size
    turns = [chances[i % len(chances)] for i in range(num_clients)]
    return poisson(num_clients, turns if len(chances) > 1 else chances[0])


def _separation(num_clients: int, cohort_size: int, rounds: int, inner: Scheme) -> Any:
    from mrsa_jax.selection._within import minimum_separation

    return minimum_separation(inner.build(num_clients, cohort_size), rounds)


def _blocks_label(words: str) -> Callable[..., str]:
    """Return labels of words with a privacy target, and a rule, in parentheses."""

    def label(target: int | None = None, fairness: str = "") -> str:
        rule = f", {fairness}" if fairness else ""
        return words + (f" (T={target}{rule})" if target is not None else "")

    return label


ROWS: dict[str, Row] = {
    "uniform": Row(
        built_by(__package__, "_blocks", "uniform"),
        label_of_words("Random"),
        papers=("mcmahan2017communication", *_MULTIROUND),
    ),
    "weighted": Row(
        built_by(__package__, "_blocks", "weighted"), label_of_words("Weighted random")
    ),
    "partition": Row(
        built_by(__package__, "_blocks", "partition"),
        label_of_words("User partition"),
        check=_whole_blocks,
    ),
    "batch_partitioning": Row(
        built_by(__package__, "_blocks", "batch_partitioning"),
        _blocks_label("Multi-RoundSecAgg"),
        "must give a privacy target, as in 'batch_partitioning:4'",
        _blocks,
        ("privacy_target", "fairness"),
        _whole_blocks,
    ),
    "crossing_partitions": Row(
        built_by(__package__, "_lines", "crossing_partitions"),
        _blocks_label("Crossing partitions"),
        "must give a privacy target, as in 'crossing_partitions:4'",
        _blocks,
        ("privacy_target", "fairness"),
        _whole_grids,
    ),
    "bernoulli": Row(
        _poisson,
        label_of_words("Bernoulli"),
        "must give a probability in (0, 1], as in 'bernoulli:0.1'",
        _chance,
        varies=lambda n, k, *chances: True,
    ),
    "poisson": Row(
        _poisson,
        label_of_words("Poisson"),
        "must give probabilities in (0, 1], as in 'poisson:0.05:0.2'",
        _chances,
        varies=lambda n, k, *chances: True,
    ),
    "balls_in_bins": Row(
        lambda n, k, bins: built_by(__package__, "_bernoulli", "balls_in_bins")(
            n, bins
        ),
        label_of_words("Balls in bins"),
        "must give a number of bins from 1 to 2^16, as in 'balls_in_bins:10'",
        _bins,
        varies=lambda n, k, bins: True,
    ),
    "power_of_choice": Row(
        built_by(__package__, "_power_of_choice", "power_of_choice"),
        label_of_words("Power of choice"),
        "must give a number of candidates, as in 'power_of_choice:24'",
        _candidates,
        check=_enough_candidates,
        depends_on_data=lambda n, k, candidates: True,
        papers=("cho2020client",),
    ),
    "minimum_separation": Row(
        _separation,
        label_of_words("Minimum separation"),
        "must give rounds and a scheme, as in 'minimum_separation:3:uniform'",
        _separated,
        check=lambda n, k, scheme: scheme.parameters[1].check(n, k),
        varies=lambda n, k, rounds, inner: inner.varies(n, k),
        depends_on_data=lambda n, k, rounds, inner: inner.depends_on_data(n, k),
    ),
}
"""Every scheme by the name that flags and files use."""

OF_OTHERS: set[str] = set()
"""Names of rules of other systems, which the suite registers."""

BUILT_IN = tuple(ROWS)


def register(
    name: str,
    factory: Callable[..., Selector],
    *,
    label: str | Callable[..., str] | None = None,
    papers: str | Sequence[str] = (),
    depends: Any = None,
) -> None:
    """Add your own selection scheme, which flags, files, sweeps and `cite` then know.

    It is written as the package's schemes are: `name`, or `name:3:0.5` where the
    factory takes parameters behind N and K. A sweep's axes `privacy_target` and
    `fairness` fill parameters of these names. On the command line, `--plugin FILE.py`
    runs the file that registers it. Registering a name again replaces it, so that a
    notebook's cell can run twice.

    Args:
        name: Lower-case letters, digits and underscores; none of the package's own.
        factory: `(num_clients, cohort_size, *parameters) -> selector`, a `Selector`
            that is a pytree. Parameters are an int or a float where they are written as
            one, else text; a `ConfigurationError` that it raises is shown as the
            settings' own. If its class does not say `depends_on_data = False`, a
            training with noise is refused.
        label: What tables and figures show, followed by the parameters in parentheses;
            or what makes all of it from the parameters; `name` when None.
        papers: BibTeX entries for `cite`, or keys of papers that it knows.
        depends: What the results depend on in addition to the code and the values that
            the factory reaches: any value, or a list of values, in which a
            `pathlib.Path` stands for the content of a file or folder. Required where a
            digest cannot account for something, such as a file that is read; `()` if it
            decides on no result.

    Raises:
        ConfigurationError: If the name is taken or ill-formed, or the factory cannot
            take N and K.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.selection.register(
        ...     "pairs",
        ...     lambda n, k: mj.selection.batch_partitioning(n, k, 2),
        ...     label="Pairs",
        ... )
        >>> study = mj.study.SimulateConfig(rounds=9, trials=2, schemes=("pairs",))
        >>> mj.study.run(study).mrsa.table()[
        ...     ["scheme", "strong_privacy"]
        ... ].values.tolist()
        [['Pairs', 2]]
    """
    arguments = ("the number of clients", "the cohort size")
    row = own_row(
        name,
        factory,
        label,
        papers,
        nouns="schemes",
        given=arguments,
        taken=(*BUILT_IN, *OF_OTHERS),
        depends=depends,
    )
    checked: set[tuple[Any, ...]] = set()

    def by_user(*given: Any) -> Any:
        try:
            return factory(*given)
        except MrsaError as error:
            # what the factory calls has its own arguments, which are no settings
            words = str(error).replace("`", "'")
            rule = f"must be possible: the factory of {name} raised: {words}"
            error.args = (f"`scheme` {rule}", *error.args[1:])
            raise

    def build(num_clients: int, cohort_size: int, *parameters: Any) -> Any:
        from mrsa_jax._core.selector import check_select, check_selector

        built = made(by_user, "a selector", num_clients, cohort_size, *parameters)
        selector = check_selector(built)
        require(
            selector.num_clients == num_clients,
            "factory",
            f"must make a selector over {num_clients} clients",
            selector.num_clients,
        )
        # a study builds it often
        if (num_clients, cohort_size, parameters) not in checked:
            check_select(selector, "factory")
            checked.add((num_clients, cohort_size, parameters))
        return selector

    ROWS[name] = Row(
        build,
        check=lambda n, k, scheme: build(n, k, *scheme.parameters),
        varies=lambda n, k, *parameters: (
            not hasattr(build(n, k, *parameters), "cohort_size")
        ),
        depends_on_data=lambda n, k, *parameters: getattr(
            build(n, k, *parameters), "depends_on_data", None
        ),
        **row,
    )
