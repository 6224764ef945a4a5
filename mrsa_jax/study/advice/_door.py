"""The choice of a scheme from Python: the settings of the command, as arguments."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from mrsa_jax._errors import ConfigurationError, nearest
from mrsa_jax.study._advise_config import AdviseConfig
from mrsa_jax.study._progress import Progress
from mrsa_jax.study._run import run
from mrsa_jax.study.advice._advice import Advice


def advise(
    num_clients: int | None = None,
    cohort_size: int | None = None,
    dropout_rate: float | int | Sequence[float | int] | None = None,
    *,
    progress: Progress | None = None,
    **settings: Any,
) -> Advice:
    """Choose a selection scheme and its T for a population, or by a log of a system that runs.

    It judges random selection, and batch and crossing partitions for each T that fits; says of
    each what it keeps for ever, the mean size of its sums (exactly where that is known), and what
    simulated rounds leave of privacy and fairness; and takes the one that gives what is demanded
    with the fullest sums. Without demands it takes the one that hides clients best among those
    whose mean sum is at least 0.8 of that of random selection. Where T does not divide N and K,
    the nearest smaller sizes stand in for them.

    Args:
        num_clients: N.
        cohort_size: K.
        dropout_rate: Chance to be away when a round begins, in [0, 1); several are spread evenly
            over the clients.
        progress: Receives how far it is.
        **settings: Others of `AdviseConfig`, among them `log`, a file of any format that
            `privacy.read_log` reads, in which all of the above are measured; `loss_rate`, the
            chance to be lost inside a round; `want_privacy`, `want_hidden`, `min_cardinality`.

    Returns:
        What each scheme gives and which to take: printable, a table in notebooks, with
        `.chosen`, `.options`, `.policies` (what becomes of it when blocks lose members) and
        `.to_dict()`.

    Raises:
        ConfigurationError: If a setting breaks a rule or is unknown, or the log is malformed.
        DataNotFoundError: If there is no such log.

    Examples:
        >>> found = advise(12, 4, 0.3, trials=0)
        >>> found.chosen.scheme, round(found.chosen.cardinality, 2)
        ('batch_partitioning:2', 3.52)
        >>> advise(12, 4, 0.3, trials=0, want_privacy=4).chosen.scheme
        'partition'

    Cost: the exact figures are sums over blocks; simulated are 300 rounds of 120 clients in
    seconds, of 10,000 in a minute, and `trials=0` leaves them out.

    Source: Multi-RoundSecAgg, Theorem 1, for the sizes; what losses inside rounds do, and the
        choice, are this package's.
    """
    known = [field.name for field in dataclasses.fields(AdviseConfig)]
    for name in settings:
        if name not in known:
            raise ConfigurationError(f"`{name}` must be a known setting: {nearest(name, known)}")
    rates: Any = () if dropout_rate is None else dropout_rate
    if not isinstance(rates, Sequence):
        rates = (rates,)
    if isinstance(settings.get("log"), str):
        settings["log"] = pathlib.Path(settings["log"])
    config = AdviseConfig(
        num_clients=num_clients, cohort_size=cohort_size, dropout_rate=tuple(rates), **settings
    )
    found: Advice = run(config, progress)
    return found
