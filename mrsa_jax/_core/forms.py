"""Choose which form of an operation runs.

An operation may have up to three forms that give the same integers: loops compiled for
the CPU's cores (numba), array programs (XLA), and kernels written for NVIDIA GPUs
(Pallas, through Triton). The best one for the device runs, unless `use_form` or the
environment variable `MRSA_JAX_FORM` asks for another.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import jax

from mrsa_jax._core.device import platform
from mrsa_jax._core.traced import is_traced
from mrsa_watch._base.errors import require

Form = Literal["loops", "xla", "pallas"]
FORMS: tuple[Form, ...] = ("loops", "xla", "pallas")
_VARIABLE = "MRSA_JAX_FORM"
_LOG = logging.getLogger("mrsa_jax")

# Best first. Loops need the values, so they stay last elsewhere: for what has no other
# form.
_PREFERRED: dict[str, tuple[Form, ...]] = {
    "cpu": ("loops", "xla", "pallas"),
    "cuda": ("pallas", "xla", "loops"),
    "rocm": ("xla", "loops"),
    "tpu": ("xla", "loops"),
}
# Part of the cache key of `jax.jit`: what was traced under one form is never run under
# another.
FORM = jax.make_user_context(None)


@contextmanager
def use_form(form: str | None) -> Iterator[None]:
    """Run every operation that has it in this form.

    To compare forms, or to rule one out.

    Args:
        form: "loops" (compiled for the CPU's cores, needs numba), "xla" (array
            programs), "pallas" (kernels for NVIDIA GPUs; interpreted, and slow,
            anywhere else), or None: the best for the device. What has no such form runs
            in its best. The environment variable `MRSA_JAX_FORM`, set before it starts,
            does the same for a whole process.

    Raises:
        ConfigurationError: If there is no such form.

    Examples:
        >>> import mrsa_jax as mj
        >>> with mj.use_form("xla"):
        ...     int(mj.modular.rank([[1, 1, 0], [0, 1, 1], [1, 0, 1]]))
        3
    """
    require(
        form is None or form in FORMS, "form", f"must be one of {FORMS} or None", form
    )
    with FORM(form):
        yield


def chosen_form(offered: tuple[Form, ...], *values: object) -> Form:
    """Return in which of its forms an operation runs.

    Args:
        offered: The operation's forms.
        values: What it works on: compiled loops take nothing that is traced.

    Raises:
        ConfigurationError: If it has compiled loops only and numba is not there.
    """
    possible: list[Form] = [form for form in offered if form != "loops"]
    if "loops" in offered and not is_traced(*values) and _has_numba():
        possible.append("loops")
    require(
        bool(possible),
        "numba",
        f"must be installed for what has the forms {offered} only",
        "no numba, or traced values",
    )
    forced = forced_form()
    if forced in possible and (forced != "pallas" or _has_triton()):
        return forced
    if len(possible) == 1:  # for any device, which need not be started for this
        return possible[0]
    best = [form for form in _PREFERRED[platform()] if form in possible]
    if best[0] == "pallas" and not _has_triton():
        return best[1]
    return best[0]


def forced_form() -> Form | None:
    """Return the form that the caller or the environment asks for."""
    inner: Form | None = FORM.value
    if inner is not None:
        return inner
    named = os.environ.get(_VARIABLE) or None
    require(
        named is None or named in FORMS, _VARIABLE, f"must be one of {FORMS}", named
    )
    return named  # type: ignore[return-value]


@functools.cache
def _has_numba() -> bool:
    try:
        return importlib.util.find_spec("numba") is not None
    except ImportError:  # somebody forbids it
        return False


@functools.cache
def _has_triton() -> bool:
    """Return whether this JAX compiles kernels by Triton; say once if it does not."""
    try:
        importlib.import_module("jax.experimental.pallas.triton")
    except ImportError:
        _LOG.warning(
            "JAX %s has no Triton for Pallas, which the kernels need: array programs of "
            "XLA run in their place, slower by benchmarks/README.md; an older JAX has it",
            jax.__version__,
        )
        return False
    return True
