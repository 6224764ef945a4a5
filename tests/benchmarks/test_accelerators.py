"""Hot paths compiled for accelerators.

Counts of a text worked by hand, bounds, what is missing.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from benchmarks.accelerators import _compile_for, _hlo, _hot_paths, _measured, _ptx
from benchmarks.accelerators.__main__ import main
from benchmarks.accelerators._reading import Reading
from mrsa_jax import ConfigurationError
from mrsa_jax._core.forms import forced_form

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Two nested loops of 5 and 3 rounds; a loop that ends when the data say so; a
# conditional; a call back to the host; a fusion that reads a slice of its operand.
_TEXT = """HloModule handmade, entry_computation_layout={(f32[8,4]{1,0})->f32[4]{0}}

%sliced (p: f32[8,4], at: s32[]) -> f32[4] {
  %p = f32[8,4]{1,0} parameter(0)
  %at = s32[] parameter(1)
  %zero = s32[] constant(0)
  %cut = f32[1,4]{1,0} dynamic-slice(%p, %at, %zero), dynamic_slice_sizes={1,4}
  ROOT %flat = f32[4]{0} bitcast(%cut)
}

%inner (c: (s32[], f32[4])) -> (s32[], f32[4]) {
  %c = (s32[], f32[4]{0}) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %v = f32[4]{0} get-tuple-element(%c), index=1
  %next = s32[] add(%i, %i)
  %twice = f32[4]{0} add(%v, %v)
  ROOT %out = (s32[], f32[4]{0}) tuple(%next, %twice)
}

%outer (c: (s32[], f32[4])) -> (s32[], f32[4]) {
  %c = (s32[], f32[4]{0}) parameter(0)
  %w = (s32[], f32[4]{0}) while(%c), condition=%more, body=%inner, backend_config={"known_trip_count":{"n":"3"}}
  %i = s32[] get-tuple-element(%w), index=0
  %v = f32[4]{0} get-tuple-element(%w), index=1
  %minus = f32[4]{0} negate(%v)
  ROOT %out = (s32[], f32[4]{0}) tuple(%i, %minus)
}

%open (c: (s32[], f32[4])) -> (s32[], f32[4]) {
  %c = (s32[], f32[4]{0}) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %v = f32[4]{0} get-tuple-element(%c), index=1
  %minus = f32[4]{0} negate(%v)
  ROOT %out = (s32[], f32[4]{0}) tuple(%i, %minus)
}

%cheap (v: f32[4]) -> f32[4] {
  %v = f32[4]{0} parameter(0)
  ROOT %same = f32[4]{0} copy(%v)
}

%dear (v: f32[4]) -> f32[4] {
  %v = f32[4]{0} parameter(0)
  %a = f32[4]{0} negate(%v)
  %b = f32[4]{0} negate(%a)
  ROOT %d = f32[4]{0} negate(%b)
}

ENTRY %main (x: f32[8,4], k: s32[]) -> f32[4] {
  %x = f32[8,4]{1,0} parameter(0)
  %k = s32[] parameter(1)
  %row = f32[4]{0} fusion(%x, %k), kind=kLoop, calls=%sliced
  %start = (s32[], f32[4]{0}) tuple(%k, %row)
  %loop = (s32[], f32[4]{0}) while(%start), condition=%more, body=%outer, backend_config={"known_trip_count":{"n":"5"}}
  %until = (s32[], f32[4]{0}) while(%loop), condition=%more, body=%open
  %v = f32[4]{0} get-tuple-element(%until), index=1
  %either = f32[4]{0} conditional(%k, %v, %v), branch_computations={%cheap, %dear}
  ROOT %told = f32[4]{0} custom-call(%either), custom_call_target="xla_ffi_python_gpu_callback"
}
"""


@pytest.mark.smoke
def test_a_text_worked_by_hand() -> None:
    found = _hlo.Program(_TEXT)
    # fusion 1, loop 5 x (3 x 2 + 1), open loop 1, dearer branch 3, call 1
    assert found.launches == 1 + 5 * 7 + 1 + 3 + 1
    assert found.unknown_loops == 1
    assert found.host == {"told"}
    # fusion: a row of 16 bytes and an index of 4 read, 16 written; the loop's rounds:
    # integers 3 x 4 and vectors 3 x 16 thrice, 32 for the sign; the rest 16 in and out
    # each
    assert found.moved_bytes == 36 + 5 * (3 * (12 + 48) + 32) + 32 + 3 * 32 + 32
    assert found.busiest_loop == (5, 7, 16)


# One product twice (its name and source differ), one in another layout, one of the
# library twice with other workspaces, one of the library with another epilogue.
_PRODUCTS = """HloModule products

