"""What an audit says of who exposes whom by joining the server."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from mrsa_jax._untrusted import printable
from mrsa_jax.privacy._clients import clients_of
from mrsa_jax.privacy._weak import WeakPrivacy
from mrsa_jax.privacy.logs import ParticipationLog

_MOST_TOLD = 2


class Joining(NamedTuple):
    """A client that is exposed as soon as some others join the server.

    Attributes:
        client: Its name.
        others: Their names.
        fewest: No fewer than so many expose it; as many as `others` where that is decided.
        text: The same in a sentence.
    """

    client: Hashable
    others: tuple[Hashable, ...]
    fewest: int
    text: str

    @staticmethod
    def of(
        log: ParticipationLog, weak: WeakPrivacy, effort: float, hidden: np.ndarray | None
    ) -> tuple[Joining, ...]:
        """Return the clients not exposed whom the fewest others expose, the worst hidden first."""
        found = clients_of(log.participation, weak, effort)
        names = [printable(name) for name in log.clients]
        second = found.upper if hidden is None else hidden
        order = [i for i in np.lexsort((second, found.upper)).tolist() if found.upper[i] > 1]
        return tuple(
            Joining(
                log.clients[i],
                tuple(log.clients[j] for j in found.coalition(i)),
                int(found.lower[i]) - 1,
                f"Client {found.sentence(i, names)}.",
            )
            for i in order[:_MOST_TOLD]
        )
