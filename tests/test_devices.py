"""Trials, histories and clients over eight devices.

The same integers, and nothing exchanged.
The devices are virtual ones of the CPU, in a process of its own.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

_COLLECTIVE = re.compile(
    r" (all-reduce|all-gather|all-to-all|collective-permute|collective-broadcast|reduce-scatter)"
    r"(?:-start)?\("
)


def _collectives(function: Any, *arrays: Any) -> list[str]:
    """Return the exchanges between devices in a compiled program."""
    return sorted(_COLLECTIVE.findall(function.lower(*arrays).compile().as_text()))


def _check() -> dict[str, Any]:
    """Compare eight devices with one; run in a process that has eight."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import mrsa_jax as mj
    from mrsa_jax.secagg.failures import _judging
    from mrsa_jax.selection import _rollout

    mesh = Mesh(np.array(jax.devices()), ("share",))
    cut = NamedSharding(mesh, PartitionSpec("share"))
    same: dict[str, bool] = {"devices": mesh.size == 8}
    exchanged: dict[str, list[str]] = {}

    # trials: 21 do not divide into eight shares
    selector, online = (
        mj.selection.batch_partitioning(12, 4, 2),
        mj.availability.independent(0.2),
    )
    setting = (3, selector, online, 6, 21)
    alone, spread = (
        mj.selection.rollout_trials(*setting, mesh=over) for over in (None, mesh)
    )
    same["rollout_trials"] = bool((np.asarray(alone) == np.asarray(spread)).all())
    one, eight = (
        mj.selection.rollout_metrics(*setting, mesh=over) for over in (None, mesh)
    )
    same["rollout_metrics"] = all(
        np.array_equal(getattr(one, name), getattr(eight, name))
        for name in ("skipped", "counts")
    )
    key, trials = jax.random.key(3), jnp.arange(16, dtype=jnp.uint32)
    roll = _rollout._over_mesh.lower(
        _rollout._roll_chunk, mesh, key, trials, selector, online.for_clients(12), 6
    )
    exchanged["rollout_trials"] = _COLLECTIVE.findall(roll.compile().as_text())
    rounds = (0, 12, 0.4, 0.05, 4, 333)
    one, eight = (mj.secagg.failure_rates(*rounds, mesh=over) for over in (None, mesh))
    same["failure_rates"] = one == eight
    edges, alive = jnp.zeros((16, 12, 12), bool), jnp.ones((16, 5, 12), bool)
    judge = _judging._judge_drawn_over_mesh.lower(jnp.full(12, 4), edges, alive, mesh)
    exchanged["failure_rates"] = _COLLECTIVE.findall(judge.compile().as_text())

    # a batch of histories that its owner has cut: by `jit` as it lies, and by
    # `shard_map`
    draw = np.random.default_rng(0)
    histories = jnp.asarray(draw.integers(0, 2, (16, 7, 6)).astype(bool))
    functions = {
        "rank": mj.modular.rank,
        "first_exposure": mj.privacy.first_exposure,
        "strong_privacy_trajectory": mj.privacy.strong_privacy_trajectory,
        "fairness_gap": mj.selection.fairness_gap,
    }
    for name, function in functions.items():
        expected = np.asarray(function(histories))
        by_jit = jax.jit(function)
        mapped = jax.shard_map(
            function, mesh=mesh, in_specs=cut.spec, out_specs=cut.spec
        )
        for way, run in (("jit", by_jit), ("shard_map", jax.jit(mapped))):
            placed = jax.device_put(histories, cut)
            same[f"{name} {way}"] = bool((np.asarray(run(placed)) == expected).all())
            exchanged[f"{name} {way}"] = _collectives(run, placed)

    # clients: each device sums its own, then one sum over the devices
    values = jnp.asarray(draw.integers(0, 2**32, (24, 50), dtype=np.uint32))
    total = jax.jit(lambda own: mj.modular.ring_sum_over(own, 2**32))
    placed = jax.device_put(values, cut)
    same["ring_sum_over"] = bool(
        (np.asarray(total(placed)) == np.asarray(total(values))).all()
    )
    last_sum = _collectives(total, placed)
    return {"same": same, "exchanged": exchanged, "last_sum": last_sum}


@pytest.mark.slow
def test_eight_devices_give_the_integers_of_one_and_exchange_nothing() -> None:
    flags = "--xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        cwd=pathlib.Path(__file__).parent,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [name for name, is_same in found["same"].items() if not is_same] == []
    # CPUs take one history after the other, wherever it lies, unless `shard_map` says
    # who does
    del found["exchanged"]["first_exposure jit"]
    assert {name: own for name, own in found["exchanged"].items() if own} == {}
    assert found["last_sum"] == ["all-reduce"]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_check()) + "\n")
