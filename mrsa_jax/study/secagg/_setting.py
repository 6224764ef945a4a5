"""What the flags of `mrsa-jax secagg` mean: a graph, a threshold, a ring, losses, memory."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from mrsa_jax import availability
from mrsa_jax._arrays import on_device
from mrsa_jax._memory import memory_words
from mrsa_jax._streams import Stream, as_key, round_key, trial_key
from mrsa_jax.graphs._registry import Graph
from mrsa_jax.modular import check_modulus
from mrsa_jax.study._commands import SecaggConfig
from mrsa_jax.study._config import secret_seed
from mrsa_jax.study._tables import graph_of, least_safe_threshold, total_dropout_rate

_PROGRAMS = 2**28  # what a command takes at its smallest: programs, libraries, keystream
# Bytes of each pair of clients (edges, shares, messages), and of each entry of an input, by what
# is done; measured on complete graphs.
_PAIR = {"sets": 24, "array": 240, "real": 3000, "trials": 64}
_ENTRY = {"sets": 0, "array": 16, "real": 48, "trials": 0}


def secagg_bytes(config: SecaggConfig) -> int:
    """Return about what a round or a failure study needs; more than it takes on sparse graphs."""
    kind = "trials" if config.trials is not None else config.fidelity or "array"
    entries = config.num_clients * config.dim
    return _PROGRAMS + _PAIR[kind] * config.num_clients**2 + _ENTRY[kind] * entries


def stated_memory(config: SecaggConfig) -> str:
    """Say what is needed, or refuse what the machine has not.

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
        threshold: t.
        modulus: R.
    """

    config: SecaggConfig
    named: Graph
    graph: Any
    threshold: int
    modulus: int

    @classmethod
    def of(cls, config: SecaggConfig) -> Setting:
        """Fill the defaults in.

        Raises:
            ConfigurationError: If there is no such graph, or p* is above 1.
        """
        n, t = config.num_clients, config.threshold
        if config.modulus is not None:
            ring = check_modulus(config.modulus)
        else:
            ring = 2 ** (16 if config.modulus_bits is None else config.modulus_bits)
        named = graph_of(config, n)
        t = least_safe_threshold(named, n) if t is None else t
        return cls(config, named, named.build(n), t, ring)

    @property
    def chance(self) -> float | None:
        """P of an Erdős–Rényi graph, 1.0 of the complete one, None of the others."""
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
        """Return V0 to V4 of trial 0, bool[5, n], and then who is lost before unmasking."""
        n = self.config.num_clients
        key = round_key(trial_key(as_key(self.config.seed), 0), 0, Stream.STEPS)
        steps = availability.independent_steps(self.config.step_dropout_rate)
        alive = np.array(steps.sample(key, on_device(np.ones(n, np.bool_))))
        count = round(self.config.dropped_before_unmasking * n)
        sharing = np.flatnonzero(alive[2])
        lost = self._generator(1).permutation(sharing)[:count]
        alive[3:, lost] = False
        return alive

    def inputs(self) -> np.ndarray:
        """Return random residues, uint32[n, dim]."""
        shape = (self.config.num_clients, self.config.dim)
        return self._generator(0).integers(0, self.modulus, shape, np.uint64).astype(np.uint32)

    def _generator(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([_OFFSET, stream, self.config.seed])

    def secret_seed(self) -> bytes:
        """Return what the round's secrets come from; how it is printed and modelled is no part."""
        plain = dataclasses.replace(self.config, json=False, up_mbits=None, compute_slowdown=1.0)
        return secret_seed(plain)

    def title(self) -> str:
        """Name the graph and its numbers."""
        shape = self.named.label + (", the paper's p*" if self.is_default_chance else "")
        return f"{self.config.num_clients} clients, {shape}, t = {self.threshold}"

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


def finite(value: float) -> float | None:
    """Return a number that JSON can hold, None for the others."""
    return float(value) if math.isfinite(value) else None


def log10(natural: float) -> float:
    """Return a logarithm to base 10 from a natural one."""
    return natural / math.log(10.0)
