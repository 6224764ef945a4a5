"""Which schemes come into question for N clients and cohorts of K: sizes that T divides."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from mrsa_jax._errors import ConfigurationError
from mrsa_jax.selection import expected_cardinality
from mrsa_jax.selection._registry import BUILT_IN
from mrsa_jax.study._config import Scheme, parse_scheme, scheme_names

_MOST_TARGETS, _FEWEST_TARGETS = 7, 3
_LARGEST_GRID = 8  # the size of whose sums is known exactly
_LEAST_SUM = 0.02  # of the cohort, in a mean sum
_LEAST_COHORT, _LEAST_CLIENTS = 0.75, 0.75  # of what was asked for, where T does not divide it


@dataclasses.dataclass(frozen=True)
class Setting:
    """For whom a scheme is chosen.

    Attributes:
        num_clients: N.
        cohort_size: K.
        dropout_rates: Chances to be away when a round begins, spread evenly over the clients.
        loss_rate: Chance of a client that takes part to be lost before its update is summed.
        availability: Who is away when, as flags write it.
        rounds: J, that are simulated.
        trials: B; 0 for closed forms alone.
        seed: Of everything random.
    """

    num_clients: int
    cohort_size: int
    dropout_rates: tuple[float, ...]
    loss_rate: float
    availability: str
    rounds: int
    trials: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A scheme with the sizes that it fits.

    Attributes:
        scheme: As flags and files name it.
        num_clients: N, or the largest number below that T divides.
        cohort_size: K, or the same of it.
    """

    scheme: Scheme
    num_clients: int
    cohort_size: int


def candidates(setting: Setting, want: int | None, further: Iterable[str]) -> list[Candidate]:
    """Return random selection and what protects better, each with the sizes that it fits.

    Args:
        setting: For whom.
        want: T that is demanded, which is then among those tried.
        further: Schemes that the user names.
    """
    n, k = setting.num_clients, setting.cohort_size
    found = [Candidate(parse_scheme("uniform"), n, k)]
    if len(set(setting.dropout_rates)) > 1:  # else it differs only in how evenly all take part
        found.append(Candidate(parse_scheme("weighted"), n, k))
    for t in _thinned(setting, targets(n, k, want), want):
        sizes = n - n % t, k - k % t
        plain = "partition" if t == sizes[1] else f"batch_partitioning:{t}"
        found.append(Candidate(parse_scheme(plain), *sizes))
        if t**2 <= sizes[0] and (t <= _LARGEST_GRID or t == want):
            found.append(Candidate(parse_scheme(f"crossing_partitions:{t}"), *sizes))
    own = [name for name in scheme_names() if name not in BUILT_IN]
    for text in [*further, *own]:
        try:
            one = Candidate(parse_scheme(text), n, k)
            one.scheme.check(n, k)
        except ConfigurationError:
            if text in further:
                raise
            continue  # it has parameters, which only the user knows, or it is not for such cohorts
        if one not in found:
            found.append(one)
    return found


def _thinned(setting: Setting, sizes: list[int], want: int | None) -> list[int]:
    """Return the block sizes that are of use: but one, those with sums often enough, and few."""
    rate = sum(setting.dropout_rates) / len(setting.dropout_rates)
    kept: list[int] = []
    for t in sizes:
        n, k = setting.num_clients, setting.cohort_size
        mean = expected_cardinality(n - n % t, k - k % t, t, rate) * (1 - setting.loss_rate) ** t
        kept.append(t)
        if mean < _LEAST_SUM * k:  # the first that fails shows where it ends
            break
    if len(kept) > _MOST_TARGETS:
        steps = [i * (len(kept) - 1) / (_MOST_TARGETS - 1) for i in range(_MOST_TARGETS)]
        kept = [kept[round(step)] for step in steps]
    return sorted({*kept, *(t for t in sizes if t == want)})


def targets(num_clients: int, cohort_size: int, want: int | None = None) -> list[int]:
    """Return block sizes T > 1 worth a look, ascending: first of all those that divide N and K.

    Where hardly any does, also those that leave few clients and little of a cohort over. What is
    demanded is among them if cohorts are so large.

    Examples:
        >>> targets(120, 12), targets(121, 11), targets(120, 12, 5)
        ([2, 3, 4, 6, 12], [2, 3, 5, 9, 10, 11], [2, 3, 4, 5, 6, 12])
    """
    n, k = num_clients, cohort_size
    common = math.gcd(n, k)
    found = {t for t in range(2, common + 1) if common % t == 0}
    if len(found) < _FEWEST_TARGETS:
        found |= {t for t in range(2, k + 1) if _fits(n, k, t)}
    return sorted(found | ({want} if want is not None and 1 < want <= k else set()))


def _fits(n: int, k: int, t: int) -> bool:
    return k - k % t >= _LEAST_COHORT * k and n - n % t >= _LEAST_CLIENTS * n
