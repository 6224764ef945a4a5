"""Every command that runs from settings, a row each: its settings, rules and runner.

For Python, sweeps, reports and `mrsa-jax`. Nothing here imports JAX.
"""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
import typing
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from mrsa_jax._core.papers import from_papers
from mrsa_jax._core.registry import load_installed, own_row
from mrsa_jax.selection import Fairness, Scheme
from mrsa_jax.study import attacks_on_models, attacks_on_sums
from mrsa_jax.study._attack_rows import AttackRow, AttackSettings
from mrsa_jax.study.settings import _commands, _config
from mrsa_jax.study.settings._commands import (
    AdviseConfig,
    AuditConfig,
    SecaggConfig,
    SegmentsConfig,
)
from mrsa_jax.study.settings._config import DemoConfig, SimulateConfig, TrainConfig
from mrsa_jax.study.settings._load import check_types, with_plain_values, without_none
from mrsa_jax.study.settings._names import named_by
from mrsa_jax.study.settings._parts import check_parts
from mrsa_watch._base.errors import (
    ConfigurationError,
    check_known,
    require,
    shortened,
)

if TYPE_CHECKING:
    import xarray as xr

    from mrsa_jax.study._findings import AttackFindings
    from mrsa_jax.study._progress import Progress


@dataclasses.dataclass(frozen=True)
class Kind:
    """A command, as it is known before anything is computed.

    Attributes:
        name: Of the command.
        config: Frozen dataclass of its settings, whose docstring says what the command
            is for.
        check: Raises for the first setting that breaks a rule.
        module: With its `run`, imported when it runs.
        points: Module with the functions of a `Runner`, where it can be swept.
        settings: Frozen dataclass of one point's settings, fields as in the command's
            files.
        changed: Fields of the configuration that a point's settings have in other
            words; raises if there can be none.
        attack: Its row, where it is an attack.
    """

    name: str
    config: type
    check: Callable[[Any], None]
    module: str
    points: str | None = None
    settings: Any = None
    changed: Callable[[Any], dict[str, Any]] = lambda settings: {}
    attack: AttackRow | None = None

    @property
    def command(self) -> str:
        """Its name in provenance."""
        return _config.command_of(self.config)

    @property
    def code(self) -> str:
        """Digest of the code behind its points that is not the package's; else empty."""
        return ""

    def load(self) -> Any:
        """Return the module that runs it; this imports JAX."""
        return importlib.import_module(f"{__package__}.{self.module}")

    def runner(self) -> Any:
        """Return the `Runner` that computes its points; this imports JAX."""
        return importlib.import_module(f"{__package__}.{self.points}")

    def resolve(
        self,
        settings: Any,
        check_tables: Sequence[Callable[[Any], None]] = (check_types, check_parts),
    ) -> Any:
        """Return the configuration for a point's settings, or raise if there is none.

        Args:
            settings: Of the point.
            check_tables: Check types and parts of a table.
        """
        fields = dataclasses.fields(self.config)
        values = {field.name: getattr(settings, field.name) for field in fields}
        with named_by(settings):
            config = self.config(**values | self.changed(settings))
            check_types(config, check_tables[0])
            check_parts(config, check_tables[1])
            self.check(config)
        return config

    def figures(self, results: xr.Dataset, folder: pathlib.Path) -> tuple[str, str]:
        """Draw what only this command draws of its sweep, in files and for its page.

        Returns:
            Markup and style; both are empty unless the row is of such a command.
        """
        return "", ""

    def label(self, field: str, value: Any) -> Any:
        """Return the words for a field's value on its axis: labels of schemes.

        None: the value itself.
        """
        if field == "scheme":
            return _config.scheme_label(value)
        if field != "schemes":
            return None
        try:
            return ", ".join(_config.parse_scheme(text).label for text in value)
        except ConfigurationError:
            return None

    def implied_axes(
        self, content: dict[str, Any], swept: Collection[str]
    ) -> dict[str, Any]:
        """Take `schemes` of a file's content as an axis if points have one scheme.

        Args:
            content: Settings of the file that are no axes.
            swept: Fields of its axes.

        Raises:
            ConfigurationError: If schemes are set twice, or an axis is of lists of them.
        """
        if not hasattr(self.config, "schemes") or not hasattr(self.settings, "scheme"):
            return {}
        rule = "cannot be an axis, as a point has one scheme: set `scheme` instead"
        require("schemes" not in swept, "schemes", rule)
        if "scheme" in content or "scheme" in swept:
            rule = "must not be set together with `scheme`"
            require("schemes" not in content, "schemes", rule)
            return {}
        return {"scheme": content.pop("schemes", list(self.config.schemes))}


