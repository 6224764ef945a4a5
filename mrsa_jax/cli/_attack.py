"""`mrsa-jax attack NAME`: what a curious server gets out of the sums, tried and scored."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import sys
from typing import Annotated, Any

import tyro

from mrsa_jax._errors import ConfigurationError, nearest
from mrsa_jax.cli._console import error_console, output_console, print_sentences, print_table
from mrsa_jax.cli._run import INTERRUPTED, run_kind, words_of
from mrsa_jax.study import KINDS, load_config

_MOST_ROWS = 48  # of the detailed table that are printed
_CONFIGS = {name.partition(" ")[2]: kind.config for name, kind in KINDS.items() if " " in name}


@dataclasses.dataclass(frozen=True)
class AttackCommand:
    """Attack what secure aggregation leaves to see: sums, models, uploads; and score it.

      mrsa-jax attack least-squares            each client's update, from the sums of many rounds
      mrsa-jax attack distinguish              whether a client's updates were shifted
      mrsa-jax attack canaries                 whether noise in the ring hides as its ledger says
      mrsa-jax attack disaggregation           who was in each sum, from how often each took part
      mrsa-jax attack gradients                images, from one update or a sum of several
      mrsa-jax attack model-inversion          a typical image of each class, from a model
      mrsa-jax attack membership               whether a sample was among those trained on
      mrsa-jax attack inconsistency            a server that breaks the protocol, and the defence

    Each says by `mrsa-jax attack NAME --help` what it takes. Scores are printed and saved in --out.
    Exit status: 0 done, 2 misuse, 130 interrupted (what was finished by then is saved).
    """

    # what is parsed is of a class of its own (`defaults`) with a field `attack`, the settings


def defaults(path: pathlib.Path | None, words: list[str]) -> AttackCommand:
    """Return a command to be filled in, whose class knows the attacks; the first word names one.

    Args:
        path: A TOML file with settings, or None.
        words: Behind `attack`.

    Raises:
        ConfigurationError: If they name no attack and do not ask for help.
    """
    name = words[0] if words else ""
    if name not in _CONFIGS and (not name.startswith("-") or path is not None):
        known = ", ".join(_CONFIGS)
        if not words or name.startswith("-"):
            raise ConfigurationError(f"`attack` must be followed by the name of one: {known}")
        hint = nearest(name, _CONFIGS)
        raise ConfigurationError(f"`attack` must be a known attack; got {name!r}; {hint}")
    union: Any = None
    for one, config in _CONFIGS.items():
        mark = tyro.conf.subcommand(one, description=words_of(config, in_full=one == name))
        member: Any = Annotated[config, mark]
        union = member if union is None else union | member
    fields: Any = [("attack", union, dataclasses.field(default=tyro.MISSING))]
    cls = dataclasses.make_dataclass("AttackCommand", fields, bases=(AttackCommand,), frozen=True)
    loaded: list[Any] = [] if path is None else [load_config(_CONFIGS[name], path)]
    return cls(*loaded)


def run_attack(command: Any) -> int:
    """Run an attack, print and save its scores, and return the exit status."""
    config = command.attack
    out = {"out": str(config.out)}
    # restarts of gradient inversion are dealt out to all cores
    found, seconds = run_kind(
        config, _print, as_json=lambda found: out | found.content, devices=None
    )
    if not config.json:
        files = ", ".join([f"{name}.png" for name in found.figures] or ["scores.csv"])
        sys.stdout.write(f"\nWritten in {seconds:.0f} s to {config.out} ({files})\n")
    if not found.is_complete:
        words = f"interrupted; what was finished is in {config.out}"
        error_console().print(words, markup=False, soft_wrap=True)
    return 0 if found.is_complete else INTERRUPTED


def _print(found: Any) -> None:
    """Print the tables and what they show."""
    console = output_console()
    console.print(found.title, markup=False, highlight=False)
    _print_rows(found.scores[:_MOST_ROWS])
    if len(found.scores) > _MOST_ROWS:
        left = len(found.scores) - _MOST_ROWS
        console.print(f"... and {left} more rows in scores.csv\n", highlight=False)
    _print_rows(found.summary)
    print_sentences(console, found.sentences)


def _print_rows(rows: list[dict[str, Any]]) -> None:
    if rows:
        headings = [name.replace("_", " ") for name in rows[0]]
        left = [i for i, value in enumerate(rows[0].values()) if isinstance(value, str)]
        print_table(headings, [[_cell(v) for v in row.values()] for row in rows], left=left)


def _cell(value: Any) -> str:
    value = value.item() if hasattr(value, "item") else value  # a number of NumPy's
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
