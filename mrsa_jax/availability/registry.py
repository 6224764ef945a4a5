"""Availability models by name, a row each.

How flags and files write who is online when.
`name:parameters`, as schemes are; a user's own (`register`) is a row like the
package's. Nothing here imports JAX before a model is built.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mrsa_jax._core.registry import (
    Parameters,
    Reader,
    check_pytree,
    made,
    no_parameters,
    own_row,
    read_member,
)
from mrsa_watch._base.errors import ConfigurationError, require

if TYPE_CHECKING:
    import numpy as np

    from mrsa_jax.availability._random import Availability


@dataclasses.dataclass(frozen=True)
class Row:
    """Row of a model's name.

    Attributes:
        build: (each client's rate float32[N], rates as given, each client's place among
            as many as asked for, *parameters) -> model, and each client's rate in the
            long run.
        rule: What the text must be, where it has parameters.
        read: Parts behind the name -> parameters; there are none.
        check: (rates as given, *parameters) -> None; raises where they do not fit each
            other.
        is_by_client: Whether each client may have its own rate, as where these go by
            label.
        reads: rates as given -> which of `dropout_rates` and `assignment` change
            anything.
        assigned: What `assignment` deals out to the clients, in words.
        papers: Keys of papers, or BibTeX entries.
        code: () -> digests of a user's code, by module; the package's own has its
            version.
    """

    build: Callable[..., tuple[Availability, np.ndarray]]
    rule: str = ""
    read: Reader = no_parameters
    check: Callable[..., None] = lambda rates, *parameters: None
    is_by_client: bool = False
    reads: Callable[[Sequence[float]], tuple[str, ...]] = lambda rates: (
        ("dropout_rates", "assignment") if len(rates) > 1 else ("dropout_rates",)
    )
    assigned: str = "dropout rates"
    papers: tuple[str, ...] = ()
    code: Callable[[], dict[str, str]] = dict


@dataclasses.dataclass(frozen=True)
class Model:
    """An availability model as named in flags and files.

    Attributes:
        row: What is known of its name.
        parameters: What follows the name, read.
    """

    row: Row
    parameters: Parameters = ()

    @staticmethod
    def parse(text: str, dropout_rates: Sequence[float] | None = None) -> Model:
        """Read a model as written in flags and files, and check that it fits its rates.

        The form is `independent`, `markov:ROUNDS`, `cyclic`,
        `diurnal:AMPLITUDE:PERIOD`, `replay:FILE[:random|:absent]`, or the name of one
        that `register` has added.

        Raises:
            ConfigurationError: For an unknown name (naming the nearest), a missing or
                bad number, or one that does not fit the rates.

        Examples:
            >>> Model.parse("markov:5", (0.1, 0.5)).parameters
            (5.0,)
        """
        name, parameters = read_member(text, ROWS, "availability", "model")
        if dropout_rates is not None:
            ROWS[name].check(dropout_rates, *parameters)
        return Model(ROWS[name], parameters)


def _absence(rest: list[str]) -> Parameters:
    (absence,) = map(float, rest)
    if not 1 <= absence < math.inf:
        raise ValueError
    return (absence,)


def _fits_absence(rates: Sequence[float], absence: float) -> None:
    for rate in rates:  # shorter absences cannot make up the rate
        rule = (
            "must give a mean absence of at least p / (1 - p) rounds "
            "for a dropout rate of p"
        )
        require(
            rate == 1 or absence >= rate / (1 - rate) - 1e-9,
            "availability",
            rule,
            absence,
            rate,
        )


def _wave(rest: list[str]) -> Parameters:
    first, second = rest
    amplitude, period = float(first), int(second)
    if period < 1 or not math.isfinite(amplitude):
        raise ValueError
    return amplitude, period


def _fits_wave(rates: Sequence[float], amplitude: float, period: int) -> None:
    require(
        len(rates) == 1, "dropout_rates", "must be one rate for a diurnal model", rates
    )
    require(
        0 <= amplitude <= min(rates[0], 1 - rates[0]),
        "availability",
        "must give an amplitude between 0 and min(p, 1 - p) for a dropout rate of p",
        amplitude,
        rates[0],
    )


def _recorded(rest: list[str]) -> Parameters:
    # a path may hold colons itself: what is no mode belongs to it
    mode = rest.pop() if rest and rest[-1] in ("random", "absent") else ""
    path = pathlib.Path(":".join(rest))
    require(
        path.suffix == ".npy" and path.is_file(),
        "availability",
        "must name an existing .npy file of booleans [rounds, clients]",
        str(path),
    )
    return path, mode


def _independent(each: Any, rates: Sequence[float], places: Any) -> Any:
    from mrsa_jax.availability._random import independent

    return independent(each), each


def _markov(each: Any, rates: Sequence[float], places: Any, rounds: float) -> Any:
    from mrsa_jax.availability._random import markov

    return markov(each, rounds), each


def _cyclic(each: Any, rates: Sequence[float], places: Any) -> Any:
    import numpy as np

    from mrsa_jax.availability._given import cyclic

    return cyclic(list(rates), places(len(rates))), np.full_like(each, np.mean(rates))


def _diurnal(
    each: Any,
    rates: Sequence[float],
    places: Any,
    amplitude: float,
    period: int,
) -> Any:
    from mrsa_jax.availability._given import diurnal

    return diurnal(rates[0], amplitude, period, places(period)), each


def _replay(
    each: Any,
    rates: Sequence[float],
    places: Any,
    path: pathlib.Path,
    mode: str,
) -> Any:
    import numpy as np

    from mrsa_jax.availability._given import replay

    try:
        trace = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        words = f"{path}: {str(error)[:200]}"
        raise ConfigurationError(
            f"`availability` must name a sound .npy file; {words}"
        ) from error
    model = replay(
        trace,
        beyond="absent" if mode == "absent" else "repeat",
        start="random" if mode == "random" else "first",
    ).for_clients(len(each))
    return model, 1 - trace.astype(bool).mean(axis=0, dtype=np.float32)


def register(
    name: str,
    factory: Callable[..., Availability],
    *,
    papers: str | Sequence[str] = (),
    depends: Any = None,
) -> None:
    """Add your own availability model to flags, files, sweeps and `cite`.

    It is written `name`, or `name:3:0.5` if the factory takes parameters after the
    rates. On the command line, `--plugin FILE.py` runs the file that registers it.
    Registering a name again replaces it.

    Args:
        name: Lower-case letters, digits and underscores; none of the package's own.
        factory: `(dropout_rates, *parameters) -> model`, an `Availability` that is a
            pytree; the rates are float32[N], one for each client. If the model has no
            `dropout_rates`, results report these rates.
        papers: BibTeX entries for `cite`, or keys of papers that it knows.
        depends: As in `selection.register`: what results depend on in addition to what
            the factory reaches.

    Raises:
        ConfigurationError: If the name is taken or ill-formed, or the factory cannot
            take rates.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.availability.register(
        ...     "always", lambda rates: mj.availability.independent(0 * rates)
        ... )
        >>> population = mj.study.PopulationConfig(availability="always")
        >>> study = mj.study.SimulateConfig(rounds=9, trials=2, population=population)
        >>> int(mj.study.run(study)["skipped"].sum())
        0
    """
    row = own_row(
        name,
        factory,
        None,
        papers,
        nouns="models",
        given=("each client's dropout rate",),
        taken=BUILT_IN,
        depends=depends,
    )

    def build(each: Any, rates: Sequence[float], places: Any, *parameters: Any) -> Any:
        from mrsa_jax.availability._random import Availability

        model = made(factory, "an availability model", each, *parameters)
        require(
            isinstance(model, Availability),
            "factory",
            "must make a model, with `for_clients`, `init` and `sample`",
            model,
        )
        check_pytree(model, "availability")
        return model.for_clients(len(each)), getattr(model, "dropout_rates", each)

    ROWS[name] = Row(
        build,
        row["rule"],
        row["read"],
        is_by_client=True,
        papers=row["papers"],
        code=row["code"],
    )


ROWS: dict[str, Row] = {
    "independent": Row(_independent, is_by_client=True),
    "markov": Row(
        _markov,
        "must be written markov:ROUNDS, the mean length of an absence, at least 1",
        _absence,
        _fits_absence,
        is_by_client=True,
    ),
    "cyclic": Row(_cyclic, assigned="starts in the cycle of dropout rates"),
    "diurnal": Row(
        _diurnal,
        "must be written diurnal:AMPLITUDE:PERIOD",
        _wave,
        _fits_wave,
        reads=lambda rates: ("dropout_rates", "assignment"),
        assigned="places in the period",
    ),
    "replay": Row(_replay, read=_recorded, reads=lambda rates: ()),
}
"""Models by the name that flags and files use."""
BUILT_IN = tuple(ROWS)
