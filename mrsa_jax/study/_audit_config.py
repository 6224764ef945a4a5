"""Settings of an audit of a participation log; no JAX."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from mrsa_jax._checks import check_least, check_number, check_positive
from mrsa_jax._errors import require
from mrsa_jax._flags import File, Folder, Name
from mrsa_jax._html import Shown
from mrsa_jax._untrusted import start_of


@dataclasses.dataclass(frozen=True)
class AuditConfig(Shown):
    """Say what a participation log of any system leaks: who is exposed, and proof.

    Rounds and clients have the log's names; without any, their places in the matrix, from 0.
    """

    file: Annotated[pathlib.Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = (
        tyro.MISSING
    )
    """A recorder's log, JSON Lines, CSV with a header (round,client) or a 0/1 matrix, with a line
    of names or without; Parquet, NPY, NPZ, or NVFlare's server log."""

    format: Literal["auto", "csv", "parquet", "npy", "npz", "jsonl", "nvflare"] = "auto"
    """Format of FILE; told by its content."""

    layout: Literal["auto", "long", "matrix"] = "auto"
    """Rows of (round, client), or a matrix with a row a round; told apart by the header."""

    round_column: Name = None
    """Name of the column with the round; the usual names are known."""

    client_column: Name = None
    """Name of the column with the client; the usual names are known."""

    weight_column: Name = None
    """Name of the column with each client's weight in the sum; "weight" is known."""

    where: tyro.conf.UseAppendAction[
        Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN=TEXT")]
    ] = ()
    """Keep only the rows with this text (or one of TEXT,TEXT) in this column, or with COLUMN!=TEXT
    all others; may be repeated."""

    ignore_columns: Annotated[str, tyro.conf.arg(metavar="NAMES")] = ""
    """Columns to pass over, with commas: one that may turn the verdict waits for a word."""

    sum_columns: Annotated[str, tyro.conf.arg(metavar="NAMES")] = ""
    """Columns that tell several sums of a round apart, with commas: group, job, attempt."""

    restarts: Literal["ask", "new", "same"] = "ask"
    """A round that goes on after others: another sum, as numbering began anew, or the same."""

    round_order: Literal["sorted", "file"] = "sorted"
    """Order of the rounds: by number or name, or as in the file."""

    array: Name = None
    """Which array of an NPZ archive."""

    memory_gib: float = 2.0
    """Most memory that the history may take as a matrix."""

    effort: float = 1.0
    """How much may be tried: 1 is searches and proofs of about 90 seconds of one core."""

    coalition: Annotated[str, tyro.conf.arg(metavar="NAMES")] = ""
    """Clients, with commas, who tell the server their updates: the audit is of the others."""

    fail_below: Annotated[int | None, tyro.conf.arg(metavar="T")] = None
    """Exit with status 3 unless weak T of at least this is proven (2: nobody is exposed)."""

    definition: Literal["weak", "strong"] = "weak"
    """Of --fail-below: weak T (any combination of sums) or strong T (who only move together)."""

    fail_below_hidden: Annotated[float | None, tyro.conf.arg(metavar="CLIENTS")] = None
    """Exit with status 3 unless each client is hidden among so many; noise is not counted."""

    noise_multiplier: Annotated[float | None, tyro.conf.arg(metavar="Z")] = None
    """Noise of standard deviation Z times --clip is in each sum: print clients' mu and epsilon
    (without it by what a recorder's log says)."""

    clip: Annotated[float | None, tyro.conf.arg(metavar="C")] = None
    """Largest norm of a client's update, with --noise-multiplier."""

    planned: Annotated[int | None, tyro.conf.arg(metavar="K")] = None
    """Clients add the noise: each survivor one share in K of the variance, so that a sum of fewer
    has less of it; prints mu and epsilon planned beside realised."""

    colluding: Annotated[str, tyro.conf.arg(metavar="NAMES")] = ""
    """Clients, with commas, who tell the server their noise and their updates: with --planned."""

    delta: float = 1e-5
    """At which epsilon is printed."""

    spread: Annotated[float | None, tyro.conf.arg(metavar="S")] = None
    """Also mu and epsilon if others' updates are Gaussian with this spread: no guarantee."""

    recipe_file: File = None
    """Where to write the whole recipe as CSV."""

    certificate: File = None
    """Where to write each claim with a proof in integers, as JSON, for mrsa_check.py to check."""

    out: Folder = None
    """Folder for findings, certificates, tables and figures; mrsa-jax report makes a page of it."""

    overwrite: bool = False
    """Replace other results in --out."""

    json: bool = False
    """Print everything as JSON instead."""

    @property
    def counts_shares(self) -> bool:
        """Whether clients' shares of the noise are counted one by one."""
        return self.planned is not None


_NOISE = ("noise_multiplier", "clip", "delta", "spread")


def check_audit(config: AuditConfig) -> None:
    """Raise `ConfigurationError` for the first setting that breaks a rule, or for a missing log."""
    check_positive(config, "memory_gib")
    check_number(config.effort, "effort", "must be a number of at least 0", 0.0)
    check_least(config, fail_below=1, planned=1)
    hidden = config.fail_below_hidden
    if hidden is not None:
        check_number(hidden, "fail_below_hidden", "must be a finite number of at least 1", 1.0)
    check_positive(config, *(name for name in _NOISE if getattr(config, name) is not None))
    require(config.delta < 1, "delta", "must be below 1", config.delta)
    told = [name for name in _NOISE if getattr(config, name) is not None and name != "delta"]
    for name in ("noise_multiplier", "clip"):
        missing = bool(told) and name not in told
        require(not missing, name, f"must be given with {', '.join(told)}", None)
    if config.counts_shares:
        for name in ("noise_multiplier", "clip"):
            given = getattr(config, name) is not None
            require(given, name, "must be given with planned", None)
        rule = "must be left out with planned, whose account takes others' updates for known"
        require(config.spread is None, "spread", rule, config.spread)
    rule = "must come with planned: noise that nobody adds to its own update nobody can tell"
    require(config.counts_shares or not config.colluding, "colluding", rule, config.colluding)
    for name in ("recipe_file", "certificate"):
        path = getattr(config, name)
        there = path is None or path.parent.is_dir()
        require(there, name, "must lie in an existing folder", str(path))
    alone = config.out is None and config.overwrite
    require(not alone, "overwrite", "must come with --out", config.overwrite)
    start_of(config.file, 0)  # its absence is told before anything heavy is imported
