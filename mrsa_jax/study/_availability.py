"""Availability models by name, a row each: how flags and files write who is online when.

`name:parameters`, as schemes are. Nothing here imports JAX before a model is built.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mrsa_jax._errors import ConfigurationError, nearest, require

if TYPE_CHECKING:
    import numpy as np

    from mrsa_jax.availability import Availability


@dataclasses.dataclass(frozen=True)
class _Row:
    """What a name stands for.

    Attributes:
        form: How it is written.
        read: (parts behind the name, dropout rates) -> parameters, None where these are ill-formed;
            raises where they do not fit the rates.
        build: (each client's rate float32[N], rates as given, each client's place among as many as
            asked for, *parameters) -> model, and each client's rate in the long run.
    """

    form: str
    read: Callable[[list[str], Sequence[float]], tuple[Any, ...] | None]
    build: Callable[..., tuple[Availability, np.ndarray]]


def parse_availability(text: str, dropout_rates: Sequence[float]) -> tuple[str, tuple[Any, ...]]:
    """Return the name and the parameters of a model as written in flags and files.

    Args:
        text: `independent`, `markov:ROUNDS`, `cyclic`, `diurnal:AMPLITUDE:PERIOD` or
            `replay:FILE[:random|:absent]`.
        dropout_rates: That it is to have.

    Raises:
        ConfigurationError: For an unknown name (naming the nearest), a missing or bad number, or
            one that does not fit the rates.

    Examples:
        >>> parse_availability("markov:5", (0.1, 0.5))
        ('markov', (5.0,))
    """
    name, *rest = str(text).split(":")
    if name not in AVAILABILITY:
        hint = nearest(name, AVAILABILITY)
        raise ConfigurationError(f"`availability` must be a known model; got {text!r}; {hint}")
    row = AVAILABILITY[name]
    try:
        found = row.read(rest, dropout_rates)
    except ValueError as error:
        if isinstance(error, ConfigurationError):
            raise
        found = None
    if found is None:
        raise ConfigurationError(f"`availability` must be written {row.form}; got {text!r}")
    return name, found


def _no_parameters(rest: list[str], rates: Sequence[float]) -> tuple[Any, ...] | None:
    return None if rest else ()


def _absence(rest: list[str], rates: Sequence[float]) -> tuple[Any, ...] | None:
    (absence,) = map(float, rest)
    if not (math.isfinite(absence) and absence >= 1):
        return None
    for rate in rates:  # shorter absences cannot make up the rate
        rule = "must give a mean absence of at least p / (1 - p) rounds for a dropout rate of p"
        fits = rate == 1 or absence >= rate / (1 - rate) - 1e-9
        require(fits, "availability", rule, absence, rate)
    return (absence,)


def _wave(rest: list[str], rates: Sequence[float]) -> tuple[Any, ...] | None:
    first, second = rest
    amplitude, period = float(first), int(second)
    if period < 1 or not math.isfinite(amplitude):
        return None
    require(len(rates) == 1, "dropout_rates", "must be one rate for a diurnal model", rates)
    rule = "must give an amplitude between 0 and min(p, 1 - p) for a dropout rate of p"
    fits = 0 <= amplitude <= min(rates[0], 1 - rates[0])
    require(fits, "availability", rule, amplitude, rates[0])
    return amplitude, period


def _recorded(rest: list[str], rates: Sequence[float]) -> tuple[Any, ...] | None:
    mode = rest.pop() if rest and rest[-1] in ("random", "absent") else ""
    path = pathlib.Path(":".join(rest))
    rule = "must name an existing .npy file of booleans [rounds, clients]"
    require(path.suffix == ".npy" and path.is_file(), "availability", rule, str(path))
    return path, mode


def _independent(each: Any, rates: Sequence[float], places: Any) -> Any:
    from mrsa_jax import availability

    return availability.independent(each), each


def _markov(each: Any, rates: Sequence[float], places: Any, rounds: float) -> Any:
    from mrsa_jax import availability

    return availability.markov(each, rounds), each


def _cyclic(each: Any, rates: Sequence[float], places: Any) -> Any:
    import numpy as np

    from mrsa_jax import availability

    return availability.cyclic(list(rates), places(len(rates))), np.full_like(each, np.mean(rates))


def _diurnal(each: Any, rates: Sequence[float], places: Any, amplitude: float, period: int) -> Any:
    from mrsa_jax import availability

    return availability.diurnal(rates[0], amplitude, period, places(period)), each


def _replay(each: Any, rates: Sequence[float], places: Any, path: pathlib.Path, mode: str) -> Any:
    import numpy as np

    from mrsa_jax import availability

    try:
        trace = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        words = f"{path}: {str(error)[:200]}"
        raise ConfigurationError(f"`availability` must name a sound .npy file; {words}") from error
    model = availability.replay(
        trace,
        beyond="absent" if mode == "absent" else "repeat",
        start="random" if mode == "random" else "first",
    ).for_clients(len(each))
    return model, 1 - trace.astype(bool).mean(axis=0, dtype=np.float32)


AVAILABILITY: dict[str, _Row] = {
    "independent": _Row("independent", _no_parameters, _independent),
    "markov": _Row("markov:ROUNDS, the mean length of an absence, at least 1", _absence, _markov),
    "cyclic": _Row("cyclic", _no_parameters, _cyclic),
    "diurnal": _Row("diurnal:AMPLITUDE:PERIOD", _wave, _diurnal),
    "replay": _Row("replay:FILE, replay:FILE:random or replay:FILE:absent", _recorded, _replay),
}
"""Models by the name that flags and files use."""
