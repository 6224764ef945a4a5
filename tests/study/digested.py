"""Objects of all kinds, each made twice.

Of 1 and of 2, which changes one value that it reaches.
A row is a function of that number. Code is made of text, as a notebook's cells are.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import ipaddress
import itertools
import operator
import pathlib
import random
import re
import tempfile
import types
import typing
import uuid
import weakref
import zoneinfo
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numba
import numpy as np
import optax
import pandas as pd
import xarray as xr
from flax import nnx
from flax.core import FrozenDict

import mrsa_jax as mj


def cell(text: str, **names: Any) -> Callable[[int], Any]:
    """Return what makes `thing` of a notebook's cell, in which NUM stands for the number."""

    def made(number: int) -> Any:
        known = {"__name__": "__main__", **names}
        exec(text.replace("NUM", str(number)), known)
        return known["thing"]

    return made


# ---- code

WRAPPING = """
import functools
def times(function):
    @functools.wraps(function)
    def inner(*args):
        return NUM * function(*args)
    return inner
@times
def thing(x):
    return x
"""
HELPER = """
def deepest(x):
    return x + NUM
def helper(x):
    return deepest(x)
def thing(x):
    return helper(x)
"""
CLASS = """
class Base:
    {base}
    def __init__(self):
        self.rate = 3
class Thing(Base):
    {own}
thing = {thing}
"""


def of_class(
    base: str = "pass", own: str = "pass", thing: str = "Thing()"
) -> Callable[[int], Any]:
    return cell(CLASS.format(base=base, own=own, thing=thing))


