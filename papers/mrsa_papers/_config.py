"""Settings of a reproduction, which load without JAX.

`mrsa-jax reproduce --help` shows them and must answer at once, and so must a misspelt
name.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from mrsa_jax._core.flags import Folder
from mrsa_jax.study.settings._load import check_types, with_plain_values
from mrsa_papers._catalog import ALIASES, ITEMS
from mrsa_papers.harness._settings import fields_of, values_of
from mrsa_watch._base.errors import ConfigurationError, nearest, require

Target = tuple[str, str]
"""A paper and the name of one of its items."""


@dataclasses.dataclass(frozen=True)
class ReproduceConfig:
    """Remake the papers' tables and figures and compare them with what they printed."""

    targets: tuple[str, ...] = ()
    """What to make: multiround (Multi-RoundSecAgg), ccesa (CCESA), heterosag
    (HeteroSAg), or one of their items, such as multiround.fig4a. Default: all three
    papers."""
    fast: bool = False
    """Fewer trials, rounds and seeds: a check of everything in a quarter of an hour."""
    seed: int = 0
    """Seed of everything random."""
    dataset: str = "mnist_5k"
    """Data of the items that train (--list marks them): mnist_5k, olivetti, idx, cifar
    or att (with --directory), your own (--plugin), or a prepared set, such as mnist,
    fashion_mnist, cifar10 or cifar100."""
    directory: Folder = None
    """Folder of the data set's files, if it needs one. Default: the folder of prepared
    sets."""
    out: pathlib.Path = pathlib.Path("results/reproduce")
    """Folder for tables, figures with their data, and the report. Items that it holds
    already, made with the same settings, data and version of the package, are taken
    from there."""
    json: bool = False
    """Print the verdicts as JSON on standard output."""
    overwrite: bool = False
    """Make items again that --out already holds, and replace those of other settings.
    """


def check_targets(targets: Iterable[str]) -> tuple[Target, ...]:
    """Return the items to make, paper by paper, each in its paper's order.

    Args:
        targets: Papers (`"ccesa"`) and items (`"ccesa.fig2"`, or `"tableg2"` where one
            paper alone has an item of that name), or nothing for all; a figure's name
            stands for the table that it belongs to (`"multiround.fig6"` for `table5`).

    Raises:
        ConfigurationError: For an unknown paper or item, naming the nearest known one.

    Examples:
        >>> check_targets(["multiround.fig6", "multiround.table1"])
        (('multiround', 'table1'), ('multiround', 'table5'))
        >>> len(check_targets([])) == sum(len(own) for own in ITEMS.values())
        True
    """
    words = [targets] if isinstance(targets, str) else list(targets)
    # an empty name stands for all items of a paper
    wanted = {_checked(word) for word in words or ITEMS}
    return tuple(
        (paper, item)
        for paper in ITEMS
        for item in ITEMS[paper]
        if {(paper, item), (paper, "")} & wanted
    )


def with_papers(targets: Iterable[str]) -> tuple[str, ...]:
    """Return names of papers and items, each item with its paper.

    Examples:
        >>> with_papers(["fig9", "ccesa"])
        ('multiround.fig9', 'ccesa')
    """
    return tuple(".".join(filter(None, _checked(word))) for word in targets)


@functools.cache
def config_of(target: Target) -> type[ReproduceConfig]:
    """Return the settings of one item: those of every reproduction, and its own.

    Examples:
        >>> config_of(("ccesa", "tableg2"))(num_sizes=(100,)).num_sizes
        (100,)
    """
    row = ITEMS[target[0]][target[1]]
    return dataclasses.make_dataclass(
        ReproduceConfig.__name__,  # provenance names a command by its settings
        fields_of(row.settings),
        bases=(ReproduceConfig,),
        frozen=True,
        namespace={"__doc__": row.title, "__module__": __name__},
    )


def given_settings(config: ReproduceConfig) -> dict[str, Any]:
    """Return an item's own settings by name, None where nothing was given."""
    usual = {field.name for field in dataclasses.fields(ReproduceConfig)}
    fields = [field.name for field in dataclasses.fields(config)]
    return {name: getattr(config, name) for name in fields if name not in usual}


