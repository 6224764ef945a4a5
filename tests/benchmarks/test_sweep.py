"""Sweeps beside a script: the script finds what we find, and cold processes are cold."""

from __future__ import annotations

import json
import pathlib
import tomllib

import numpy as np
import pytest

from benchmarks import numpy_sweep
from benchmarks.topics import sweep
from mrsa_jax.bench.harness import ResultsDifferError
from mrsa_jax.study.sweeps import plan_sweep, sweep_of

_SMALL = sweep._Size(60, 12, 3, (0.1, 0.3))


def test_the_script_agrees_with_definitions_on_histories_worked_by_hand() -> None:
    # {0, 1}, then {1}: client 0 is exposed in round 1, and with it client 1; nobody
    # else ever
    history = np.zeros((2, 3, 4), bool)
    history[0, 0, :2] = history[0, 1, 1] = True
    history[1, :, 2:] = True  # the same pair in every round
    found = numpy_sweep.analysed(history)
    assert found["strong_privacy"].tolist() == [1, 2]
    assert found["rank"].tolist() == [2, 1]
    assert found["exposed_clients"].tolist() == [2, 0]
    assert found["first_exposed_round"].tolist() == [1, -1]
    np.testing.assert_allclose(found["hidden_among_worst"], [1, 2])
    assert found["skipped_rounds"].tolist() == [1, 0]
    np.testing.assert_allclose(found["fairness_gap"], [2 / 3, 1])
    np.testing.assert_allclose(found["aggregation_cardinality"], [1, 2])


def test_both_sides_compute_the_same_points() -> None:
    plan = plan_sweep(sweep_of(tomllib.loads(_SMALL.study)))
    assert plan.sweep.size == _SMALL.points == 10
    arguments = _SMALL.script
    assert len(arguments["selectors"]) == len(_SMALL.schemes) == 5
    found = numpy_sweep.points(**arguments)
    assert len(found) == 10
    assert all(set(one) == set(found[0]) for one in found)


_PROBE = """
import json, os, pathlib, sys, time

place = pathlib.Path(os.environ["NUMBA_CACHE_DIR"])
is_empty = not place.exists()
place.mkdir(parents=True, exist_ok=True)
(place / "loop.1.nbc").touch()
(place / "loop.nbi").touch()
print("Compiling jit(f) for one shape", file=sys.stderr)
held = bytearray(2**26)
time.sleep(0.1)
print(json.dumps({"empty": is_empty}))
sys.exit(int(sys.argv[1]))
"""


def test_a_fresh_process_has_empty_caches_and_says_what_it_compiled(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "probe.py").write_text(_PROBE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for _ in range(2):
        ended = sweep._fresh(["probe", "0"])
        assert ended.answer == {"empty": True}
        assert ended.compiled == {"xla": 1, "numba": 1}
        assert 2**26 < ended.memory < 2**28
    with pytest.raises(
        ResultsDifferError, match=r"(?s)probe ended with an error:.*Compiling"
    ):
        sweep._fresh(["probe", "3"])


def test_the_script_runs_without_jax() -> None:
    arguments = json.dumps(_SMALL.script)
    ended = sweep._fresh(["benchmarks.numpy_sweep", arguments])
    assert ended.answer == {"done": 10, "jax": False}
    assert ended.compiled == {"xla": 0, "numba": 0}


def test_ten_changes_are_ten_shapes_below_the_largest() -> None:
    largest = sweep._Size(120, 150, 20, (0.1, 0.3, 0.5))
    changed = sweep._below(largest)
    shapes = {(size.clients, size.rounds, size.trials) for size in changed}
    assert len(shapes) == 10
    for size in changed:
        assert all(own <= most for own, most in zip(size[:3], largest[:3], strict=True))