@dataclasses.dataclass(frozen=True)
class _PointScheme:
    """Settings of a point's scheme, whose parts can be axes."""

    out: pathlib.Path = pathlib.Path("results/sweep")
    scheme: str = ""
    privacy_target: int | None = None
    fairness: Fairness | None = None

    @property
    def written(self) -> str:
        """The scheme as files write it, with the parameters that are fields apart."""
        parameters = {"privacy_target": self.privacy_target, "fairness": self.fairness}
        return Scheme.filled(self.scheme, parameters)


@dataclasses.dataclass(frozen=True)
class _SimulatePoint(_PointScheme, SimulateConfig):
    """Settings of `mrsa-jax simulate` with one scheme."""


@dataclasses.dataclass(frozen=True)
class _TrainPoint(_PointScheme, TrainConfig):
    """Settings of `mrsa-jax train`."""

    scheme: str = TrainConfig.scheme


@dataclasses.dataclass(frozen=True)
class _SecaggPoint(SecaggConfig):
    """Settings of `mrsa-jax secagg --trials N`."""

    out: pathlib.Path = pathlib.Path("results/sweep")
    trials: int | None = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class _SegmentsPoint(SegmentsConfig):
    """Settings of `mrsa-jax segments --trials N`."""

    out: pathlib.Path = pathlib.Path("results/sweep")
    trials: int | None = 1000


def _counted(settings: _SecaggPoint | _SegmentsPoint) -> dict[str, Any]:
    rule = "must be given: a sweep counts failures"
    require(settings.trials is not None, "trials", rule)
    return {}


def _attack(row: AttackRow) -> Kind:
    name, settings, runner = f"attack {row.name}", row.settings, "attack._run"
    return Kind(name, settings, row.checked, runner, runner, settings, attack=row)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("demo", DemoConfig, _config.check_study, "runs._study"),
        Kind(
            "simulate",
            SimulateConfig,
            _config.check_study,
            "runs._study",
            "runs._simulate_points",
            _SimulatePoint,
            lambda point: {"schemes": (point.written,)},
        ),
        Kind(
            "train",
            TrainConfig,
            _config.check_study,
            "runs._study",
            "runs._train_points",
            _TrainPoint,
            lambda point: {"scheme": point.written},
        ),
        Kind(
            "secagg",
            SecaggConfig,
            _commands.check_secagg,
            "secagg._round",
            "secagg._points",
            _SecaggPoint,
            _counted,
        ),
        Kind(
            "segments",
            SegmentsConfig,
            _commands.check_segments,
            "secagg._segments",
            "secagg._segment_points",
            _SegmentsPoint,
            _counted,
        ),
        Kind("audit", AuditConfig, _commands.check_audit, "runs._audit"),
        Kind("advise", AdviseConfig, _commands.check_advise, "advice._run"),
        *map(_attack, (*attacks_on_sums.ROWS, *attacks_on_models.ROWS)),
    )
}
"""All commands that run from settings, by name.

Each one's settings, rules, and what runs it.
"""
BUILT_IN = tuple(name.removeprefix("attack ") for name in KINDS)


def kind_of(config: Any) -> Kind:
    """Return the row of a configuration.

    Raises:
        ConfigurationError: If it is of no command.
    """
    # a user's class may be on top of one of the package's: the newest row goes first
    for kind in reversed(KINDS.values()):
        if isinstance(config, kind.config):
            return kind
    names = ", ".join(kind.config.__name__ for kind in KINDS.values())
    raise ConfigurationError(
        f"`config` must be one of {names}; got {shortened(config)}"
    )


def kind_named(command: str) -> Kind | None:
    """Return the row of a command by its name in provenance; None if there is none."""
    return next((kind for kind in KINDS.values() if kind.command == command), None)


