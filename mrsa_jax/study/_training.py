"""Studies that train.

Every scheme on the same clients, with what it took to train them.
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax import attacks, federated, privacy, selection
from mrsa_jax._core.device import platform
from mrsa_jax._core.programs import LITTLE
from mrsa_jax._core.selector import cohort_size_of
from mrsa_jax._core.threads import in_context
from mrsa_jax.study import _build, _config, _measured, _segments, _trial
from mrsa_jax.study._config import DemoConfig, Scheme, TrainConfig
from mrsa_jax.study._participation import log_of
from mrsa_jax.study._progress import Meter, Progress, Silent
from mrsa_jax.study._run_folder import DivergedError
from mrsa_jax.study._runner import VARIABLES
from mrsa_jax.study._simulate_points import (
    EVERYTHING,
    coordinates,
    kept_variable,
    known_before,
    known_of,
    nan_if_negative,
    study_variables,
)
from mrsa_jax.study._training_setting import (
    Played,
    Setting,
    as_trained,
    guaranteed,
    num_slots,
    plain_aggregator,
    play,
    setting_of,
    shared_training,
    training_of,
)

if TYPE_CHECKING:
    import xarray as xr

Callback = Callable[[dict[str, Any]], None]

MAKERS: dict[_config.TrackerName, Callable[[pathlib.Path], Any]] = {
    "json_lines": lambda folder: federated.json_lines(folder / "metrics.jsonl"),
    "tensorboard": lambda folder: federated.tensorboard(folder / "tensorboard"),
    "wandb": lambda folder: federated.wandb(folder),
}
_AFTER_EACH_ROUND = ("strong_privacy", "exposed_clients", "hidden_among_worst",
                     "hidden_among_median", "fairness_gap", "aggregation_cardinality")  # fmt: skip


@contextlib.contextmanager
def trackers(
    names: Sequence[_config.TrackerName], folder: pathlib.Path
) -> Iterator[list[Callback]]:
    """Give what writes metrics into a folder, and close it at the end, however that comes.

    Raises:
        ConfigurationError: Before anything is written, if a library is not installed.
    """
    with contextlib.ExitStack() as stack:
        made = [MAKERS[name](folder) for name in names]
        for one in made:
            stack.callback(one.close)
        yield made


def teller(
    setting: Setting,
    scheme: Scheme,
    played: Played,
    note: Callback,
    callbacks: Sequence[Callback],
) -> Callback:
    """Return what tells callbacks all that is known of a scheme's rounds.

    Args:
        setting: What the trainings of the study share.
        scheme: The scheme that is trained.
        played: Its rounds.
        note: Receives words about the training alone.
        callbacks: Each is given a separate dictionary.
    """
    if not callbacks:
        return note
    history = played.history
    known = {name: np.asarray(getattr(history, name)) for name in _AFTER_EACH_ROUND}
    spent, seed = _measured.spent(setting, played), setting.config.seed

    def found(index: int) -> dict[str, Any]:
        own = {name: path[index].item() for name, path in known.items()}
        if own["strong_privacy"] < 1:  # nothing was learnt yet
            del own["strong_privacy"]
        own = {name: value for name, value in own.items() if not np.isnan(value)}
        return own | spent.get(index, {})

    def tell(metrics: dict[str, Any]) -> None:
        note(metrics)
        index = metrics["step"]
        who = {"step": index, "scheme": scheme.label, "seed": seed}
        # the sums are no longer those that were rolled out once an upload has failed
        own = {} if metrics["failed_uploads"] else found(index)
        for callback in callbacks:
            callback(who | metrics | own)

    return tell


_WEAK = VARIABLES["weak"]
# what a table shows of a scheme once it is trained
_LEARNT = ("accuracy", "reconstruction_error")


def train_schemes(
    config: DemoConfig | TrainConfig,
    progress: Progress,
    checkpoints: Any = None,
    callbacks: Sequence[Callback] = (),
    early: Callable[[xr.Dataset], None] | None = None,
    logs: dict[str, str] | None = None,
) -> xr.Dataset:
    """Train every scheme of a study, and in a demo attack it.

    What a server can know of who took part does not depend on training: it is reported
    first.

    Args:
        config: The study.
        progress: Receives how far it is.
        checkpoints: Where a study of one scheme is saved and continued from, or None.
        callbacks: Each is called for every round of every scheme.
        early: Receives a data set of what is known before anything is trained, and
            after each scheme what is known by then; what is still to come is nan or
            missing.
        logs: Receives the participation log of each scheme, by label.

    Returns:
        The data set; how the trainings went is in its attribute `performance`, by
        scheme.

    Raises:
        DivergedError: If the learning rate makes a training diverge.
    """
    schemes, population = _config.schemes_of(config), config.population
    axes = coordinates(
        [scheme.label for scheme in schemes], config.rounds, population.num_clients
    )
    with Compiling(config) as compiling:
        setting = setting_of(config, progress)
        available, rates = _build.build_online(config.seed, population, setting.clients)
        shared = known_before(config, schemes, available, rates)
        kept = [guaranteed(setting, scheme) for scheme in schemes]
        shared |= kept_variable(kept)
        compiling.rounds(setting, schemes)
        progress.stage("what the server can know", len(schemes))
        played = []
        for scheme in schemes:
            played.append(play(setting, scheme, available, compiling.wait))
            progress.update(len(played), len(schemes))
        known = shared | study_variables(
            [known_of(one.history, EVERYTHING) for one in played]
        )
        weak = [_quick_weak(config, one) for one in played]
        tell = functools.partial(_tell, early, known, axes, weak)
        tell([])
    columns: list[dict[str, Any]] = []
    awaited: list[dict[str, Future[Any]]] = []
    with contextlib.ExitStack() as stack:
        beside = ThreadPoolExecutor(1)  # a training leaves a core idle
        stack.callback(beside.shutdown, cancel_futures=True)
        for place, (scheme, own) in enumerate(zip(schemes, weak, strict=True)):
            is_last = scheme is schemes[-1]
            column, later, actual = _train_one(
                setting,
                scheme,
                played[place],
                checkpoints,
                callbacks,
                beside,
                is_last=is_last,
            )
            if actual is not played[place]:
                played[place], own = actual, _quick_weak(config, actual)
                kept[place] = column.pop("guaranteed_privacy")
                known |= kept_variable(kept)
                known |= study_variables(
                    [known_of(one.history, EVERYTHING) for one in played]
                )
            if logs is not None:
                logs[scheme.label] = log_of(setting, actual)
            columns.append(own | column)
            awaited.append(later)
            while awaited and (
                is_last or all(found.done() for found in awaited[0].values())
            ):
                first, later = len(columns) - len(awaited), awaited.pop(0)
                columns[first] |= {
                    name: found.result() for name, found in later.items()
                }
                tell(columns[: first + 1])
    trained = _trained_variables(columns) | {"samples": ("client", setting.samples)}
    if setting.weights is not None:
        about = (
            "By how much each client's update was multiplied in the sums, and so in P"
        )
        trained["weights"] = ("client", setting.weights, {"description": about})
    if not config.protocol.is_plain:
        learnt = np.stack([c["components"] for c in columns])
        about = "Smallest client of the learnt sum that the client is in; nan: in none"
        axes_of_it = ("scheme", "round", "client")
        trained["learnt_component"] = (
            axes_of_it,
            nan_if_negative(learnt),
            {"description": about},
        )
    segmented = [one.segments for one in played if one.segments is not None]
    if segmented:
        trained |= segment_variables(played)
        known |= {"upload_rate": ("client", segmented[0].rates, {"units": "bit/s"})}
    found, more = _measured.variables(config, columns)
    pairs = zip(schemes, columns, strict=True)
    performance = {scheme.label: column["performance"] for scheme, column in pairs}
    import xarray as xr  # takes a second: not before the first round

    return xr.Dataset(
        known | trained | found,
        coords=axes | more | {"evaluation": columns[0]["evaluated_rounds"] + 1},
        attrs={"performance": performance},
    )


def segment_variables(played: Sequence[Played]) -> dict[str, Any]:
    """Return the variables of what groups and segments mean in the rounds of each scheme."""
    facts = [
        one.segments.facts(*one.sent_and_summed).variables()
        for one in played
        if one.segments
    ]
    found: dict[str, Any] = {}
    for name in facts[0]:
        dims = ("scheme", "round") if name.endswith("_by_round") else ("scheme",)
        found[name] = dims, np.stack([np.asarray(own[name]) for own in facts])
    return found


def _quick_weak(
    config: DemoConfig | TrainConfig, played: Played
) -> dict[str, np.ndarray]:
    """Return bounds on weak T after each round that take no search, for a demo."""
    is_plain = played.rounds is None and played.segments is None
    if not isinstance(config, DemoConfig) or not is_plain:
        return {}
    bounds = _trial.quick_bounds(played.history, played.weights)
    return {} if bounds is None else dict(zip(_WEAK, bounds, strict=True))


def _tell(
    early: Callable[[xr.Dataset], None] | None,
    known: dict[str, Any],
    axes: dict[str, Any],
    weak: Sequence[dict[str, np.ndarray]],
    columns: Sequence[dict[str, Any]],
) -> None:
    """Tell what is known of all schemes and what the first of them have learnt."""
    if early is None:
        return
    import xarray as xr

    more = {
        name: np.full_like(columns[0][name], np.nan)
        for name in _LEARNT
        if columns and name in columns[0]
    }
    learnt = [
        own | (more if i >= len(columns) else {name: columns[i][name] for name in more})
        for i, own in enumerate(weak)
    ]
    early(xr.Dataset(known | _trained_variables(learnt), coords=axes))


def _trained_variables(columns: list[dict[str, Any]]) -> dict[str, Any]:
    axes = {
        "participation": ("scheme", "round", "client"),
        "status": ("scheme", "round"),
        "accuracy": ("scheme", "evaluation"),
        "loss": ("scheme", "evaluation"),
        "clipped_fraction": ("scheme", "round"),
        "failed_uploads": ("scheme", "round"),
        "reconstruction_error": ("scheme", "client"),
    }
    found: dict[str, Any] = {
        name: (own, np.stack([column[name] for column in columns]))
        for name, own in axes.items()
        if name in columns[0]
    }
    for name, one in _WEAK.items():
        if name in columns[0]:
            bounds = nan_if_negative(np.stack([column[name] for column in columns]))
            found[name] = (("scheme", *one.dims), bounds, one.facts)
    return found


def _train_one(
    setting: Setting,
    scheme: Scheme,
    played: Played,
    checkpoints: Any,
    callbacks: Sequence[Callback],
    beside: ThreadPoolExecutor,
    *,
    is_last: bool,
) -> tuple[dict[str, Any], dict[str, Future[Any]], Played]:
    """Train and, in a demo, attack one scheme; return what goes into the data set.

    Some of it is still computed, during the training of the next scheme. Last come the
    rounds as they were trained, which are others than before where uploads have failed.
    """
    config, progress = setting.config, setting.progress
    training = training_of(setting, scheme, played)
    progress.stage(f"{scheme.label}: training", played.num_trained)
    stated = setting.stated_bytes(num_slots(played))
    meter = Meter(progress, played.updates_sent)
    result = federated.train(
        config.seed,
        training,
        memory_bytes=setting.memory_bytes,
        mesh=setting.mesh,
        checkpoints=checkpoints,
        progress=meter.update,
        callback=teller(setting, scheme, played, meter.told, callbacks),
    )
    if result.diverged_round is not None:
        raise DivergedError(
            "`learning_rate` must let training converge; got "
            f"{config.training.learning_rate:g}, "
            f"with which {scheme.label} diverged in round {result.diverged_round + 1}",
            result.diverged_round,
            played.history,
        )
    played = as_trained(setting, played, result)
    status = np.asarray(result.status)
    column = {
        "evaluated_rounds": np.asarray(result.evaluated_rounds),
        "accuracy": np.asarray(result.accuracy),
        "loss": np.asarray(result.loss),
        "clipped_fraction": np.asarray(result.clipped_fraction),
        "failed_uploads": result.failed_uploads.sum(axis=1, dtype=np.int32),
        "guaranteed_privacy": guaranteed(setting, scheme, result),
        "status": status,
        "participation": result.participation,
        "components": result.components,
        "performance": meter.record(status, stated),
    }
    if config.aggregation.is_noisy:
        column["noise"] = _measured.accounted(setting, result, played)
    later: dict[str, Future[Any]] = {}
    if result.drift is not None:
        measure = in_context(_measured.measured)
        later["drift"] = beside.submit(measure, result.drift, played)
    is_plain = played.rounds is None and played.segments is None
    if is_plain and isinstance(config, TrainConfig):
        progress.stage(f"{scheme.label}: weak T", 1)
        weak = _trial.weak_bounds(played.history, played.weights)
        if weak is not None:
            column |= dict(zip(_WEAK, weak, strict=True))
    if isinstance(config, DemoConfig):
        attack = functools.partial(
            _attack, setting, scheme, played, training, result.parameters
        )
        # two programs over all devices wait for each other
        if is_last or setting.mesh is not None:
            column["reconstruction_error"] = attack(progress)
        else:
            later["reconstruction_error"] = beside.submit(in_context(attack), Silent())
    return column, later, played


def _attack(
    setting: Setting,
    scheme: Scheme,
    played: Played,
    training: federated.Training,
    parameters: Any,
    progress: Progress,
) -> np.ndarray:
    """Attack what was learnt, with the trained model frozen."""
    config = setting.config
    rows, rounds = played.history.participation, None
    if played.segments is not None:
        progress.stage(f"{scheme.label}: attack", _trial.rounds_with_sums(rows))
        return _segments.attack_segments(
            config.seed,
            training,
            parameters,
            played.segments,
            played.cohorts,
            played.sums,
            config.aggregation,
            progress.update,
        )
    if played.rounds is not None:
        rows, rounds = selection.learnt_rows(played.rounds)
    progress.stage(f"{scheme.label}: attack", _trial.rounds_with_sums(rows))
    aggregator = _build.build_aggregator(
        _config.secret_seed(config, scheme.label, "attack"),
        _build.for_attack(config.aggregation),
        int(rows.sum(axis=1).max(initial=2)),
        len(parameters),
        samples=setting.samples,
        cohort_size=config.population.cohort_size,
    )
    return _trial.attack_frozen(
        config.seed,
        training,
        parameters,
        rows,
        aggregator,
        progress.update,
        rounds=rounds,
        mesh=setting.mesh,
    )


# ---- What is compiled in other threads, while a study's own has other work.


class Compiling:
    """Compiles on other cores than the block's own, by work that is thrown away.

    First what analyses a history, then what trains. What fails there fails again where
    it is asked for. Where accelerators run many rounds as one program, or cohorts have
    no size that is known beforehand, the first round compiles.
    """

    def __init__(self, config: DemoConfig | TrainConfig) -> None:
        self._pool = ThreadPoolExecutor(2)
        self._started: list[Future[Any]] = []
        self._analysed: list[Future[Any]] = []
        is_plain = config.protocol.is_plain and config.hetero.is_plain
        self._is_of_use = platform() == "cpu" and is_plain
        rounds, clients = config.rounds, config.population.num_clients
        _import_all(config)
        if self._is_of_use and rounds * clients <= LITTLE:
            # a client is exposed by the first, nobody by the second; empty rounds take
            # no time
            few = np.zeros((rounds, clients), np.bool_)
            few[0, : config.population.cohort_size] = few[-1, 0] = True
            self._start(privacy.first_exposure, _trial.filled_up(few[None]))
            self._start(_trial.analyse, np.ones_like(few))
            self._analysed = list(self._started)

    def _start(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._started.append(self._pool.submit(in_context(work), *arguments))

    def wait(self) -> None:
        """Wait for what analyses a history, and import meanwhile what reports on it."""
        import xarray as _xarray

        del _xarray
        wait(self._analysed)

    def rounds(self, setting: Setting, schemes: Sequence[Scheme]) -> None:
        """Compile what trains, by one round of each size."""
        population = setting.config.population
        sizes = {
            cohort_size_of(_build.build_selector(one, population)) for one in schemes
        }
        for size in sizes - {None} if self._is_of_use else ():
            self._start(self._round, setting, size)

    def _round(self, setting: Setting, size: int) -> None:
        """Train one round as all rounds are trained, so that their programs are there."""
        wait(self._analysed)  # the cores are for the first table until then
        config = setting.config
        setting.stated_bytes(size)
        history = np.zeros((1, config.population.num_clients), np.bool_)
        history[0, :size] = True
        training = shared_training(
            setting, history, plain_aggregator(setting, size, "compiling")
        )
        federated.train(
            config.seed, training, memory_bytes=setting.memory_bytes, mesh=setting.mesh
        )

    def __enter__(self) -> Compiling:
        return self

    def __exit__(self, problem: object, *_: object) -> None:
        if problem is None:
            wait(self._started)
        self._pool.shutdown(wait=False, cancel_futures=True)


def _import_all(config: DemoConfig | TrainConfig) -> None:
    """Import what loads at its first use.

    Two threads that do may break Python 3.11's parser.
    """
    from mrsa_jax._core import chacha20_loops as _chacha20_loops

    del _chacha20_loops
    _build.build_server(config.training)
    for family, names in (
        (attacks, "least_squares reconstruction_error"),
        (federated, "client_updates memory_estimate train"),
        (
            privacy,
            "strong_privacy_trajectory hidden_among_trajectory first_exposure "
            "information",
        ),
        (privacy, "hidden_among hidden_among_mates"),
    ):
        for name in names.split():
            getattr(family, name)
