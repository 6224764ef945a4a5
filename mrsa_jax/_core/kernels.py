"""Launch kernels for NVIDIA GPUs (Pallas, through Triton).

Import inside functions only, where the form is "pallas".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

from mrsa_jax._core.device import interprets_kernels
from mrsa_jax._core.mesh import varying_like


def launch(
    name: str,
    kernel: Callable[..., None],
    grid: tuple[int, ...],
    results: Sequence[Any],
    *inputs: Array,
    num_warps: int = 4,
    **settings: Any,
) -> list[Array]:
    """Run a kernel, interpreted where there is no NVIDIA GPU.

    Args:
        name: Of the kernel.
        kernel: Of references to the inputs, then to the results.
        grid: Programs.
        results: What has the shape and the dtype of each result.
        inputs: Arrays in the device's memory.
        num_warps: Of a program.
        settings: Others of `pallas_call`.
    """
    values = varying_like(inputs, inputs)
    axes = jax.typeof(values[0]).manual_axis_type
    whole = pl.BlockSpec(memory_space=pl.ANY)
    specs = {"in_specs": [whole] * len(inputs), "out_specs": [whole] * len(results)}
    run = pl.pallas_call(
        kernel,
        [
            jax.ShapeDtypeStruct(result.shape, result.dtype, manual_axis_type=axes)
            for result in results
        ],
        grid=grid,
        interpret=interprets_kernels(),
        compiler_params=triton.CompilerParams(num_warps=num_warps, num_stages=1),
        name=name,
        **(specs | settings),
    )
    # Triton indexes with 32 bits, whatever width a caller has on
    with jax.enable_x64(False):
        return list(run(*values))
