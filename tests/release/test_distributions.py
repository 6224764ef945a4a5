"""The wheel and the source distribution, built and tried outside the checkout.

They need a package registry and `uv`, and minutes: an environment for each Python that
is here.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes

import pytest

import mrsa_jax

ROOT = pathlib.Path(__file__).resolve().parents[2]
UV = shutil.which("uv") or shutil.which(
    "uv", path=str(pathlib.Path(sys.executable).parent)
)
MOST_BYTES = {".whl": 3_200_000, ".gz": 7_500_000}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(UV is None, reason="uv builds and installs"),
    pytest.mark.skipif(
        not (ROOT / ".git").exists(), reason="what is tracked is the oracle"
    ),
]

IMPORTS_ALL = """
import importlib, pathlib, sys
import mrsa_jax as mj
assert pathlib.Path(mj.__file__).is_relative_to(sys.prefix), mj.__file__
doors = [mj, *(getattr(mj, name) for name in mj.__all__ if hasattr(getattr(mj, name), "__path__"))]
names = [f"{door.__name__}.{name}" for door in doors for name in door.__all__]
for door in doors:
    for name in door.__all__:
        getattr(door, name)
assert "batch_partitioning" in mj.selection.__all__
assert "@" in mj.cite("batch_partitioning:4")
print(len(names))
"""


def _run(*words: object, cwd: pathlib.Path = ROOT, **more: str) -> str:
    """Run a command as a user does: nothing of the suite's settings is handed on."""
    strange = ("PYTHON", "VIRTUAL_ENV", "XLA_", "MRSA_", "JAX_")
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(strange)
    }
    found = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=own | more,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert found.returncode == 0, (
        f"{words}: {found.stdout[-2000:]}{found.stderr[-3000:]}"
    )
    return found.stdout


