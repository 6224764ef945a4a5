"""A reproduced table or figure, the claims it is judged by, and their verdicts.

A figure whose content is lost is judged by what its text and caption say that can be
checked.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal[
    "reproduced",
    "holds on other data",
    "ours",
    "other settings",
    "our reading",
    "not stated",
    "paper errs",
    "undecided",
    "differs",
    "no data",
]
"""Outcome of a claim.

- `holds on other data`: the data set stands in for the paper's, which reproduces
  nothing.
- `ours`: a claim that the paper does not make.
- `other settings`: a number that the paper printed of other settings, so that nothing
  is compared.
- `our reading`: it fails as the words are read here, and they can be read otherwise; or
  a setting that the paper states is not met, so that neither a hit nor a miss is one of
  the paper's.
- `not stated`: it fails for an input that the paper does not give, and may hold for the
  paper's.
- `paper errs`: ours differs from the print and is proven right, whatever the data.
- `undecided`: the interval holds values that meet the claim and values that do not, or
  only data that stand in for the paper's speak against it.
- `no data`: not judged, as the data set is not on this machine.
"""

NOT_DISCUSSED = "not discussed"
"""The paper's statement of a claim that is ours."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""All verdicts, from the best to the worst."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One claim of a paper beside what we find.

    Attributes:
        claim: What is compared, in words.
        paper: The paper's value or statement.
        ours: Our value.
        tolerance: How far they may lie apart, in words.
        verdict: One of `VERDICTS`.
        note: Erratum, open reading or method, when there is something to say.
        key: What the list of explained misses calls it, where the claim's own words
            hold numbers that hang on the size; the claim itself where empty.
        of_data: Whether it may hang on the data set or other settings; a printed number
            that follows from a formula does not.
        as_made: The verdict by the settings that were run, where the paper's are not
            met, or of a claim of ours.
        depends: Settings of the item that the paper's number or claim is of; None for
            all of them. Empty for what the paper says of every setting.
    """

    claim: str
    paper: str
    ours: str
    tolerance: str
    verdict: Verdict
    note: str = ""
    key: str = ""
    of_data: bool = True
    as_made: Verdict | None = None
    depends: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The claim's name in the list of explained misses."""
        return self.key or self.claim


class Found(NamedTuple):
    """An item's content as its maker returns it, in the order of `Item`.

    Judged claims, data, caption.
    """

    checks: tuple[Check, ...]
    data: pd.DataFrame
    caption: str


@dataclasses.dataclass(frozen=True)
class Item:
    """One table, figure or theorem of a paper, remade.

    Attributes:
        name: Short name, as in `mrsa-jax reproduce multiround.fig4a`.
        title: What it is, with its number in the paper.
        checks: Its claims and verdicts.
        data: Everything that the figure shows, a row for each point.
        caption: What the figure shows and how it was made.
    """

    name: str
    title: str
    checks: tuple[Check, ...]
    data: pd.DataFrame
    caption: str

    @property
    def verdict(self) -> Verdict:
        """The worst verdict among the checks, that of ours only if all are."""
        verdicts = {check.verdict for check in self.checks}
        # verdicts are listed from best to worst
        return max(verdicts - {"ours"} or verdicts, key=VERDICTS.index)


_ELSEWHERE: dict[Verdict, Verdict] = {
    "reproduced": "holds on other data",
    "paper errs": "undecided",
}


def on_other_data(item: Item) -> Item:
    """Lower the verdicts of an item that was made on data other than the paper's.

    What holds, holds on other data; what would convict the paper leaves the claim
    undecided.

    Examples:
        >>> better = state("SC is better", True, paper="SC", ours="SC")
        >>> on_other_data(Item("fig3a", "", (better,), None, "")).verdict
        'holds on other data'
    """
    checks = tuple(
        dataclasses.replace(check, verdict=_ELSEWHERE.get(check.verdict, check.verdict))
        if check.of_data
        else check
        for check in item.checks
    )
    return dataclasses.replace(item, checks=checks)


_JUDGED: tuple[Verdict, ...] = (
    "reproduced",
    "holds on other data",
    "paper errs",
    "differs",
)


