"""`mrsa-jax attack NAME`: try what a curious server can learn, and score it."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import sys
from typing import Any

import tyro

from mrsa_jax.cli._run import INTERRUPTED, run_kind, union_of
from mrsa_jax.cli.console import output_console, print_sentences
from mrsa_jax.cli.tables import print_table
from mrsa_jax.study import load_config
from mrsa_jax.study.kinds import attacks, load_attack
from mrsa_watch._base.errors import ConfigurationError, check_known, require

_MOST_ROWS = 48  # of the detailed table that are printed


@dataclasses.dataclass(frozen=True)
class AttackCommand:
    """Attack what secure aggregation reveals: sums, models, uploads; and score the results.

      {attacks}

    `mrsa-jax attack NAME --help` shows the settings of each. Scores are printed and
    saved in --out. Exit status: 0 done, 2 misuse, 130 interrupted, 143 terminated
    (finished parts are saved).
    """

    # the parsed settings are in a field `attack` of another class (`defaults`)


def defaults(path: pathlib.Path | None, words: list[str]) -> AttackCommand:
    """Return a command to be filled in, whose class knows the attacks.

    The first word names one.

    Args:
        path: A TOML file with settings, or None.
        words: Behind `attack`.

    Raises:
        ConfigurationError: If they name no attack and do not ask for help.
    """
    name = words[0] if words else ""
    load_attack(name)
    rows = attacks()
    # `--help` needs no name, but a file's settings must be those of one attack
    if name not in rows and (not name.startswith("-") or path is not None):
        if not words or name.startswith("-"):
            names = ", ".join(rows)
            raise ConfigurationError(
                f"`attack` must be followed by the name of one: {names}"
            )
        check_known(name, "attack", rows, "a known attack")
    reason = rows[name].not_run if name in rows else ""
    asked = any(word.partition("=")[0] == "--run" for word in words)
    require(not (reason and asked), "run", reason)
    union = union_of(
        (word, row.settings, word == name, {}) for word, row in rows.items()
    )
    fields: Any = [("attack", union, dataclasses.field(default=tyro.MISSING))]
    lines = (f"mrsa-jax attack {row.name:24} {row.does}" for row in rows.values())
    text = (AttackCommand.__doc__ or "").format(attacks="\n      ".join(lines))
    # tyro prints a class's docstring, so the list of attacks goes into that of a new
    # class
    cls = dataclasses.make_dataclass(
        "AttackCommand",
        fields,
        bases=(AttackCommand,),
        frozen=True,
        namespace={"__doc__": text},
    )
    loaded: list[Any] = [] if path is None else [load_config(rows[name].settings, path)]
    return cls(*loaded)


def run_attack(command: Any) -> int:
    """Run an attack, print and save its scores, and return the exit status."""
    config = command.attack
    out = {"out": str(config.out)}
    # restarts of gradient inversion are dealt out to all cores
    findings, seconds = run_kind(
        config, _print, as_json=lambda findings: out | findings.content, devices=None
    )
    if not config.json:
        files = ", ".join(
            [f"{name}.png" for name in findings.figures] or ["scores.csv"]
        )
        sys.stdout.write(f"\nWritten in {seconds:.0f} s to {config.out} ({files})\n")
    return 0 if findings.is_complete else INTERRUPTED


def _print(findings: Any) -> None:
    """Print the tables and what they show."""
    console = output_console()
    console.print(findings.title, markup=False, highlight=False)
    _print_rows(findings.scores[:_MOST_ROWS])
    if len(findings.scores) > _MOST_ROWS:
        num_more = len(findings.scores) - _MOST_ROWS
        console.print(f"... and {num_more} more rows in scores.csv\n", highlight=False)
    _print_rows(findings.summary)
    print_sentences(console, findings.sentences)


def _print_rows(rows: list[dict[str, Any]]) -> None:
    if rows:
        headings = [name.replace("_", " ") for name in rows[0]]
        text_columns = [
            i for i, value in enumerate(rows[0].values()) if isinstance(value, str)
        ]
        print_table(
            headings,
            [[_cell(v) for v in row.values()] for row in rows],
            left=text_columns,
        )


def _cell(value: Any) -> str:
    value = value.item() if hasattr(value, "item") else value  # a number of NumPy's
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
