"""A reproduction's summary and claims as rows of words, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mrsa_papers._config import ReproduceConfig
from mrsa_papers._folder import Made
from mrsa_papers._summary import SummaryRow, judged, summary
from mrsa_papers.harness._items import VERDICTS

SUMMARY_HEADINGS = ("Paper", "Item", "What", "Verdicts", "Seconds", "Data")
CLAIM_HEADINGS = ("Claim", "Paper", "Ours", "Tolerance", "Verdict", "Why it differs", "Note")


def claim_cells(made: Made, config: ReproduceConfig) -> list[tuple[str, ...]]:
    """Return a row for each claim of an item, as `CLAIM_HEADINGS` names its cells."""
    return [
        (c.claim, c.paper, c.ours, c.tolerance, c.verdict, one.why, c.note)
        for one in judged(made, config)
        for c in (one.check,)
    ]


def summary_cells(row: SummaryRow) -> tuple[str, ...]:
    """Return a row's cells, as `SUMMARY_HEADINGS` names them."""
    return (row.paper, row.item, row.title, row.verdicts, f"{row.seconds:.1f}", row.data)


def totals(rows: Sequence[SummaryRow]) -> str:
    """Say in one line how all items fared, those on other data than the paper's apart.

    Examples:
        >>> totals([])
        '0 items, 0 claims: 0 reproduced, 0 paper errs, 0 differ (0 not expected), in 0 s'
    """
    counts = [sum(row.counts[place] for row in rows) for place in range(len(VERDICTS) - 1)]
    right, other, read, silent, wrong, open_, differ = counts
    missed = sum(row.unexpected for row in rows)
    apart = f" {other} hold on data in place of the paper's," if other else ""
    hang = f" {read} hang on our reading," if read else ""
    hang += f" {silent} on what the paper does not state," if silent else ""
    between = f" {open_} undecided," if open_ else ""
    missing = sum(row.verdicts == "no data" for row in rows)
    seconds = sum(row.seconds for row in rows)
    return (
        f"{len(rows)} items, {sum(counts)} claims: {right} reproduced,{apart}{hang} "
        f"{wrong} paper errs,{between} {differ} differ ({missed} not expected), in {seconds:.0f} s"
        + (f"; {missing} items have no data" if missing else "")
    )


def markdown(items: Sequence[Made], config: ReproduceConfig) -> str:
    """Return the summary and all claims as Markdown."""
    rows = summary(items, config)
    claims = [(made.name, *cells) for made in items for cells in claim_cells(made, config)]
    return (
        f"{totals(rows)}.\n\n"
        + _markdown_table(SUMMARY_HEADINGS, map(summary_cells, rows))
        + "\n"
        + _markdown_table(("Item", *CLAIM_HEADINGS), claims)
    )


def _markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in lines
    )
