"""Run `demo`, `simulate` and `train`: roll out, analyse, train, attack, and save.

`compare` and `from_histories` make the same data sets of things that are no settings:
selectors that are values, and histories of any origin.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import federated, plotting, selection
from mrsa_jax._core.selector import check_selector
from mrsa_jax.availability import Availability
from mrsa_jax.plotting.saved import Ahead
from mrsa_jax.study import _cite
from mrsa_jax.study._progress import Finds, Progress, note, performance_words, warn
from mrsa_jax.study.publishing import _accessor, _report, _summary
from mrsa_jax.study.runs import _build, _simulate_points, _trial
from mrsa_jax.study.runs._build import build_bounded
from mrsa_jax.study.runs._history_variables import (
    EVERYTHING,
    coordinates,
    history_values,
    known_before,
    scheme_variables,
    shares_variables,
    stacked_by_scheme,
    study_variables,
)
from mrsa_jax.study.runs._simulate_points import stated_memory
from mrsa_jax.study.runs._training import train_schemes
from mrsa_jax.study.runs._training_setting import segments_of
from mrsa_jax.study.runs._weak import weak_words
from mrsa_jax.study.settings import _config
from mrsa_jax.study.settings._attributes import attributes
from mrsa_jax.study.settings._config import (
    Config,
    DemoConfig,
    SimulateConfig,
    TrainConfig,
)
from mrsa_jax.study.settings._load import to_toml
from mrsa_jax.study.settings._parts import KINDS as parts
from mrsa_jax.study.stores import _store
from mrsa_jax.study.stores._files import restore_replaced
from mrsa_jax.study.stores._run_folder import run_folder
from mrsa_jax.study.stores._runner import SHARES, VARIABLES, Machine
from mrsa_watch._base.errors import ConfigurationError, check_known, check_size, require

if TYPE_CHECKING:
    import xarray as xr

    from mrsa_jax.selection import Selector


LOG = "participation.jsonl"
"""The participation log of a training, in its folder."""
_TRACKING = "tracking"


@dataclasses.dataclass(frozen=True)
class SavedStudy:
    """A study that has run and is on disk, or is about to be.

    Attributes:
        results: Its data set.
        rows: Its table, a row for each scheme.
        sentences: What the table shows, in words.
        out: Its folder.
    """

    results: xr.Dataset
    rows: tuple[_summary.Row, ...]
    sentences: tuple[str, ...]
    out: pathlib.Path

    @classmethod
    def of(cls, results: xr.Dataset, out: pathlib.Path) -> SavedStudy:
        """Return the study of these results."""
        rows = _summary.summarise(results)
        return cls(results, rows, _summary.said_of(rows, results), out)

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """Headings and cells of what the rows have to show."""
        return _report.table_of(self.rows)

    @property
    def reading(self) -> str:
        """An explanation of the table."""
        return _report.reading(self.rows, self.results)

    @property
    def performance(self) -> dict[str, str]:
        """A line on each scheme's training; empty without one."""
        records = attributes(self.results).get("performance", {})
        return {label: performance_words(record) for label, record in records.items()}

    @property
    def content(self) -> dict[str, Any]:
        """Everything, as `--json` prints it."""
        return {
            "out": str(self.out),
            "rows": [dataclasses.asdict(row) for row in self.rows],
            "sentences": list(self.sentences),
            "performance": attributes(self.results).get("performance", {}),
        }


def check(config: Config) -> str:
    """Reject what only libraries and the machine can tell.

    Return what memory is needed.
    """
    # before anything as large as the clients are many is built
    words = stated_memory(config)
    if config.population.assignment != "by_label":
        _build.build_online(config.seed, config.population)
    for scheme in _config.schemes_of(config):
        selector = _build.build_selector(scheme, config.population)
        _build.build_rule(config.protocol, selector)
        if not isinstance(config, SimulateConfig):
            segments_of(config, selector, dim=config.hetero.num_columns)
    if not isinstance(config, SimulateConfig):
        # a ring too small for one entry is for all
        if config.aggregation.clip_norm is not None:
            build_bounded(config.aggregation, config.population.cohort_size, dim=1)
        from mrsa_jax import data

        name = config.data.dataset
        if (
            not name.startswith("tfds:")
            and name.split(":")[0] not in parts["dataset"].rows
        ):
            check_known(
                name, "dataset", (*data.SOURCES, "tfds:NAME"), "a known data set"
            )
    return words


