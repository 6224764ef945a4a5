"""Hot paths on accelerators: launches, bytes and loops against their bounds, and times.

In the repository's root, `python -m benchmarks.accelerators` compiles the hot paths for
an H100, an H200 and a TPU v5e, none of which need be there, and counts what the
programs would do. With `--here` they run on the accelerator of this machine, their
results are compared with the CPU's at small sizes, and their times stand beside the
device's limits. The exit status is 1 where a result is wrong, a path breaks down or a
count is beyond its bound.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

from mrsa_jax.cli.tables import coloured, print_table

_RESULTS = pathlib.Path(__file__).parents[1] / "results" / "accelerators.jsonl"
_WIDTH = 170  # where there is no terminal
_READ = (
    "Device",
    "Program",
    "Form",
    "Launches",
    "bound",
    "Moved / least",
    "bound ",
    "GB",
    "Open loops",
    "Products",
    "Instructions",
    "Seconds",
    "Of the limits",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read all cases and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accelerators",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="Hot paths; all if none is named."
    )
    parser.add_argument(
        "--quick", action="store_true", help="Small sizes, which have no bounds."
    )
    parser.add_argument(
        "--here", action="store_true", help="Run on this machine's accelerator."
    )
    parser.add_argument(
        "--json", action="store_true", help="Print the records as JSON lines."
    )
    parser.add_argument(
        "--record", action="store_true", help=f"Append them to {_RESULTS.name}."
    )
    options = parser.parse_args(arguments)
    if options.record and options.quick:
        parser.error("--record must not be used with --quick")
    if not options.here:
        # without a driver the plugin that compiles cannot start as the platform that
        # runs
        os.environ["JAX_PLATFORMS"] = "cpu"
    from benchmarks.accelerators._hot_paths import HOT_PATHS  # imports JAX

    if unknown := set(options.paths) - set(HOT_PATHS):
        parser.error(
            f"PATH must be one of {', '.join(HOT_PATHS)}; got {', '.join(unknown)}"
        )
    if options.here and not options.quick and _is_cpu():
        parser.error("--here at full size needs an accelerator: add --quick")
    return _read(options)


def _is_cpu() -> bool:
    from mrsa_jax._core.device import platform  # imports JAX

    return platform() == "cpu"


def _read(options: argparse.Namespace) -> int:
    """Read all cases, print and keep each at once, and return the exit status."""
    from benchmarks.accelerators import _measured
    from mrsa_jax.bench.harness import machine, now, record

    taken = {"machine": machine(), "time": now()}
    # a case that cannot be compiled here is named with its remedy
    readings: list[Any] = []
    left_out: dict[str, tuple[list[str], Any]] = {}
    broken: list[str] = []
    for case in _measured.cases(options.paths, quick=options.quick, here=options.here):
        start = time.perf_counter()
        try:
            reading = case.read(case.name)
        except _measured.NotHereError as error:
            names, _ = left_out.setdefault(error.name, ([], error))
            names.append(case.name)
            continue
        except Exception as error:
            if not options.here:
                raise
            broken.append(f"{case.name}: {type(error).__name__}: {error}")
            continue
        print(
            f"{case.name}: {time.perf_counter() - start:.1f} s",
            file=sys.stderr,
            flush=True,
        )
        readings.append(reading)
        row = dataclasses.asdict(reading) | reading.derived() | taken
        if options.json:
            print(json.dumps(row), flush=True)
        if options.record:
            record([row], _RESULTS)
    if readings and not options.json:
        texts = [i for i, name in enumerate(_READ) if name not in _READ[3:11]]
        print_table(
            _READ, [_cells(item) for item in readings], left=texts, width=_WIDTH
        )
    for name, (cases, why) in left_out.items():
        count = f"{len(cases)} case{'' if len(cases) == 1 else 's'}"
        print(
            f"left out: {count} compiled for {name}: {why}; to make it:",
            file=sys.stderr,
        )
        print(*(f"    {command}" for command in why.make), sep="\n", file=sys.stderr)
    wrong = [
        f"wrong: {item.case}: {words}" for item in readings for words in item.excesses()
    ]
    wrong += [f"broken: {words}" for words in broken]
    print(*wrong, sep="\n", end="\n" * bool(wrong), file=sys.stderr)
    return 1 if wrong else 0


def _cells(item: Any) -> tuple[Any, ...]:
    """Return a row of counts; what is beyond its bound is red."""
    shares = ", ".join(f"{name} {share:.0%}" for name, share in item.shares.items())
    return (
        item.device,
        item.case.split(": ", 1)[-1].removesuffix(f", {item.form}"),
        item.form or "best",
        _bounded(f"{item.launches:,}", item.launches, item.most_launches),
        "" if item.most_launches is None else f"{item.most_launches:,}",
        _bounded(f"{item.moved:,.2f}", item.moved, item.most_moved),
        "" if item.most_moved is None else f"{item.most_moved:g}",
        f"{item.moved_bytes / 1e9:,.3f}",
        _bounded(f"{item.unknown_loops}", item.unknown_loops, item.most_unknown_loops),
        _products(item),
        ""
        if item.instructions is None
        else _bounded(
            f"{item.instructions:,.0f}", item.instructions, item.most_instructions
        ),
        "" if item.seconds_min is None else f"{item.seconds_min:.3g}",
        shares,
    )


def _products(item: Any) -> str:
    """Return different matrix products, and how many of them XLA makes itself."""
    count = item.products + item.compiled_products
    more = f", {item.compiled_products} compiled" if item.compiled_products else ""
    return f"{count}{more}" if count else ""


def _bounded(words: str, value: float, most: float | None) -> Any:
    if most is None:
        return words
    return coloured(words, "green" if value <= most else "red")


if __name__ == "__main__":
    sys.exit(main())
