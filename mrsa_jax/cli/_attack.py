"""`mrsa-jax attack NAME`: what a curious server gets out of the sums, tried and scored."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mrsa_jax._compile_cache import use_compile_cache
from mrsa_jax._errors import ConfigurationError, nearest
from mrsa_jax.cli._console import Bars, error_console, output_console, print_table, use_cores
from mrsa_jax.study import _config
from mrsa_jax.study._kinds import KINDS, validate

if TYPE_CHECKING:
    from mrsa_jax.study._attack_config import AttackSettings
    from mrsa_jax.study.attack._findings import AttackFindings

__all__ = ["DESCRIPTION", "DETAILS", "AttackCommand", "defaults", "run_attack"]

DESCRIPTION = "Attack what secure aggregation leaves to see: sums, models, uploads; and score it."

DETAILS = """

  mrsa-jax attack least-squares            each client's update, from the sums of many rounds
  mrsa-jax attack disaggregation           who was in each sum, from how often each took part
  mrsa-jax attack gradients                images, from one update or a sum of several
  mrsa-jax attack model-inversion          a typical image of each class, from a model
  mrsa-jax attack membership               whether a sample was among those trained on
  mrsa-jax attack inconsistency            a server that breaks the protocol, and the defence

Each says by `mrsa-jax attack NAME --help` what it takes. Scores are printed and saved in --out.
Exit status: 0 done, 2 misuse, 130 interrupted (what was finished by then is saved).
"""

_INTERRUPTED = 130
_MOST_ROWS = 48  # of the detailed table that are printed


_DETAILS = {
    "least-squares": """
A server that keeps every sum and knows who was in it solves the linear system (Multi-RoundSecAgg,
eq. (33) to (35)). Random selection exposes single clients; blocks of T leave only their sums.
  mrsa-jax attack least-squares --frozen
  mrsa-jax attack least-squares --schemes uniform batch_partitioning:2 --learning-rate 0.01
  mrsa-jax attack least-squares --run results/train --window 60
  mrsa-jax attack least-squares --aggregates sums.npy --participation who.npy""",
    "disaggregation": """
A server that is not told who took part finds out from how often each client did (Lam et al. 2021).
  mrsa-jax attack disaggregation --num-clients 40 --rounds 100
  mrsa-jax attack disaggregation --drift 0.1
  mrsa-jax attack disaggregation --aggregates sums.npy --counts counts.npy""",
    "gradients": """
An update of few images shows them (Zhu et al. 2019; Geiping et al. 2020), a sum of few updates too,
but not whose they are; an upload under pads shows nothing.
  mrsa-jax attack gradients
  mrsa-jax attack gradients --photo china --seen plain --iterations 4800 --restarts 8
  mrsa-jax attack gradients --dataset mnist_5k --model lenet --num-summed 4
  mrsa-jax attack gradients --folder ~/pictures --method euclidean""",
    "model-inversion": """
Softmax regression shows its classes (Fredrikson et al. 2015): a face where a class is a person.
  mrsa-jax attack model-inversion
  mrsa-jax attack model-inversion --dataset olivetti --num-epochs 50 --num-clients 4
  mrsa-jax attack model-inversion --connection-probability 0.7 --num-clients 40""",
    "membership": """
A model that knows its samples by heart gives them away; AUC 0.5 is chance.
  mrsa-jax attack membership
  mrsa-jax attack membership --methods loss --num-epochs 100 --label-noise 0
  mrsa-jax attack membership --seen sum --num-summed 8""",
    "inconsistency": """
Outside the papers' threat model: the server lies (Pasquini et al. 2022). The others' updates are
zero, so the sum is the target's. Pads bound to the model's hash do not cancel then.
  mrsa-jax attack inconsistency
  mrsa-jax attack inconsistency --cohort-size 20 --target 7 --pads bound""",
}
_CONFIGS = {name: KINDS[f"attack {name}"].config for name in _DETAILS}


@dataclasses.dataclass(frozen=True)
class AttackCommand:
    """Attack what secure aggregation leaves to see.

    What is parsed is of a class of its own (`defaults`) with a field `attack`, the settings.
    """


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
        described = config.__doc__ or ""
        described += "\n" + _DETAILS[one] if one == name else ""
        mark = tyro.conf.subcommand(one, description=described)
        member: Any = Annotated[config, mark]
        union = member if union is None else union | member
    fields: Any = [("attack", union, dataclasses.field(default=tyro.MISSING))]
    cls = dataclasses.make_dataclass("AttackCommand", fields, bases=(AttackCommand,), frozen=True)
    loaded: list[Any] = [] if path is None else [_config.load_config(_CONFIGS[name], path)]
    return cls(*loaded)


def run_attack(command: Any) -> int:
    """Run an attack, print and save its scores, and return the exit status."""
    config: AttackSettings = command.attack
    validate(config)  # before JAX is imported: a misuse is answered at once
    use_compile_cache()
    use_cores()  # restarts of gradient inversion are dealt out to them
    from mrsa_jax import study

    start = time.perf_counter()
    with Bars() as bars:

        def show(found: AttackFindings) -> None:
            bars.rest()
            if config.json:
                content = {"out": str(config.out), **found.content}
                sys.stdout.write(json.dumps(content, indent=2) + "\n")
            else:
                _print(found)

        found = study.run_and_save(config, bars, show)
    if not config.json:
        files = ", ".join([f"{name}.png" for name in found.figures] or ["scores.csv"])
        seconds = time.perf_counter() - start
        sys.stdout.write(f"\nWritten in {seconds:.0f} s to {config.out} ({files})\n")
    if not found.is_complete:
        words = f"interrupted; what was finished is in {config.out}"
        error_console().print(words, markup=False, soft_wrap=True)
    return 0 if found.is_complete else _INTERRUPTED


def _print(found: AttackFindings) -> None:
    """Print the tables and what they show."""
    console = output_console()
    console.print(found.title, markup=False, highlight=False)
    rows = found.scores[:_MOST_ROWS]
    if rows:
        _print_rows(rows)
    if len(found.scores) > len(rows):
        left = len(found.scores) - len(rows)
        console.print(f"... and {left} more rows in scores.csv\n", highlight=False)
    if found.summary:
        _print_rows(found.summary)
    for sentence in found.sentences:
        console.print(sentence, highlight=False, markup=False)


def _print_rows(rows: list[dict[str, Any]]) -> None:
    headings = [name.replace("_", " ") for name in rows[0]]
    left = [i for i, value in enumerate(rows[0].values()) if isinstance(value, str)]
    print_table(headings, [[_cell(v) for v in row.values()] for row in rows], left=left)


def _cell(value: Any) -> str:
    import numpy as np  # --help must not wait for it

    if value is None:
        return "-"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return "-" if math.isnan(value) else f"{value:.4g}"
    return str(value)
