"""The folder of a reproduction: one folder an item, each written whole or not at all.

An item's folder appears in one rename when everything in it is written, its
`study.json` last. A run that was interrupted or killed leaves the finished ones; the
next run takes them from there.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

from mrsa_jax import ConfigurationError, OutputExistsError
from mrsa_jax.study.settings._load import from_dict
from mrsa_jax.study.stores import _store
from mrsa_papers._catalog import ITEMS
from mrsa_papers._config import ReproduceConfig, Target, config_of
from mrsa_papers.harness._figures import Draw, save_figure
from mrsa_papers.harness._items import Check, Item, on_other_data

_RECORD = "item.json"


@dataclasses.dataclass(frozen=True)
class Made:
    """An item that has been made, and how.

    Attributes:
        paper: Its paper, as in `ITEMS`.
        item: The item; its data frame is empty where there were no data to train on.
        seconds: What making it took, trainings that later items share included.
        paper_data: The data set that the paper used, in words; empty where it trains
            nothing.
        own_data: The data set that was used in its place; empty where it is the
            paper's.
        folder: Where its figure and data are; None where there were no data to train
            on.
        is_kept: Whether an earlier run made it.
        commit: Commit of the source tree that made it, where it was one.
        config: Its own settings; None where they are those of the whole run.
    """

    paper: str
    item: Item
    seconds: float
    paper_data: str = ""
    own_data: str = ""
    folder: pathlib.Path | None = None
    is_kept: bool = False
    commit: str | None = None
    config: ReproduceConfig | None = None

    @property
    def name(self) -> str:
        """Its name with its paper's, as a target: `"multiround.fig4a"`."""
        return f"{self.paper}.{self.item.name}"

    def content(self, **words: Any) -> dict[str, Any]:
        """Return the item as JSON without its claims; `words` come after the title."""
        return {
            "paper": self.paper,
            "name": self.item.name,
            "title": self.item.title,
            **words,
            "seconds": round(self.seconds, 2),
            "paper_data": self.paper_data,
            "own_data": self.own_data,
            "commit": self.commit,
        }

    @property
    def data_words(self) -> str:
        """Where data were substituted, in words."""
        if self.paper_data and self.own_data:
            return f"{self.own_data} instead of {self.paper_data}"
        return self.own_data or self.paper_data


def check_folder(out: pathlib.Path) -> None:
    """Raise unless a folder is free or holds a reproduction.

    Raises:
        OutputExistsError: If it holds anything else.
    """
    if out.is_dir() and any(out.iterdir()) and not (out / "items").is_dir():
        raise OutputExistsError(
            f"`out` must be empty, new, or hold a reproduction; got {str(out)!r}, "
            "which holds other files"
        )


def is_made(config: ReproduceConfig) -> bool:
    """Return whether the item of these settings is complete in its folder.

    Raises:
        OutputExistsError: If the folder holds the item of other settings, or something
            else, and `overwrite` is not set.
        ConfigurationError: If it cannot be a writable folder.
    """
    _store.check_output(config)
    return not config.overwrite and _store.is_complete(config)


def check_unchanged(configs: Mapping[str, ReproduceConfig], out: pathlib.Path) -> None:
    """Raise unless the items that are kept would be made as they were.

    Args:
        configs: The settings of each, by its name.
        out: Folder of the reproduction.

    Raises:
        OutputExistsError: Naming the items and what has changed.
    """
    changed = {name: _store.changes_since(config) for name, config in configs.items()}
    names = [name for name, words in changed.items() if words]
    if names:
        words = "; ".join(
            dict.fromkeys(itertools.chain.from_iterable(changed.values()))
        )
        raise OutputExistsError(
            "`out` must hold items that the same code made of the same files; got "
            f"{str(out)!r}, where {words}: choose another --out, or make these again "
            "by the same command with --overwrite and these targets alone: "
            f"{' '.join(names)}"
        )


def written_item(config: ReproduceConfig, draw: Draw, made: Made) -> Made:
    """Write an item's figure, data and verdicts to its folder, whole or not at all."""
    item = made.item
    # appears under its name only when all of it is written
    with _store.study_folder(config) as folder:
        save_figure(item, draw, folder.path)
        made = dataclasses.replace(
            made, folder=config.out, commit=folder.manifest["commit"], config=config
        )
        checks = [dataclasses.asdict(check) for check in item.checks]
        content = made.content(caption=item.caption) | {"checks": checks}
        write_file(folder.path / _RECORD, json.dumps(content, indent=2) + "\n")
    return made


def kept_item(config: ReproduceConfig) -> Made:
    """Read the item that an earlier run has left in its folder."""
    import pandas as pd

    content: dict[str, Any] = json.loads(
        (config.out / _RECORD).read_text(encoding="utf-8")
    )
    item = Item(
        content["name"],
        content["title"],
        tuple(map(_check_of, content["checks"])),
        pd.read_csv(config.out / f"{content['name']}.csv"),
        content["caption"],
    )
    is_elsewhere = content["paper_data"] and content["own_data"]
    return Made(
        content["paper"],
        on_other_data(item) if is_elsewhere else item,
        content["seconds"],
        content["paper_data"],
        content["own_data"],
        config.out,
        is_kept=True,
        commit=content["commit"],
        config=config,
    )


def other_items(out: pathlib.Path, targets: Collection[Target]) -> list[Made]:
    """Read the items of earlier runs that a folder holds besides these.

    Each has the data set and settings with which it was made.
    """
    others = []
    for paper, rows in ITEMS.items():
        for name in rows:
            folder = out / "items" / f"{paper}.{name}"
            manifest = folder / "study.json"
            if (paper, name) in targets or not manifest.is_file():
                continue
            content = json.loads(manifest.read_text(encoding="utf-8"))["config"]
            try:
                config = from_dict(config_of((paper, name)), content, "")
            except ConfigurationError:
                continue  # of a version with other settings
            others.append(kept_item(dataclasses.replace(config, out=folder)))
    return others


def _check_of(content: Mapping[str, Any]) -> Check:
    """Read a check that JSON holds."""
    depends = content.get("depends")
    return Check(**{**content, "depends": None if depends is None else tuple(depends)})


def write_file(path: pathlib.Path, text: str) -> None:
    """Write a text file whole or not at all."""
    # on the same file system, so that replacing is one step
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
