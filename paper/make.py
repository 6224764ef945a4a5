"""Make the report.

`numbers.json` by the package; from that file alone figures and the text, as Markdown,
HTML and PDF.
    python paper/make.py                    # all of it, into this folder (make paper)
    python paper/make.py --only defences    # these sections' numbers again, then the text
    python paper/make.py --text             # figures and text only

The text is `paper.template.md`, filled in: `{section[name]:.2f}` is a number of the
file, and a line `%each section[names]: ...` is repeated for each entry, whose fields it
names.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attributes
import enforcing
import frameworks
import printing
import rounds

import mrsa_jax as mj

HERE = pathlib.Path(__file__).resolve().parent


def amplification() -> dict[str, Any]:
    """Return what blocks cost in amplification by sampling."""
    own = {"clients": 24, "cohort": 12, "rounds": 20, "noise": 4.0, "delta_power": -5}
    costs = mj.dp.amplification(
        own["clients"],
        own["cohort"],
        [1, 2, 4, 6],
        own["rounds"],
        own["noise"],
        10.0 ** own["delta_power"],
    )
    names = ("privacy_targets", "server", "blocks", "one_by_one")
    columns = [getattr(costs, name).tolist() for name in names]
    rows = {
        str(row[0]): dict(zip(names, row, strict=True))
        for row in zip(*columns, strict=True)
    }
    return own | {"rows": rows}


SECTIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "version": lambda told: mj.__version__,
    "bounds": lambda told: rounds.bounds(),
    "attributes": lambda told: attributes.attributes(),
    "cnn": lambda told: attributes.cnn(),
    "fresh": lambda told: attributes.fresh(),
    "defences": lambda told: attributes.defences(),
    "certified": lambda told: rounds.certified(),
    "drift": lambda told: rounds.drift(),
    "unlike": lambda told: rounds.unlike(told["drift"]),
    "memories": lambda told: rounds.memories(),
    "enforced": lambda told: enforcing.enforced(),
    "two_models": lambda told: enforcing.two_models(),
    "evidence": lambda told: enforcing.evidence(),
    "thresholds": lambda told: enforcing.thresholds(),
    "selectors": lambda told: frameworks.selectors(
        **{name: told["drift"]["rows"]["part"][name] for name in ("memory", "share")}
    ),
    "weights": lambda told: frameworks.weights(),
    "amplification": lambda told: amplification(),
}
"""Each section's numbers, from those of the sections before it."""


def numbers(known: dict[str, Any] | None = None, *only: str) -> dict[str, Any]:
    """Return every number of the report, to six digits.

    Args:
        known: Numbers of sections that are not computed again.
        only: The sections to compute; all of them if none is named.
    """
    told = dict(known or {})
    for name in only or SECTIONS:
        start = time.process_time()
        told[name] = SECTIONS[name](told)
        sys.stderr.write(f"{name}: {time.process_time() - start:.1f} s\n")
    ordered = {name: told[name] for name in SECTIONS}
    return json.loads(
        json.dumps(ordered), parse_float=lambda text: float(f"{float(text):.6g}")
    )


# ---- The figures and the text, from the numbers alone.


def drawings(told: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    """Return how each figure is drawn on axes."""
    import pandas as pd

    def points(
        variable: str,
        x: str,
        hue: str,
        rows: list[tuple[Any, ...]],
        bounds: Sequence[float] = (),
    ) -> Callable[..., Any]:
        table = pd.DataFrame(rows, columns=[x, hue, variable])

        def draw(ax: Any) -> Any:
            drawn = mj.plotting.plot_points(table, variable, x=x, hue=hue, ax=ax)
            for bound in bounds:
                drawn.axhline(bound, color="0.3", linewidth=0.8, linestyle=":")
            if "AUC" in variable:  # a half is guessing
                drawn.set_ylim(0.5, 1.02)
            return drawn

        return draw

    def over_rounds(curves: dict[str, list[float]]) -> list[tuple[Any, ...]]:
        return [
            (j + 1, label, y)
            for label, curve in curves.items()
            for j, y in enumerate(curve)
        ]

    attained = [
        (stop, label, auc)
        for label, curve in told["attributes"]["curves"].items()
        for stop, auc in curve
    ]
    selections = told["attributes"]["selections"].values()
    limits = [row["bound"] for row in selections if row["bound"] is not None]
    bounded = [
        (target, name, value)
        for target in range(1, 33)
        for name, value in (
            ("half of the clients", mj.privacy.attribute_bound(target).auc),
            ("one in a hundred", mj.privacy.attribute_bound(target, 0.01).auc),
        )
    ]
    return {
        "attribute": points("AUC", "sums", "selection", attained, limits),
        "bound": points("largest AUC", "T", "clients with the attribute", bounded),
        "certified": points(
            "worst client hidden among",
            "round",
            "scheme",
            over_rounds(told["certified"]["curves"]),
        ),
        "enforced": points(
            "exposed clients",
            "round",
            "clients unmask",
            over_rounds(told["enforced"]["curves"]),
        ),
        "selectors": points(
            "worst update hidden among",
            "round",
            "rule",
            over_rounds(told["selectors"]["curves"]),
        ),
    }


def figures(told: dict[str, Any], folder: pathlib.Path) -> None:
    """Draw the figures as SVG, the same bytes whenever they are drawn."""
    folder.mkdir(exist_ok=True)
    for name, draw in drawings(told).items():
        mj.plotting.save_figure(draw, folder / name, formats=["svg"], apart=False)


def text(told: dict[str, Any], template: str) -> str:
    """Return the template filled in."""

    def lines() -> Iterator[str]:
        for line in template.splitlines():
            each = re.fullmatch(r"%each (\w+)\[(\w+)\]: (.*)", line)
            entries = told[each[1]][each[2]].values() if each else [{}]
            for one in entries:
                yield (each[3] if each else line).format(**told, **one)

    filled = "\n".join(lines()) + "\n"
    # code stands as it is
    parts = re.split(r"(^```.*?^```$)", filled, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else wrapped(part) for part in parts)


def wrapped(text: str) -> str:
    """Return the text with paragraphs and items of lists in lines of one width."""

    def filled(found: re.Match[str]) -> str:
        words = " ".join(found[0].split())
        # a line must not begin within code, with what is a list there
        words = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\0"), words)
        whole = textwrap.fill(
            words,
            120,
            subsequent_indent="  " if words.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        return whole.replace("\0", " ") + "\n"

    paragraph = r"""(?:^[\w*`(\["].*\n)+"""
    item = r"^- .*\n(?:^  \S.*\n)*"
    return re.sub(f"{item}|{paragraph}", filled, text, flags=re.MULTILINE)


def main(*words: str) -> None:
    """Write the numbers unless only the text is asked for, then figures and text."""
    path = HERE / "numbers.json"
    if "--text" not in words:
        only = words[words.index("--only") + 1 :] if "--only" in words else ()
        known = json.loads(path.read_text(encoding="utf-8")) if only else None
        found = numbers(known, *only)
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    told = json.loads(path.read_text(encoding="utf-8"))
    figures(told, HERE / "figures")
    template = (HERE / "paper.template.md").read_text(encoding="utf-8")
    report = text(told, template)
    (HERE / "paper.md").write_text(report, encoding="utf-8")
    (HERE / "paper.html").write_text(printing.as_html(report, HERE), encoding="utf-8")
    pages = printing.as_pdf(report, drawings(told), HERE / "paper.pdf")
    sys.stderr.write(f"paper.pdf: {pages} pages\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
