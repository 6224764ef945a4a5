"""Makes the page of the benchmarks' history from the records: `make history`.

python docs/benchmark_history.py > docs/benchmark_history.md
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Iterable, Iterator

RESULTS = pathlib.Path(__file__).resolve().parents[1] / "benchmarks" / "results"
HEAD = """# History of the benchmarks

This page lists each case of [the benchmarks](../benchmarks/README.md) that was recorded more
than once. `make history` makes it from `benchmarks/results`. A rate is in units per second of
the fastest call. Machines and their load differ between records, so compare ratios: our rate,
divided by the peer's in the same run.
"""
COLUMNS = ("case", "recorded", "version", "JAX", "load", "rate", "ratio")


def page(folder: pathlib.Path = RESULTS) -> str:
    """Return the page's text for the records of a folder."""
    parts = [HEAD]
    for path in sorted(folder.glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = list(_rows(map(json.loads, lines)))
        if rows:
            table = [COLUMNS, ("---",) * len(COLUMNS), *rows]
            text = "\n".join(f"| {' | '.join(row)} |" for row in table)
            parts.append(f"## {path.stem}\n\n{text}\n")
    return "\n".join(parts)


def _rows(records: Iterable[dict]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of cases with several records, oldest first."""
    cases: dict[tuple[str, str], list[dict]] = {}
    for record in records:
        # what was only compiled, for a device that is not there, has no rate
        if record.get("rate"):
            device = record["machine"].get("device", "")
            cases.setdefault((record["case"], device), []).append(record)
    for (case, device), own in cases.items():
        where = "" if device.startswith("cpu") else f" ({device})"
        for place, record in enumerate(sorted(own, key=_time) if len(own) > 1 else ()):
            machine = record["machine"]
            versions = machine["versions"]
            ratio = record.get("ratio")
            yield (
                f"`{case}`{where}" if place == 0 else "",
                _time(record)[:10],
                versions.get("mrsa_jax", ""),
                versions.get("jax", ""),
                f"{machine['load']:.1f}",
                f"{record['rate']:.3g} {record['unit']}",
                f"{ratio:.2f}" if ratio else "",
            )


def _time(record: dict) -> str:
    return record["time"]


if __name__ == "__main__":
    sys.stdout.write(page())
