"""Participation logs as other systems write them: what is wrong is named by line."""

from __future__ import annotations

import csv
import gzip
import inspect
import pathlib
import tracemalloc
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mrsa_jax import ConfigurationError, DataNotFoundError
from mrsa_jax.privacy import ParticipationLog, read_log


def _write(folder: pathlib.Path, content: str | bytes) -> pathlib.Path:
    path = folder / "log.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "",
            "log.csv:1: expected a header or a row of participation; found an empty "
            "file",
        ),
        (
            "\n \n",
            "log.csv:1: expected a header or a row of participation; found an empty "
            "file",
        ),
        (
            "round,client\n",
            "log.csv:1: expected rows of participation after the header; found non",
        ),
        (
            "when,who\n1,a\n",
            "log.csv:1: expected a header with a round and a client column",
        ),
        (
            "when,client\n1,a\n",
            "log.csv:1: expected a header with a round and a client column",
        ),
        (
            "round,client,client\n1,a,b\n",
            "log.csv:1: expected one column 'client'; found columns",
        ),
        ("round,client\n1,a\n2\n", "log.csv:3: expected 2 fields; found 1: '2'"),
        (
            "round,client\n1,a\n\n2,b,c\n",
            "log.csv:4: expected 2 fields; found 3: '2,b,c'",
        ),
        (
            "round,client\n1,a\n2,\n",
            "log.csv:3: expected the name or number of a client; found n",
        ),
        (
            "round,client\n1,a\n2,nan\n",
            "log.csv:3: expected the name or number of a client; fou",
        ),
        ("round,client\n,a\n2,b\n", "log.csv:2: expected a round .*; found nothing"),
        ("round,client\n1,a\nNaN,b\n", "log.csv:3: expected a round .*; found 'NaN'"),
        ("round,client\n1,a\n-1,b\n", "log.csv:3: expected a round .*; found -1"),
        ("round,client,weight\n1,a,x\n", "log.csv:2: expected a weight, .*; found 'x'"),
        ("round,client,weight\n1,a,-1\n", "log.csv:2: expected a weight, .*; found -1"),
        (
            "round,client,weight\n1,a,nan\n",
            "log.csv:2: expected a weight, .*; found 'nan'",
        ),
        (
            "round,client,weight\n1,a,inf\n",
            "log.csv:2: expected a weight, .*; found 'inf'",
        ),
        (
            "round,client,weight\n1,a,2\n1,b,\n",
            "log.csv:3: expected a weight, .*; found nothing",
        ),
        (
            "round,client\n1,a\n2,a\n3,b\n1,b\n2,b\n1,a \n",
            "log.csv:7: expected each client once in a round .*; found client 'a' in "
            "round 1 "
            "again, first in .*log.csv:2",
        ),
        (
            'round,client\n1,"a\nb"\n1,\n',
            "log.csv:2: expected quotes around whole fields that",
        ),
        (b"round,client\n1,a\n2,\xff\n", "log.csv:3: expected UTF-8 text"),
        ("1,0,1\n0,1\n", "log.csv:2: expected 3 fields as in line 1; found 2"),
        (
            "1,0,1\n0,2,1\n",
            "log.csv:2, field 2: expected 0 or 1 .*--layout matrix.*; found 2",
        ),
        ("1,0,1\n0,0.5,1\n", "log.csv:2, field 2: expected 0 or 1 .*; found 1/2"),
        ("1,0,1\n0,-1,1\n", "log.csv:2, field 2: expected 0 or 1 .*; found -1"),
        ("1,0,1\n0,nan,1\n", "log.csv:2, field 2: expected a number; found 'nan'"),
        ("1,0,1\n0,,1\n", "log.csv:2, field 2: expected a number; found ''"),
        (
            "1,17\n1,23\n",
            "log.csv:1, field 2: expected 0 or 1 .*--layout long.*; found 17",
        ),
    ],
)
def test_malformed_logs_are_named_by_line(
    tmp_path: pathlib.Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_log(_write(tmp_path, content))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layout": "wide"}, "`layout` must be a known name"),
        ({"round_order": "time"}, "`round_order` must be a known name"),
        ({"memory_bytes": 0}, "`memory_bytes` must be at least 1; got 0"),
        (
            {"round_column": "when"},
            "log.csv:1: expected one column 'when'; found columns 'round'",
        ),
        (
            {"memory_bytes": 5},
            "`memory_bytes` must hold .* 2 rounds x 3 clients, 6 bytes; got 5",
        ),
        (
            {"layout": "matrix"},
            "log.csv:1: expected a column for each client .*; found a column 'client', "
            "which",
        ),
    ],
)
def test_settings_that_do_not_fit(
    tmp_path: pathlib.Path, settings: dict[str, Any], message: str
) -> None:
    path = _write(tmp_path, "round,client\n1,a\n2,b\n2,c\n")
    with pytest.raises(ConfigurationError, match=message):
        inspect.unwrap(read_log)(path, **settings)


