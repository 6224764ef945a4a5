"""Count failures of secure aggregation, alone and in sweeps, and compare with bounds.

`Setting` holds the meaning of the flags of `mrsa-jax secagg`: a graph, a threshold, a
ring, losses and memory.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Literal

import numpy as np

from mrsa_jax import availability, secagg
from mrsa_jax._core.arrays import on_device
from mrsa_jax._core.memory import memory_words
from mrsa_jax._core.streams import Stream, as_key, round_key, trial_key
from mrsa_jax.graphs.registry import Graph
from mrsa_jax.modular import check_modulus
from mrsa_jax.secagg.failures import RareRate, Rate
from mrsa_jax.secagg.thresholds import before_graphs
from mrsa_jax.study._findings import Findings, as_json
from mrsa_jax.study._progress import Progress
from mrsa_jax.study.settings._commands import SecaggConfig
from mrsa_jax.study.settings._config import secret_seed
from mrsa_jax.study.settings._load import to_dict
from mrsa_jax.study.settings._tables import (
    check_threshold,
    graph_of,
    least_safe_threshold,
    total_dropout_rate,
)
from mrsa_jax.study.stores._runner import VARIABLES, Machine, Variable

# bytes of a command at its smallest: programs, libraries, keystream
_PROGRAMS = 2**28
# Bytes of each pair of clients (edges, shares, messages), and of each entry of an
# input, by what is done; measured on complete graphs.
_PAIR = {"sets": 24, "array": 240, "real": 3000, "trials": 64}
_ENTRY = {"sets": 0, "array": 16, "real": 48, "trials": 0}


def secagg_bytes(config: SecaggConfig) -> int:
    """Estimate the bytes that one round or a failure study needs, fewer if sparse."""
    kind = "trials" if config.trials is not None else config.fidelity or "array"
    entries = config.num_clients * config.dim
    return _PROGRAMS + _PAIR[kind] * config.num_clients**2 + _ENTRY[kind] * entries


def stated_memory(config: SecaggConfig) -> str:
    """State the memory, or refuse more than the machine has.

    Raises:
        ConfigurationError: If memory does not suffice.
    """
    size = f"{config.num_clients} with dim {config.dim}"
    return memory_words(secagg_bytes(config), "num_clients", size, "num_clients or dim")


_OFFSET = 0x5EC  # keeps the inputs' generator apart from others of the same seed


@dataclasses.dataclass(frozen=True)
class Setting:
    """A configuration with its defaults filled in.

    Attributes:
        config: The flags.
        named: The graph with its number.
        graph: How a round's graph is drawn.
        threshold: t, or "majority".
        modulus: R.
    """

    config: SecaggConfig
    named: Graph
    graph: Any
    threshold: int | Literal["majority"]
    modulus: int

    @classmethod
    def of(cls, config: SecaggConfig) -> Setting:
        """Fill the defaults in.

        Raises:
            ConfigurationError: If there is no such graph, or p* is above 1.
        """
        n = config.num_clients
        if config.modulus is not None:
            ring = check_modulus(config.modulus)
        else:
            ring = 2 ** (16 if config.modulus_bits is None else config.modulus_bits)
        named = graph_of(config, n)
        graph = named.build(n)
        # after the graph, whose degree decides which threshold is safe
        t: int | Literal["majority"] = least_safe_threshold(named, n)
        if config.threshold is not None:
            limits = before_graphs(config.threshold, "threshold", graph)
            t = "majority" if limits is None else int(limits)
        return cls(config, named, graph, t, ring)

    @property
    def chance(self) -> float | None:
        """P of an Erdős–Rényi graph, 1.0 of the complete one, None of others."""
        return self.named.chance

    @property
    def is_default_chance(self) -> bool:
        """Whether it is the paper's p*."""
        is_random = self.named.row.setting == "connection_probability"
        return is_random and self.config.connection_probability is None

    @property
    def total_dropout_rate(self) -> float:
        """Chance to leave in one of the four steps."""
        return total_dropout_rate(self.config)

    def adjacency(self) -> np.ndarray:
        """Return the graph of trial 0, bool[n, n]."""
        key = round_key(trial_key(as_key(self.config.seed), 0), 0, Stream.ASSIGNMENT)
        return np.asarray(self.graph.sample(key))

    def survivors(self) -> np.ndarray:
        """Return V0 to V4 of trial 0, bool[5, n], less those lost before unmasking."""
        n = self.config.num_clients
        key = round_key(trial_key(as_key(self.config.seed), 0), 0, Stream.STEPS)
        steps = availability.independent_steps(self.config.step_dropout_rate)
        # a copy that can be written to: arrays of JAX are read-only views
        alive = np.array(steps.sample(key, on_device(np.ones(n, np.bool_))))
        count = round(self.config.dropped_before_unmasking * n)
        # V2: clients that have shared their secrets, and so can leave before unmasking
        sharing = np.flatnonzero(alive[2])
        lost = self._generator(1).permutation(sharing)[:count]
        # out of V3 and V4: their padded inputs never arrive
        alive[3:, lost] = False
        return alive

    def inputs(self) -> np.ndarray:
        """Return random residues, uint32[n, dim]."""
        shape = (self.config.num_clients, self.config.dim)
        inputs = self._generator(0).integers(0, self.modulus, shape, np.uint64)
        return inputs.astype(np.uint32)

    def _generator(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([_OFFSET, stream, self.config.seed])

    def secret_seed(self) -> bytes:
        """Return the seed of the round's secrets, regardless of its print and model."""
        # these change nothing in the round, so its secrets must not depend on them
        plain = dataclasses.replace(
            self.config, json=False, up_mbits=None, compute_slowdown=1.0
        )
        return secret_seed(plain)

    def title(self) -> str:
        """Name the graph and its numbers."""
        chance = ", the paper's p*" if self.is_default_chance else ""
        shape = f"{self.named.label}{chance}"
        is_rule = self.threshold == "majority"
        t = "more than half of each neighbourhood" if is_rule else self.threshold
        return f"{self.config.num_clients} clients, {shape}, t = {t}"

    def to_dict(self) -> dict[str, Any]:
        """Return the setting as JSON has it."""
        return {
            "seed": self.config.seed,
            "num_clients": self.config.num_clients,
            "graph": self.config.graph,
            "connection_probability": self.chance,
            "degree": self.config.degree,
            "threshold": self.threshold,
            "step_dropout_rate": self.config.step_dropout_rate,
            "total_dropout_rate": self.total_dropout_rate,
        }


def log10(natural: float) -> float:
    """Return a logarithm to base 10 from a natural one."""
    return natural / math.log(10.0)


_RARE_TRIALS = 4096  # give two digits
RATES = {
    "no_sum": "ends without its sum",
    "too_few": "fewer than two inputs arrive",
    "unreliable": "unreliable (Theorem 1 fails)",
    "not_private": "not private (Theorem 2 fails)",
    "failed": "Theorem 1 or 2 fails, or both",
    "disconnected": "G_3 is disconnected",
    "unmaskable": "unmaskable by CCESA's Appendix F attack",
}
"""Events that are counted, the outcome first; others are its causes, and risks."""
_RARE = {
    "unreliable": "in which inputs arrive but too few shares come back "
    "(Theorem 1 fails)",
    "not_private": "that is not private",
}
_ENDS = {"rate": "Share", "lower": "Lower end", "upper": "Upper end"}
BOUNDS = (
    "no_sum_first_moment",
    "unreliable_theorem_5",
    "unreliable_union",
    "unreliable_first_moment",
    "not_private_theorem_6",
    "disconnected_exact",
    "unmaskable_union",
)


def run_failures(config: SecaggConfig, progress: Progress) -> Findings:
    """Count failures and compare them with the bounds."""
    assert config.trials is not None  # else it is a round
    setting = Setting.of(config)
    check_risk(setting)
    progress.stage("rounds", config.trials)
    rates = counted(setting, progress.update)
    # those that speak of these thresholds
    bounds = {k: v for k, v in log10_bounds(setting).items() if not math.isnan(v)}
    content = {
        "trials": config.trials,
        **setting.to_dict(),
        "mean_survivors": rates.mean_survivors,
        "rates": {name: dataclasses.asdict(getattr(rates, name)) for name in RATES},
        "log10_bounds": as_json(bounds),
        "rare": _rare(setting, rates, progress),
    }
    title = (
        f"{setting.title()}\nq = {config.step_dropout_rate:g} a step (in all "
        f"{setting.total_dropout_rate:.3g}), {config.trials:,} rounds, seed "
        f"{config.seed}"
    )
    return Findings(title, _sentences(content), content)


def counted(
    setting: Setting, progress: Callable[[int, int], None] | None = None, first: int = 0
) -> secagg.failures.FailureRates:
    """Count the failures of the rounds of a setting."""
    config = setting.config
    assert config.trials is not None  # checked with the other settings
    steps = availability.independent_steps(config.step_dropout_rate)
    return secagg.failure_rates_of(
        config.seed,
        setting.graph,
        steps,
        setting.threshold,
        config.trials,
        progress=progress,
        first=first,
    )


def check_risk(setting: Setting) -> None:
    """Refuse a threshold below the least safe one, unless that is allowed."""
    safe = least_safe_threshold(setting.named, setting.config.num_clients)
    check_threshold(setting.config, setting.threshold, safe)


def log10_bounds(setting: Setting) -> dict[str, float]:
    """Return log10 of the bounds; empty for graphs that the theorems do not cover.

    Of the complete graph they are those of p = 1. Theorem 5 and the exact union have
    one t for all: of majorities they are nan. No majority can be unmasked.
    """
    n, p, q, t = _numbers(setting)
    if p is None:
        return {}
    one_t = isinstance(t, int)
    # logarithms of bounds that exceed 1 are cut to 0
    first_moment = min(0.0, secagg.failures.log_reliability_first_moment(n, p, q, t))
    natural = (
        # a union: no sum if shares are missing, or if fewer than two inputs came
        min(0.0, float(np.logaddexp(first_moment, log_too_few(n, q)))),
        secagg.reliability_bound(n, p, q, t) if one_t else math.nan,
        secagg.failures.exact_reliability_union_bound(n, p, q, t)
        if one_t
        else math.nan,
        first_moment,
        secagg.privacy_bound(n, p, q),
        secagg.failures.log_disconnection_probability(n, p, q),
        secagg.failures.unmasking_bound(n, p, t) if one_t else -math.inf,
    )
    return {name: log10(value) for name, value in zip(BOUNDS, natural, strict=True)}


def log_too_few(n: int, q: float) -> float:
    """Return log P(|V3| < 2), exactly: each client is lost in one of three steps."""
    # 1 - (1 - q)^3, multiplied out so that a small q does not cancel
    lost = q * (3.0 - 3.0 * q + q * q)
    if lost == 0.0:
        return -math.inf
    # lost^n + n (1 - lost) lost^(n - 1), with lost^(n - 1) taken out
    return (n - 1) * math.log(lost) + math.log(lost + n * (1.0 - lost))


def _numbers(setting: Setting) -> tuple[int, float | None, float, Any]:
    config = setting.config
    return (
        config.num_clients,
        setting.chance,
        config.step_dropout_rate,
        setting.threshold,
    )


def _rare(
    setting: Setting, rates: secagg.failures.FailureRates, progress: Progress
) -> dict[str, Any] | None:
    """Estimate events that were never counted; None if all were, or no method is known.

    A round without a sum is unreliable or has fewer than two inputs: `no_sum` has an
    upper end.
    """
    n, p, q, t = _numbers(setting)
    names = [name for name in _RARE if getattr(rates, name).count == 0]
    if p is None or not names:
        return None
    trials = min(setting.config.trials or 1, _RARE_TRIALS)
    progress.stage("rounds with a failure in them", 2 * trials)
    rare_rates = secagg.rare_failure_rates(
        setting.config.seed, n, p, q, t, trials, progress=progress.update
    )
    rare = {name: _rare_rate(getattr(rare_rates, name)) for name in names}
    if rates.no_sum.count == 0:
        # the upper end for unreliable rounds, plus the exact chance of too few inputs
        upper = float(np.logaddexp(rare_rates.unreliable.log_upper, log_too_few(n, q)))
        most = {
            "log10_upper": as_json(log10(min(0.0, upper))),
            "is_impossible": upper == -math.inf,
        }
        rare = {"no_sum": most} | rare
    return rare


def _rare_rate(rate: RareRate) -> dict[str, Any]:
    logs = {"rate": rate.log_rate, "lower": rate.log_lower, "upper": rate.log_upper}
    return {
        "count": rate.count,
        "trials": rate.trials,
        # None for zero, and for unknown ends
        **{f"log10_{name}": as_json(log10(value)) for name, value in logs.items()},
        "is_impossible": rate.log_upper == -math.inf,
    }


def power(log10_value: float | None) -> str:
    """Return a probability as a number, or as a power of ten if small; None is zero."""
    if log10_value is None:
        return "0"
    if log10_value > -3:
        return f"{10**log10_value:.3g}"
    return f"10^{log10_value:.1f}"


def _sentences(report: dict[str, Any]) -> list[str]:
    rare = dict(report["rare"] or {})
    lines = [
        _outcome_sentence(report["rates"], report["trials"], rare.pop("no_sum", None))
    ]
    for name, rate in rare.items():
        label = _RARE[name]
        if rate["is_impossible"]:
            lines.append(f"A round {label} cannot happen here.")
        elif rate["log10_rate"] is None:
            low_to_high = f"at most {power(rate['log10_upper'])}"
            lines.append(f"Chance of a round {label}: {low_to_high}, none was found.")
        else:
            lines.append(
                f"Chance of a round {label}, too rare to count: "
                f"10^{rate['log10_rate']:.2f} (95 %: 10^{rate['log10_lower']:.2f} to "
                f"10^{rate['log10_upper']:.2f}), from {rate['trials']:,} rounds drawn "
                "with such "
                "a failure in them."
            )
    if not report["log10_bounds"]:
        lines.append(
            "The theorems speak of Erdős–Rényi and complete graphs only: no bounds."
        )
    lines.append(
        f"Padded inputs arrive from {report['mean_survivors']:.1f} clients on average."
    )
    return lines


def _outcome_sentence(
    rates: dict[str, dict[str, Any]], trials: int, most: dict[str, Any] | None
) -> str:
    """Report the rounds without a sum; `most` bounds their chance if there are none."""
    ended, too_few = rates["no_sum"]["count"], rates["too_few"]["count"]
    if most is not None and most["is_impossible"]:
        return "Every round ends with a sum here."
    if most is not None:
        return f"Chance of a round without a sum: at most {power(most['log10_upper'])}."
    text = f"{ended:,} of {trials:,} rounds ended without a sum"
    return text + (
        f", {too_few:,} of them with fewer than two inputs." if too_few else "."
    )


_TRACED = ("seed", "connection_probability", "step_dropout_rate", "threshold")


def group_of(config: SecaggConfig) -> Hashable:
    """Return the settings that select the program; the others are its numbers."""
    check_risk(Setting.of(config))
    # numbers that a compiled program takes as arguments do not part groups
    content = {
        name: value
        for name, value in to_dict(config).items()
        # a rule's name selects the program, as a number does not
        if name not in _TRACED or isinstance(value, str)
    }
    return json.dumps(content, sort_keys=True)


def sizes(configs: Sequence[SecaggConfig]) -> dict[str, int]:
    """Return no inner dimensions."""
    return {}


def variables(
    configs: Sequence[SecaggConfig], kept: Collection[str]
) -> dict[str, Variable]:
    """Return the rates with 95 % intervals, the graph's numbers, and the bounds."""
    found_variables: dict[str, Variable] = {}
    for name, text in RATES.items():
        found_variables[f"{name}_count"] = Variable(
            (), "int64", "rounds", f"Rounds: {text}"
        )
        for part, what in _ENDS.items():
            words = f"{what} of rounds: {text}"
            found_variables[f"{name}_{part}"] = Variable((), "float64", "1", words)
    found_variables |= VARIABLES["round"]
    for name in BOUNDS:
        words = (
            "log10 of a bound of CCESA or ours; -inf for zero, none for other graphs"
        )
        found_variables[f"log10_{name}"] = Variable((), "float64", "1", words)
    return found_variables


def together(config: SecaggConfig, machine: Machine) -> int:
    """Return 1: its rounds fill the machine."""
    return 1


def memory_bytes(
    config: SecaggConfig, machine: Machine, count: int, kept: Collection[str] = ()
) -> int:
    """Return about what the graphs of the rounds in flight need."""
    return count * secagg_bytes(config)


def run_points(
    configs: Sequence[SecaggConfig],
    machine: Machine,
    kept: Collection[str],
    together: int,
    *,
    first: int = 0,
) -> Iterator[dict[str, np.ndarray]]:
    """Count the failures of each point, from a `first` round on."""
    for config in configs:
        setting = Setting.of(config)
        rates = counted(setting, first=first)
        values: dict[str, Any] = {
            "mean_survivors": rates.mean_survivors,
            "threshold_used": 0
            if setting.threshold == "majority"
            else setting.threshold,
            "edge_chance": np.nan if setting.chance is None else setting.chance,
        }
        values |= _rate_values({name: getattr(rates, name) for name in RATES})
        for name, value in log10_bounds(setting).items():
            values[f"log10_{name}"] = value
        yield {name: np.asarray(value) for name, value in values.items()}


def _rate_values(rates: Mapping[str, Rate]) -> dict[str, Any]:
    """Return the counts of events, their rates and the ends of the intervals."""
    return {
        f"{name}_{part}": getattr(rate, part)
        for name, rate in rates.items()
        for part in ("count", *_ENDS)
    }


def joined(
    parts: tuple[dict[str, np.ndarray], dict[str, np.ndarray]], trials: tuple[int, int]
) -> dict[str, np.ndarray]:
    """Join a point's failures in two ranges of rounds; `trials` are their sizes."""
    total = sum(trials)
    counts = {name: int(sum(part[f"{name}_count"] for part in parts)) for name in RATES}
    # each mean is a whole number of clients over its rounds
    arrived = sum(
        round(float(part["mean_survivors"]) * count)
        for part, count in zip(parts, trials, strict=True)
    )
    values: dict[str, Any] = parts[1] | {"mean_survivors": arrived / total}
    # rates and intervals do not add up: they are computed from the summed counts
    values |= _rate_values({name: Rate.of(n, total) for name, n in counts.items()})
    return {name: np.asarray(value) for name, value in values.items()}