def checked_settings(
    targets: tuple[Target, ...], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return settings of the only target as its maker takes them, or raise.

    Raises:
        ConfigurationError: If there are several targets, or a setting is unknown, of
            another type or out of its range.
    """
    if not settings:
        return {}
    rule = "must be set for one item"
    require(len(targets) == 1, next(iter(settings)), rule, f"{len(targets)} items")
    (target,) = targets
    values_of(".".join(target), ITEMS[target[0]][target[1]].settings, settings)
    config = with_plain_values(config_of(target)(**settings))
    lists: dict[str, Any] = {
        name: tuple(value)
        for name, value in given_settings(config).items()
        if isinstance(value, list)
    }
    config = dataclasses.replace(config, **lists)
    check_types(config)
    chosen = given_settings(config)
    repeats = {
        each.name for each in ITEMS[target[0]][target[1]].settings if each.repeats
    }
    for name, value in chosen.items():
        if isinstance(value, tuple):
            require(len(value) > 0, name, "must hold at least one value", value)
        if isinstance(value, tuple) and name not in repeats:
            is_distinct = len(set(value)) == len(value)
            require(is_distinct, name, "must not contain duplicates", value)
    return chosen


def _checked(word: str) -> Target:
    """Return a paper and an item, or the empty name for all of its items."""
    paper, dot, item = word.partition(".")
    if paper not in ITEMS:
        # an item without its paper: one paper alone may have such an item
        inside = [
            f"{other}.{paper}"
            for other in ITEMS
            if paper in (*ITEMS[other], *ALIASES[other]) and not dot
        ]
        if len(inside) == 1:
            return _checked(inside[0])
        hint = (
            f"did you mean {' or '.join(repr(name) for name in inside)}?"
            if inside
            else nearest(
                paper, [*ITEMS, *dict.fromkeys(itertools.chain(*ITEMS.values()))]
            )
        )
        raise ConfigurationError(
            f"`target` must be a known paper, or PAPER.ITEM; got {word!r}; {hint}"
        )
    if not dot:
        return paper, ""
    item = ALIASES[paper].get(item, item)
    if item not in ITEMS[paper]:
        names = [f"{paper}.{name}" for name in (*ITEMS[paper], *ALIASES[paper])]
        raise ConfigurationError(
            f"`target` must be a known item; got {word!r}; {nearest(word, names)}"
        )
    return paper, item


def with_settings(
    config: ReproduceConfig, chosen: Mapping[str, Any]
) -> ReproduceConfig:
    """Return a configuration with settings of its only item, or raise.

    Raises:
        ConfigurationError: As `checked_settings`.
    """
    targets = check_targets(config.targets)
    if not chosen:
        return config
    settings = checked_settings(targets, chosen)
    usual = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(ReproduceConfig)
    }
    return config_of(targets[0])(**usual, **settings)


def item_config(config: ReproduceConfig, target: Target) -> ReproduceConfig:
    """Return the settings of one item alone: what it hangs on, and its own folder.

    Items that train nothing are the same whatever the data set.

    Examples:
        >>> mnist = ReproduceConfig(dataset="mnist")
        >>> item_config(mnist, ("ccesa", "tableg2")).out.as_posix()
        'results/reproduce/items/ccesa.tableg2'
    """
    name = ".".join(target)
    usual = ReproduceConfig()
    trains = ITEMS[target[0]][target[1]].trains
    return dataclasses.replace(
        config,
        targets=(name,),
        dataset=config.dataset if trains else usual.dataset,
        directory=config.directory if trains else None,
        out=config.out / "items" / name,
        json=False,
    )


def usual_seconds(target: Target, config: ReproduceConfig) -> float | None:
    """Return what an item usually takes, None for data or settings never timed.

    Examples:
        >>> usual_seconds(("multiround", "table3"), ReproduceConfig(dataset="cifar100"))
    """
    row = ITEMS[target[0]][target[1]]
    is_timed = config.dataset == ReproduceConfig().dataset or not row.trains
    if not is_timed or any(
        value is not None for value in given_settings(config).values()
    ):
        return None
    return float(row.fast_seconds if config.fast else row.seconds)


def runtime_of(target: Target, config: ReproduceConfig) -> str:
    """Return in words what an item's full size takes with these data and settings.

    Examples:
        >>> runtime_of(("multiround", "table3"), ReproduceConfig(dataset="cifar100"))
        'not timed'
    """
    if usual_seconds(target, config) is None:
        return "not timed"
    return ITEMS[target[0]][target[1]].runtime