DISPATCHED = """
import functools
@functools.singledispatch
def thing(x):
    return {any}
@thing.register
def _(x: int):
    return {whole}
"""
DERIVED = """
import jax
@jax.custom_vjp
def thing(x):
    return x * {value}
def forward(x):
    return thing(x), {kept}
def backward(kept, g):
    return (g * {back},)
thing.defvjp(forward, backward{more})
"""
TANGENT = """
import jax
@jax.custom_jvp
def thing(x):
    return x * 3
@thing.defjvp
def tangent(primals, tangents):
    return thing(*primals), NUM * tangents[0]
"""
CODE: dict[str, Callable[[int], Any]] = {
    "constant": cell("def thing(x):\n    return x + NUM"),
    "constant in a tuple": cell("def thing(x):\n    return x in (0, (5, NUM))"),
    "constant in a set": cell("def thing(x):\n    return x in {'a', 'b', NUM}"),
    "operator": lambda n: [lambda x: x + 3, lambda x: x - 3][n - 1],
    "constant of a lambda inside": cell(
        "def thing(x):\n    return (lambda y: y + NUM)(x)"
    ),
    "constant of a comprehension": cell(
        "def thing(x):\n    return [y + NUM for y in x]"
    ),
    "constant of a generator": cell(
        "def thing(x):\n    yield from (y + NUM for y in x)"
    ),
    "constant of a coroutine": cell("async def thing(x):\n    return x + NUM"),
    "constant of a class inside": cell(
        "def thing(x):\n    class A:\n        a = NUM\n    return A"
    ),
    "default": cell("def thing(x, n=NUM):\n    return x"),
    "keyword default": cell("def thing(x, *, n=NUM):\n    return x"),
    "default that is an array": lambda n: cell(
        "def thing(x, n=a): pass", a=np.arange(n)
    )(n),
    "annotation": cell("def thing(x: (1, NUM)): pass"),
    "attribute of a function": cell("def thing(x): pass\nthing.rate = NUM"),
    "name of an argument": cell("def thing(xNUM): pass"),
    "kind of an argument": lambda n: [lambda x, /: x, lambda x: x][n - 1],
    "name of a function": cell("def thingNUM(): pass\nthing = thingNUM"),
    "closure": cell("def of(n):\n    return lambda x: x + n\nthing = of(NUM)"),
    "closure of a closure": cell(
        "def of(n):\n    inner = lambda: n\n    return lambda x: x + inner()\nthing = "
        "of(NUM)"
    ),
    "closure that is changed": cell(
        "def of(n):\n    m = 5\n    f = lambda x: x + m\n    m = n\n    return "
        "f\nthing = of(NUM)"
    ),
    "global": cell("rate = NUM\ndef thing(x):\n    return x + rate"),
    "global in a table": cell(
        "rate = {'a': [1, NUM]}\ndef thing(x):\n    return x + rate['a'][1]"
    ),
    "global of a lambda inside": cell("rate = NUM\nthing = lambda x: (lambda: rate)()"),
    "global of a class inside": cell(
        "r = NUM\ndef thing(x):\n    class A:\n        a = r"
    ),
    "all globals": cell("rate = NUM\ndef thing(x):\n    return globals()['ra' + 'te']"),
    "shadowed builtin": cell(
        "def len(x):\n    return NUM\ndef thing(x):\n    return len(x)"
    ),
    "helper of a helper": cell(HELPER),
    "recursion": cell("def thing(x):\n    return thing(x - NUM)"),
    "mutual recursion": cell(
        "def a(x): return b(x)\ndef b(x): return a(x - NUM)\nthing = a"
    ),
    "handler of an exception": lambda n: [
        cell("def thing(x):\n    try: return x()\n    except KeyError: return 3")(0),
        cell("def thing(x):\n    try: return x()\n    except ValueError: return 3")(0),
    ][n - 1],
    "decorator with wraps": cell(WRAPPING),
    "decorated function": cell(
        WRAPPING.replace("NUM", "3").replace("return x", "return NUM * x")
    ),
    "decorator twice": cell(WRAPPING + "thing = times(thing)" * 1),
    "wrapped attribute alone": cell(
        "def thing(x):\n    return NUM * x\ndef other(x):\n    return "
        "x\nthing.__wrapped__ = other"
    ),
    "class with __wrapped__": cell(
        "class Times:\n    def __init__(self, f, n):\n        self.__wrapped__, self.n "
        "= f, n\n"
        "thing = Times(len, NUM)"
    ),
    "partial": cell(
        "import functools\nthing = functools.partial(lambda x, n: x, n=NUM)"
    ),
    "partial by place": cell(
        "import functools\nthing = functools.partial(lambda n, x: x, NUM)"
    ),
    "partial of a partial": lambda n: functools.partial(functools.partial(max, n), 3),
    "attribute of a partial": lambda n: with_attribute(functools.partial(max, 3), n),
    "partial method": of_class(
        own="import functools\n    f = lambda self, n: n\n    g = functools.partialmethod(f, NUM)"
    ),
    "cache": cell(
        "import functools\n@functools.cache\ndef thing(x):\n    return x + NUM"
    ),
    "size of a cache": cell(
        "import functools\nthing = functools.lru_cache(NUM)(lambda x: x)"
    ),
    "dispatch to any": cell(DISPATCHED.format(any="NUM", whole="7")),
    "dispatch to a kind": cell(DISPATCHED.format(any="7", whole="NUM")),
    "dispatch of methods": of_class(
        own="import functools\n    @functools.singledispatchmethod\n    def f(self, x): return NUM"
    ),
    "numba": cell("import numba\n@numba.njit\ndef thing(x):\n    return x + NUM"),
    "options of numba": lambda n: numba.njit(fastmath=n == 1)(
        cell("thing = lambda x: x")(0)
    ),
    "vectorize": lambda n: np.vectorize(cell("thing = lambda x: x + NUM")(n)),
    "itemgetter": lambda n: operator.itemgetter(0, n),
    "attrgetter": lambda n: operator.attrgetter(f"a.b{n}"),
    "methodcaller": lambda n: operator.methodcaller("count", n),
    "builtin": lambda n: [max, min][n - 1],
    "method of a builtin class": lambda n: [str.upper, str.lower][n - 1],
    "bound builtin": lambda n: [0, n].append,
    "bound wrapper": lambda n: (10 + n).__add__,
    "function of a library": lambda n: [optax.sgd, optax.adam][n - 1],
    "function of NumPy": lambda n: [np.add, np.subtract][n - 1],
    "function of JAX": lambda n: [jnp.add, jnp.subtract][n - 1],
}

# ---- transformations of JAX and optax


def squared(number: int) -> Any:
    return cell("def thing(x, y=3):\n    return NUM * x * x")(number)