def at_other_settings(
    item: Item, missed: Mapping[str, str], unstated: Mapping[str, str] | None = None
) -> Item:
    """Lower an item's verdicts where a setting that the paper states is not met.

    A number that is found after fewer rounds is none of the paper's, whether it is like
    it or not: what the paper printed is left out. What would be undecided stays so.
    `Check.as_made` keeps the verdict, against which the list of explained misses is
    held.

    Args:
        item: The item as it was made.
        missed: Settings of the item that are not the paper's, in words by name.
        unstated: Settings that the paper's numbers depend on and that it does not
            state, likewise: no number is compared, while claims without one are.

    Examples:
        >>> near = state("error", True, paper="6.7e-3", ours="6.8e-3", tolerance="1e-3")
        >>> fewer = {"rounds_before": "rounds_before: 60 (the paper: 1460)"}
        >>> (check,) = at_other_settings(Item("fig9", "", (near,), None, ""), fewer).checks
        >>> check.verdict, check.paper
        ('other settings', '')
    """
    checks = tuple(_lowered(check, missed, unstated or {}) for check in item.checks)
    if not missed:
        return dataclasses.replace(item, checks=checks)
    words = "; ".join(missed.values())
    return dataclasses.replace(
        item,
        checks=checks,
        caption=f"{item.caption} Not at the paper's settings; {words}.",
    )


def _lowered(
    check: Check, missed: Mapping[str, str], unstated: Mapping[str, str]
) -> Check:
    """Lower a check whose settings are not the paper's."""
    if check.verdict == "ours":
        return check
    has_number = any(letter.isdigit() for letter in check.paper)
    differing = {**missed, **(unstated if has_number else {})}
    depends = differing if check.depends is None else check.depends
    why = [differing[name] for name in depends if name in differing]
    # a number of the paper stands only next to what was found at its settings
    is_printed = bool(why) and has_number
    if check.verdict not in _JUDGED:
        return dataclasses.replace(check, paper="") if is_printed else check
    if not why:
        return check
    is_missed = any(name in missed for name in depends)
    words = "not at the paper's settings" if is_missed else "settings are left open"
    words = f"{words}; {'; '.join(why)}"
    return dataclasses.replace(
        check,
        paper="" if is_printed else check.paper,
        # a hit proves as little as a miss
        verdict="other settings" if is_printed else "our reading",
        as_made=check.as_made or check.verdict,
        note=f"{check.note}; {words}" if check.note else words,
    )


def compare(
    claim: str,
    paper: int | float,
    ours: int | float,
    *,
    tolerance: int | float = 0,
    truth: int | float | None = None,
    note: str = "",
    depends: tuple[str, ...] | None = None,
) -> Check:
    """Return the check of a printed number.

    Args:
        claim: What the number is.
        paper: The printed value.
        ours: Our value.
        tolerance: Largest absolute difference that counts as reproduced.
        truth: The right value where the print is known to err: ours must meet it then.
        note: Said beside the verdict.
        depends: As in `Check`.

    Examples:
        >>> compare("sets", 91389, 91390, truth=91390).verdict
        'paper errs'
        >>> compare("sets", 91389, 91388, truth=91390).verdict
        'differs'
    """
    verdict: Verdict = "differs"
    if abs(ours - paper) <= tolerance:
        verdict = "reproduced"
    # ours must be right, not only unlike the print
    elif truth is not None and abs(ours - truth) <= tolerance:
        verdict = "paper errs"
    within = "exact" if tolerance == 0 else f"within {tolerance:.3g}"
    return Check(
        claim,
        _text(paper),
        _text(ours),
        within,
        verdict,
        note,
        of_data=False,
        depends=depends,
    )


def state(
    claim: str,
    holds: bool | None,
    *,
    ours: str,
    paper: str = NOT_DISCUSSED,
    tolerance: str = "exact",
    otherwise: Verdict = "differs",
    note: str = "",
    key: str = "",
    of_data: bool = True,
    depends: tuple[str, ...] | None = None,
) -> Check:
    """Return the check of a statement in words.

    A claim that the paper does not make has the verdict `"ours"`.

    Args:
        claim: What is compared.
        holds: Whether the paper's statement holds in our data, within `tolerance`; None
            where they cannot tell.
        ours: What we find.
        paper: The statement, if there is one.
        tolerance: How "almost" and "about" are read.
        otherwise: Verdict where it does not hold: `"paper errs"` only with a proof at
            hand.
        note: Said beside the verdict.
        key: As in `Check`.
        of_data: As in `Check`: False where it follows by arithmetic from what is
            printed.
        depends: As in `Check`.

    Examples:
        >>> words = dict(paper="T = 12", ours="T = 12", tolerance="exact")
        >>> state("T of user partition", True, **words).verdict
        'reproduced'
    """
    verdict: Verdict = (
        "undecided" if holds is None else "reproduced" if holds else otherwise
    )
    as_made = None
    if paper.startswith(NOT_DISCUSSED):
        verdict, as_made = "ours", verdict
    return Check(
        claim, paper, ours, tolerance, verdict, note, key, of_data, as_made, depends
    )


def _text(value: Any) -> str:
    if isinstance(value, numbers.Integral):
        return str(int(value))
    return f"{float(value):.10g}"