%first (a: f32[4,8], b: f32[8,2]) -> f32[4,2] {
  %a = f32[4,8]{1,0} parameter(0)
  %b = f32[8,2]{1,0} parameter(1)
  ROOT %d = f32[4,2]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="one"}
}

%second (p: f32[4,8], q: f32[8,2]) -> f32[4,2] {
  %p = f32[4,8]{1,0} parameter(0)
  %q = f32[8,2]{1,0} parameter(1)
  ROOT %e = f32[4,2]{1,0} dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="two"}
}

%third (p: f32[4,8], q: f32[8,2]) -> f32[4,2] {
  %p = f32[4,8]{0,1} parameter(0)
  %q = f32[8,2]{1,0} parameter(1)
  ROOT %e = f32[4,2]{1,0} dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY %main (x: f32[4,8], y: f32[8,2]) -> f32[4,2] {
  %x = f32[4,8]{1,0} parameter(0)
  %y = f32[8,2]{1,0} parameter(1)
  %f = f32[4,2]{1,0} fusion(%x, %y), kind=kCustom, calls=%first
  %g = f32[4,2]{1,0} fusion(%x, %y), kind=kCustom, calls=%second
  %h = f32[4,2]{1,0} fusion(%x, %y), kind=kCustom, calls=%third
  %l = (f32[4,2]{1,0}, s8[64]{0}) custom-call(%x, %y), custom_call_target="__cublas$lt$matmul", backend_config={"epilogue":"DEFAULT"}
  %m = (f32[4,2]{1,0}, s8[32]{0}) custom-call(%x, %y), custom_call_target="__cublas$lt$matmul", backend_config={"epilogue":"DEFAULT"}
  %n = (f32[4,2]{1,0}, s8[32]{0}) custom-call(%x, %y), custom_call_target="__cublas$lt$matmul", backend_config={"epilogue":"RELU"}
  ROOT %o = f32[4,2]{1,0} custom-call(%x, %y), custom_call_target="something else"
}
"""


def test_different_products_are_counted_once() -> None:
    found = _hlo.Program(_PRODUCTS)
    assert len(found.compiled_products) == 2
    assert len(found.products) == 2


def test_counts_of_a_program_compiled_here() -> None:
    def program(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 7, lambda i, y: jnp.cumsum(y * y), x)

    compiled = jax.jit(program).lower(jnp.ones(1000, jnp.float32)).compile()
    found = _hlo.counts_of(compiled)
    assert found.least_bytes >= 8000
    assert found.busiest_loop[0] == 7
    assert found.launches >= 7
    both = found + found
    assert both.launches == 2 * found.launches
    assert both.temporary_bytes == found.temporary_bytes


# Two warps; a loop that holds another one and a branch, which jumps ahead in the text; a
# loop of one block.
_PTX = """
.visible .entry other(.param .u32 p)
{
\tret;
}
.visible .entry handmade(
\t.param .u64 .ptr .global .align 16 a
)
.reqntid 64, 1, 1
{
\t.reg .pred \t%p<5>;
\tmov.u32 \t%r1, 0;                          // one
\tmov.u32 \t%r2, 0;
\tbra.uni \t$L__BB1_2;
$L__BB1_1:
\tadd.s32 \t%r1, %r1, 1;
\t@%p1 bra \t$L__BB1_5;
$L__BB1_2:                                // outer head
\tadd.s32 \t%r3, %r3, 1;
\t@%p2 bra \t$L__BB1_1;
$L__BB1_3:                                // inner
\tmul.lo.s32 \t%r4, %r4, %r4;
\tmul.lo.s32 \t%r4, %r4, %r4;
\t@!%p3 bra \t$L__BB1_3;
\tbra.uni \t$L__BB1_1;
$L__BB1_5:
\tadd.s32 \t%r5, %r5, 1;
\t@%p4 bra \t$L__BB1_5;
\tret;
}
"""


def test_instructions_of_a_kernel_worked_by_hand() -> None:
    # before 3, outer 2 + 2 + 1 a round, inner 3, the last loop 2, and the end
    expected = 3 + 7 * (5 + 10 * 3) + 4 * 2 + 1
    found = _ptx.instructions(_PTX, {"handmade": [7, 10, 4]})
    assert found == 2 * expected
    assert _ptx.instructions(_PTX, {"other": []}) == 1
    with pytest.raises(ValueError, match="3 loops, but rounds of 2 are stated"):
        _ptx.instructions(_PTX, {"handmade": [7, 10]})
    with pytest.raises(ValueError, match="no kernel gone among other, handmade"):
        _ptx.instructions(_PTX, {"gone": []})


# ---- what is missing


def test_an_unknown_target() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'H100'"):
        _compile_for.target("H10")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return versions of distributions, which a test sets."""
    versions: dict[str, str] = {}
    monkeypatch.setattr(_compile_for, "version_of", versions.get)
    _compile_for.target.cache_clear()
    return versions


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "reason", "command"),
    [
        (
            "H200",
            "jax-cuda12-plugin and jax-cuda12-pjrt and nvidia-cuda-nvcc-cu12 not",
            "pjrt==",
        ),
        ("TPU v5e", "libtpu not installed", "install 'jax[tpu]=="),
    ],
)
def test_what_is_not_installed_is_named(name: str, reason: str, command: str) -> None:
    with pytest.raises(_compile_for.NotHereError, match=reason) as caught:
        _compile_for.target(name)
    assert command + jax.__version__ in caught.value.make[0]


