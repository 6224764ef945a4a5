"""How much memory `mrsa-jax secagg` needs, told from its settings before JAX is imported."""

from __future__ import annotations

from mrsa_jax._memory import memory_words
from mrsa_jax.study._secagg_config import SecaggConfig

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
