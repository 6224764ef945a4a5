"""Says which scheme to take and why, from what the options give."""

from __future__ import annotations

from collections.abc import Sequence

from mrsa_jax._html import hidden_words
from mrsa_jax.study.advice._candidates import Setting
from mrsa_jax.study.advice._choice import Demands
from mrsa_jax.study.advice._options import Option


def number(value: float) -> str:
    """Return a number of clients, or F, in three digits.

    Examples:
        >>> number(1000.4), number(11.768), number(0.0143), number(1e-9)
        ('1,000', '11.8', '0.0143', '0.00')
    """
    if value >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1e-4 or value == 0 else "0.00"


def _sum(one: Option) -> str:
    return f"{number(one.cardinality)} clients in a mean sum"


def take(setting: Setting, demands: Demands, chosen: Option) -> str:
    """Say which to take."""
    if chosen.weak_lower == 1:
        return f"{chosen.label} gives what is demanded, but keeps no T: {_sum(chosen)}."
    why = f"it gives {demands}, with" if str(demands) else "it has"
    hidden = hidden_words(chosen.hidden_worst)
    words = (
        f"Take {chosen.scheme}: {why} {_sum(chosen)}. However many rounds follow, no combination "
        f"of sums holds fewer than {chosen.weak_lower} clients, and everybody is hidden as in a "
        f"sum of {hidden}."
    )
    if setting.loss_rate > 0:
        what = {"drop_block": "its block is left out of the sum", "abort": "the round is aborted"}
        words += f" That holds if, whenever a client is lost inside a round, {what[chosen.policy]}."
    return words


def nothing_fits(options: Sequence[Option], demands: Demands) -> str:
    """Say what comes nearest to what no option gives."""
    asked = str(demands) or "a T above 1"
    privacy = demands.privacy or 2
    hidden = demands.hidden or 1.0
    near = [o for o in options if o.weak_lower >= privacy and o.hidden_worst >= hidden]
    best = max(near, key=lambda one: one.cardinality, default=None)
    if best is None:
        largest = max(options, key=lambda one: one.hidden_worst)
        if largest.weak_lower == 1:
            sizes = f"{largest.num_clients} clients and {largest.cohort_size} of them in a round"
            return (
                f"No scheme gives {asked}: blocks of no size fit {sizes}. Take numbers with a "
                "common divisor."
            )
        return (
            f"No scheme gives {asked}: T and hidden among end at the cohort, {largest.weak_lower} "
            f"and {hidden_words(largest.hidden_worst)} under {largest.scheme}. Ask more clients a "
            "round."
        )
    return (
        f"No scheme gives {asked}. Nearest is {best.scheme}, with {_sum(best)}: demand less, ask "
        "more clients a round, or lose fewer."
    )


def remainder(setting: Setting, chosen: Option) -> list[str]:
    """Say what becomes of the clients that T does not divide."""
    own = setting
    n, k = own.num_clients - chosen.num_clients, own.cohort_size - (chosen.cohort_size or 0)
    said = []
    if n:
        said.append(
            f"T = {chosen.weak_lower} does not divide {own.num_clients} clients: {n} of them stay "
            "out, as reserves for clients who leave for good. Never swap them round by round: a "
            "client of two blocks splits both."
        )
    if chosen.cohort_size is not None and k:
        said.append(
            f"It does not divide {own.cohort_size} a round: ask {chosen.cohort_size}, or "
            f"{chosen.cohort_size + chosen.weak_lower}."
        )
    return said


def instead(setting: Setting, options: Sequence[Option], chosen: Option) -> list[str]:
    """Say what the next stricter scheme costs, and what comes of none."""
    said = []
    stricter = [
        one
        for one in options
        if one.is_best
        and one.hidden_worst > chosen.hidden_worst
        and one.weak_lower >= chosen.weak_lower > 1
    ]
    if stricter:
        nearest = min(stricter, key=lambda one: one.hidden_worst)
        said.append(
            f"Stricter: {nearest.scheme} hides everybody among "
            f"{hidden_words(nearest.hidden_worst)}, with {_sum(nearest)}."
        )
    plain = next((one for one in options if one.weak_lower == 1 and one.played), None)
    if plain is not None and plain.played is not None and plain.played.hidden_worst is not None:
        worst, exposed = plain.played.hidden_worst, plain.played.exposed_clients
        leak = f"{exposed:.4g} of {plain.num_clients} clients are exposed" if exposed else (
            f"nobody is exposed yet, and the worst client hidden among {hidden_words(worst)}"
        )  # fmt: skip
        said.append(
            f"Without it ({plain.label}): {_sum(plain)}, and after {setting.rounds} rounds {leak}."
        )
    return said


def losses(setting: Setting, policies: Sequence[Option], loss_rate: float) -> str:
    """Say what losses inside rounds do under each policy."""
    by = {one.policy: one for one in policies}
    loss = f"{100 * loss_rate:.3g} %"
    given = f"With {loss}" if setting.loss_rate > 0 else f"If {loss} were"
    ignored = by["ignore"].played
    left = ""
    if ignored is not None and ignored.weak_lower is not None:
        low, high = ignored.weak_lower, ignored.weak_upper
        weak = f"{low}" if low == high else f"{low} to {high}"
        hidden = hidden_words(ignored.hidden_worst or 1.0)
        left = (
            f" (after {setting.rounds} rounds weak T is {weak}, and the worst client hidden "
            f"among {hidden})"
        )
    return (
        f"{given} lost inside rounds, summing whoever is left splits blocks and keeps no T{left}, "
        f"with {_sum(by['ignore'])}; dropping the block of whoever is lost keeps T = "
        f"{by['drop_block'].weak_lower}, with {number(by['drop_block'].cardinality)}; aborting the "
        f"round keeps it too, with {number(by['abort'].cardinality)}."
    )
