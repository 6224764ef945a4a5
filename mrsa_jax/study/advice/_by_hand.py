"""Explore one history by hand: from sizes and rates to the leakage of its sums.

The view is a function of the settings, which a notebook changes with sliders
(`_explorer`). It compiles nothing, regardless of the change, while clients are offline
independently of one another.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from mrsa_jax import availability, selection
from mrsa_jax._core.forms import use_form
from mrsa_jax.availability.registry import Model
from mrsa_jax.plotting.chart import Chart, Line
from mrsa_jax.plotting.design_charts import participation_chart
from mrsa_jax.privacy.summary import hidden_by_round, summaries
from mrsa_jax.study.advice._advice import number
from mrsa_jax.study.advice._run import advise
from mrsa_jax.study.publishing._assets import asset
from mrsa_jax.study.publishing._explorer import Control, Explorer, Shown, styled
from mrsa_jax.study.publishing._series import Series, keys, places
from mrsa_jax.study.publishing._svg import drawn
from mrsa_jax.study.runs._trial import WORST_AND_MEDIAN
from mrsa_watch._base.errors import check_integer, require
from mrsa_watch._base.html import hidden_words, table, tidy

_MOST_ROUNDS = 300
_WIDE = "grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr))"
_SERIES = [
    Series("worst client", is_scheme=False),
    Series("median client", is_scheme=False),
]
_CODE = """import mrsa_jax as mj