def run(config: Config, progress: Progress) -> xr.Dataset:
    """Run a study."""
    words = check(config)
    if isinstance(config, SimulateConfig):
        note(progress, words)
        weak = weak_words(config.keep, config.trials * len(config.schemes))
        if weak:
            note(progress, weak)
        return _described(
            config, _simulate(config, progress, _telling(config, progress))
        )
    return _described(config, train_schemes(config, progress))


def _described(config: Config, results: xr.Dataset) -> xr.Dataset:
    """Return results that know what they are of, and what can be asked of them."""
    provenance = {
        "command": _config.command_of(type(config)),
        "config_hash": _config.config_hash(config),
        "config": _config.to_dict(config),
        "seed": config.seed,
    }
    return _accessor.described(results, provenance)


def run_and_save(
    config: Config, progress: Progress, show: Callable[[SavedStudy], None]
) -> SavedStudy:
    """Run a study and write its store, figures with their data, and report.

    A `train` that is interrupted leaves its settings and checkpoints, from which
    `resume` continues; one that is complete is read and given back by `resume`.
    """
    restore_replaced(config.out.absolute())
    _store.check_output(config)
    check(config)
    if isinstance(config, SimulateConfig):
        with _store.study_folder(config) as folder:
            return _save(config, folder, run(config, progress), show)
    if not isinstance(config, TrainConfig):
        with _store.study_folder(config) as folder, Ahead() as ahead:
            telling = _telling(config, progress, ahead)
            callbacks = _callbacks(config, folder.path / _TRACKING)
            trained = train_schemes(config, progress, None, callbacks, telling)
            results = _described(config, trained)
            return _save(config, folder, results, show, ahead)
    if config.resume and _store.is_complete(config):
        note(progress, f"nothing to resume: the run in {config.out} is complete")
        saved = SavedStudy.of(_accessor.open_study(config.out).load(), config.out)
        show(saved)
        return saved
    # checkpoints live in the run's folder, results in the study's: the second takes
    # the place of the first when it is complete
    with run_folder(config, _store.provenance(config)) as folder_of_run:
        if config.resume and not folder_of_run.has_checkpoint:
            note(
                progress,
                f"no checkpoint to resume from in {folder_of_run.path}: starting with "
                "round 1",
            )
        # a run of other settings must not continue from these
        checkpoints = federated.checkpoints(
            folder_of_run.checkpoints,
            every=config.checkpoint_every,
            identity=_config.config_hash(config),
            on_damage=functools.partial(warn, progress),
        )
        logs: dict[str, str] = {}
        trained = train_schemes(
            config,
            progress,
            checkpoints,
            _callbacks(config, folder_of_run.tracking),
            _telling(config, progress),
            logs,
        )
        results = _described(config, trained)
        with _store.study_folder(config, is_held=True) as folder:
            if folder_of_run.tracking.is_dir():
                # copied: the run keeps its own until the study takes its place
                shutil.copytree(
                    folder_of_run.tracking, folder.path / _TRACKING, symlinks=True
                )
            (folder.path / LOG).write_text("".join(logs.values()), encoding="utf-8")
            return _save(config, folder, results, show)


def _callbacks(
    config: DemoConfig | TrainConfig, folder: pathlib.Path
) -> list[Callable[[dict[str, Any]], None]]:
    """Return the callbacks that write the reports on rounds into a folder."""
    return [federated.json_lines(folder / "metrics.jsonl")] if config.track else []


def _telling(
    config: Config, progress: Progress, ahead: Ahead | None = None
) -> Callable[[xr.Dataset], None] | None:
    """Return a function that shows and draws results before they are whole.

    None where nobody looks.
    """
    if not isinstance(progress, Finds):
        return None

    def tell(results: xr.Dataset) -> None:
        so_far = _described(config, results)
        progress.found(SavedStudy.of(so_far, config.out))
        if ahead is not None:
            ahead.begin(so_far)

    return tell


def _save(
    config: Config,
    folder: _store.StudyFolder,
    results: xr.Dataset,
    show: Callable[[SavedStudy], None],
    ahead: Ahead | None = None,
) -> SavedStudy:
    if ahead is not None:
        ahead.draw(results)
    saved = SavedStudy.of(results, config.out)
    show(saved)
    # how trainings went, which no result depends on
    folder.manifest.update(attributes(results))
    folder.write_results(results)
    (folder.path / "config.toml").write_text(
        to_toml(_config.without_wishes(config)), encoding="utf-8"
    )
    # a demo's are for screens alone: `report --column` draws for print
    screens: dict[str, Any] = (
        {"formats": ("png",)} if isinstance(config, DemoConfig) else {}
    )
    plotting.save_study_figures(results, folder.path, ahead=ahead, **screens)
    page = _report.study_page(folder.manifest, results)
    (folder.path / "report.html").write_text(page, encoding="utf-8")
    return saved


