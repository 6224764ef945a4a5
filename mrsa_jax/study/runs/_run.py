"""Run any command from its configuration, and save the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from mrsa_jax._core.floats import usual_floats
from mrsa_jax.study._progress import Progress, checked_progress
from mrsa_jax.study.kinds import checked, kind_of
from mrsa_jax.study.settings._names import named_by
from mrsa_jax.study.stores import _store
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    import xarray as xr

    from mrsa_jax.study._attack_rows import AttackSettings
    from mrsa_jax.study._findings import AttackFindings, AuditFindings, Findings
    from mrsa_jax.study.settings._commands import (
        AdviseConfig,
        AuditConfig,
        SecaggConfig,
        SegmentsConfig,
    )
    from mrsa_jax.study.settings._config import Config


def check(config: Any) -> None:
    """Reject settings, data set or output folder before any work.

    Raises:
        ConfigurationError: For a setting that breaks a rule, an unknown data set, or
            sizes for which memory does not suffice.
        DataNotFoundError: If the data set is not on this machine.
        OutputExistsError: If the output folder holds something else.
    """
    config = checked(config)
    if getattr(config, "out", None) is not None:
        _store.check_output(config)
    with named_by(config):
        kind_of(config).load().check(config)


@overload
def run(config: Config, progress: Progress | None = None) -> xr.Dataset: ...
@overload
def run(
    config: SecaggConfig | SegmentsConfig, progress: Progress | None = None
) -> Findings: ...
@overload
def run(config: AuditConfig, progress: Progress | None = None) -> AuditFindings: ...
@overload
def run(config: AdviseConfig, progress: Progress | None = None) -> Any: ...
@overload
def run(config: AttackSettings, progress: Progress | None = None) -> AttackFindings: ...
@usual_floats
def run(config: Any, progress: Progress | None = None) -> Any:
    """Run a command and return its results, without writing anything.

    Args:
        config: `DemoConfig`, `SimulateConfig`, `TrainConfig`, `SecaggConfig`,
            `AuditConfig`, `AdviseConfig` or an attack's, such as `LeastSquaresConfig`.
        progress: Receives how far it is.

    Returns:
        `Findings` of `secagg`, `AuditFindings`, `Advice` or `AttackFindings`: each with
        a title, sentences, and its content as `--json` prints it. For a study a data
        set with axes `scheme`, `round` (counted from 0), `client`, and `trial`
        (simulate) or `evaluation` (rounds after which the model was tested). Entry j of
        a trajectory is the state after round j. How trainings went is in the attribute
        `performance`.

    Raises:
        ConfigurationError: As `check`, except that the output folder is not checked.
        DataNotFoundError: If the data set is not on this machine.

    Examples:
        >>> import mrsa_jax as mj
        >>> config = mj.study.SimulateConfig(rounds=8, trials=2, schemes=("uniform",))
        >>> mj.study.run(config).sizes["trial"]
        2
        >>> config = mj.study.SecaggConfig(num_clients=5, fidelity="sets")
        >>> mj.study.run(config).content["status"]
        'OK'
    """
    config = checked(config)
    with named_by(config):
        return kind_of(config).load().run(config, checked_progress(progress))


@usual_floats
def run_and_save(
    config: Any,
    progress: Progress | None = None,
    show: Callable[[Any], None] | None = None,
) -> Any:
    """Run a command and write all of its results to `config.out`.

    `show` receives the results before any of them is written, which may fail.

    The results appear in the folder complete or not at all. A `train` that is
    interrupted leaves its settings and checkpoints there, from which `resume`
    continues; one that is complete is read and given back by `resume`. Arguments and
    errors as for `run`.

    Examples:
        >>> import mrsa_jax as mj
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "study")
        >>> clients = mj.study.PopulationConfig(num_clients=8, cohort_size=4)
        >>> config = mj.study.SimulateConfig(
        ...     out=folder, rounds=5, trials=2, schemes=("uniform",), population=clients
        ... )
        >>> saved = mj.study.run_and_save(config)
        >>> saved.results.sizes["trial"], (folder / "report.html").is_file()
        (2, True)
    """
    config = checked(config)
    module = kind_of(config).load()
    rule = "must be of a command that writes a folder"
    require(hasattr(module, "run_and_save"), "config", rule, type(config).__name__)
    with named_by(config):
        return module.run_and_save(
            config, checked_progress(progress), show or (lambda result: None)
        )