def test_files_that_are_not_there(tmp_path: pathlib.Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(
            DataNotFoundError, match="expected a file; found none that can be read"
        ):
            read_log(path)


def _plain(log: ParticipationLog) -> tuple[tuple, tuple, list]:
    return log.rounds, log.clients, log.participation.astype(object).tolist()


def test_a_log_of_another_system_with_gaps_and_string_ids(
    tmp_path: pathlib.Path,
) -> None:
    """As a Flower strategy may log its fits.

    Server rounds with gaps, more columns, any order.
    """
    path = tmp_path / "fit_metrics.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["Server Round", "cid", "num_examples", "train_loss"])
        writer.writerow([11, "hospital-b", 512, 0.12])
        writer.writerow([2, "hospital-a", 480, 0.4])
        writer.writerow([2, "clinic, north", 100, "nan"])
        writer.writerow([5, "hospital-b", 512, 0.3])
        writer.writerow([11, "hospital-a", 480, ""])
    with pytest.raises(
        ConfigurationError, match=r"a decision on columns 'num_examples' \('512', '"
    ):
        read_log(path)
    log = read_log(path, ignore_columns="num_examples,train_loss", restarts="same")
    assert log.columns_used == ("Server Round", "cid")
    assert log.columns_ignored == ("num_examples", "train_loss")
    assert log.rounds == (2, 5, 11)
    assert log.clients == ("clinic, north", "hospital-a", "hospital-b")
    assert log.participation.dtype == np.bool_
    assert log.participation.astype(int).tolist() == [[1, 1, 0], [0, 0, 1], [0, 1, 1]]
    assert log.scales is None
    weighted = read_log(
        path, weight_column="num_examples", ignore_columns="train_loss", restarts="same"
    )
    assert weighted.participation.tolist() == [
        [100, 480, 0],
        [0, 0, 512],
        [0, 480, 512],
    ]


@pytest.mark.parametrize(
    ("content", "rounds", "clients"),
    [
        ("round,client\n10,2\n9,1\n", (9, 10), (1, 2)),
        ("round,client\nr10,b\nr9,a\n", ("r9", "r10"), ("a", "b")),
        ("round,client\n1,007\n2,8\n", (1, 2), ("007", "8")),
        ("round;client_id\r\n1;a\r\n2;b\r\n", (1, 2), ("a", "b")),
        ("round\tuser\n1\ta\n2\tb", (1, 2), ("a", "b")),
        (b"\xef\xbb\xbfround,client\n1,a\n2,b\n", (1, 2), ("a", "b")),
        ("round , client\n1 , a\n2, b\n", (1, 2), ("a", "b")),
        (gzip.compress(b"round,client\n1,a\n2,b\n", mtime=0), (1, 2), ("a", "b")),
        (
            "client,round\na,2024-01-09\nb,2024-01-10\n",
            ("2024-01-09", "2024-01-10"),
            ("a", "b"),
        ),
        ("round,client\n1,-5\n2,-3\n", (1, 2), (-5, -3)),
        ("round,client\n10.5,b\n10.25,a\n", ("10.25", "10.5"), ("a", "b")),
    ],
)
def test_names_are_kept_and_rounds_sorted(
    tmp_path: pathlib.Path, content: str | bytes, rounds: tuple, clients: tuple
) -> None:
    log = read_log(_write(tmp_path, content))
    assert (log.rounds, log.clients) == (rounds, clients)
    assert log.participation.tolist() == [[True, False], [False, True]]


def test_rounds_may_stay_in_the_order_of_the_file(tmp_path: pathlib.Path) -> None:
    path = _write(tmp_path, "round,client\nmonday,b\napril,a\nmonday,a\n")
    assert read_log(path, round_order="sorted").rounds == ("april", "monday")
    assert not read_log(path).is_ordered
    log = read_log(path, round_order="file")
    assert log.is_ordered
    assert _plain(log) == _plain(read_log(path))
    assert _plain(log) == (
        ("monday", "april"),
        ("a", "b"),
        [[True, True], [True, False]],
    )


def test_columns_can_be_named_or_go_without_a_header(tmp_path: pathlib.Path) -> None:
    path = _write(tmp_path, "who,n,when\na,3,1\nb,4,2\n")
    log = read_log(path, round_column="when", client_column="who", weight_column="n")
    assert _plain(log) == ((1, 2), ("a", "b"), [[3, 0], [0, 4]])
    log = read_log(_write(tmp_path, "1,17\n1,23\n4,17\n"), layout="long")
    assert _plain(log) == ((1, 4), (17, 23), [[True, True], [True, False]])


@pytest.mark.smoke
def test_fractional_weights_are_exact(tmp_path: pathlib.Path) -> None:
    text = "round,client,weight\n1,a,0.1\n1,b,0.25\n1,c,1/3\n2,a,3\n2,b,0\n"
    log = read_log(_write(tmp_path, text))
    assert log.scales == (60, 1)
    rows = [
        [Fraction(int(v)) / scale for v in row]
        for row, scale in zip(log.participation, log.scales, strict=True)
    ]
    assert rows == [[Fraction(1, 10), Fraction(1, 4), Fraction(1, 3)], [3, 0, 0]]
    huge = read_log(_write(tmp_path, f"round,client,weight\n1,a,{2**70}\n1,b,1\n"))
    assert huge.participation.tolist() == [[2**70, 1]]


P = np.array([[1, 0, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0]])


@pytest.mark.parametrize(
    "content",
    [
        "1,0,1,1\n0,1,1,0\n0,0,0,0\n",
        "1,0,1,1\r\n0,1,1,0\r\n0,0,0,0",
        "1 0 1 1\n0 1 1 0\n0 0 0 0\n",
        "1;0;1;1\n0;1;1;0\n\n0;0;0;0\n\n",
        "1, 0, 1, 1\n0, 1, 1, 0\n0, 0, 0, 0\n",
        "True,False,true,1.0\n0,1e0,1,0\n0,0,0,0\n",
        b"\xef\xbb\xbf1,0,1,1\n0,1,1,0\n0,0,0,0\n",
    ],
)
def test_matrices_in_text(tmp_path: pathlib.Path, content: str | bytes) -> None:
    log = read_log(_write(tmp_path, content))
    assert log.participation.dtype == np.bool_
    assert _plain(log) == ((0, 1, 2), (0, 1, 2, 3), P.astype(bool).tolist())


def test_numpys_own_text_reads_back(tmp_path: pathlib.Path) -> None:
    np.savetxt(tmp_path / "log.csv", P)
    assert (read_log(tmp_path / "log.csv").participation == P).all()


def test_a_matrix_may_hold_weights_and_names_when_asked(tmp_path: pathlib.Path) -> None:
    log = read_log(_write(tmp_path, "a,b\n2,0\n0.5,0.25\n"), layout="matrix")
    assert _plain(log) == ((0, 1), ("a", "b"), [[2, 0], [2, 1]])
    assert log.scales == (1, 4)
    with pytest.raises(
        ConfigurationError, match="csv:2, field 1: expected a number of 0 or"
    ):
        read_log(_write(tmp_path, "1,0\n-2,1\n"), layout="matrix")


def test_parquet(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.parquet"

    def read(**columns: Any) -> ParticipationLog:
        pd.DataFrame(columns).to_parquet(path)
        return read_log(path)

    want = [[True, False], [True, True]]
    assert _plain(read(round=[3, 7, 7], client_id=["a", "b", "a"])) == (
        (3, 7),
        ("a", "b"),
        want,
    )
    log = read(
        rnd=[7.0, 3.0, 7.0], user=pd.Categorical(["b", "a", "a"], ["c", "b", "a"])
    )
    assert _plain(log) == ((3, 7), ("a", "b"), want)
    days = pd.to_datetime(["2024-01-02", "2024-01-01", "2024-01-02"])
    assert _plain(read(round=days, client=[9, 1, 1]))[1:] == ((1, 9), want)
    log = read(round=[1, 1, 2], client=[1, 2, 2], weight=[0.5, 0.25, 3.0])
    assert (log.participation.tolist(), log.scales) == ([[2, 1], [0, 3]], (4, 1))
    assert _plain(read(a=[1, 0], b=[1, 1])) == ((0, 1), ("a", "b"), [[1, 1], [0, 1]])
    for columns, message in (
        (
            {"round": [1, 2], "client": ["a", None]},
            "row 1: expected the name or number of a cl",
        ),
        ({"round": [1, np.nan], "client": ["a", "b"]}, "row 1: expected a round"),
        (
            {"round": [1, 1], "client": ["a", "a"]},
            "row 1: expected each client once in a round",
        ),
        (
            {"round": [1, 1], "client": [1, 2], "weight": [1.0, np.inf]},
            "row 1: expected a weight",
        ),
        ({"round": [], "client": []}, "expected rows of participation"),
        ({"x": [1, 2], "y": [0, 1]}, "row 1, column 'x': expected 0 or 1"),
        (
            {"x": ["a"], "y": ["b"]},
            "expected a header with a round and a client column",
        ),
    ):
        with pytest.raises(ConfigurationError, match=message):
            read(**columns)
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(ConfigurationError, match="expected a Parquet file"):
        read_log(path)


def test_arrays(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.npy"

    def read(array: Any, **settings: Any) -> ParticipationLog:
        np.save(path, np.asarray(array))
        return read_log(path, **settings)

    for kind in (bool, np.int8, np.uint64, np.float32):
        log = read(P.astype(kind))
        assert log.participation.dtype == np.bool_
        assert _plain(log) == ((0, 1, 2), (0, 1, 2, 3), P.astype(bool).tolist())
    log = read([[0.5, 1.0], [0.0, 3.0]], layout="matrix")
    assert (log.participation.tolist(), log.scales) == ([[1, 2], [0, 3]], (2, 1))
    assert read([[2**63, 1]], layout="matrix").participation.tolist() == [[2**63, 1]]
    assert _plain(read([[4, 9], [6, 9]], layout="long")) == (
        (4, 6),
        (9,),
        [[True], [True]],
    )
    for array, message in (
        ([[0.5, 1.0]], "row 0, column 0: expected 0 or 1"),
        ([[1, 0], [0, -1]], "row 1, column 1: expected 0 or 1"),
        ([[1.0, np.nan]], "row 0, column 1: expected 0 or 1"),
        ([1, 0], "expected two axes"),
        (np.zeros((0, 3)), "expected two axes"),
        ([["a", "b"]], "expected bools or numbers"),
        (np.array([[None]]), "expected an array of bools or numbers"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            read(array)
    for array in ([[1.0, np.nan]], [[1.0, np.inf]], [[1.0, -1.0]]):
        with pytest.raises(
            ConfigurationError, match="row 0, column 1: expected a number of 0 or"
        ):
            read(array, layout="matrix")


def test_archives(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.npz"
    np.savez(path, P=P)
    assert (read_log(path).participation == P).all()
    np.savez(path, P=P, Q=np.eye(2))
    assert read_log(path, array="Q").participation.shape == (2, 2)
    with pytest.raises(
        ConfigurationError, match="expected one array, or --array NAME; found arr"
    ):
        read_log(path)
    with pytest.raises(
        ConfigurationError, match="expected an array 'R'; found arrays P, Q"
    ):
        read_log(path, array="R")
    with pytest.raises(
        ConfigurationError, match="`memory_bytes` must hold the history"
    ):
        read_log(path, array="P", memory_bytes=5)
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(ConfigurationError, match="expected an archive of arrays"):
        read_log(path)


def test_random_logs_read_back_in_every_format(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(4)
    for trial in range(10):
        history = rng.random((rng.integers(1, 9), rng.integers(1, 9))) < 0.5
        history[0, 0] = True
        rows, columns = np.nonzero(history)
        order = rng.permutation(len(rows))
        table = pd.DataFrame({"round": rows[order], "client": columns[order]})
        used = history[history.any(axis=1)][:, history.any(axis=0)]
        table.to_csv(tmp_path / "log.csv", index=False)
        table.to_parquet(tmp_path / "log.parquet")
        np.save(tmp_path / "log.npy", history)
        for name in ("log.csv", "log.parquet"):
            log = read_log(tmp_path / name, restarts="same")
            assert (log.participation == used).all(), trial
            assert log.rounds == tuple(np.flatnonzero(history.any(axis=1)).tolist())
            assert log.clients == tuple(np.flatnonzero(history.any(axis=0)).tolist())
        assert (read_log(tmp_path / "log.npy").participation == history).all()


def test_a_few_bytes_that_unpack_to_much_are_refused_before_they_are_held(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(b"round,client\n" + b"0,1\n" * 3_000_000))
    tracemalloc.start()
    with pytest.raises(
        ConfigurationError, match=r"found client 1 in round 0 again, first in .*:2"
    ):
        read_log(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * 2**20  # the text itself is 12 MB, once packed and once not
    monkeypatch.setattr("mrsa_watch.logs._csv.LEAST_BYTES", 1)
    with pytest.raises(
        ConfigurationError, match="`memory_bytes` must hold the history"
    ):
        read_log(path, restarts="new", memory_bytes=10**6)


def test_fields_are_kept_alike_in_every_piece(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the pieces: quotes, carriage returns and empty lines among plain ones."""
    rows = [f"{j},client {i}" for j in range(40) for i in range(3 + j % 4)]
    rows[7] = rows[7].replace("client 0", '"client 0"')
    text = (
        "\r\n".join(["round,client", *rows[:50], "", *rows[50:90]])
        + "\n"
        + "\n".join(rows[90:])
    )
    path = tmp_path / "log.csv"
    path.write_bytes(text.encode())
    wanted = read_log(path)
    for size in (1, 7, 64, 300):
        monkeypatch.setattr("mrsa_watch.logs._csv._PIECE_BYTES", size)
        found = read_log(path)
        assert (found.rounds, found.clients) == (wanted.rounds, wanted.clients)
        assert (found.participation == wanted.participation).all()
    path.write_bytes(text.replace("30,client 2", "30,client 2,5").encode())
    number = text.split("\n").index("30,client 2") + 1
    with pytest.raises(
        ConfigurationError, match=rf"log.csv:{number}: expected 2 fields; found 3"
    ):
        read_log(path)


def test_rows_that_may_be_alike_are_all_read(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A matrix has rounds of the same clients.

    A condition leaves out what stands there often.
    """
    monkeypatch.setattr("mrsa_watch.logs._csv._PIECE_BYTES", 16)
    path = _write(tmp_path, "a,b,c\n" + "1,1,0\n0,1,1\n" * 40)
    assert read_log(path, layout="matrix").participation.shape == (80, 3)
    rows = "0,a,retry\n" * 60 + "0,a,sum\n0,b,sum\n1,b,sum\n1,c,sum\n"
    path = _write(tmp_path, "round,client,kind\n" + rows)
    found = read_log(path, where={"kind": ["sum"]})
    assert found.participation.astype(int).tolist() == [[1, 1, 0], [0, 1, 1]]