def _simulate(
    config: SimulateConfig,
    progress: Progress,
    early: Callable[[xr.Dataset], None] | None,
) -> xr.Dataset:
    """Simulate the schemes, a point each, and report each as soon as it is known."""
    schemes = _config.schemes_of(config)
    online = _build.build_online(config.seed, config.population)
    # of each scheme what is known, and not who took part: that is as large as all
    # trials' clients
    points: list[dict[str, np.ndarray]] = []
    for text, scheme in zip(config.schemes, schemes, strict=True):
        if points and early is not None:
            early(_found(config, online, points))
        progress.stage(scheme.label, config.trials)
        point = dataclasses.replace(config, schemes=(text,))
        selector = _build.build_selector(scheme, config.population)
        quick = config.protocol.is_plain and _build.is_fairness_quick(
            selector, online[0]
        )
        points += _simulate_points.run_points(
            [point],
            Machine(),
            (*EVERYTHING, *config.keep, *(SHARES,) * quick),
            1,
            progress.update,
        )
    return _found(config, online, points)


def _found(
    config: SimulateConfig, online: Any, points: list[dict[str, np.ndarray]]
) -> xr.Dataset:
    """Return the data set of the schemes that were played."""
    import xarray as xr  # takes a second: not before the first trial

    schemes = _config.schemes_of(config)[: len(points)]
    labels = [scheme.label for scheme in schemes]
    axes = coordinates(labels, config.rounds, config.population.num_clients)
    about = VARIABLES["simulated"]
    names: tuple[str, ...] = ("determined_share", "undecided_share")
    determined = {name: about[name] for name in names if name in points[0]}
    # of schemes that it takes long to simulate for it, the gap is unknown
    unknown = dict.fromkeys(VARIABLES["shares"], np.asarray(np.nan))
    points = [unknown | point for point in points]
    return xr.Dataset(
        known_before(config, schemes, *online)
        | study_variables(points, "trial")
        | stacked_by_scheme(determined | VARIABLES["shares"], points),
        coords=axes | {"trial": np.arange(config.trials)},
    )


def compare(
    schemes: Mapping[str, Selector],
    availability: Availability,
    *,
    rounds: int,
    trials: int,
    seed: int = 0,
) -> xr.Dataset:
    """Roll selectors out over many trials, as `run` does for a `SimulateConfig`.

    For selectors and availability models that are values, a user's own among them; a
    scheme that has a name (`selection.register`) can also be studied from settings,
    files and flags.

    Args:
        schemes: Label -> selector, all over the same clients.
        availability: Who is online.
        rounds: J >= 1.
        trials: B >= 1 of each scheme.
        seed: Of everything random; trials are those of `selection.rollout_trials`.

    Returns:
        Data set as of `run`, with `results.mrsa`: axes `scheme`, `trial`, `round`,
        `client`. Expected C is nan where a selector or the availability model does not
        know it, and strong T is guaranteed only of a selector that promises it
        (`block_size`).

    Raises:
        ConfigurationError: If there is no scheme, one is no selector or no pytree, or
            they differ in their number of clients.

    Examples:
        >>> import mrsa_jax as mj
        >>> blocks = mj.selection.batch_partitioning(12, 4, 2)
        >>> found = mj.study.compare(
        ...     {"pairs": blocks}, mj.availability.markov(0.2, 3.0), rounds=9, trials=2
        ... )
        >>> found["strong_privacy"].isel(round=-1).values.tolist()
        [[2.0, 2.0]]
    """
    rule = "must map labels to selectors, at least one"
    labels = _labels(schemes, "schemes", rule)
    # a data set has one axis of clients for all schemes
    sizes = {label: check_selector(schemes[label]).num_clients for label in labels}
    rule = "must be over one number of clients"
    require(len(set(sizes.values())) == 1, "schemes", rule, sizes)
    num_rounds, num_trials = check_size(rounds, "rounds"), check_size(trials, "trials")
    histories = {
        label: _trial.learnt_sums(
            selection.rollout_trials(
                seed, selector, availability, num_rounds, num_trials
            )
        )
        for label, selector in schemes.items()
    }
    rates_or_none = getattr(
        availability.for_clients(sizes[labels[0]]), "dropout_rates", None
    )
    rates = None if rates_or_none is None else np.asarray(rates_or_none)
    # nan where a selector or the availability model does not know it
    expected = [_build.expected_cardinality(schemes[label], rates) for label in labels]
    guarantees = [_build.guaranteed_privacy(schemes[label]) for label in labels]
    settings: dict[str, Any] = {
        "rounds": num_rounds,
        "trials": num_trials,
        "seed": seed,
    }
    settings["availability"] = type(availability).__name__
    papers: list[Any] = []
    for label in labels:
        with contextlib.suppress(ConfigurationError, TypeError):  # a user's own class
            sources = _cite.papers_of_value(schemes[label])
            papers += [[key, reason, label] for key, reason, _ in sources]
    results = _study(
        "compare", histories, rates, expected, guarantees, settings, papers
    )
    gaps = []
    for selector in schemes.values():
        online = availability.for_clients(selector.num_clients)
        quick = _build.is_fairness_quick(selector, online)
        # of schemes that it takes long to simulate for it, the gap is unknown
        gap = (np.nan, np.nan)
        if quick:
            gap = _build.expected_fairness(selector, online, seed)
        gaps.append(gap)
    return results.assign(shares_variables(gaps))