selector = mj.selection.{selector}
online = mj.availability.{online}
history = mj.selection.rollout({seed}, selector, online, num_rounds={rounds})
mj.plotting.plot_participation(history{block})
print(mj.privacy.hidden_among(history).min(), mj.privacy.first_exposure(history))
"""
_CONTROLS = (
    Control("num_clients", "clients N", 4, 240),
    Control("cohort_size", "per round K", 2, 60),
    Control("privacy_target", "blocks of T", 1, 24),
    Control("dropout_rate", "offline", 0, 0.8, 0.05),
    Control(
        "availability", "availability", options=("independent", "markov:5", "markov:20")
    ),
    Control("rounds", "rounds", 5, _MOST_ROUNDS, 5),
)


@dataclasses.dataclass(frozen=True)
class State:
    """One history and what its sums reveal.

    Attributes:
        values: The settings, with N and K rounded down to multiples of T.
        history: bool[J, N], the clients in the sum of each round.
        first_exposure: int32[N], the round that exposes a client; -1 for never.
        hidden: float64[J, 2], sizes that the worst and the median client are hidden
            among.
        fairness_gap: F after all rounds.
        cardinality: C, mean clients per round.
        advice: What `advise` reports on these sizes, in a sentence.
        code: Python that makes this history.
    """

    values: Mapping[str, Any]
    history: np.ndarray
    first_exposure: np.ndarray
    hidden: np.ndarray
    fairness_gap: float
    cardinality: float
    advice: str
    code: str

    @property
    def exposed_clients(self) -> int:
        """Clients whose update follows from the sums."""
        return int((self.first_exposure >= 0).sum())


def state_of(values: Mapping[str, Any]) -> State:
    """Roll out and analyse the history of some settings.

    Examples:
        >>> at = dict(num_clients=25, cohort_size=7, privacy_target=3, dropout_rate=0.1,
        ...           availability="independent", rounds=40, seed=0)
        >>> found = state_of(at)
        >>> found.values["num_clients"], found.values["cohort_size"]
        (24, 6)
        >>> found.exposed_clients
        0
    """
    n, k = int(values["num_clients"]), int(values["cohort_size"])
    size = min(int(values["privacy_target"]), n, k)
    n -= n % size
    k = min(n, k) // size * size
    settings = {**values, "num_clients": n, "cohort_size": k, "privacy_target": size}
    rate, model = settings["dropout_rate"], settings["availability"]
    seed, rounds = settings["seed"], settings["rounds"]
    rule = "must be independent or markov:ROUNDS here"
    is_simple = model.partition(":")[0] in ("independent", "markov")
    require(is_simple, "availability", rule, model)
    online: Any = availability.independent(rate)
    if Model.parse(model, (rate,)).parameters:
        online = availability.markov(rate, float(model.partition(":")[2]))
    uniform = selection.uniform(n, k)
    selector = selection.batch_partitioning(n, k, size) if size > 1 else uniform
    # the first rounds do not depend on how many follow: of chains, one program for any
    # number
    length = rounds if model == "independent" else max(rounds, _MOST_ROUNDS)
    with use_form("loops"):  # nothing is compiled for a shape
        trials = selection.rollout_trials(seed, selector, online, length, 1)
        history = np.array(trials)[0, :rounds]
        summary = summaries(history[None], WORST_AND_MEDIAN)
    assert summary is not None  # histories are small
    hidden = hidden_by_round(history, summary, WORST_AND_MEDIAN)
    code = _CODE.format(
        selector=selector,
        online=online,
        seed=seed,
        rounds=rounds,
        block=f", block_size={size}" * (size > 1),
    )
    counts = summary.counts[0]
    return State(
        values=settings,
        history=history,
        first_exposure=summary.first_exposure[0],
        hidden=hidden,
        fairness_gap=float(np.ptp(counts)) / rounds,
        cardinality=float(counts.sum()) / rounds,
        advice=_advice(n, k, rate, model),
        code=code,
    )


@functools.lru_cache(512)
def _advice(num_clients: int, cohort_size: int, rate: float, model: str) -> str:
    advice = advise(num_clients, cohort_size, rate, trials=0, availability=model)
    return str(advice.sentences[0])


def charts_of(state: State) -> list[Chart]:
    """Return charts of the members of sums, and of sizes clients are hidden among."""
    size = state.values["privacy_target"]
    rounds = 1 + np.arange(len(state.hidden))
    lines = [
        Line(_SERIES[q].label, rounds, state.hidden[:, q], kind="step") for q in (1, 0)
    ]
    levels = (0.0, float(state.values["cohort_size"]))
    rules = [(float(size), f"T = {size}")] * (size > 1)
    hidden = Chart.named("hidden_by_hand", lines, y_range=levels, rules=rules)
    block = size if size > 1 else None
    return [participation_chart(state.history, block, state.first_exposure), hidden]


def shown(values: Mapping[str, Any]) -> Shown:
    """Return the page of a state."""
    state = state_of(values)
    plots = "".join(drawn(chart, places(_SERIES)) for chart in charts_of(state))
    first = state.first_exposure[state.first_exposure >= 0]
    since = f", the first in round {first.min() + 1}" if first.size else ""
    empty = int((~state.history.any(axis=1)).sum())
    rows = [
        (
            "hidden among",
            f"{hidden_words(state.hidden[-1, 0])} (worst client), "
            f"{hidden_words(state.hidden[-1, 1])} (median client)",
        ),
        (
            "exposed clients",
            f"{state.exposed_clients} of {state.history.shape[1]}{since}",
        ),
        (
            "cardinality C",
            f"{number(state.cardinality)} clients per round on average, "
            f"{empty} of {len(state.history)} rounds without one",
        ),
        ("fairness gap F (one history)", number(state.fairness_gap)),
        ("advise", state.advice),
    ]
    content = (
        '<div class="pictures" '
        f'style="{_WIDE}">{plots}</div>{keys(_SERIES, is_switch=False)}'
        f'{table(rows)}<pre tabindex="0">{tidy(state.code)}</pre>'
    )
    html = styled(content, _SERIES, f"\n{asset('chart.js')}")
    return Shown(html, state.values, state.code)


def explore(
    num_clients: int = 120,
    cohort_size: int = 12,
    privacy_target: int = 4,
    dropout_rate: float = 0.1,
    *,
    availability: str = "independent",
    rounds: int = 150,
    seed: int = 0,
) -> Explorer:
    """Return one history with what its sums reveal, to explore by hand in a notebook.

    It shows which client is in which sum, among how many the worst and the median
    client are hidden after each round, exposed clients, C and F, what `advise` says,
    and the Python that makes this history. With `anywidget` installed, a notebook shows
    sliders for all settings.

    Args:
        num_clients: N, rounded down to a multiple of T, as K is.
        cohort_size: K.
        privacy_target: T of batch partitioning; 1 is random selection.
        dropout_rate: Probability to be offline in a round.
        availability: `"independent"` or `"markov:ROUNDS"`, the mean length of an
            absence.
        rounds: J.
        seed: Of the draws.

    Returns:
        An explorer; `.values` are its settings now, `.code` the Python.

    Raises:
        ConfigurationError: If a setting is outside its slider.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.explore(24, 6, 3, rounds=40).values["privacy_target"]
        3

    Cost: 20 to 100 ms of one core per change.
    """
    values: dict[str, Any] = {
        "num_clients": num_clients,
        "cohort_size": cohort_size,
        "privacy_target": privacy_target,
        "dropout_rate": dropout_rate,
        "availability": availability,
        "rounds": rounds,
        "seed": seed,
    }
    for control in _CONTROLS:
        if not control.options:
            value = values[control.name]
            rule = f"must be a number from {control.low} to {control.high}"
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            require(
                is_number and control.low <= value <= control.high,
                control.name,
                rule,
                value,
            )
    check_integer(seed, "seed", 0, 2**32 - 1)
    return Explorer("Which sums reveal whom", state_of(values).values, _CONTROLS, shown)