TRANSFORMED: dict[str, Callable[[int], Any]] = {
    "jit": lambda n: jax.jit(squared(n)),
    "jit of a decorated function": lambda n: jax.jit(cell(WRAPPING)(n)),
    "static arguments of jit": lambda n: jax.jit(squared(3), static_argnums=n - 1),
    "static names of jit": lambda n: jax.jit(squared(3), static_argnames="xy"[n - 1]),
    "donated arguments of jit": lambda n: jax.jit(squared(3), donate_argnums=n - 1),
    "vmap": lambda n: jax.vmap(squared(n)),
    "axes of vmap": lambda n: jax.vmap(squared(3), in_axes=n),
    "size of vmap's axis": lambda n: jax.vmap(squared(3), axis_size=n),
    "grad": lambda n: jax.grad(squared(n)),
    "arguments of grad": lambda n: jax.grad(squared(3), argnums=n - 1),
    "auxiliary output of grad": lambda n: jax.grad(squared(3), has_aux=n == 1),
    "value and grad": lambda n: jax.value_and_grad(squared(n)),
    "jacobian": lambda n: jax.jacfwd(squared(n)),
    "hessian": lambda n: jax.hessian(squared(n)),
    "vmap of jit of grad": lambda n: jax.vmap(jax.jit(jax.grad(squared(n)))),
    "checkpoint": lambda n: jax.checkpoint(squared(n)),
    "policy of checkpoint": lambda n: jax.checkpoint(
        squared(3),
        policy=[
            jax.checkpoint_policies.nothing_saveable,
            jax.checkpoint_policies.everything_saveable,
        ][n - 1],
    ),
    "custom_vjp": cell(DERIVED.format(value="NUM", kept="x", back="5", more="")),
    "forward of custom_vjp": cell(
        DERIVED.format(value="5", kept="NUM", back="5", more="")
    ),
    "backward of custom_vjp": cell(
        DERIVED.format(value="5", kept="x", back="NUM", more="")
    ),
    "zeros of custom_vjp": cell(
        DERIVED.format(value="5", kept="x", back="5", more=", symbolic_zeros=NUM == 1")
    ),
    "custom_jvp": cell(TANGENT),
    "Partial": lambda n: jax.tree_util.Partial(max, n),
    "shape and type": lambda n: jax.ShapeDtypeStruct((n,), jnp.float32),
    "partition": lambda n: jax.sharding.PartitionSpec("ab"[n - 1]),
    "tree structure": lambda n: jax.tree.structure([1] * n),
    "sgd": lambda n: optax.sgd(0.1 * n),
    "momentum of sgd": lambda n: optax.sgd(0.1, momentum=0.1 * n),
    "adam": lambda n: optax.adam(0.1, b1=0.1 * n),
    "schedule": lambda n: optax.cosine_decay_schedule(0.1, 10 * n),
    "scheduled adam": lambda n: optax.adam(optax.exponential_decay(0.1, 10, 0.1 * n)),
    "chain": lambda n: optax.chain(optax.clip(float(n)), optax.sgd(0.1)),
    "order of a chain": lambda n: optax.chain(
        *[optax.sgd(0.1), optax.clip(1.0)][:: 3 - 2 * n]
    ),
    "own transformation": lambda n: optax.GradientTransformation(
        lambda params: (), cell("def thing(u, s, p):\n    return NUM * u, s")(n)
    ),
    "injected hyperparameters": lambda n: optax.inject_hyperparams(optax.sgd)(0.1 * n),
    "masked": lambda n: optax.masked(optax.sgd(0.1), {"a": n == 1}),
    "differentially private": lambda n: optax.contrib.differentially_private_aggregate(
        1.0, float(n), 0
    ),
}

# ---- classes and their values


def with_attribute(thing: Any, number: int, name: str = "rate") -> Any:
    setattr(thing, name, number)
    return thing


def again(number: int) -> Any:
    several: list[Any] = [number]
    several.append(several)
    return several


def ring(number: int) -> Any:
    one, other = of_class()(0), of_class()(0)
    one.next, other.next, other.rate = other, one, number
    return one


def deep(number: int) -> Any:
    for _ in range(5_000):
        number = [number]  # type: ignore[assignment]
    return number


@dataclasses.dataclass
class Plain:
    x: int = 3
    rest: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    x: int


