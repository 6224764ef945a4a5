"""`mrsa-jax data list | prepare NAME`.

Which data sets are here, and how to get another.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Annotated, Any, Literal

import tyro

from mrsa_jax._core.flags import Folder, shown
from mrsa_jax.cli.console import error_console, print_json
from mrsa_jax.cli.tables import coloured, print_table
from mrsa_watch._base.errors import ConfigurationError, require


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """List the data sets that are on this machine, or prepare one that is not."""

    action: tyro.conf.Positional[Literal["list", "prepare"]] = "list"
    """list: show where each data set is stored. prepare NAME: fetch one, once; the
    others need no fetching."""

    name: Annotated[str | None, tyro.conf.Positional, shown("[NAME]")] = None
    """mnist, fashion_mnist, cifar10, cifar100, or another labelled set of
    tensorflow-datasets. It is required for prepare. Default: no set."""

    directory: Folder = None
    """Data folder of tensorflow-datasets. Default: the folder that tensorflow-datasets
    uses."""

    yes: bool = False
    """Prepare without asking."""

    json: bool = False
    """Print the result as JSON instead."""


def run_data(config: DataConfig) -> int:
    """Do what the command says and return the exit status.

    1 when a question was answered no.
    """
    if config.action == "list":
        require(
            config.name is None, "name", "must not be set for `data list`", config.name
        )
        require(not config.yes, "yes", "must not be set for `data list`")
        return _list(config)
    has_name = config.name is not None
    require(
        has_name,
        "name",
        "must follow `data prepare`, as in: mrsa-jax data prepare mnist",
    )
    return _prepare(config)


def _list(config: DataConfig) -> int:
    from mrsa_jax import data
    from mrsa_jax.data.cache import cache_directory

    statuses = data.available(config.directory)
    if config.json:
        sets = [
            {**dataclasses.asdict(status), "is_here": status.is_here}
            for status in statuses
        ]
        print_json({"cache": str(cache_directory()), "sets": sets})
        return 0
    rows = [
        (
            item.name,
            coloured(item.state, "green" if item.is_here else "yellow"),
            item.content,
            "" if item.num_bytes is None else _megabytes(item.num_bytes),
            (item.where or "") if item.is_here else item.how,
        )
        for item in statuses
    ]
    headings = ("Set", "State", "Holds", "Size", "Where, or how to get it")
    console = print_table(headings, rows, left=(0, 1, 2, 4), width=150)
    console.print(
        f"Cache: {cache_directory()}", style="dim", highlight=False, markup=False
    )
    return 0


def _prepare(config: DataConfig) -> int:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's greetings
    from mrsa_jax import data

    assert config.name is not None  # for the type checker: `run_data` has checked
    plan = data.plan_preparation(config.name, directory=config.directory)
    console = error_console()
    if plan.is_prepared:
        console.print(
            f"{plan.name} is prepared in {plan.directory} already", markup=False
        )
    else:
        plan.check_extra()  # before a question whose answer would be of no use
        console.print(_announce(plan), highlight=False, markup=False)
        if not config.yes and not _confirmed():
            console.print("nothing was fetched")
            return 1
    dataset = data.prepare(plan)
    train, test = len(dataset.train_labels), len(dataset.test_labels)
    shape, classes = dataset.input_shape, dataset.num_classes
    if config.json:
        facts = {
            "name": dataset.name,
            "version": plan.version,
            "directory": str(plan.directory),
            "train": train,
            "test": test,
            "input_shape": list(shape),
            "num_classes": classes,
        }
        print_json(facts)
    else:
        sys.stdout.write(
            f"{dataset.name}: {train:,} training and {test:,} test images of "
            f"{'x'.join(map(str, shape))}, {classes} classes, read and cached\n"
        )
    return 0


def _announce(plan: Any) -> str:
    size = "an unknown amount" if plan.num_bytes is None else _megabytes(plan.num_bytes)
    hosts = f" from {', '.join(plan.hosts)}" if plan.hosts else ""
    files = (
        f"{len(plan.urls)} file{'' if len(plan.urls) == 1 else 's'}, "
        if plan.urls
        else ""
    )
    return (
        f"This fetches {plan.name} {plan.version}: {files}{size}{hosts},\n"
        f"and prepares it in {plan.directory}, where the archives stay too (folder "
        "downloads)."
    )


def _confirmed() -> bool:
    """Ask on the terminal; where nobody can be asked, --yes must be given."""
    if not sys.stdin.isatty():
        raise ConfigurationError(
            "`yes` must be given where there is no terminal to ask on: --yes"
        )
    sys.stderr.write("Continue? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB"