def test_a_plugin_of_another_jax(installed: dict[str, str]) -> None:
    now = jax.__version__
    plugins = ("jax-cuda12-plugin", "jax-cuda12-pjrt")
    installed |= dict(zip(plugins, (now, now), strict=True))
    with pytest.raises(
        _compile_for.NotHereError, match=r"^nvidia-cuda-nvcc-cu12 not installed"
    ):
        _compile_for.target("H100")
    installed |= {"nvidia-cuda-nvcc-cu12": "12.9", "jax-cuda12-pjrt": "0.4.30"}
    with pytest.raises(
        _compile_for.NotHereError,
        match=f"jax-cuda12-pjrt 0.4.30 cannot serve JAX {now}",
    ):
        _compile_for.target("H100")


def test_a_plugin_that_fails_is_said(
    installed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**_: object) -> None:
        raise NotImplementedError("topologies of it\nnot here")

    installed["libtpu"] = "0"
    monkeypatch.setattr(_compile_for.topologies, "get_topology_desc", fails)
    with pytest.raises(_compile_for.NotHereError, match=r"for it: topologies of it$"):
        _compile_for.target("TPU v5e")


def test_what_is_missing_is_told_by_another_process_too() -> None:
    error = pickle.loads(
        pickle.dumps(_compile_for.NotHereError("tpu", "no plugin", ("pip",)))
    )
    assert (error.name, str(error), error.make) == ("tpu", "no plugin", ("pip",))


# ---- the topic