@dataclasses.dataclass(frozen=True)
class WithMore:
    """A dataclass that has more than its fields."""

    x: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "more", self.x)


class Kept:
    """Says of itself that it is 3, whatever it holds."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.full(3, 3)

    def __reduce__(self) -> Any:
        return (Kept, (3,))

    def __getstate__(self) -> Any:
        return {}

    def __repr__(self) -> str:
        return "Kept(3)"

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 3


class Point(typing.NamedTuple):
    x: int
    y: int = 0


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Whole(int):
    """A number that has more."""


class Several(list):  # type: ignore[type-arg]
    """A list that has more."""


class Table(dict):  # type: ignore[type-arg]
    """A table that has more."""


class Text(str):
    """A text that has more."""


class Own(np.ndarray):
    """An array that has more."""


class Model(nn.Module):
    size: int
    rest: Any = None

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(self.size)(x)


def more(kind: Any, value: Any, number: int) -> Any:
    return with_attribute(kind(value), number)


def registered(number: int) -> Any:
    kind = of_class(thing="Thing")(0)
    jax.tree_util.register_pytree_node(
        kind, cell("thing = lambda x: ((), NUM)")(number), lambda about, children: None
    )
    return kind()


def virtual(number: int) -> Any:
    kind = cell("import abc\nclass Thing(abc.ABC): pass\nthing = Thing")(0)
    kind.register([int, float][number - 1])
    return kind


def once(number: int) -> Any:
    several = iter([1, 2, 3, 4])
    for _ in range(number):
        next(several)
    return several


VALUES: dict[str, Callable[[int], Any]] = {
    "method": of_class(own="def f(self): return NUM"),
    "method of a base": of_class(base="def f(self): return NUM"),
    "class attribute": of_class(own="rate = NUM"),
    "class attribute of a base": of_class(base="rate = NUM"),
    "class": of_class(own="rate = NUM", thing="Thing"),
    "property": of_class(own="x = property(lambda self: NUM)"),
    "setter": of_class(own="x = property(None, lambda self, y: NUM)"),
    "deleter": of_class(own="x = property(None, None, lambda self: NUM)"),
    "cached property": of_class(
        own="import functools\n    @functools.cached_property\n    def x(self): return NUM"
    ),
    "static method": of_class(own="x = staticmethod(lambda: NUM)"),
    "class method": of_class(own="x = classmethod(lambda kind: NUM)"),
    "descriptor": of_class(base="n = NUM", own="x = Base()"),
    "class inside": of_class(own="class Inner:\n        x = NUM"),
    "names of slots": of_class(own="__slots__ = ('xNUM',)", thing="Thing"),
    "base": lambda n: cell(f"class thing({['int', 'float'][n - 1]}): pass")(0),
    "metaclass": cell(
        "class Meta(type):\n    def f(kind): return NUM\nclass thing(metaclass=Meta): "
        "pass"
    ),
    "keyword of a class": cell(
        "class Base:\n    def __init_subclass__(cls, n): cls.n = n\nclass thing(Base, "
        "n=NUM): pass"
    ),
    "generic class": cell(
        "from typing import Generic, TypeVar\nT = TypeVar('T')\nclass A(Generic[T]):\n "
        "   x = NUM\n"
        "thing = A[int]"
    ),
    "protocol": cell(
        "from typing import Protocol\nclass thing(Protocol):\n    x: int = NUM"
    ),
    "virtual subclass": virtual,
    "how a pytree is taken apart": registered,
    "attribute": lambda n: with_attribute(of_class()(0), n),
    "attribute of an attribute": lambda n: with_attribute(
        of_class()(0), [{"a": Plain(n)}]
    ),  # type: ignore[arg-type]
    "name of an attribute": lambda n: with_attribute(of_class()(0), 3, f"rate{n}"),
    "slot": cell("class A:\n    __slots__ = ('x',)\nthing = A()\nthing.x = NUM"),
    "slot of a base": cell(
        "class A:\n    __slots__ = ('x',)\nclass B(A):\n    __slots__ = ('x',)\n"
        "thing = B()\nA.x.__set__(thing, NUM)\nthing.x = 3"
    ),
    "slot that hides its name": cell(
        "class A:\n    __slots__ = ('__x',)\n    def __init__(self): self.__x = "
        "NUM\nthing = A()"
    ),
    "slot beside attributes": cell(
        "class A:\n    __slots__ = ('x', '__dict__')\nthing = A()\nthing.x = "
        "NUM\nthing.y = 3"
    ),
    "value that hides its attributes": cell(
        "class A:\n    def __getattribute__(self, name): return 3\n"
        "thing = A()\nobject.__setattr__(thing, 'x', NUM)"
    ),
    "value that says it is another": Kept,
    "bound method": lambda n: Plain(n).__repr__,
    "bound class method": of_class(
        own="n = NUM\n    @classmethod\n    def f(cls): 3", thing="Thing.f"
    ),
    "callable value": of_class(own="def __call__(self): return NUM"),
    "dataclass": lambda n: Plain(n),
    "dataclass in a dataclass": lambda n: Plain(3, Plain(n)),
    "attribute beside fields": lambda n: with_attribute(Plain(3), n),
    "attribute of a frozen dataclass": lambda n: _changed(WithMore(3), "more", n),
    "dataclass with slots": Slotted,
    "default of a field": cell(
        "import dataclasses\n@dataclasses.dataclass\nclass thing:\n    x: int = NUM"
    ),
    "factory of a field": cell(
        "import dataclasses\n@dataclasses.dataclass\nclass thing:\n"
        "    x: list = dataclasses.field(default_factory=lambda: [NUM])"
    ),
    "metadata of a field": cell(
        "import dataclasses\n@dataclasses.dataclass\nclass thing:\n"
        "    x: int = dataclasses.field(default=3, metadata={'static': NUM == 1})"
    ),
    "named tuple": lambda n: Point(3, n),
    "default of a named tuple": cell(
        "import typing\nclass thing(typing.NamedTuple):\n    x: int = NUM"
    ),
    "enum": lambda n: [Colour.RED, Colour.BLUE][n - 1],
    "value of an enum": cell(
        "import enum\nclass A(enum.Enum):\n    X = NUM\nthing = A.X"
    ),
    "another member of an enum": cell(
        "import enum\nclass A(enum.Enum):\n    X = 3\n    Y = NUM\nthing = A.X"
    ),
    "whole enum": lambda n: [Number.ONE, Number.TWO][n - 1],
    "flags": lambda n: [Right.READ, Right.READ | Right.WRITE][n - 1],
    "whole number with more": lambda n: more(Whole, 3, n),
    "whole number of a class": lambda n: Whole(n),
    "list with more": lambda n: more(Several, [3], n),
    "list of a class": lambda n: Several([n]),
    "table with more": lambda n: more(Table, {}, n),
    "text with more": lambda n: more(Text, "a", n),
    "model": lambda n: Model(n),
    "part of a model": lambda n: Model(3, nn.Dense(n)),
    "layer": lambda n: nn.Dense(n),
    "initialiser of a layer": lambda n: nn.Dense(
        3, kernel_init=nn.initializers.normal(float(n))
    ),
    "sequence of layers": lambda n: nn.Sequential([nn.Dense(3), nn.Dense(n)]),
    "name of a layer": lambda n: nn.Dense(3, name=f"a{n}"),
    "nnx layer": lambda n: nnx.Dropout(0.1 * n, rngs=nnx.Rngs(3)),
    "seed of an nnx layer": lambda n: nnx.Dropout(0.1, rngs=nnx.Rngs(n)),
    "frozen table": lambda n: FrozenDict({"a": {"b": n}}),
    "selector": lambda n: mj.selection.batch_partitioning(24, 12, n),
    "availability": lambda n: mj.availability.independent(0.1 * n),
    "quantizer": lambda n: mj.quantize.stochastic(64, float(n)),
    "recursion": again,
    "ring of values": ring,
    "deep list": deep,
    "reference": lambda n: (own := Plain(n), weakref.ref(own)),
    "exception": lambda n: ValueError("a", n),
    "namespace": lambda n: types.SimpleNamespace(x=n),
    "iterator": once,
    "generic type": lambda n: [list[int], list[float]][n - 1],
    "union of types": lambda n: [int | str, int | bytes][n - 1],
    "callable type": lambda n: [Callable[[int], str], Callable[[int], bytes]][n - 1],
}


def _changed(thing: Any, name: str, number: int) -> Any:
    object.__setattr__(thing, name, number)
    return thing


# ---- arrays, frames and other data

FIELDS = np.dtype([("a", "i1"), ("b", "f8")], align=True)


def structured(number: int) -> Any:
    """An array whose bytes between the fields are whatever they are."""
    found = np.frombuffer(bytes([17 * number] * 16 * 2), np.uint8).copy().view(FIELDS)
    found["a"], found["b"] = 3, (5.0, number)
    return found


def masked(number: int, **how: Any) -> Any:
    return np.ma.array([1.0, 2.0, 3.0], mask=[False, number == 1, True], **how)


def in_file(number: int) -> Any:
    with tempfile.TemporaryFile() as file:
        found = np.memmap(file, "i4", "w+", shape=(2,))
    found[1] = number
    return found


def frame(number: int = 3, **how: Any) -> Any:
    return pd.DataFrame({"a": [1, number], "b": ["x", "y"]}, **how)


def drawn(number: int) -> Any:
    generator = np.random.default_rng(3)
    generator.random(number)
    return generator


def attributed(thing: Any, number: int) -> Any:
    thing.attrs["rate"] = number
    return thing


ARRAYS: dict[str, Callable[[int], Any]] = {
    **{
        f"array of {kind}": lambda n, kind=kind: np.array([0, n, 1]).astype(kind)
        for kind in (
            "i1",
            "i2",
            "i4",
            "i8",
            "u1",
            "u2",
            "u4",
            "u8",
            "f2",
            "f4",
            "f8",
            "c8",
            "c16",
            "U5",
            "S5",
            ">f8",
            "m8[s]",
            "M8[s]",
            "O",
        )
    },
    "array of booleans": lambda n: np.array([True, n == 1]),
    "array of bfloat16": lambda n: np.array([0, n]).astype(jnp.bfloat16.dtype),
    "array of float8": lambda n: np.array([0, n]).astype(jnp.float8_e4m3fn.dtype),
    "array of int4": lambda n: np.array([0, n]).astype(jnp.int4.dtype),
    "array of texts": lambda n: np.array(["a", f"a{n}" * 9], np.dtypes.StringDType()),
    "type of an array": lambda n: np.zeros(3, [np.float32, np.int32][n - 1]),
    "another float of two bytes": lambda n: np.zeros(
        3, [np.float16, jnp.bfloat16.dtype][n - 1]
    ),
    "order of bytes": lambda n: np.zeros(3, ["<f8", ">f8"][n - 1]),
    "shape of an array": lambda n: np.zeros([(2, 3), (3, 2)][n - 1]),
    "empty array": lambda n: np.zeros((0, n)),
    "array without axes": lambda n: np.array(n),
    "sign of zero": lambda n: np.array([0.0, -0.0][n - 1]),
    "last bit": lambda n: np.array(1.0 + n * 2.0**-52),
    "strided array": lambda n: np.arange(12)[:: n + 1][:4],
    "column by column": lambda n: np.asfortranarray([[1, 2], [3, n]]),
    "structured array": structured,
    "names of fields": lambda n: np.zeros(2, [(f"a{n}", "i4")]),
    "place of a field": lambda n: np.zeros(
        2, {"names": ["a"], "formats": ["i4"], "offsets": [4 * n], "itemsize": 16}
    ),
    "objects in fields": lambda n: np.array([(1, [n])], [("a", "i4"), ("b", "O")]),
    "arrays in fields": lambda n: np.array(
        [(1, [2, n])], [("a", "i4"), ("b", "i4", 2)]
    ),
    "metadata of a type": lambda n: np.zeros(2, np.dtype("i4", metadata={"a": n})),
    "array in an array": lambda n: np.array([np.arange(3), np.array([1, n])], object),
    "mask": masked,
    "value under a mask": lambda n: np.ma.array([1, n], mask=[False, True]),
    "fill value": lambda n: masked(1, fill_value=float(n)),
    "hard mask": lambda n: masked(1, hard_mask=n == 1),
    "attribute of a masked array": lambda n: with_attribute(masked(1), n),
    "own array": lambda n: np.array([1, n]).view(Own),
    "attribute of an own array": lambda n: with_attribute(np.zeros(3).view(Own), n),
    "record array": lambda n: np.rec.array([(1, n)], names="a,b"),
    "array in a file": lambda n: in_file(n),
    "matrix": lambda n: np.array([[1, n]]).view(np.matrix),
    "number of NumPy": lambda n: np.float32(n),
    "type of a number": lambda n: [np.float32(3), np.float64(3)][n - 1],
    "type": lambda n: np.dtype(["f4", "f8"][n - 1]),
    "polynomial": lambda n: np.polynomial.Polynomial([1, n]),
    "generator": lambda n: np.random.default_rng(n),
    "draws of a generator": drawn,
    "old generator": lambda n: np.random.RandomState(n),
    "seeds": lambda n: np.random.SeedSequence(n),
    "generator of Python": lambda n: random.Random(n),
    "array of JAX": lambda n: jnp.array([0, n]),
    "type of an array of JAX": lambda n: jnp.zeros(3, [jnp.float32, jnp.int32][n - 1]),
    "bfloat16 of JAX": lambda n: jnp.array([0, n], jnp.bfloat16),
    "weak type": lambda n: [jnp.asarray(3.0), jnp.float32(3.0)][n - 1],
    "key": lambda n: jax.random.key(n),
    "several keys": lambda n: jax.random.split(jax.random.key(3), n),
    "kind of a key": lambda n: jax.random.key(
        3, impl=["threefry2x32", "unsafe_rbg"][n - 1]
    ),
    "raw key": lambda n: jax.random.PRNGKey(n),
    "frame": frame,
    "columns of a frame": lambda n: frame().rename(columns={"a": f"c{n}"}),
    "order of columns": lambda n: frame()[["a", "b"][:: 3 - 2 * n]],
    "index of a frame": lambda n: frame(index=[0, n]),
    "name of an index": lambda n: frame().rename_axis(f"i{n}"),
    "name of columns": lambda n: frame().rename_axis(columns=f"i{n}"),
    "type of a column": lambda n: frame().astype({"a": ["i4", "i8"][n - 1]}),
    "attributes of a frame": lambda n: attributed(frame(), n),
    "flags of a frame": lambda n: frame().set_flags(allows_duplicate_labels=n == 1),
    "frame without columns": lambda n: pd.DataFrame(index=range(n)),
    "series": lambda n: pd.Series([1, n]),
    "name of a series": lambda n: pd.Series([1], name=f"a{n}"),
    "series with a hole": lambda n: pd.Series([1, None, n], dtype="Int64"),
    "place of a hole": lambda n: pd.Series(
        [[1, None], [None, 1]][n - 1], dtype="Int64"
    ),
    "categories": lambda n: pd.Categorical(["a"], categories=["a", f"b{n}"]),
    "codes of categories": lambda n: pd.Categorical.from_codes([0, n - 1], ["a", "b"]),
    "order of categories": lambda n: pd.Categorical(
        ["a"], categories=["a"], ordered=n == 1
    ),
    "column of categories": lambda n: pd.Series(["a", f"b{n}"], dtype="category"),
    "times": lambda n: pd.Series(pd.to_datetime([f"2020-01-0{n}"])),
    "zone of times": lambda n: pd.Series(
        pd.to_datetime(["2020-01-01"]).tz_localize(["UTC", "Europe/Berlin"][n - 1])
    ),
    "intervals": lambda n: pd.interval_range(0, n + 1),
    "periods": lambda n: pd.period_range("2020-01", periods=n, freq="M"),
    "index of ranges": lambda n: pd.RangeIndex(n),
    "index of several levels": lambda n: pd.MultiIndex.from_tuples([(1, n)]),
    "sparse column": lambda n: pd.Series(pd.arrays.SparseArray([0, n])),
    "moment of pandas": lambda n: pd.Timestamp(f"2020-01-0{n}"),
    "data array": lambda n: xr.DataArray([1, n], dims="a"),
    "coordinates of a data array": lambda n: xr.DataArray([1, 2], {"a": [0, n]}, "a"),
    "name of a dimension": lambda n: xr.DataArray([1, 2], dims=f"a{n}"),
    "attributes of a data set": lambda n: xr.Dataset({"a": ("x", [1])}, attrs={"u": n}),
}
DATA: dict[str, Callable[[int], Any]] = {
    "number": lambda n: n,
    "large number": lambda n: 10**5000 + n,
    "kind of a number": lambda n: [1, 1.0][n - 1],
    "truth": lambda n: [1, True][n - 1],
    "real number": lambda n: 0.1 * n,
    "complex number": lambda n: complex(3, n),
    "text": lambda n: f"a{n}",
    "broken text": lambda n: ["\ud800", "\ud801"][n - 1],
    "bytes": lambda n: bytes([n]),
    "bytes or text": lambda n: [b"a", "a"][n - 1],
    "bytes that change": lambda n: bytearray([n]),
    "view of bytes": lambda n: memoryview(bytes([n])),
    "array of numbers": lambda n: array.array("i", [n]),
    "list": lambda n: [0, n],
    "list or tuple": lambda n: [[1], (1,)][n - 1],
    "where a list ends": lambda n: [[[1], 2], [[1, 2]]][n - 1],
    "the same list twice": lambda n: [[own := [3], own], [[3], [3]]][n - 1],
    "tuple": lambda n: (0, n),
    "table": lambda n: {"a": n},
    "name in a table": lambda n: {f"a{n}": 3},
    "order of a table": lambda n: [{"a": 1, "b": 2}, {"b": 2, "a": 1}][n - 1],
    "set": lambda n: {"a", "b", f"c{n}"},
    "set of values": lambda n: {Plain} | {Slotted(own) for own in (5, n)},
    "set of sets": lambda n: {frozenset({"a", f"b{n}"}), frozenset({"c"})},
    "set of alike values": lambda n: {Kept(n)},
    "table of alike values": lambda n: {Kept(n): 3},
    "frozen set": lambda n: frozenset({"a", f"b{n}"}),
    "ordered table": lambda n: collections.OrderedDict(a=1, b=n),
    "moved entry": lambda n: _moved("ab"[n - 1]),
    "default table": lambda n: collections.defaultdict([list, dict][n - 1], a=3),
    "counts": lambda n: collections.Counter(a=n),
    "queue": lambda n: collections.deque([0, n]),
    "length of a queue": lambda n: collections.deque([0], n),
    "chain of tables": lambda n: collections.ChainMap({"a": 1}, {"b": n}),
    "table that does not change": lambda n: types.MappingProxyType({"a": n}),
    "range": lambda n: range(0, 10, n),
    "slice": lambda n: slice(0, n),
    "slice of arrays": lambda n: slice(0, [n]),
    "count": lambda n: itertools.count(n),
    "time": lambda n: datetime.datetime(2020, 1, n),
    "fold of a time": lambda n: datetime.datetime(2020, 1, 1, fold=n - 1),
    "zone": lambda n: datetime.timezone(datetime.timedelta(hours=n)),
    "named zone": lambda n: zoneinfo.ZoneInfo(["UTC", "Europe/Berlin"][n - 1]),
    "span": lambda n: datetime.timedelta(n),
    "day": lambda n: datetime.date(2020, 1, n),
    "decimal": lambda n: decimal.Decimal(f"1.{n}"),
    "digits of a decimal": lambda n: decimal.Decimal(["1.0", "1.00"][n - 1]),
    "fraction": lambda n: fractions.Fraction(1, n + 1),
    "identifier": lambda n: uuid.UUID(int=n),
    "address": lambda n: ipaddress.ip_address(f"10.0.0.{n}"),
    "path": lambda n: pathlib.Path(f"a/b{n}"),
    "kind of a path": lambda n: [
        pathlib.PurePosixPath("a"),
        pathlib.PureWindowsPath("a"),
    ][n - 1],
    "pattern": lambda n: re.compile(f"a{n}"),
    "flags of a pattern": lambda n: re.compile("a", [0, re.IGNORECASE][n - 1]),
    "nothing": lambda n: [None, ...][n - 1],
}


def _moved(name: str) -> Any:
    found = collections.OrderedDict(a=1, b=2)
    found.move_to_end(name)
    return found


OBJECTS = {
    f"{kind}: {name}": made
    for kind, rows in {
        "code": CODE,
        "transformed": TRANSFORMED,
        "value": VALUES,
        "array": ARRAYS,
        "data": DATA,
    }.items()
    for name, made in rows.items()
}
"""By its kind and what changes."""
