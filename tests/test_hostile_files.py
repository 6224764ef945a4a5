"""Files made to break a reader.

Each is read or refused by a sentence, within bounded memory.
"""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import inspect
import io
import json
import lzma
import pathlib
import resource
import struct
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mrsa_jax import ConfigurationError, MrsaError
from mrsa_jax.cli import main
from mrsa_jax.data._formats import CifarFormat, read_cifar, read_idx
from mrsa_jax.privacy import Recipe, read_log
from mrsa_jax.study import DemoConfig, SimulateConfig, TrainConfig, load_config
from mrsa_jax.study.attack._stage import read_array
from mrsa_jax.study.stores._files import read_part as read_results
from mrsa_jax.study.sweeps import load_sweep
from mrsa_watch._base.untrusted import cell, printable, read_bytes

MEMORY_BYTES = 2**20  # that a history may take
MOST_GROWTH = 2**29  # of the whole process, over all mutants
LONG = b"round,client,weight,loss\n" + b"".join(
    b"%d,site-%d,%d,%s\n" % (j, i, i + j, b"0.25")
    for j in range(6)
    for i in range(j, j + 4)
)
QUOTED = b'"round";"client"\r\n' + b"".join(
    b'"%d";"a, ""%d"""\r\n' % (i // 3, i) for i in range(9)
)
MATRIX = b"1,0,1,1\n0,1,1,0\n1,1,1,1\n"
WEIGHTS = b"a b c\n0.5 1 2\n1/3 0 7e2\n"
ROWS = b"1 7 0.5\n1 8 2\n2 7 1\n"
TOML = b"""seed = 7
out = "results/x"
schemes = ["uniform", "batch_partitioning:2"]
[population]
num_clients = 12
cohort_size = 4
"""
TRAINING = b"""seed = 7
rounds = 20
out = "results/x"
resume = true
[population]
num_clients = 12
"""
SWEEP = b"""command = "simulate"
rounds = 20
out = "results/x"
[grid]
"population.dropout_rates" = {linspace = [0.1, 0.3, 3]}
seed = {range = [0, 6, 2]}
[[zip]]
"population.num_clients" = [12, 24]
"population.cohort_size" = [4, 8]
"""
JSON = json.dumps(
    {"title": "x", "sentences": ["a"], "findings": {"exposed": [[1, 2]]}}
).encode()
CIFAR = CifarFormat("cifar10", "x", ("x",), "x", (10,))
TOKENS = (
    b'"',
    b"\r",
    b"\n",
    b"\r\n",
    b"\0",
    b"\x1b[2J",
    b"9" * 5000,
    b"1e999",
    b"-1",
    b"nan",
    b",",
    b";" * 9,
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"[" * 2000,
    b"{" * 50,
    b"a." * 3000,
    b"=",
    b"x" * 200_000,
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"PK\x03\x04",
    b"PAR1",
    b"\x93NUMPY",
    b"\x1f\x8b\x08",
    "\u202e\u2028".encode(),
    b"0x" + b"f" * 6000,
    b"\n" * 3000,
    b"1979-05-27T00:32:00.999999-07:00",
    b"(1000000, 1000000)",
)


def _parquet(**columns: Any) -> bytes:
    stream = io.BytesIO()
    pd.DataFrame(columns).to_parquet(stream)
    return stream.getvalue()


def _npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _npz(kind: int = zipfile.ZIP_DEFLATED, **members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", kind) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), data)
    return stream.getvalue()


def _idx(array: np.ndarray) -> bytes:
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes()


class Reader(NamedTuple):
    """What reads one kind of file, and sound files of it."""

    read: Callable[[pathlib.Path], Any]
    seeds: tuple[bytes, ...]


def _log(**settings: Any) -> Callable[[pathlib.Path], Any]:
    read = inspect.unwrap(read_log)
    return lambda path: read(path, memory_bytes=MEMORY_BYTES, **settings)


P = np.arange(12).reshape(3, 4) % 2
TEXTS = (
    LONG,
    QUOTED,
    MATRIX,
    WEIGHTS,
    gzip.compress(LONG, mtime=0),
    gzip.compress(MATRIX, mtime=0),
)
TABLES = (
    _parquet(round=[1, 1, 2], client=["a", "b", "a"], weight=[0.5, 1.0, 2.0]),
    _parquet(
        round=[1, 1, 2], client=["a", "b", "a"], metrics=[{"x": 1}, {"x": 2}, {"x": 3}]
    ),
    _parquet(a=[1, 0, 1], b=[True, False, True]),
    _parquet(
        round=pd.to_datetime(["2024-01-02"] * 2), client=pd.Categorical(["u", "v"])
    ),
)
ARRAYS = (
    _npy(P),
    _npy(P.astype(np.float32)),
    _npz(P_dot_npy=_npy(P)),
    _npz(zipfile.ZIP_STORED, P_dot_npy=_npy(P), Q_dot_npy=_npy(P > 0)),
    _npz(**{"[Content_Types]_dot_xml": b"<x/>", "xl__workbook_dot_xml": b"<x/>"}),
    _npy(np.array([[1, 7], [1, 8], [2, 7]])),
)
IMAGES = _idx(np.arange(60).reshape(3, 5, 4))
SUMS = b"""{"format": "mrsa-jax participation log", "version": 1, "system": "a system 1.0", \
"aggregation": "plain", "pseudonyms": null, "run": 0}
{"round": 1, "clients": ["a", "b"], "weights": [1, "2/3"], "noise": 0.5, "clip": 1, "time": ""}
{"round": 2, "sum": 1, "status": "aborted", "asked": ["a", "c"], "lost": {"unmask": ["c"]}}
{"round": 2, "clients": ["c", "a"], "lost": {"upload": ["b"], "unmask": ["c"]}, "extra": [{}]}
"""
NVFLARE = b"".join(
    b"2026-11-23 06:13:05,068 - ScatterAndGather - INFO - [run=x] - Contribution from site-%d "
    b"%sED by the aggregator at round %d.\n"
    % (i, b"REJECT" if i == j else b"ACCEPT", j)
    for j in range(3)
    for i in range(4)
)
LINES = (
    SUMS,
    gzip.compress(SUMS, mtime=0),
    b'{"round": 1, "client": "a", "loss": 0.5}\n{"round": 2, "client": "b", "x": null}\n',
    b'{"round": 1, "client": "a", "x": [1]}\n{"round": 2, "client": "b", "x": {"y": 1e9}}\n',
    NVFLARE,
    b'{"asctime": "", "fl_ctx": "[run=x]", "message": "' + NVFLARE[66:-1] + b'"}\n',
)
READERS = {
    "log of lines": Reader(_log(), LINES),
    "log": Reader(_log(), (*TEXTS, *TABLES, *ARRAYS)),
    "log as a matrix": Reader(
        _log(layout="matrix"), (*TEXTS[2:4], TABLES[2], *ARRAYS[:3])
    ),
    "log of rows": Reader(
        _log(layout="long"), (LONG, QUOTED, ROWS, *TABLES[:1], *ARRAYS[5:])
    ),
    "log of some rows": Reader(
        _log(where={"loss": "0.25"}, ignore_columns="weight", round_order="file"),
        (LONG, TEXTS[4]),
    ),
    "IDX": Reader(
        read_idx, (IMAGES, gzip.compress(IMAGES, mtime=0), _idx(np.arange(9)))
    ),
    "CIFAR": Reader(lambda path: read_cifar(CIFAR, [path, path]), (bytes(2 * 3073),)),
    "array": Reader(lambda path: read_array(path, "participation"), ARRAYS),
    "settings of a demo": Reader(lambda path: load_config(DemoConfig, path), (TOML,)),
    "settings of a study": Reader(
        lambda path: load_config(SimulateConfig, path), (TOML, TRAINING)
    ),
    "settings of a training": Reader(
        lambda path: load_config(TrainConfig, path), (TRAINING,)
    ),
    "sweep": Reader(lambda path: load_sweep(path), (SWEEP, TOML)),
    "results": Reader(lambda path: read_results(path, "title"), (JSON,)),
}


def _mutant(data: bytes, rng: np.random.Generator) -> bytes:
    """Return a file with a few changes.

    Half the time inside what is packed, which is repacked.
    """
    if data.startswith(b"\x1f\x8b") and rng.random() < 0.5:
        return gzip.compress(_changed(gzip.decompress(data), rng), mtime=0)
    if data.startswith(b"PK") and rng.random() < 0.5:
        return _npz(P_dot_npy=_changed(ARRAYS[rng.integers(2)], rng))
    return _changed(data, rng)


def _changed(data: bytes, rng: np.random.Generator) -> bytes:
    """Return bytes with one to four changes: bits, cuts, repeats, moves, hostile words."""
    changed = bytearray(data)
    for _ in range(1 + rng.geometric(0.6) % 4):
        size = len(changed)
        start, end = sorted(rng.integers(0, size + 1, 2).tolist())
        kind = rng.choice(
            ["bit", "byte", "drop", "cut", "twice", "word", "over", "token"],
            p=[0.2, 0.2, 0.1, 0.04, 0.1, 0.1, 0.13, 0.13],
        )
        if kind == "bit" and size:
            changed[start % size] ^= 1 << int(rng.integers(8))
        elif kind == "byte" and size:
            changed[start % size] = rng.choice(list(b'019.,;\n" -ax\0\xff'))
        elif kind == "drop":
            del changed[start : min(end, start + 40)]
        elif kind == "cut":
            del changed[start:]
        elif kind == "twice":
            changed[start:start] = changed[start : min(end, start + 60)]
        elif kind == "word":
            number = rng.choice(
                [0, 1, 2**31 - 1, 2**31, 2**32 - 1, rng.integers(2**32)]
            )
            changed[start : start + 4] = struct.pack("<I", number)
        else:
            token = TOKENS[rng.integers(len(TOKENS))]
            changed[
                start : start
                + (len(token) if kind == "over" and len(token) < 20 else 0)
            ] = token
    return bytes(changed)


def _fuzz(folder: pathlib.Path, count: int, seed: int) -> dict[str, tuple[int, int]]:
    """Read `count` mutants in turn.

    Return how many of each reader's were read and refused.
    """
    rng = np.random.default_rng(seed)
    path = folder / "file"
    tally, longest = dict.fromkeys(READERS, (0, 0)), 0
    for reader in READERS.values():  # what is imported late is not the mutants' memory
        for data in reader.seeds:
            path.write_bytes(data)
            with contextlib.suppress(MrsaError):
                reader.read(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    names = list(READERS)
    for trial in range(count):
        name = names[trial % len(names)]
        seeds = READERS[name].seeds
        data = _mutant(seeds[rng.integers(len(seeds))], rng)
        path.unlink(missing_ok=True)  # an array may still be mapped
        path.write_bytes(data)
        read, refused = tally[name]
        try:
            READERS[name].read(path)
            tally[name] = (read + 1, refused)
        except MrsaError as error:
            tally[name] = (read, refused + 1)
            longest = max(longest, len(str(error)))
        except Exception as error:
            shown = data[:300] if len(data) > 300 else data
            raise AssertionError(
                f"{name}, mutant {trial} of seed {seed}: {shown!r}"
            ) from error
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert growth < MOST_GROWTH
    assert 10 < longest < 6000  # with a command
    return tally


@pytest.mark.long
def test_mutants_of_every_kind_of_file_are_read_or_refused(
    tmp_path: pathlib.Path,
) -> None:
    tally = _fuzz(tmp_path, 2600, 1)
    assert all(sum(counts) == 200 for counts in tally.values())
    assert all(refused > 20 for _, refused in tally.values())


@pytest.mark.slow
def test_a_hundred_thousand_mutants_are_read_or_refused(tmp_path: pathlib.Path) -> None:
    tally = _fuzz(tmp_path, 100_000, 2)
    assert sum(map(sum, tally.values())) == 100_000
    print(tally)  # noqa: T201


def test_the_sound_files_are_read(tmp_path: pathlib.Path) -> None:
    """A fuzz of files that none could read would show nothing."""
    path = tmp_path / "file"
    for name, reader in READERS.items():
        count = 0
        for data in reader.seeds:
            path.unlink(missing_ok=True)
            path.write_bytes(data)
            try:
                reader.read(path)
                count += 1
            except MrsaError:
                pass
        assert count > 0, name


def _refused(
    path: pathlib.Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> str:
    """Run the command line on a file that it must refuse; return what it says."""
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    assert all(mark.isprintable() or mark == "\n" for mark in said.err)
    return said.err


def _zipped_lie(shape: str, held: int) -> bytes:
    """Return an archive whose array has another size than its header says."""
    header = (
        f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117)
        + "\n"
    )
    magic = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
    return _npz(P_dot_npy=magic + header.encode() + bytes(held))


@pytest.mark.long
def test_logs_that_gave_tracebacks(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = b"round,client\n" + b"".join(b"%d,%d\n" % (i // 9, i) for i in range(3000))
    packed = gzip.compress(rows, mtime=0)
    nines = b"9" * 5000
    schema = pd.DataFrame({"round": [1], "client": [{"name": "a"}]})
    schema.to_parquet(tmp_path / "nested.parquet")
    cases = (
        (packed[:-9], "gzip that is broken or cut short"),
        (packed[:40] + b"\0\0\0\0" + packed[44:], "gzip that is broken or cut short"),
        (b"\x1f\x8b\x08 and nothing", "gzip that is broken or cut short"),
        (
            b"round,client\n1,a\n2," + b"x" * 2_000_000 + b"\n3,b\n",
            "a line of at most 1000000 bytes; found 2000002 bytes",
        ),
        (b"round,client,weight\n1,a," + nines + b"\n", "expected a weight"),
        (b"1,0," + nines + b"\n", "expected a header with a round"),
        (b"1,0\n1," + nines + b"\n", "field 2: expected a number"),
        (b"round,client\n" + nines + b",a\n2,b\n1,c\n", "of at most 1000 characters"),
        (
            "round,client\n1,a\n".encode("utf-16")[:-1],
            "text in UTF-16, as its first bytes say",
        ),
        (b'[{"round": 1, "client": "a"}, \n', "expected a JSON object"),
        (b'[{"round": 1, "client": "a"}] x\n', "expected one JSON array"),
        (ARRAYS[4], "found a workbook (save its sheet as CSV)"),
        (
            ARRAYS[4][:-30],
            "an archive of arrays (a workbook is saved as CSV); found one that cannot",
        ),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
            "found a workbook (save its sheet as CSV)",
        ),
        (
            (tmp_path / "nested.parquet").read_bytes(),
            "plain values in column 'client'; found nest",
        ),
        (TABLES[0][:-20] + TABLES[0][-8:], "expected a Parquet file"),
        (_zipped_lie("(2, 1000000000000)", 12), "`memory_bytes` must hold"),
        (_zipped_lie("(1000000000000,)", 12), "`memory_bytes` must hold"),
        (_zipped_lie("(2, 5)", 12), "the 10 bytes that its header says; found 12"),
        (_zipped_lie("(2, 9)", 12), "the 18 bytes that its header says; found 12"),
        (_zipped_lie("(-2, -6)", 12), "expected"),
        (
            ARRAYS[0].replace(b"(3, 4)", b"(3,99)"),
            "expected an array of bools or numbers",
        ),
    )
    for data, message in cases:
        path = tmp_path / "log"
        path.write_bytes(data)
        assert message in " ".join(_refused(path, ["audit", str(path)], capsys).split())
    path.write_bytes(rows.replace(b"\n", b"\r"))  # as the line ends of one old system
    assert read_log(path).participation.sum() == 3000
    path.write_bytes(b"round,client\r1,a" + nines[:900] + b"\r2,a1\r")
    assert read_log(path).clients == ("a1", "a" + "9" * 900)


@pytest.mark.long
def test_no_file_unpacks_to_more_than_is_allowed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.csv.gz"
    for size in (10**6, 10**6 + 1, 10**8):
        path.write_bytes(gzip.compress(b"0" * size, mtime=0))
        if size <= 10**6:
            assert len(read_bytes(path, 10**6)) == size
        else:
            with pytest.raises(
                ValueError, match="more than 1000000 bytes when unpacked"
            ):
                read_bytes(path, 10**6)
    for pack in (
        bz2.compress,
        lzma.compress,
        lambda data: pa.compress(data, "zstd", asbytes=True),
    ):
        for size in (10**6, 10**7):
            path.write_bytes(pack(b"0" * size))
            if size <= 10**6:
                assert len(read_bytes(path, 10**6)) == size
            else:
                with pytest.raises(
                    ValueError, match="more than 1000000 bytes when unpacked"
                ):
                    read_bytes(path, 10**6)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path.write_bytes(_npz(P_dot_npy=_npy(np.zeros((2**13, 2**13), np.uint8))))
    with pytest.raises(ConfigurationError, match="`memory_bytes` must hold"):
        read_log(path, memory_bytes=MEMORY_BYTES)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**15  # KiB


@pytest.mark.long("text1-`config` must be valid TOML; .*nested too deeply")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = " + "[" * 3000, "`config` must be valid TOML; .*nested too deeply"),
        ("a." * 3000 + "b = 1", "`config` must be valid TOML; .*nested too deeply"),
        ("rounds = 1\0", "`config` must be valid TOML"),
        ('out = "a\\u0000b"', "`out` must hold no NUL; got 'a\\\\x00b'"),
        ("rounds = " + "9" * 5000, "`config` must be valid TOML"),
        (
            "rounds = 0x" + "f" * 6000,
            "`rounds` must be an integer of 64 bits; got a value of type",
        ),
        ("seed = 1" + "0" * 30, "`seed` must be an integer of 64 bits; got 10000"),
        ("population.dropout_rate = 1" + "0" * 400, "must be an integer of 64 bits"),
        ("x" * 5000 + " = 1", "must have shorter names"),
        ("command = [1]\n[grid]\nseed = [1]", "`command` "),
    ],
)
def test_settings_that_gave_tracebacks(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        load_config(SimulateConfig, path)
    _refused(path, ["simulate", "--config", str(path)], capsys)
    with pytest.raises(ConfigurationError, match=message.replace("config", "study")):
        load_sweep(path)
    _refused(path, ["sweep", str(path)], capsys)


def test_images_that_gave_tracebacks(tmp_path: pathlib.Path) -> None:
    """Every cut, and every byte of a packed file changed.

    The one or a sentence, never zlib's.
    """
    path = tmp_path / "train-images-idx3-ubyte.gz"
    packed = gzip.compress(IMAGES, mtime=0)
    changed = [packed[:size] for size in range(len(packed))]
    changed += [
        packed[:place] + bytes([byte]) + packed[place + 1 :]
        for place in range(len(packed))
        for byte in (0, 255, packed[place] ^ 16)
    ]
    changed += [bytes([0, 0, 8, axes]) + b"\0" * 4 * axes for axes in (0, 9, 65, 255)]
    refused = 0
    for data in changed:
        path.write_bytes(data)
        try:
            read_idx(path)
        except ConfigurationError:
            refused += 1
    assert refused > len(packed)


@pytest.mark.long
def test_names_command_no_terminal_and_no_spreadsheet(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names are the clients' own.

    What they hold is shown by its codes, and is text in a cell.
    """
    names = [
        "=1+1|x",
        "+cmd",
        "-anna",
        "@sum",
        "a\x1b[31mb",
        "\u202egnp",
        "-1",
        "a\x9bc",
        "b\x07",
    ]
    log, out, recipe = tmp_path / "log.csv", tmp_path / "out", tmp_path / "recipe.csv"
    rows = [f"r{j},{name}" for j, name in enumerate(names)]  # each of them alone
    rows += [f"{name}9,{name}" for name in names[:4]]
    log.write_text("\n".join(["round,client", *rows]) + "\n")
    words = [
        "audit",
        str(log),
        "--effort",
        "0",
        "--layout",
        "long",
        "--odd-names",
        "keep",
    ]
    assert main([*words, "--out", str(out), "--recipe-file", str(recipe)]) == 0
    said = capsys.readouterr()
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text()
    for text in (said.out, said.err, page):
        assert all(mark.isprintable() or mark in "\n\t" for mark in text)
    assert "a\\x1b[31mb" in page
    with (out / "clients.csv").open(newline="") as stream:
        cells = [row[0] for row in csv.reader(stream)][1:]
    assert sorted(cells) == sorted(
        "'" + n if n[0] in "=+-@" and n != "-1" else n for n in names
    )
    for path in (*out.glob("*.csv"), recipe):
        with path.open(newline="") as stream:
            cells = [one for row in csv.reader(stream) for one in row]
        risky = [one for one in cells if one[:1] in ("=", "+", "-", "@", "\t", "\r")]
        assert all(number_of(one) for one in risky), risky
    found = json.loads((out / "audit.json").read_text())["findings"]["exposed"]
    # for machines they stay what they are
    assert {one["client"] for one in found} == set(names)


def number_of(text: str) -> bool:
    """Return whether a text is a number, by Python's own reading."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_coefficients_of_any_length_are_written() -> None:
    """Python refuses to write integers of more than 4,300 digits.

    Certificates hold them.
    """
    recipe = Recipe(
        (("r", 10**5000), ("s", 7 - 10**5000)), (("c", 10**4400 + 10**300),)
    )
    kinds = [line.split(",") for line in recipe.lines()[1:]]
    written = [
        "1" + "0" * 5000,
        "-" + "9" * 4999 + "3",
        "1" + "0" * 4099 + "1" + "0" * 300,
    ]
    assert [coefficient for _, _, coefficient in kinds] == written
    assert "5001 digits" in recipe.text()


@pytest.mark.long
def test_every_character_is_shown_or_stands_as_its_code() -> None:
    marks = [chr(code) for code in range(0x110000)]
    shown = printable("".join(marks))
    assert shown.isprintable()
    # a backslash for each that is not printable, and the one that is among them
    assert shown.count("\\") == sum(not mark.isprintable() for mark in marks) + 1
    for text in (
        "=",
        "+a",
        "-a",
        "@a",
        "\t=1",
        "\r=1",
        "-",
        "+1+1",
        "=-1",
        "-1-1",
        "1e5x",
    ):
        assert cell(text) == ("'" + text if text[0] in "=+-@\t\r" else text)
    for value in ("-1", "+1.5", "-1e5", "anna", "", -1, 2.5, None, True):
        assert cell(value) == value