def _reading(**changes: object) -> Reading:
    plain = Reading(
        "accelerators",
        "H100: sums, 3 x 3, xla",
        "H100",
        "sums",
        "xla",
        "sums",
        6.0,
        1.0,
        40,
        300,
        100,
        0,
        0,
        0,
        (5, 7, 16),
        40,
        3.0,
        0,
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


def test_what_is_beyond_a_bound() -> None:
    assert _reading().excesses() == ()
    many = _reading(launches=4_100).excesses()
    assert many == ("4,100 launches, at most 40 are allowed",)
    (words,) = _reading(moved_bytes=301).excesses()
    assert words == "3.01 times the least bytes, at most 3 are allowed"
    assert len(_reading(unknown_loops=1, host_calls=2).excesses()) == 2
    (words,) = _reading(instructions=2e3, most_instructions=1e3).excesses()
    assert words == "2,000 instructions for one of its sums, at most 1,000 are allowed"
    free = _reading(
        most_launches=None, most_moved=None, most_unknown_loops=None, launches=10**9
    )
    assert free.excesses() == ()


def test_arguments_are_filled() -> None:
    struct = jax.ShapeDtypeStruct
    given = (
        struct((4, 4), jnp.uint32),
        struct((3,), jnp.float32),
        struct((9,), jnp.bool_),
        struct((5,), jnp.int32),
        jnp.arange(3),
        jax.random.key(0),
    )
    found = _measured.filled(given)
    assert [leaf.dtype for leaf in found[:4]] == [leaf.dtype for leaf in given[:4]]
    assert [leaf.shape for leaf in found[:4]] == [leaf.shape for leaf in given[:4]]
    assert found[4] is given[4]
    assert set(np.asarray(found[3]).tolist()) <= {0, 1}


@pytest.mark.long
def test_every_row_is_built_at_both_sizes() -> None:
    for path in _hot_paths.HOT_PATHS.values():
        assert path.bounds
        for quick in (True, False):
            work = path.build(quick)
            assert work.amount > 0
            assert work.calls


@pytest.fixture
def one_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(quick: bool) -> _hot_paths.Work:
        size = 10 if quick else 1000
        call = _hot_paths.Call(
            jax.jit(jnp.cumsum), (jax.ShapeDtypeStruct((size,), jnp.float32),)
        )
        return _hot_paths.Work([call], size, int32=float(size))

    row = _hot_paths.HotPath(
        "sums", "1,000", "sums", build, {"xla": _hot_paths.Bound(1)}
    )
    monkeypatch.setattr(_measured, "HOT_PATHS", {"sums": row})


@pytest.fixture
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take back the platform that the command sets."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")


@pytest.mark.usefixtures("one_path", "installed", "own_environment")
def test_the_command_where_nothing_compiles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "left out: 1 case compiled for tpu: libtpu not installed" in captured.err
    assert "left out: 1 case compiled for cuda" in captured.err
    assert main(["--quick", "--here", "--json"]) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["case"], row["benchmark"]) == ("here: sums, small", "accelerators")
    assert main(["--quick", "--here"]) == 0
    printed = capsys.readouterr().out
    assert "sums, small" in printed
    assert "Launches" in printed


@pytest.mark.usefixtures("one_path", "own_environment")
def test_what_is_beyond_its_bound_is_told_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = _measured.Case("H100: sums", lambda name: _reading(case=name, launches=41))
    monkeypatch.setattr(_measured, "cases", lambda *_, **__: [case])
    assert main([]) == 1
    assert (
        "wrong: H100: sums: 41 launches, at most 40 are allowed"
        in capsys.readouterr().err
    )


