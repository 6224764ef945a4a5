"""Cohorts of a selector for pfl-research's simulations; pfl itself is not imported."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from jaxtyping import Array, Key

from mrsa_jax._core.selector import Selector, cohort_size_of
from mrsa_jax.live._chooser import Chooser, check_clients
from mrsa_watch._base.errors import require


class UserSampler:
    """A `user_sampler` for pfl's `FederatedDataset`.

    Each call returns the next user of a cohort.
    Instead of `pfl.data.sampling.get_user_sampler("random", user_ids)`. pfl asks for
    one user at a time, so its `train_cohort_size` must be the selector's K, and K a
    multiple of the number of its processes, which else throw users away. Leave
    `user_id_to_weight` of the dataset out: it orders users across cohorts.

    Args:
        user_ids: N users, by the index of each: blocks are of neighbours.
        selector: One of `mrsa_jax.selection` that asks K clients in every round.
        seed: Integer in [0, 2**32), or a typed key.

    Attributes:
        cohort_size: K.

    Raises:
        ConfigurationError: If the selector is none, is of another number of clients or
            has no K, or a user is there twice; in a call, if a round finds no cohort.

    Examples:
        >>> import mrsa_jax as mj
        >>> sampler = UserSampler("abcdef", mj.selection.batch_partitioning(6, 4, 2))
        >>> first, second = [sorted(sampler() for _ in range(4)) for _ in range(2)]
        >>> all(("a" in cohort) == ("b" in cohort) for cohort in (first, second))
        True

    Source: Granqvist et al., "pfl-research: simulation framework for accelerating
    research in Private Federated Learning" (2024); tried with pfl 0.6.0.
    """

    def __init__(
        self,
        user_ids: Sequence[Any],
        selector: Selector,
        seed: int | Key[Array, ""] = 0,
    ) -> None:
        self._chooser = Chooser(selector, seed)
        self._users = check_clients(user_ids, "user_ids", self._chooser)
        size = cohort_size_of(selector)
        require(
            size is not None, "selector", "must ask K clients in every round", selector
        )
        self.cohort_size = size
        self._queue: deque[int] = deque()

    def __call__(self) -> Any:
        """Return a user."""
        if not self._queue:
            self._queue.extend(self._chooser.play())
            found = bool(self._queue)
            require(
                found,
                "selector",
                "must find a cohort in every round",
                self._chooser.round,
            )
        return self._users[self._queue.popleft()]
