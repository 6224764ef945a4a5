"""What one run of the four-step protocol gives, whether with real messages or with arrays."""

from __future__ import annotations

import dataclasses

import numpy as np

from mrsa_jax._status import Status
from mrsa_jax.secagg._types import Seeds

__all__ = ["AggregateResult", "StepReport", "Transcript"]


@dataclasses.dataclass(frozen=True)
class StepReport:
    """What one step of the protocol cost.

    Attributes:
        name: "advertise keys", "share keys", "masked input" or "unmask".
        num_clients: Clients whose message of this step arrived (V1 to V4).
        client_seconds: Time that all clients together computed; nan where it was not measured.
        server_seconds: Time that the server computed; nan where it was not measured.
        bytes_up: Bytes that reached the server.
        bytes_down: Bytes that the server sent.
    """

    name: str
    num_clients: int
    client_seconds: float
    server_seconds: float
    bytes_up: int
    bytes_down: int


@dataclasses.dataclass(frozen=True, eq=False)
class Transcript:
    """What the server saw of a run.

    Attributes:
        survivors: bool[5, n], V0 to V4.
        padded_inputs: uint32[n, d], what each client of V3 sent; zeros elsewhere.
        is_informative: bool[n], clients whose secret the shares that came back give away
            (CCESA, Definition 3).
    """

    survivors: np.ndarray
    padded_inputs: np.ndarray
    is_informative: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class AggregateResult:
    """Outcome of one round of secure aggregation.

    Attributes:
        total: uint32[d], the sum over V3 in the ring; zeros unless `status` is OK.
        status: What became of the round.
        learned: bool[L, n], rows of P that the round adds: the sets of clients whose sums the
            server can compute, V3 alone in a private and reliable round; of one that is not
            private, the components of the graph on V3 whose pads can all be removed.
        is_reliable: Whether the sum over V3 can be unmasked (CCESA, Theorem 1).
        is_private: Whether no sum over part of V3 can be (CCESA, Theorem 2).
        unmasking_risk: Whether for some client 2 t_i <= |Adj(i)| + 1, so that a server that lies
            about who dropped out could collect both of its secrets (CCESA, Appendix F).
        transcript: What the server saw.
        seeds: The seeds of all pads.
        steps: What each of the four steps cost.
    """

    total: np.ndarray
    status: Status
    learned: np.ndarray
    is_reliable: bool
    is_private: bool
    unmasking_risk: bool
    transcript: Transcript
    seeds: Seeds
    steps: tuple[StepReport, ...]
