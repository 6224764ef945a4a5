"""Rows of attacks: settings, rules, units, memory and papers.

Nothing here imports JAX before an attack runs.

A row with its settings, rules, units, memory and papers.
Nothing here imports JAX before an attack runs.
"""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from mrsa_jax._core.flags import IS_SHARE, Folder, Seed, Several, Whole, Within
from mrsa_jax._core.registry import built_by
from mrsa_jax.availability.registry import Model
from mrsa_jax.study.settings._config import (
    PopulationConfig,
    check_sizes,
    parse_scheme,
)
from mrsa_jax.study.settings._tables import check_unset
from mrsa_jax.study.settings._training_tables import (
    PARTITIONS,
    DataSplit,
    LocalLength,
    LocalSchedule,
    local_length,
    validate_training,
)
from mrsa_watch._base.errors import POSITIVE, require
from mrsa_watch._base.html import Shown

if TYPE_CHECKING:
    import numpy as np


FinitePositive = Annotated[float, Within(POSITIVE, rule="must be finite and positive")]
FromZero = Annotated[float, Within(0.0, rule="must be finite, from 0")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttackSettings(Shown):
    """Settings that all attacks share."""

    seed: Seed = 0
    """Seed of everything random."""
    out: pathlib.Path = pathlib.Path("results/attack")
    """Folder for scores (CSV and JSON), figures and recovered values."""
    overwrite: bool = False
    """Replace another attack in --out."""
    json: bool = False
    """Print the scores as JSON on standard output."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfRun(AttackSettings):
    """A recorded run instead of simulated rounds."""

    run: Folder = None
    """Attack the run of mrsa-jax train in this folder instead: repeats its rounds and
    keeps the sums. Default: simulated rounds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumsOfRounds(AttackSettings, PopulationConfig):
    """Participation in the rounds whose sums are attacked."""

    schemes: tuple[str, ...] = ("uniform", "batch_partitioning:4")
    """Selection schemes, as in mrsa-jax simulate, such as uniform or
    batch_partitioning:T."""
    num_clients: Several = 24
    """Number of clients N."""
    cohort_size: Several = 8
    """Clients selected per round, K."""
    dropout_rates: Annotated[tuple[float, ...], IS_SHARE] = (0.1, 0.2, 0.3, 0.4, 0.5)
    """Probabilities that a client is offline in a round, spread over the clients."""
    assignment: Literal["shuffled", "cyclic", "sorted"] = "shuffled"
    """How the rates are spread over the clients: shuffled by the seed, cyclic, or
    sorted (equal ones together)."""
    rounds: Whole = 60
    """Rounds whose sums the server keeps."""
    availability: str = "independent"
    """Which clients are online, as in mrsa-jax simulate: independent, markov:ROUNDS,
    cyclic, ..."""

    def histories(
        self, rounds: int, clients: Any = None
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Roll out each scheme; yield its label and bool[rounds, clients].

        `clients` have the data that rates by label need.
        """
        # rolled out by what runs studies, which is imported when it runs
        runs = importlib.import_module(f"{__package__}.runs._histories")
        yield from runs.histories(self, rounds, clients)


Unread = Iterator[tuple[str, tuple[str, ...]]]
"""Settings without effect next to the others: a rule, and those that it forbids."""


@dataclasses.dataclass(frozen=True)
class AttackRow:
    """An attack.

    Attributes:
        name: On the command line, behind `attack`.
        settings: Frozen dataclass of its settings, whose docstring says what the attack
            is for.
        does: What it finds, in a few words.
        run: (settings, findings, progress) -> None; adds to what was found, thing by
            thing.
        units: The numbers of its summary, with their units.
        about: What its papers are cited for.
        papers: Keys of papers, or BibTeX entries.
        check: Raises for the first setting that breaks one of its rules.
        of_rounds: Settings that have an effect on the rounds of a run or of a file, too.
        not_run: Why it cannot attack a recorded run, if it cannot: behind `run`.
        unread: settings -> those that its others leave without effect, which must have
            their defaults.
        needs: MiB that it takes at its smallest: programs, the compiler's work,
            libraries. Between a process that finds all programs in the cache on disk
            and one that compiles them, on two cores of x86-64 with JAX 0.10.
        arrays: settings -> bytes of its largest arrays, by their shapes.
        images: Name of the report's sentence about its picture `images`, in
            `words.toml`.
        code: () -> digests of a user's code, by module; the package's own has its
            version.
    """

    name: str
    settings: type[AttackSettings]
    does: str
    run: Callable[[Any, Any, Any], None]
    units: dict[str, str]
    about: str
    papers: tuple[str, ...]
    check: Callable[[Any], None] = lambda config: None
    of_rounds: tuple[str, ...] = ()
    not_run: str = ""
    unread: Callable[[Any], Iterable[tuple[str, tuple[str, ...]]]] = lambda config: ()
    needs: int = 200
    arrays: Callable[[Any], int] = lambda config: 0
    images: str = ""
    code: Callable[[], dict[str, str]] = dict

    def checked(self, config: Any) -> None:
        """Raise `ConfigurationError` for the first setting that breaks a rule."""
        values = {
            field.name: getattr(config, field.name)
            for field in dataclasses.fields(config)
        }
        for name in filter(values.__contains__, _CHOICES):
            choices = values[name]
            require(len(choices) >= 1, name, "must name at least one", choices)
            require(
                len(set(choices)) == len(choices),
                name,
                "must not contain duplicates",
                choices,
            )
        if "dropout_rates" in values:
            check_sizes(config)
            Model.parse(config.availability, config.dropout_rates)
            for text in config.schemes:
                parse_scheme(text).check(config.num_clients, config.cohort_size)
        if isinstance(config, LocalSchedule):
            validate_training(config)
        elif isinstance(config, LocalLength):
            local_length(config)
        for name in _FILES:
            if (path := values.get(name)) is not None:
                is_array = path.is_file() and path.suffix in (".npy", ".npz")
                require(
                    is_array, name, "must be an existing .npy or .npz file", str(path)
                )
        if values.get("run") is not None:
            rule = "must be the folder of a complete run of `mrsa-jax train`"
            is_complete = (config.run / "results.zarr").is_dir()
            require(is_complete, "run", rule, str(config.run))
        self.check(config)
        unread = *self._decided(values), *_unread(config), *self.unread(config)
        for rule, names in unread:
            check_unset(config, rule, *names)

    def _decided(self, values: dict[str, Any]) -> Unread:
        """Go through the settings that a run or a file of sums decides."""
        sources = [name for name in ("run", "aggregates") if name in values]
        # a user's own attack checks its files itself
        if self.of_rounds and any(values[name] is not None for name in sources):
            flags = " or ".join(f"--{name}" for name in sources)
            rule = f"must not be set with {flags}: these rounds have happened"
            of_all = {field.name for field in dataclasses.fields(AttackSettings)}
            used = {*sources, *of_all, *self.of_rounds}
            yield rule, tuple(name for name in values if name not in used)

    def memory_bytes(self, config: Any) -> int:
        """Estimate its memory beyond that of an idle process with JAX.

        Within a factor of 3 above what a process takes, and 1.5 below it. Nothing is
        compiled or trained for it.

        Raises:
            ConfigurationError: If its data set is not there.
        """
        return self.needs * 2**20 + self.arrays(config)


def _unread(config: Any) -> Unread:
    """Go through the settings without effect that attacks share."""
    if isinstance(config, PopulationConfig):
        rates = sorted(set(config.dropout_rates))
        read = Model.parse(config.availability).row.reads(rates)
        if config.assignment != "by_label" and "assignment" not in read:
            yield "must not be set if all clients have the same rate", ("assignment",)
        if "dropout_rates" not in read:
            rule = "must not be set with --availability that has no rates"
            yield rule, ("dropout_rates",)
    if isinstance(config, DataSplit):
        of_all = [name for _, *names in PARTITIONS.values() for name in names]
        others = {*of_all}.difference(PARTITIONS[config.partition][1:])
        rule = f"must not be set with --partition {config.partition}"
        yield rule, tuple(sorted(others))
    if isinstance(config, LocalSchedule) and not config.decay_rounds:
        yield "must not be set without --decay-rounds", ("decay_factor",)


def row(
    name: str,
    settings: type[AttackSettings],
    does: str,
    units: dict[str, str],
    about: str,
    papers: tuple[str, ...],
    **more: Any,
) -> AttackRow:
    """Return the row of an attack of `study.attack`, which is imported when it runs."""
    module = f"attack._{name.replace('-', '_')}"
    run, arrays = (built_by(str(__package__), module, of) for of in ("run", "arrays"))
    return AttackRow(
        name, settings, does, run, units, about, papers, arrays=arrays, **more
    )


def plain(names: str) -> dict[str, str]:
    """Return numbers without units, of names separated by spaces."""
    return dict.fromkeys(names.split(), "1")


# What a setting of each name keeps, whatever the attack.
_CHOICES = ("schemes", "seen", "methods", "estimators", "pads", "others", "clients",
            "false_positive_rates")  # fmt: skip
_FILES = ("aggregates", "participation", "updates", "counts", "mask")
