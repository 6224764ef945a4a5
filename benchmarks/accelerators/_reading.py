"""Records of the topic `accelerators`: counts of a compiled program, and its time.

Counts of a compiled program, and its time where it runs.
Nothing here imports JAX.
"""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Reading:
    """One hot path, compiled for one device and perhaps run on it.

    Attributes:
        benchmark: Topic.
        case: Device, path and form.
        device: What it was compiled for, e.g. "H100".
        path: Key of `HOT_PATHS`.
        form: The form that was asked for; None: the best for the device.
        unit: Of `work`.
        work: Units done in one call.
        compile_seconds: Of tracing and compiling.
        launches: Kernels, copies and library calls in one call.
        moved_bytes: That these read and write in the device's memory.
        least_bytes: That one call must move.
        temporary_bytes: Of memory at the peak, beside arguments and results.
        unknown_loops: Loops whose length XLA does not know; their bodies count once.
        host_calls: Calls back to the host.
        busiest_loop: Rounds, kernels a round, and bytes of its largest output, of the
            loop that launches most.
        most_launches: Bound; None if this form has none here.
        most_moved: Bound of `moved`; None likewise.
        most_unknown_loops: Bound; None likewise.
        instructions: Of warps, for one unit of work; None where nobody counted.
        most_instructions: Bound; None likewise.
        seconds_min: Fastest call; None where nothing ran.
        seconds_median: Median call; None likewise.
        shares: Of the limits of the device: "memory", "int32", "launches", "matrix",
            those that are known.
        wrong: Where its results differ from the CPU's, in words.
        products: Different matrix products of NVIDIA's libraries; compiling tries each.
        compiled_products: Those that XLA makes itself, each compiled in many forms.
    """

    benchmark: str
    case: str
    device: str
    path: str
    form: str | None
    unit: str
    work: float
    compile_seconds: float
    launches: int
    moved_bytes: int
    least_bytes: int
    temporary_bytes: int
    unknown_loops: int
    host_calls: int
    busiest_loop: tuple[int, int, int]
    most_launches: int | None = None
    most_moved: float | None = None
    most_unknown_loops: int | None = None
    instructions: float | None = None
    most_instructions: float | None = None
    seconds_min: float | None = None
    seconds_median: float | None = None
    shares: dict[str, float] = dataclasses.field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    products: int = 0
    compiled_products: int = 0

    @property
    def moved(self) -> float:
        """Bytes moved over the least."""
        return self.moved_bytes / max(1, self.least_bytes)

    @property
    def rate(self) -> float | None:
        """Units a second of the fastest call."""
        return None if self.seconds_min is None else self.work / self.seconds_min

    def excesses(self) -> tuple[str, ...]:
        """Describe wrong results and counts beyond a bound, in words.

        A call back to the host always is.
        """
        faults = [*self.wrong]
        faults += [
            f"{words} {what}, at most {most:,g} are allowed"
            for what, words, value, most in (
                ("launches", f"{self.launches:,}", self.launches, self.most_launches),
                (
                    "times the least bytes",
                    f"{self.moved:,.3g}",
                    self.moved,
                    self.most_moved,
                ),
                (
                    "loops of unknown length",
                    f"{self.unknown_loops}",
                    self.unknown_loops,
                    self.most_unknown_loops,
                ),
                (
                    f"instructions for one of its {self.unit}",
                    f"{self.instructions or 0:,.0f}",
                    self.instructions or 0,
                    self.most_instructions,
                ),
            )
            if most is not None and value > most
        ]
        if self.host_calls:
            faults.append(f"{self.host_calls} calls back to the host")
        return tuple(faults)

    def derived(self) -> dict[str, Any]:
        """Return the values that a record holds beside the fields."""
        return {
            "moved": self.moved,
            "rate": self.rate,
            "excesses": list(self.excesses()),
        }
