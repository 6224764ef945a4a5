"""Compiled programs kept on disk.

Before and after JAX has started, and what the user has set.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

_PROGRAM = """
import warnings
{first}
import jax, jax.numpy as jnp
{second}
print(jax.jit(lambda x: (x @ x).sum())(jnp.eye(3)))
print(jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_entry_size_bytes)
"""
_LINE = "import mrsa_jax; print(mrsa_jax.use_compile_cache({}))"
_EARLIER = "import jax, jax.numpy as jnp; jax.jit(jnp.sin)(1.0); "


def _run(first: str, second: str, **settings: str) -> list[str]:
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith("JAX_")
    }
    program = _PROGRAM.format(first=first, second=second)
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=kept | {"JAX_PLATFORMS": "cpu"} | settings,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.split()


def _num_entries(folder: pathlib.Path) -> int:
    return len(list(folder.rglob("*-cache")))


@pytest.mark.long("True")
@pytest.mark.parametrize("is_before", [True, False])
def test_programs_are_kept_whenever_it_is_called(
    tmp_path: pathlib.Path, is_before: bool
) -> None:
    line = _LINE.format("")
    parts = (line, "") if is_before else (_EARLIER, line)
    settings = {
        "XDG_CACHE_HOME": str(tmp_path),
        # this program is a quick one
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    found = _run(*parts, **settings)
    folder = tmp_path / "mrsa_jax" / "jax"
    assert [word for word in found if word == str(folder)] == [str(folder)] * 2
    assert found[-1] == "-1"
    assert _num_entries(folder) > 0


_OPTIONS = """
from jax._src import compiler
options = compiler.get_compile_options(1, 1)
flags = options.executable_build_options.debug_options
print(flags.xla_gpu_per_fusion_autotune_cache_dir)
"""


@pytest.mark.long
def test_what_a_gpu_has_tried_is_kept_beside_them(tmp_path: pathlib.Path) -> None:
    # JAX passes the folder to XLA, which keeps there which form of a product won
    line = _LINE.format(repr(str(tmp_path)))
    assert _run(line, _OPTIONS)[1] == str(
        tmp_path / "xla_gpu_per_fusion_autotune_cache_dir"
    )
    assert not any("autotune" in word for word in _run("", _OPTIONS))


@pytest.mark.long
def test_a_folder_of_ones_own(tmp_path: pathlib.Path) -> None:
    own, environment = tmp_path / "own", tmp_path / "environment"
    line = _LINE.format(repr(str(own)))
    found = _run("", line, JAX_COMPILATION_CACHE_DIR=str(environment))
    assert found.count(str(own)) == 2
    found = _run("", _LINE.format(""), JAX_COMPILATION_CACHE_DIR=str(environment))
    assert found.count(str(environment)) == 2  # what is set stays
    set_later = f"jax.config.update('jax_compilation_cache_dir', {str(own)!r}); "
    found = _run("", set_later + _LINE.format(""))
    assert found.count(str(own)) == 2
