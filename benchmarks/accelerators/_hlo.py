"""Count what an optimized program does, from XLA's text of it: launches, bytes, loops.

Nothing runs, so there are no times. Loops are multiplied out where XLA knows their
length; a conditional counts as its dearer branch; a fusion moves what it reads and
writes, of an operand that it only takes slices of no more than these.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts of a compiled program in one call.

    Attributes:
        launches: Kernels, copies and library calls, loops' bodies as often as they run.
        unknown_loops: Loops whose number of rounds XLA does not know; their bodies
            count once.
        host: Names of the calls that go back to the host.
        moved_bytes: What these kernels read and write in the device's memory.
        least_bytes: Arguments and results: what a perfectly fused program moves.
        temporary_bytes: Of memory, at the peak, beside arguments and results.
        busiest_loop: (rounds, kernels each round, largest output of a kernel in bytes)
            of the loop that launches most.
        products: The different matrix products and convolutions of NVIDIA's libraries:
            compiling tries several ways of each.
        compiled_products: Those that XLA makes itself: compiling compiles each in some
            dozens of forms.
    """

    launches: int
    unknown_loops: int
    host: tuple[str, ...]
    moved_bytes: int
    least_bytes: int
    temporary_bytes: int
    busiest_loop: tuple[int, int, int]
    products: frozenset[str] = frozenset()
    compiled_products: frozenset[str] = frozenset()

    def __add__(self, other: Counts) -> Counts:
        """Return the counts of one program after the other."""
        return Counts(
            self.launches + other.launches,
            self.unknown_loops + other.unknown_loops,
            self.host + other.host,
            self.moved_bytes + other.moved_bytes,
            self.least_bytes + other.least_bytes,
            # one after the other, programs do not need memory at the same time
            max(self.temporary_bytes, other.temporary_bytes),
            max(
                self.busiest_loop,
                other.busiest_loop,
                key=lambda loop: loop[0] * loop[1],
            ),
            self.products | other.products,
            self.compiled_products | other.compiled_products,
        )


def counts_of(compiled: Any) -> Counts:
    """Count what a compiled program (`jax.stages.Compiled`) does."""
    program = Program(compiled.as_text())
    memory = compiled.memory_analysis()
    return Counts(
        launches=program.launches,
        unknown_loops=program.unknown_loops,
        host=tuple(sorted(program.host)),
        moved_bytes=program.moved_bytes,
        least_bytes=memory.argument_size_in_bytes + memory.output_size_in_bytes,
        temporary_bytes=memory.temp_size_in_bytes,
        busiest_loop=program.busiest_loop,
        products=program.products,
        compiled_products=program.compiled_products,
    )


_SIZES = {
    **dict.fromkeys(("pred", "s8", "u8"), 1),
    **dict.fromkeys(("s16", "u16", "bf16", "f16"), 2),
    **dict.fromkeys(("s32", "u32", "f32"), 4),
    **dict.fromkeys(("s64", "u64", "f64", "c64"), 8),
    "c128": 16,
}
_SHAPE = re.compile(rf"\b({'|'.join(_SIZES)})\[([\d,]*)\]")
_COMPUTATION = re.compile(r"^(ENTRY\s+)?%?([\w.\-]+)\s*\(.*->.*\{\s*$")
_LINE = re.compile(r"^\s*(?:ROOT\s+)?%?([\w.\-]+)\s*=\s*(.*)$")
_CALLED = re.compile(r"(?:calls|body|to_apply)=%?([\w.\-]+)")
_ROUNDS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
# operations that launch nothing
_FREE = {
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "after-all",
    "iota",
    "partition-id",
    "replica-id",
    "opt-barrier",
}
_SLICES = ("dynamic-slice", "slice", "gather")
_LIBRARIES = ("__cublas", "__cudnn")
_NAMED = re.compile(r", (?:metadata|frontend_attributes)=\{[^}]*\}")
_WORKSPACE = re.compile(r", s8\[\d+\]\{0\}")


class _Operation(NamedTuple):
    name: str
    shape: str
    opcode: str
    operands: list[str]
    rest: str  # what follows the operands: attributes

    @property
    def num_bytes(self) -> int:
        return _num_bytes(self.shape)


def _is_product(operation: _Operation) -> bool:
    return operation.opcode in ("dot", "convolution")


def _is_of_library(operation: _Operation) -> bool:
    return operation.opcode == "custom-call" and any(
        f'custom_call_target="{library}' in operation.rest for library in _LIBRARIES
    )


def _num_bytes(shape: str) -> int:
    parts = _SHAPE.findall(shape)
    return sum(
        _SIZES[kind] * math.prod(int(d) for d in dims.split(",") if d)
        for kind, dims in parts
    )


def _closed(text: str) -> int:
    """Return the place of the bracket that closes the first one of a text."""
    depth = 0
    for place, letter in enumerate(text):
        # tuples of shapes nest
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place
    return len(text) - 1


def _operation(name: str, right: str) -> _Operation | None:
    """Take the right-hand side of one line apart."""
    if right.startswith("("):
        end = _closed(right) + 1
        shape, tail = right[:end], right[end:]
    else:
        shape, _, tail = right.partition(" ")
    call = re.match(r"\s*([\w\-]+)(\(.*)$", tail)
    if not call:
        return None
    opcode, tail = call.groups()
    end = _closed(tail)
    # names inside the brackets are operands; called computations follow them
    names = re.findall(r"%([\w.\-]+)", tail[:end])
    return _Operation(name, shape, opcode, names, tail[end + 1 :])


