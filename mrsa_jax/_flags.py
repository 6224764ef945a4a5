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