def _tracked() -> set[str]:
    """Return the files of the repository, those to be added too."""
    listed = _run("git", "ls-files", "-co", "--exclude-standard", "-z").split("\0")
    return {name for name in listed if name and (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    """Return both distributions by their ending.

    The wheel is made from the source distribution.
    """
    folder = tmp_path_factory.mktemp("dist")
    _run(UV, "build", "--out-dir", folder, ROOT)
    return {path.suffix: path for path in folder.iterdir() if path.suffix in MOST_BYTES}


def test_the_source_distribution_is_what_is_tracked(
    built: dict[str, pathlib.Path],
) -> None:
    with tarfile.open(built[".gz"]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    expected = {name for name in _tracked() if not name.startswith(".ci/")} | {
        "PKG-INFO"
    }
    assert held == expected
    assert any(name.startswith("tests/") for name in held)
    assert any(name.startswith("docs/") for name in held)
    assert not [
        name for name in held if name.startswith((".cache", ".venv", "results"))
    ]
    for suffix, path in built.items():
        print(path.name, path.stat().st_size, "bytes")  # noqa: T201  (shown by -s and on failure)
        assert path.stat().st_size < MOST_BYTES[suffix]


def test_the_wheel_holds_the_package_from_either_source(
    built: dict[str, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    _run(UV, "build", "--wheel", "--out-dir", tmp_path, ROOT)
    (direct,) = tmp_path.glob("*.whl")
    assert direct.name == built[".whl"].name
    assert direct.read_bytes() == built[".whl"].read_bytes()
    with zipfile.ZipFile(direct) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        (place,) = [name for name in archive.namelist() if name.endswith("METADATA")]
        metadata = message_from_bytes(archive.read(place))
    own = [
        name
        for name in _tracked()
        if name.startswith(("mrsa_jax/", "watch/mrsa_watch/"))
    ]
    assert held == {name.removeprefix("watch/") for name in own}
    assert "mrsa_jax/study/papers.bib" in held
    assert metadata["Version"] == mrsa_jax.__version__
    _run(
        UV,
        "tool",
        "run",
        "--from",
        "twine==7.0.0",
        "twine",
        "check",
        "--strict",
        *built.values(),
    )


def test_the_papers_are_a_wheel_of_their_own(tmp_path: pathlib.Path) -> None:
    _run(UV, "build", "--wheel", "--out-dir", tmp_path, ROOT / "papers")
    (wheel,) = tmp_path.glob("mrsa_jax_papers-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        (place,) = [
            name for name in archive.namelist() if name.endswith("entry_points.txt")
        ]
        points = archive.read(place).decode()
    tracked = {name for name in _tracked() if name.startswith("papers/mrsa_papers/")}
    assert held == {name.removeprefix("papers/") for name in tracked}
    assert "[mrsa_jax.commands]" in points
    assert "[mrsa_jax.pages]" in points


def _python(minor: int) -> str:
    """Return a Python of this version that starts, or skip."""
    versions = pathlib.Path.home() / ".pyenv" / "versions"
    asked = [
        os.environ.get(f"MRSA_JAX_PYTHON3{minor}"),
        shutil.which(f"python3.{minor}"),
    ]
    for path in [*asked, *sorted(versions.glob(f"3.{minor}.*/bin/python"))]:
        if path:
            words = [str(path), "-c", "import sys; print(sys.version_info[1])"]
            found = subprocess.run(
                words, capture_output=True, text=True, check=False, cwd="/"
            )
            if found.stdout.strip() == str(minor):
                return str(path)
    pytest.skip(f"there is no Python 3.{minor} here")


@pytest.fixture(scope="module", params=[11, 12, 13, 14], ids="py3{}".format)
def installed(
    request: pytest.FixtureRequest,
    built: dict[str, pathlib.Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> pathlib.Path:
    """Return the folder of programs of an environment that holds the wheel alone."""
    folder = tmp_path_factory.mktemp(f"py3{request.param}") / "env"
    _run(UV, "venv", "--seed", "--python", _python(request.param), folder)
    install = (UV, "pip", "install", "-c", ROOT / "constraints.txt", built[".whl"])
    _run(*install, cwd=folder, VIRTUAL_ENV=str(folder))
    return folder / "bin"


def test_the_wheel_alone_does_its_work(
    installed: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    assert int(_run(installed / "python", "-c", IMPORTS_ALL, cwd=tmp_path)) > 300
    command, home = installed / "mrsa-jax", {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    small = [
        "--rounds",
        "2",
        "--num-clients",
        "8",
        "--cohort-size",
        "4",
        "--model",
        "logistic",
    ]
    schemes = ["--schemes", "uniform", "batch_partitioning:2"]
    _run(command, "demo", *small, *schemes, "--out", "demo", cwd=tmp_path, **home)
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert "Multi-RoundSecAgg" in page

    # round 0 sums a and b, round 1 b alone: round 1 says b, and with it round 0 says a
    (tmp_path / "log.csv").write_text("round,client\n0,a\n0,b\n1,b\n2,c\n2,d\n")
    words = ["audit", "log.csv", "--json", "--out", "audit"]
    found = json.loads(_run(command, *words, cwd=tmp_path, **home))
    assert [(one["client"], one["first_round"]) for one in found["exposed"]] == [
        ("a", 1),
        ("b", 1),
    ]
    _run(command, "report", "audit", cwd=tmp_path, **home)
    assert list((tmp_path / "audit").glob("*.html"))
    assert "OpenSSL" in _run(command, "bench", "--list", cwd=tmp_path, **home)


def test_a_clone_and_its_address_install(
    installed: pathlib.Path, built: dict[str, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    """By pip itself, as the README says; what it depends on is there already."""
    clone = tmp_path / "clone"
    _run("git", "clone", "--quiet", ROOT, clone)
    said = _run(installed / "mrsa-jax", "--version", cwd=tmp_path)
    ways = [
        [str(clone)],
        [f"git+file://{clone}"],
        [str(built[".gz"])],
        ["-e", str(clone)],
    ]
    for way in ways:
        _run(installed / "pip", "uninstall", "--yes", "mrsa_jax", cwd=tmp_path)
        _run(installed / "pip", "install", "--quiet", "--no-deps", *way, cwd=tmp_path)
        assert (
            _run(installed / "mrsa-jax", "--version", cwd=tmp_path).split()[0]
            == said.split()[0]
        )
    for way in ([str(clone / "papers")], ["-e", str(clone / "papers")]):
        _run(installed / "pip", "install", "--quiet", "--no-deps", *way, cwd=tmp_path)
        assert "heterosag.matrices" in _run(
            installed / "mrsa-jax", "reproduce", "--list", cwd=tmp_path
        )
        _run(installed / "pip", "check", cwd=tmp_path)
        _run(installed / "pip", "uninstall", "--yes", "mrsa-jax-papers", cwd=tmp_path)


def test_the_image_builds_from_what_it_copies(tmp_path: pathlib.Path) -> None:
    """The container file's own first stage, by hand: no engine is needed."""
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    first = lines[: [i for i, line in enumerate(lines) if line.startswith("FROM")][1]]
    for line in first:
        if line.startswith("COPY"):
            *sources, target = line.split()[1:]
            for source in sources:
                to = tmp_path / target / (source if target == "./" else "")
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, to, dirs_exist_ok=True)
                else:
                    shutil.copy(ROOT / source, to)
    (step,) = [line.removeprefix("RUN ") for line in first if line.startswith("RUN")]
    assert step.startswith("python -m pip wheel")
    words = step.replace("/wheels", str(tmp_path / "wheels")).split()[1:]
    _run(sys.executable, *words, cwd=tmp_path)
    names = sorted(
        path.name.partition("-")[0] for path in (tmp_path / "wheels").iterdir()
    )
    assert names == ["mrsa_jax", "mrsa_jax_papers"]
