"""Settings of one round of secure aggregation at any fidelity, or of a failure study; no JAX."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from mrsa_jax._checks import check_chance, check_least, check_positive
from mrsa_jax._errors import require
from mrsa_jax._flags import Cites, Count, Number
from mrsa_jax._html import Shown
from mrsa_jax._status import FEWEST_IN_A_SUM
from mrsa_jax.study._protocol_config import validate_graph

_FidelityName = Annotated[Literal["real", "array", "sets"] | None, Cites(
    real="cryptography: rfc8439 rfc7748 rfc5869",
    array="pads: rfc8439",
)]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class SecaggConfig(Shown):
    """Run one round of secure aggregation and see what it costs, or count failures.

    SecAgg, SecAgg+ and CCESA are one protocol over different graphs: complete, regular, random.
      mrsa-jax secagg --dropped-before-unmasking 0.1
      mrsa-jax secagg --fidelity real --num-clients 30 --dim 1000
      mrsa-jax secagg --graph erdos_renyi --num-clients 500 --step-dropout-rate 0.026
      mrsa-jax secagg --graph harary --degree 20 --up-mbits 10
      mrsa-jax secagg --fidelity real --num-clients 30 --consistency
      mrsa-jax secagg --graph erdos_renyi --trials 10000 --step-dropout-rate 0.01

    Exit status: 0 done; 1 the round failed, so that no sum was learnt; 2 misuse.
    """

    fidelity: _FidelityName = None
    """real: messages and cryptography; array: the same bits, faster; sets: no pads. None: array."""

    num_clients: int = 100
    """Clients, n."""

    dim: int = 10_000
    """Residues in each client's input, m."""

    modulus_bits: Count = None
    """b of the ring of R = 2**b, 1 to 32; 16 unless --modulus is given."""

    modulus: Count = None
    """R, in place of --modulus-bits: a power of two, or any integer below 2**31."""

    graph: str = "complete"
    """complete (SecAgg), erdos_renyi (CCESA), harary or random_regular (SecAgg+), or your own
    (--plugin)."""

    connection_probability: Number = None
    """Chance of an edge, for --graph erdos_renyi; None: CCESA's p*, if at most 1."""

    degree: Count = None
    """Neighbours of each client, for --graph harary and random_regular."""

    threshold: Count = None
    """Shares that rebuild a secret, t. None: just above half of the holders, or Remark 4's t."""

    step_dropout_rate: float = 0.0
    """Chance to leave at each of the protocol's four steps, q."""

    dropped_before_unmasking: float = 0.0
    """Share of the clients lost between sharing keys and sending padded inputs; drawn at random."""

    allow_unmasking_risk: bool = False
    """Accept a threshold at which CCESA's Appendix F attack could unmask single clients."""

    consistency: bool = False
    """Add the signed consistency check of Bonawitz et al.: nobody unmasks before enough of its
    neighbours have signed the same list of survivors."""

    trials: Count = None
    """Count failures in so many rounds: exact intervals, the theorems' bounds, rare events."""

    up_mbits: Number = None
    """Also model the seconds on clients' links of so many Mbit/s up, ten times that down."""

    compute_slowdown: float = 1.0
    """How many times slower clients compute in that model than one core of a server."""

    seed: int = 0
    """Seed of inputs, secrets, graph and losses; a round is trial 0 of the study of its seed."""

    json: bool = False
    """Print everything as JSON instead."""


def check_secagg(config: SecaggConfig) -> None:
    """Raise `ConfigurationError` for the first setting that breaks a rule."""
    check_least(config, num_clients=FEWEST_IN_A_SUM, dim=1, seed=0, degree=0, threshold=1, trials=1)
    for name in ("step_dropout_rate", "dropped_before_unmasking"):
        check_chance(getattr(config, name), name)
    both = config.modulus_bits is not None and config.modulus is not None
    require(not both, "modulus", "must be left out where --modulus-bits is given", config.modulus)
    bits = config.modulus_bits
    require(bits is None or 1 <= bits <= 32, "modulus_bits", "must lie in [1, 32]", bits)
    validate_graph(config)
    check_positive(config, "compute_slowdown", "up_mbits")
    if config.trials is not None:
        known = config.fidelity in (None, "sets")
        require(known, "fidelity", "must be sets with --trials", config.fidelity)
        lost = config.dropped_before_unmasking
        require(lost == 0, "dropped_before_unmasking", "must be 0 with --trials", lost)
        require(not config.consistency, "consistency", "must be left out with --trials")
        speed = config.up_mbits
        require(speed is None, "up_mbits", "must be left out with --trials", speed)
