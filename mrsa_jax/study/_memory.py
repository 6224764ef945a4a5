"""What a study needs in memory, told from its settings before anything of it runs."""

from __future__ import annotations

from mrsa_jax._memory import memory_words
from mrsa_jax.study import _trial
from mrsa_jax.study._config import Config, SimulateConfig, schemes_of

_PER_CLIENT = 10 * 2  # bytes of a round with losses: five survivor flags, its sum, its component
_PER_PAIR = 24  # and of each pair of its participants, in the graph of pads


def simulate_bytes(config: Config, together: int = 1) -> int:
    """Return about what rolling several schemes' trials out together, to be analysed, needs."""
    population = config.population
    trials = config.trials if isinstance(config, SimulateConfig) else 1
    shape = config.rounds, population.num_clients
    if config.protocol.is_plain:
        rolled = together * _trial.rolled_bytes(trials, *shape)
        return rolled + _trial.analysed_bytes(trials, *shape)
    pairs = trials * min(population.cohort_size, population.num_clients) ** 2
    played = trials * shape[0] * shape[1] * _PER_CLIENT + pairs * _PER_PAIR
    # trials are analysed one by one, with a row for each round beside those of its sums
    return played + 2 * _trial.analysed_bytes(1, *shape)


def stated_memory(config: Config) -> str:
    """Say what rolling out and analysing needs; refuse what the machine has not.

    Raises:
        ConfigurationError: If memory does not suffice.
    """
    clients = config.population.num_clients
    sizes = f"{config.rounds} rounds"
    reduce = "num_clients or rounds"
    if isinstance(config, SimulateConfig):
        sizes, reduce = f"{sizes}, {config.trials} trials", "num_clients, rounds or trials"
    kept = 32 * len(schemes_of(config)) * (config.rounds + clients)  # of each scheme's results
    if isinstance(config, SimulateConfig):
        kept *= config.trials
    needed = simulate_bytes(config) + kept
    return memory_words(needed, "num_clients", f"{clients} with {sizes}", reduce)
