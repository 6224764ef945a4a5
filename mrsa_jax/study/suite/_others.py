"""Selection rules of three other systems, for comparison in the suite.

Each follows the system's public description; its factory states the choices that this
leaves open. All three draw clients at random, and differ in the size of a round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from mrsa_jax._core import streams
from mrsa_jax._core.array_types import Flags
from mrsa_jax._core.arrays import on_device, zeros
from mrsa_jax._core.pytrees import pytree, static
from mrsa_jax._core.selector import SelectorState
from mrsa_jax.selection.registry import OF_OTHERS, ROWS, register
from mrsa_watch._base.errors import check_number, check_size, require

_OVER_SELECTION = 1.3
_FEWEST = 2  # clients in a sum


@pytree
class RandomRounds:
    """Random clients among those that volunteer, in rounds of varying size.

    Attributes:
        volunteers: uint32, threshold of the coin of each available client.
        most: int32, most clients in a round.
        fewest: int32, fewest clients in a round, which is skipped below this number.
        part: int32, K of a round of K / N of the volunteers; 0 for all of them.
        num_clients: N, static.
    """

    volunteers: Array
    most: Array
    fewest: Array
    part: Array
    num_clients: int = static()
    depends_on_data: ClassVar[bool] = False

    def init(self) -> SelectorState:
        """Return the state before the first round: no client has taken part."""
        return SelectorState(zeros(self.num_clients, jnp.int32))

    def select(
        self, key: Array, state: SelectorState, available: Flags
    ) -> tuple[Flags, SelectorState]:
        """Return the cohort of a round, and the new state."""
        n = self.num_clients
        coins = streams.client_words(streams.fold(key, 1), n)
        joins = available & streams.happens(coins, self.volunteers)
        number = jnp.sum(joins, dtype=jnp.int32)
        portion = (self.part * number) // jnp.int32(n)
        size = jnp.where(self.part > 0, portion, number)
        size = jnp.clip(size, self.fewest, self.most)
        words = streams.client_words(streams.fold(key, 2), n)
        # stable, so that equal words (a chance of 2^-31 per pair) keep their order
        order = jnp.argsort(jnp.where(joins, words >> 1, jnp.uint32(2**31)))
        numbers = jnp.arange(n, dtype=jnp.int32)
        ranks = jnp.zeros(n, jnp.int32).at[order].set(numbers)
        cohort = joins & (ranks < size) & (number >= self.fewest)
        return cohort, SelectorState(state.counts + cohort.astype(jnp.int32))


def lotto_random(
    num_clients: int, cohort_size: int, over_selection: float = _OVER_SELECTION
) -> RandomRounds:
    """Return Lotto's random selection, as far as it decides on who takes part.

    Each online client decides by a verifiable coin whether to join, with a chance of
    `over_selection` K / N. If more than K join, K of them are drawn at random; if fewer
    do, the round is of those. The factor is a choice of this package.

    Source: Jiang et al., "Lotto: Secure Participant Selection against Adversarial
    Servers in Federated Learning", USENIX Security 2024, random selection.
    """
    rule = "must be a number of at least 1"
    factor = check_number(over_selection, "over_selection", rule, 1.0, 1e6)
    chance = min(1.0, factor * cohort_size / num_clients)
    return _rounds(num_clients, cohort_size, chance=chance)


def fcp_sampling(
    num_clients: int, cohort_size: int, minimal_goal: float = 0.5
) -> RandomRounds:
    """Return the sampling of the Federated Compute Platform.

    The selector keeps K of the online devices by reservoir sampling. The round starts
    if at least the minimal goal count of devices is online. The goal as a part of K is
    a choice of this package; devices that are selected in reserve, and drop out, are
    left out.

    Source: Bonawitz et al., "Towards Federated Learning at Scale: System Design", MLSys
    2019, sections 2.2 and 4.2.
    """
    rule = "must be a number from 0 to 1"
    goal = check_number(minimal_goal, "minimal_goal", rule, 0.0, 1.0)
    fewest = max(_FEWEST, round(goal * cohort_size))
    return _rounds(num_clients, cohort_size, fewest=fewest)


def flower_sampling(num_clients: int, cohort_size: int) -> RandomRounds:
    """Return the default sampling of Flower's FedAvg at `fraction_fit` = K / N.

    A round has the whole part of K / N times the number of online clients, at least
    two, drawn at random.

    Source: Flower's documentation of `flwr.server.strategy.FedAvg`, `fraction_fit` and
    `min_fit_clients`.
    """
    return _rounds(num_clients, cohort_size, part=cohort_size)


def _rounds(
    num_clients: int,
    cohort_size: int,
    *,
    chance: float = 1.0,
    fewest: int = _FEWEST,
    part: int = 0,
) -> RandomRounds:
    clients = check_size(num_clients, "num_clients")
    rule = "must be small enough for products with num_clients below 2^31"
    require(cohort_size * clients < 2**31, "cohort_size", rule, cohort_size)
    return RandomRounds(
        on_device(streams.threshold(chance), jnp.uint32),
        on_device(cohort_size, jnp.int32),
        on_device(fewest, jnp.int32),
        on_device(part, jnp.int32),
        clients,
    )


LOTTO = """@inproceedings{jiang2024lotto,
  title     = {Lotto: Secure Participant Selection against Adversarial Servers in
               Federated Learning},
  author    = {Jiang, Zhifeng and Ye, Peng and He, Shiqi and Wang, Wei and
               Chen, Ruichuan and Li, Bo},
  booktitle = {33rd USENIX Security Symposium},
  year      = {2024}
}"""
FCP = """@inproceedings{bonawitz2019towards,
  title     = {Towards Federated Learning at Scale: System Design},
  author    = {Bonawitz, Keith and Eichner, Hubert and Grieskamp, Wolfgang and others},
  booktitle = {Proceedings of Machine Learning and Systems},
  year      = {2019}
}"""
FLOWER = """@article{beutel2020flower,
  title   = {Flower: A Friendly Federated Learning Research Framework},
  author  = {Beutel, Daniel J. and Topal, Taner and Mathur, Akhil and others},
  journal = {arXiv preprint arXiv:2007.14390},
  year    = {2020}
}"""


OTHERS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "lotto_random": (lotto_random, "Lotto, random", LOTTO),
    "fcp_sampling": (fcp_sampling, "FCP's sampling", FCP),
    "flower_sampling": (flower_sampling, "Flower's sampling", FLOWER),
}
"""Rules of other systems: factory, label and paper by name."""


def register_others() -> None:
    """Register the three rules, which the suite compares with those of the package."""
    for name, (factory, label, paper) in OTHERS.items():
        if name not in OF_OTHERS:
            rule = "must be none of the suite's own schemes"
            require(name not in ROWS, "name", rule, name)
            register(name, factory, label=label, papers=paper, depends=())
            OF_OTHERS.add(name)
