"""Each item of the papers from Python, from the command line, and as a point of a sweep."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from small import LONG, OTHERS, SLOW, smallest

import mrsa_jax as mj
from mrsa_jax.cli import main
from mrsa_papers import ITEMS, check_targets
from mrsa_papers._functions import item_function

_CHEAP = (
    *("ccesa.bandwidth", "ccesa.proposition1", "ccesa.tableg2"),
    *("ccesa.theorem2", "ccesa.theorem3", "ccesa.theorem4"),
    *("heterosag.byzantine_bound", "heterosag.examples", "heterosag.expansion"),
    *("heterosag.theorem1", "heterosag.theorem3", "heterosag.theorem4"),
    *("multiround.early_leaks", "multiround.fig2", "multiround.theorem3"),
)
_TIMED = ("ccesa.table2",)  # what it finds are times


def _weighed(target: str) -> Any:
    """Mark an item by what it costs."""
    ((paper, name),) = check_targets(target)
    is_slow = target in SLOW or (paper == "multiround" and ITEMS[paper][name].trains)
    marks = [pytest.mark.long] if target not in _CHEAP else []
    return pytest.param(target, marks=[*marks, *([pytest.mark.slow] * is_slow)])


EVERY = [f"{paper}.{name}" for paper, rows in ITEMS.items() for name in rows]


@pytest.mark.parametrize("target", [_weighed(target) for target in EVERY])
def test_an_item_is_the_same_three_ways(
    target: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ((paper, name),) = check_targets(target)
    values = smallest(target)
    given: dict[str, Any] = {"fast": True}
    if ITEMS[paper][name].trains:
        given["dataset"] = "digits"
    item = item_function(target)(**given, **values)
    found = [(check.claim, check.ours, check.verdict) for check in item.checks]
    assert found
    flags = ["--fast", "--json", "--out", str(tmp_path / "out")]
    flags += ["--dataset", "digits"] if "dataset" in given else []
    for setting, value in values.items():
        several = value if isinstance(value, list | tuple) else (value,)
        flags += [f"--{setting.replace('_', '-')}", *map(str, several)]
    assert main(["reproduce", target, *flags]) == 0
    (printed,) = json.loads(capsys.readouterr().out)["items"]
    printed_checks = [
        (check["claim"], check["ours"], check["verdict"]) for check in printed["checks"]
    ]
    study = {"command": f"reproduce {target}", **given, **values, "grid": {"seed": [0]}}
    results = mj.study.sweep(study, out=tmp_path / "sweep").isel(seed=0).load()
    assert bool(results["done"])
    count = len(found)
    columns = (results[each].values for each in ("claim_text", "ours", "verdict"))
    stored = list(zip(*(each.tolist() for each in columns), strict=True))
    assert stored[count:] == [("", "", "")] * (len(stored) - count)
    cut = [(claim[:160], ours[:120], verdict) for claim, ours, verdict in found]
    if target in _TIMED:
        assert [row[0] for row in printed_checks] == [row[0] for row in found]
        assert [row[0] for row in stored[:count]] == [row[0] for row in cut]
        return
    assert printed_checks == found
    assert stored[:count] == cut


def test_no_item_is_left_out() -> None:
    assert {*OTHERS, *LONG} <= {*EVERY}
    assert {*_CHEAP, *_TIMED} <= {*EVERY}
