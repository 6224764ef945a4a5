"""Run the suite: one sweep for each scheme, and a card from its store."""

from __future__ import annotations

import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mrsa_jax._core.floats import usual_floats
from mrsa_jax.study._progress import Progress, checked_progress
from mrsa_jax.study.stores._records import Index
from mrsa_jax.study.suite._card import Card, card_of, point_of, to_json
from mrsa_jax.study.suite._others import OTHERS
from mrsa_jax.study.suite._page import card_page
from mrsa_jax.study.suite._scenarios import (
    SUITE,
    VERSIONS,
    SuiteConfig,
    Version,
    load_version,
)
from mrsa_jax.study.sweeps._axes import Axis, Sweep
from mrsa_jax.study.sweeps._engine import complete
from mrsa_jax.study.sweeps._keys import Identities
from mrsa_jax.study.sweeps._plan import Plan, plan_sweep
from mrsa_jax.study.sweeps._store import check_sweep_output
from mrsa_watch._base.errors import check_count, check_known, require
from mrsa_watch._base.files import write_whole

CARD = "card.json"
"""Name of a card in the folder of its scheme; `card.html` is its page."""
_MOST_SEEDS = 1000


@usual_floats
def run_suite(
    scheme: str,
    *,
    out: str | os.PathLike[str] = "results/suite",
    suite: str = VERSIONS[-1],
    scenarios: Sequence[str] = (),
    seeds: int | None = None,
    trainings: bool = True,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> Card:
    """Measure a selection scheme in all scenarios of the suite, and write its card.

    The points are a sweep: an interrupted run resumes in the same folder, and more
    seeds compute the new points only.

    Args:
        scheme: A name of the version's `schemes`, whose parameters follow from each
            scenario, or a scheme as flags write it. `{privacy_target}` in it stands for
            the T of the scenario.
        out: Folder of all schemes; each has a folder in it, with the store, `card.json`
            and `card.html`.
        suite: Version of the suite.
        scenarios: Names of scenarios to measure alone: then no card is written.
        seeds: Seeds of each scenario; those of the version if None, or if it has more.
        trainings: Whether to train models in the scenarios that do; the card states it
            in its `parts`. A later run in the folder adds them.
        workers: Compute in this number of processes of this machine, by dask.
        scheduler: Compute on the workers of the dask scheduler at this address, all of
            which see the folder.
        progress: Receives how many points are done.

    Returns:
        The card; of some scenarios alone, their entries are the only ones.

    Raises:
        ConfigurationError: If an argument breaks a rule, or the scheme can be built in
            no scenario.
        OutputExistsError: If the folder holds something else, or more seeds.
    """
    version = load_version(suite)
    for name in scenarios:
        check_known(name, "scenarios", version.scenarios, "a scenario of the suite")
    if seeds is not None:
        check_count(seeds, "seeds", "must be a positive integer or None")
        require(seeds <= _MOST_SEEDS, "seeds", f"must be at most {_MOST_SEEDS}", seeds)
    written = version.schemes.get(scheme, scheme)
    folder = pathlib.Path(out) / re.sub(r"[^\w.-]+", "-", scheme).strip("-")
    store = folder / "points"
    names = scenarios or tuple(version.scenarios_of(trainings=trainings))
    plan = plan_suite(version, written, store, names, seeds)
    told = checked_progress(progress)
    complete(plan, told, workers=workers, scheduler=scheduler)
    card = _card(plan, version, written, trainings=trainings)
    if not scenarios:
        write_whole(folder / CARD, to_json(card))
        write_whole(folder / "card.html", card_page(card))
    return card


def plan_suite(
    version: Version,
    scheme: str,
    store: pathlib.Path,
    scenarios: Sequence[str],
    seeds: int | None = None,
) -> Plan:
    """Return the plan of a scheme's points: these scenarios with their seeds."""
    cases = tuple(
        (name, seed)
        for name, scenario in version.scenarios.items()
        if name in scenarios
        for seed in range(max(scenario.seeds, seeds or 0))
    )
    axis = Axis("case", ("scenario", "seed"), cases)
    base = SuiteConfig(out=store, suite=version.name, scheme=scheme)
    sweep = Sweep(SUITE, base, (axis,), store, skip_impossible=True)
    check_sweep_output(sweep)
    return plan_sweep(sweep)


def _card(plan: Plan, version: Version, scheme: str, *, trainings: bool) -> Card:
    """Read the points of a complete store, and put the card together."""
    index = Index(plan.sweep.out).refresh()
    points: dict[str, list[dict[str, Any]]] = {}
    code: dict[str, str] = {}
    for number in sorted(plan.points):
        (record,) = plan.parts(index, number)
        config = plan.points[number].config
        values = record.values(plan.variables)
        points.setdefault(config.scenario, []).append(
            point_of(values, version, config.scenario)
        )
        code |= code_of_scheme(json.loads(record.made_by))
    (axis,) = plan.sweep.axes
    problems = {}
    for point in plan.impossible:
        name, _ = axis.values[point.index[0]]
        problems[name] = point.problem
    return card_of(version, scheme, points, problems, code, trainings=trainings)


def code_of_scheme(made_by: Mapping[str, str]) -> dict[str, str]:
    """Return the digests of a user's code among all that made a result, by name.

    Those of files alone, which are equal for every version of Python, if there are any;
    else those of all that the code reaches. The package's schemes have none.
    """
    rows = {
        name: digest
        for name, digest in made_by.items()
        if name.startswith("scheme ") and name.split(",")[0][7:] not in OTHERS
    }
    files = {n: d for n, d in rows.items() if not n.endswith((", ", ", python"))}
    return files or rows


def present_code(config: SuiteConfig) -> dict[str, str]:
    """Return the digests of a user's code as it is now."""
    return code_of_scheme(Identities(SUITE).of(config).made_by)
