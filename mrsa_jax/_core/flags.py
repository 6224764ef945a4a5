"""Kinds of optional settings, with what the command line's help shows in place of their values."""

from __future__ import annotations

import pathlib
from typing import Annotated

import tyro

Count = Annotated[int | None, tyro.conf.arg(metavar="N")]
File = Annotated[pathlib.Path | None, tyro.conf.arg(metavar="FILE")]
Folder = Annotated[pathlib.Path | None, tyro.conf.arg(metavar="DIR")]
Name = Annotated[str | None, tyro.conf.arg(metavar="NAME")]
Number = Annotated[float | None, tyro.conf.arg(metavar="X")]


class Cites:
    """What values of a setting stand for, and keys of their papers: a remark of its type."""

    def __init__(self, **values: str) -> None:
        """Take for each value what its papers are cited for, and their keys: "data: key key"."""
        self.values = values
