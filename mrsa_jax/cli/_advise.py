"""`mrsa-jax advise`: print what each selection scheme gives, and which to take."""

from __future__ import annotations

import sys
from typing import Any

from mrsa_jax.cli._audit import BELOW_TARGET
from mrsa_jax.cli._console import print_sentences, print_table
from mrsa_jax.cli._run import run_kind
from mrsa_jax.study import AdviseConfig


def run_advise(config: AdviseConfig) -> int:
    """Choose a scheme and return the exit status: 0, or 3 if none gives what is demanded."""
    out = {} if config.out is None else {"out": str(config.out)}
    found, _ = run_kind(config, _print, as_json=lambda found: found.content | out)
    if out and not config.json:
        sys.stdout.write(f"\nWritten to {config.out}\n")
    return 0 if found.chosen is not None else BELOW_TARGET


def _print(found: Any) -> None:
    console = print_table(found.headings, found.table, title=found.title)
    print_sentences(console, found.sentences)
    if found.policies:
        loss = f"{100 * found.policy_loss:.3g} %"
        title = f"{found.policies[0].scheme}, {loss} lost inside rounds, and then:"
        print_table(("", *found.headings[1:-1]), found.policy_table, title=title)
    console.print(found.reading, style="dim", highlight=False, markup=False)