def swept_kind(name: Any) -> Kind:
    """Return the row of a command that can be swept.

    `"reproduce PAPER.ITEM"` is of the papers' project, and loaded from there.

    Raises:
        ConfigurationError: For an unknown command, naming the nearest, or if the papers'
            project is not installed.
    """
    command, _, item = name.partition(" ") if isinstance(name, str) else ("", "", "")
    if command == "reproduce" and item:
        kind: Kind = from_papers("mrsa_jax.commands")[2](item)
        return kind
    if command == "attack":
        load_attack(item)
    kinds = {kind.name: kind for kind in KINDS.values() if kind.points}
    return kinds[check_known(name, "command", kinds, "one that can be swept")]


def attacks() -> dict[str, AttackRow]:
    """Return the rows of all attacks, a user's own last, by name."""
    rows = (kind.attack for kind in KINDS.values())
    return {row.name: row for row in rows if row is not None}


def load_attack(name: str) -> None:
    """Import the installed package that offers an attack, if its name is not known."""
    load_installed("attack", name, attacks)


def attack_of(config: AttackSettings) -> AttackRow:
    """Return the row of an attack by its settings."""
    row = kind_of(config).attack
    assert row is not None
    return row


def register_attack(
    name: str,
    settings: type[AttackSettings],
    run: Callable[[Any, AttackFindings, Progress], None],
    *,
    units: dict[str, str],
    check: Callable[[Any], None] = lambda settings: None,
    memory_bytes: Callable[[Any], int] = lambda settings: 0,
    papers: str | Sequence[str] = (),
    depends: Any = None,
) -> None:
    """Add your own attack, which `mrsa-jax attack`, sweeps, pages and `cite` then know.

    Its settings are its flags, and axes of a sweep. On the command line,
    `--plugin FILE.py` runs the file that registers it. Registering a name again
    replaces it.

    Args:
        name: Lower-case letters, digits and underscores; none of the package's own.
        settings: Frozen dataclass `NAMEConfig` on top of `SumsOfRounds`, whose
            docstring says what the attack is for, and a text below each field what the
            flag means.
        run: `(settings, found, progress) -> None`. It adds rows to `found.summary`, one
            for each thing that was attacked, and to `found.scores` what is behind them,
            sentences to `found.sentences`, and what it recovered to `found.arrays`.
            Rows with the columns `scheme` and `error` are drawn.
        units: The numbers of the summary, which a sweep keeps, with their units.
        check: Raises `ConfigurationError` for settings that make no sense; called
            before any work, after rules of sizes, rates and schemes.
        memory_bytes: Of the largest arrays, by the settings.
        papers: BibTeX entries for `cite`, or keys of papers that it knows.
        depends: As in `selection.register`: what results depend on in addition to what
            the factory reaches.

    Raises:
        ConfigurationError: If the name is taken or ill-formed, or the settings are of
            no class.
    """
    facts = own_row(
        name,
        run,
        None,
        papers,
        nouns="attacks",
        taken=BUILT_IN,
        given=("settings", "findings", "progress"),
        depends=depends,
    )
    is_class = isinstance(settings, type) and issubclass(settings, AttackSettings)
    rule = "must be a dataclass on top of `SumsOfRounds`"
    require(is_class, "settings", rule, settings)
    row = AttackRow(
        name,
        settings,
        (settings.__doc__ or name).partition("\n")[0].rstrip("."),
        run,
        dict(units),
        "attack",
        facts["papers"],
        check,
        arrays=memory_bytes,
        code=facts["code"],
    )
    KINDS[f"attack {name}"] = _attack(row)


def validate(config: Any) -> None:
    """Check a configuration as a whole, before any work and without JAX.

    Raises:
        ConfigurationError: Naming the first argument that breaks a rule.

    Examples:
        >>> import mrsa_jax as mj
        >>> mj.study.validate(mj.study.DemoConfig())
        >>> mj.study.validate(mj.study.DemoConfig(rounds=0))
        Traceback (most recent call last):
        ...
        mrsa_jax.ConfigurationError: `rounds` must be at least 1; got 0
    """
    checked(config)


def checked(config: Any) -> Any:
    """Return a configuration with Python's values that keeps all rules, or raise."""
    kind = kind_of(config)
    config = with_plain_values(config)
    check_types(config)
    check_parts(config)
    paths = {
        name: pathlib.Path(getattr(config, name))
        for name, hint in typing.get_type_hints(kind.config).items()
        if without_none(hint) is pathlib.Path and getattr(config, name) is not None
    }
    config = dataclasses.replace(config, **paths)
    with named_by(config):
        kind.check(config)
    return config
