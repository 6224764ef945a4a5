"""Kernels are compiled by Triton of Pallas, or array programs take over."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from mrsa_jax import use_form
from mrsa_jax._core import forms
from mrsa_jax._core.device import compiling_for
from mrsa_jax.modular import chacha20_columns

# which GPU a kernel is for, for a JAX that asks; none need be here
_GPU = AbstractMesh(
    (), (), abstract_device=AbstractDevice("NVIDIA H100", num_cores=132, platform="gpu")
)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
def test_this_jax_has_triton_or_array_programs_take_over() -> None:
    """The newest JAX runs this every night: it says when Triton is gone."""
    words = jax.ShapeDtypeStruct((8, 1024), jnp.uint32)
    state = (
        words,
        jax.ShapeDtypeStruct((1024,), jnp.uint32),
        words.update(shape=(3, 1024)),
    )
    with use_form(None), compiling_for("cuda", 132 * 2048, 80 * 2**30):
        form = forms.chosen_form(("xla", "pallas"))
        with use_abstract_mesh(_GPU):
            lowered = jax.jit(chacha20_columns).trace(*state)
            program = lowered.lower(lowering_platforms=("cuda",)).as_text()
    assert form in ("pallas", "xla")
    assert program.count("xla.gpu.triton") == int(form == "pallas")