@pytest.mark.usefixtures("own_environment")
def test_results_unlike_the_array_programs_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A form that is off by one, a sum of floats that is nearly right, and a path that breaks."""

    def build(quick: bool) -> _hot_paths.Work:
        off = int(forced_form() is None)
        near = 1.0 + 1e-4 * off

        def program(words: jax.Array, sums: jax.Array) -> tuple[jax.Array, jax.Array]:
            return words.at[0].add(off), sums * near

        given = (
            jax.ShapeDtypeStruct((8,), jnp.uint32),
            jax.ShapeDtypeStruct((8,), jnp.float32),
        )
        return _hot_paths.Work([_hot_paths.Call(jax.jit(program), given)], 8)

    def broken(quick: bool) -> _hot_paths.Work:
        raise ValueError("no kernel")

    rows = {
        name: _hot_paths.HotPath(name, "8", "words", own, {"xla": _hot_paths.Bound(1)})
        for name, own in (("words", build), ("lost", broken))
    }
    monkeypatch.setattr(_measured, "HOT_PATHS", rows)
    assert _measured.differences("words") == (
        "result [0][0] differs from the CPU's by 0.12",
    )
    assert main(["--quick", "--here"]) == 1
    told = capsys.readouterr().err
    assert (
        "wrong: here: words, small: result [0][0] differs from the CPU's by 0.12"
        in told
    )
    assert "broken: here: lost, small: ValueError: no kernel" in told


@pytest.mark.parametrize("words", [["--here"], ["--record", "--quick"]])
def test_misuse(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "error: --" in capsys.readouterr().err


def test_the_command_needs_no_driver() -> None:
    """It compiles on a CPU, whatever platform the environment asks for."""
    code = (
        "from benchmarks.accelerators import __main__\n"
        "__main__._read = lambda own: 0\n"
        "assert __main__.main([]) == 0\n"
        "import jax\n"
        "assert jax.default_backend() == 'cpu'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cuda"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("one_path")
def test_times_stand_beside_the_limits_where_they_are_known() -> None:
    here = _measured.read_run("sums", "here", quick=True, repeats=2)
    assert here.shares == {}  # of a CPU no limits are known
    assert here.seconds_min is not None
    assert here.rate == 10 / here.seconds_min
    work = _measured.HOT_PATHS["sums"].build(True)
    seconds = 1e-3
    there = dataclasses.replace(
        here, device="NVIDIA H100 80GB HBM3", launches=4, moved_bytes=335 * 10**6
    )
    found = _measured._timed(there, work, [2e-3, seconds])
    assert found.seconds_median == 1.5e-3
    np.testing.assert_allclose(found.shares["memory"], 0.1)
    np.testing.assert_allclose(found.shares["launches"], 0.01)
    np.testing.assert_allclose(found.shares["int32"], 10 / seconds / 16.7e12, rtol=1e-2)
    assert "matrix" not in found.shares


# ---- the bounds; what they need is mostly not installed


def _has(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


_CUDA = pytest.mark.skipif(
    not _has("jax-cuda12-plugin"), reason="needs jax-cuda12-plugin"
)
_TPU = pytest.mark.skipif(not _has("libtpu"), reason="needs libtpu")


@pytest.fixture
def shapes_for_arrays() -> Iterator[None]:
    """Let shapes stand where arrays are declared, which run-time checks of types refuse."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.slow
@_CUDA
@pytest.mark.usefixtures("shapes_for_arrays")
@pytest.mark.parametrize(
    ("path", "form"),
    [(path, form) for path, row in _hot_paths.HOT_PATHS.items() for form in row.bounds],
)
def test_counts_stay_below_their_bounds_on_an_h100(path: str, form: str) -> None:
    found = _measured.read_compiled("H100", path, form, "case")  # type: ignore[arg-type]
    assert found.excesses() == ()


@pytest.mark.slow
@_TPU
@pytest.mark.usefixtures("shapes_for_arrays")
@pytest.mark.parametrize("path", _hot_paths.HOT_PATHS)
def test_every_path_compiles_for_a_tpu(path: str) -> None:
    for form in _measured.forms_on("TPU v5e", path):
        found = _measured.read_compiled("TPU v5e", path, form, "case", quick=True)
        assert found.launches > 0
        assert found.host_calls == 0


@pytest.mark.slow
@_TPU
def test_a_compiler_that_computes_for_too_long_is_ended() -> None:
    with pytest.raises(
        _compile_for.NotHereError, match="ended, after 1 seconds of computing"
    ):
        _measured.read_within(1, "TPU v5e", "ranks", "xla", "case")