def from_histories(histories: Mapping[str, Any]) -> xr.Dataset:
    """Return a study's data set of participation histories that exist, of any origin.

    Args:
        histories: Label -> who was in which learnt sum, booleans or integer weights [J,
            N], or [B, J, N] for several trials; all of one shape. A round without a sum
            is a row of zeros, and a sum of one client counts as learnt.

    Returns:
        Data set as of `run`, with `results.mrsa`; without an axis `trial` for histories
        [J, N]. Nothing is known of rates and expectations, and no strong T is
        guaranteed.

    Raises:
        ConfigurationError: If there is no history, or one is no such array or of
            another shape.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> history = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1]])
        >>> found = mj.study.from_histories({"mine": history})
        >>> found["exposed_clients"].values.tolist()
        [[0, 0, 3]]
    """
    labels = _labels(
        histories, "histories", "must map labels to histories, at least one"
    )
    arrays = {label: np.asarray(histories[label]) for label in labels}
    for label, array in arrays.items():
        rule = (
            f"must hold booleans or integers [rounds, clients] or with trials first "
            f"({label!r})"
        )
        good = array.dtype.kind in "biu" and array.ndim in (2, 3) and array.size > 0
        require(good, "histories", rule, f"{array.dtype} of shape {array.shape}")
    shapes = {label: array.shape for label, array in arrays.items()}
    require(len(set(shapes.values())) == 1, "histories", "must be of one shape", shapes)
    unknown = [(np.nan, np.nan)] * len(labels)
    settings = {"rounds": int(arrays[labels[0]].shape[-2])}
    return _study("histories", arrays, None, unknown, [1] * len(labels), settings, [])


def _labels(values: Any, argument: str, rule: str) -> list[str]:
    good = isinstance(values, Mapping) and len(values) > 0
    require(
        good and all(isinstance(label, str) for label in values), argument, rule, values
    )
    return list(values)


def _study(
    command: str,
    histories: Mapping[str, np.ndarray],
    rates: np.ndarray | None,
    expected: list[tuple[float, float]],
    guarantees: list[int],
    settings: dict[str, Any],
    papers: list[Any],
) -> xr.Dataset:
    """Return the data set of histories [..., J, N] and of facts about their schemes."""
    import xarray as xr  # takes a second: not before the first trial

    *trials, rounds, clients = next(iter(histories.values())).shape
    analysed = [
        history_values(_trial.analyse(history), EVERYTHING)
        for history in histories.values()
    ]
    variables = study_variables(analysed, *["trial"] * len(trials)) | scheme_variables(
        np.full(clients, np.nan) if rates is None else rates, expected, guarantees
    )
    axes = coordinates(list(histories), rounds, clients)
    if trials:
        axes["trial"] = np.arange(trials[0])
    config = settings | {"labels": list(histories)}
    attrs = {"command": command, "config": config, "papers": papers}
    attrs["seed"] = settings.get("seed", "unknown")
    return _accessor.described(xr.Dataset(variables, coords=axes), attrs)