class Program:
    """An optimized program as XLA prints it.

    Attributes:
        launches: As in `Counts`, like the others.
        moved_bytes: As in `Counts`.
        unknown_loops: As in `Counts`.
        host: As in `Counts`.
        busiest_loop: As in `Counts`.
        products: As in `Counts`.
        compiled_products: As in `Counts`.
    """

    def __init__(self, text: str) -> None:
        self.unknown_loops = 0
        self.host: set[str] = set()
        self.busiest_loop = (0, 0, 0)
        self._costs: dict[str, tuple[int, int]] = {}
        self._computations: dict[str, list[_Operation]] = {}
        entry = self._read(text)
        self.launches, self.moved_bytes = self._cost(entry)
        self.products = self._different(_is_of_library)
        self.compiled_products = self._different(_is_product)

    def _read(self, text: str) -> str:
        """Read all computations; return the name of the one that is run."""
        entry = ""
        current: list[_Operation] | None = None
        for line in text.splitlines():
            if opened := _COMPUTATION.match(line):
                current = self._computations.setdefault(opened.group(2), [])
                entry = opened.group(2) if opened.group(1) else entry
            elif line.startswith("}"):
                current = None
            elif current is not None and (assignment := _LINE.match(line)):
                operation = _operation(*assignment.groups())
                if operation is not None:
                    current.append(operation)
        return entry

    def _different(self, is_one: Callable[[_Operation], bool]) -> frozenset[str]:
        """Return operations of a kind, by the shapes and settings that tell them apart."""
        found = set()
        for operations in self._computations.values():
            shapes = {operation.name: operation.shape for operation in operations}
            for operation in filter(is_one, operations):
                operands = [shapes.get(name, "") for name in operation.operands]
                # a name and a place in the source make no other product
                settings = _NAMED.sub("", operation.rest)
                shape = _WORKSPACE.sub("", operation.shape)
                found.add(f"{shape} {operands} {settings}")
        return frozenset(found)

    def _cost(self, name: str) -> tuple[int, int]:
        """Return (launches, bytes moved) of a computation."""
        # a computation that is called from several places is costed once
        if name not in self._costs:
            operations = self._computations.get(name, [])
            shapes = {operation.name: operation.shape for operation in operations}
            costs = [self._cost_of(operation, shapes) for operation in operations]
            self._costs[name] = sum(c[0] for c in costs), sum(c[1] for c in costs)
        return self._costs[name]

    def _cost_of(
        self, operation: _Operation, shapes: dict[str, str]
    ) -> tuple[int, int]:
        # of an asynchronous pair, the start counts
        if operation.opcode in _FREE or operation.opcode.endswith("-done"):
            return 0, 0
        called = _CALLED.findall(operation.rest)
        if operation.opcode == "while":
            return self._cost_of_loop(operation, called[0])
        if operation.opcode == "conditional":
            # branches are alternatives: the dearer one counts
            named = re.findall(r"%([\w.\-]+)", operation.rest)
            costs = [
                self._cost(branch) for branch in named if branch in self._computations
            ]
            return max((c[0] for c in costs), default=0), max(
                (c[1] for c in costs), default=0
            )
        if operation.opcode in ("call", "async-start") and called:
            return self._cost(called[0])
        if operation.opcode == "custom-call" and "callback" in operation.rest:
            self.host.add(operation.name)
        return 1, self._moved(operation, shapes, called)

    def _cost_of_loop(self, operation: _Operation, body: str) -> tuple[int, int]:
        count = _ROUNDS.search(operation.rest)
        self.unknown_loops += count is None
        rounds = int(count.group(1)) if count else 1
        launches, moved = self._cost(body)
        # the loop that launches most is the one to look at
        if rounds * launches > self.busiest_loop[0] * self.busiest_loop[1]:
            inside = (
                o for o in self._computations.get(body, []) if o.opcode not in _FREE
            )
            largest = max(
                (o.num_bytes for o in inside if o.opcode != "while"), default=0
            )
            self.busiest_loop = rounds, launches, largest
        return rounds * launches, rounds * moved

    def _moved(
        self, operation: _Operation, shapes: dict[str, str], called: list[str]
    ) -> int:
        """Return bytes read and written; a sliced operand counts as its slices."""
        # the update is read and written; the rest of the array stays in place
        if operation.opcode == "dynamic-update-slice":
            return 2 * _num_bytes(shapes.get(operation.operands[1], ""))
        if operation.opcode in _SLICES:
            return 2 * operation.num_bytes
        if (
            operation.opcode != "fusion"
            or not called
            or called[0] not in self._computations
        ):
            return operation.num_bytes + sum(
                _num_bytes(shapes.get(name, "")) for name in operation.operands
            )
        body = self._computations[called[0]]
        inside = {other.name: other.shape for other in body}
        read, written = 0, operation.num_bytes
        # each operand of a fusion is a parameter of its body
        for parameter in (other for other in body if other.opcode == "parameter"):
            users = [other for other in body if parameter.name in other.operands]
            # an index or an update is read as it is; what is cut or written into is not
            is_base = all(
                user.operands[0] == parameter.name for user in users
            ) and bool(users)
            if is_base and all(user.opcode in _SLICES for user in users):
                read += sum(user.num_bytes for user in users)
            elif is_base and all(
                user.opcode == "dynamic-update-slice" for user in users
            ):
                # in place: only the update is written, not the whole array
                update = sum(
                    _num_bytes(inside.get(user.operands[1], "")) for user in users
                )
                written -= sum(user.num_bytes for user in users) - update
            else:
                read += parameter.num_bytes
        return max(written, 0) + read
