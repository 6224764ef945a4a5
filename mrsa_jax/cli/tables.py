"""Tables of commands, with the columns that the terminal has room for."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from mrsa_jax.cli.console import escape, output_console
from mrsa_watch._base.untrusted import printable


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    width: int = 120,
    **look: Any,
) -> Any:
    """Print rows of text, and return the console for what is said below.

    Args:
        headings: As of `Table`, like what follows.
        rows: Of the table.
        width: Letters in a line where there is no terminal.
        **look: Of the table.
    """
    console = output_console(width)
    console.print(Table(headings, rows, **look))
    return console


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of text as they are printed, with the columns that there is room for.

    Attributes:
        headings: Of the columns; they are broken at spaces where lines are short.
        rows: Their cells: text, or rich's own, which has colours.
        title: Above the table.
        left: Columns of text; the others are numbers, set to the right.
        has_total: Whether the last row is set apart.
        spare: Headings of columns that are left out where lines are short, the first
            one first.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str | None = None
    left: Collection[int] = (0,)
    has_total: bool = False
    spare: Sequence[str] = ()

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """Give rich the widest form that fits; if none does, cells are folded."""
        wide = options.update(max_width=10_000)
        # first all columns, then headings on several lines, then fewer columns
        gone = [self.spare[:count] for count in range(len(self.spare) + 1)]
        for left_out, is_broken in (
            (gone[0], False),
            *((names, True) for names in gone),
        ):
            made = self._made(left_out, is_broken=is_broken)
            if console.measure(made, options=wide).maximum <= options.max_width:
                break
        else:
            left_out, made = (
                self.spare,
                self._made(self.spare, is_broken=True, folds=True),
            )
        yield made
        missing = [name for name in left_out if name in self.headings]
        if missing:
            yield coloured(f"No room here for: {', '.join(missing)}.\n", "dim")

    def _made(
        self, left_out: Sequence[str], *, is_broken: bool, folds: bool = False
    ) -> Any:
        from rich import box, table

        title = None if self.title is None else escape(self.title)
        made = table.Table(
            title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
        )
        columns = [
            i for i, heading in enumerate(self.headings) if heading not in left_out
        ]
        for i in columns:
            heading = escape(self.headings[i]).replace(" ", "\n" if is_broken else " ")
            side: Any = "left" if i in self.left else "right"
            made.add_column(heading, overflow="fold", justify=side, no_wrap=not folds)
        for i, row in enumerate(self.rows):
            cells = (
                escape(row[k]) if isinstance(row[k], str) else row[k] for k in columns
            )
            made.add_row(*cells, end_section=self.has_total and i == len(self.rows) - 2)
        return made


def coloured(words: str, style: str) -> Any:
    """Return a cell in a colour."""
    from rich.text import Text

    return Text(printable(words, "\n"), style)
