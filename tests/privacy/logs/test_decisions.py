"""Logs that can be read in two ways.

Each is refused, and the command at its end reads it.
The first of each kind are samples of what passed a gate, the others their like. What
the command reads was written down by hand.
"""

from __future__ import annotations

import gzip
import inspect
import json
import lzma
import pathlib
import random
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from refusals import pasted

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax.cli import main
from mrsa_jax.privacy import ParticipationLog, audit, certificate, read_log
from mrsa_watch import mrsa_check
from mrsa_watch.logs._identity import likeness


class Sample(NamedTuple):
    """A log with / for the ends of lines, a text in its refusal, and what its command reads.

    Attributes:
        lines: The log.
        told: What the refusal says.
        sums: The sums, as `a b|a*2 c`; None where a refusal has no command.
        flags: What the command must hold.
    """

    lines: str
    told: str
    sums: str | None
    flags: str = ""


def _rows(name: str, clients: str = "site-1 site-2 site-3") -> str:
    """Return a log in which a name is beside clients, the first of whom are alone."""
    a, b, c = clients.split()
    return f"round,client/1,{a}/1,{name}/2,{b}/2,{c}/2,{name}/3,{b}/3,{name}"


def _columns(name: str, clients: str = "site-1,site-2,site-3") -> str:
    return f"round,{clients},{name}/1,1,0,0,1/2,0,1,1,0/3,0,1,0,1"


SITES = "site-1|site-2 site-3|site-2"
ODD_ROWS = {
    name: Sample(_rows(name), "which names none, or is unlike most", SITES, "--where")
    for name in (
        "server",
        "aggregator",
        "-1",
        "admin",
        "rank0",
        "None",
        "null",
        "N/A",
        "?",
        "coordinator",
        "-99",
        "undefined",
        "#N/A",
        "TOTAL",
        "mean",
        "Global model",
        "anna",
        "superlink",
        "*",
    )
}
ODD_ROWS |= {
    f"{name} beside {kind}": Sample(
        _rows(name, clients), "which names none", None, "--where"
    )
    for name, kind, clients in (
        ("server", "numbers", "1 2 3"),
        ("-1", "numbers", "4 5 6"),
        ("total", "words", "Ulm Bonn Köln"),
        ("x9", "letters", "a b c"),
        ("hello", "hashes", "a3f19c b771e0 c09d4f"),
        (
            "agg",
            "uuids",
            " ".join(f"{i}b4e28ba-2fa1-11d2-883f-0016d3cca4" for i in range(3)),
        ),
    )
}
ODD_COLUMNS = {
    name: Sample(_columns(name), "a column", SITES, "--ignore-columns")
    for name in (
        "is_eval",
        "converged",
        "total",
        "seed",
        "epoch",
        "plateau",
        "has_failed",
        "server",
        "Unnamed: 9",
    )
}
ODD_COLUMNS |= {
    f"{name} beside hospitals": Sample(
        _columns(name, "Charité,Mayo,Ulm"),
        "a column",
        "Charité|Mayo Ulm|Mayo",
        "--ignore-columns",
    )
    for name in (
        "is_eval",
        "converged",
        "total",
        "seed",
        "epoch",
        "wasSkipped",
        "num_clients",
        "early_stopping",
        "stage",
        "round_ok",
    )
}
LONG_IDS = [str(1582218195625938945 + i) for i in range(3)]
NOT_WHOLE = {
    name: Sample(
        _rows(names[0], names[1:] and " ".join(names[1:])),
        "lost digits or letters",
        None,
        "--odd-names keep",
    )
    for name, names in {
        "floats": [
            "1.582218195625939e+18",
            *(repr(float(i) + 4096 * k) for k, i in enumerate(LONG_IDS, 1)),
        ],
        "a spreadsheet's": ["1.58E+18", "1.59E+18", "1.60E+18", "1.61E+18"],
        "zeros": [
            i[:-3] + "000"
            for i in (
                "1582218195625939945",
                "1582218195625940945",
                "1582218195625941945",
                "1582218195625942945",
            )
        ],
        "cut": ["St. Mary of...", "site-1", "site-2", "site-3"],
        "dates": ["2-Feb", "1-7", "1-8", "1-9"],
        "wrapped": ["-2147483641", "2147483655", "2147483656", "2147483657"],
        "one in exponents": ["1e3", "17", "18", "19"],
    }.items()
}
ALIKE = {
    name: Sample(
        f"round,client/1,{names[0]}/1,{names[2]}/1,{names[3]}/2,{names[1]}/2,{names[2]}",
        "one way to write a client",
        "{0} {2} {3}|{0} {2}".format(*names),
        "--alike-names same",
    )
    for name, names in {
        "case": ["Site-1", "site-1", "site-2", "site-3"],
        "a dash": ["site-1", "site\u20131", "site-2", "site-3"],
        "ports": ["10.0.0.1:5000", "10.0.0.1:5001", "10.0.0.2:5000", "10.0.0.3:5000"],
        "zeros": ["01", "1", "2", "3"],
        "an accent": ["Köln", "KÖLN", "Ulm", "Bonn"],
        "another alphabet": ["anna", "аnna", "bob", "carl"],
        "underscores": ["site_1", "site-1", "site-2", "site-3"],
    }.items()
}
NUMBERS = {
    "points of thousands": Sample(
        "round;client;weight/1;a;1.500/1;b;900/2;a;2.000",
        "read in one way only",
        "a*5 b*3|a",
        "--decimal comma",
    ),
    "commas of thousands": Sample(
        'round,client,weight/1,a,"1,500"/1,b,900/2,a,1',
        "read in one way only",
        "a*5 b*3|a",
        "--decimal point",
    ),
    "decimal commas": Sample(
        "round;client;weight/1;a;0,5/1;b;1,25/2;a;3",
        "read in one way only",
        "a*2 b*5|a",
        "--decimal comma",
    ),
    "spaces of thousands": Sample(
        "round;client;weight/1;a;1 500/1;b;900/2;a;3",
        "read in one way only",
        "a*5 b*3|a",
        "--decimal",
    ),
    "both marks": Sample(
        "round;client;weight/1;a;1.500,5/1;b;3.001/2;a;3",
        "read in one way only",
        "a b*2|a",
        "--decimal comma",
    ),
    "samples": Sample(
        'round,client,num_examples/1,a,"1,500"/1,b,900/2,a,700/2,b,100',
        "a decision on column",
        "a*5 b*3|a*7 b",
        "--decimal point",
    ),
}
LISTS = {
    form: Sample(
        f"round,client/1,{one}/2,{two}/3,{three}",
        "one client in each cell",
        sums,
        "--client-separator",
    )
    for form, one, two, three, sums in (
        ("3;5", "3;5", "5;7", "3", "3 5|5 7|3"),
        ("[3, 5]", '"[3, 5]"', '"[5, 7]"', "[3]", "3 5|5 7|3"),
        ("3|5", "3|5", "5|7", "3", "3 5|5 7|3"),
        ("3 5 7", "3 5 7", "5 7", "3", "3 5 7|5 7|3"),
        ("a,b", '"a,b"', '"b,c"', '"a,c"', "a b|b c|a c"),
        (
            "site-1;site-2",
            "site-1;site-2",
            "site-2",
            "site-3",
            "site-1 site-2|site-2|site-3",
        ),
        ("[3 5]", "[3 5]", "[5 7]", "[3]", "3 5|5 7|3"),
        ("{3, 5}", '"{3, 5}"', "5", "7", "3 5|5|7"),
        ("['a', 'b']", "\"['a', 'b']\"", "\"['b']\"", "\"['c']\"", "a b|b|c"),
        ("3+5", "3+5", "5+7", "3", "3 5|5 7|3"),
        ("anna|bob", "anna|bob", "anna", "carl", "anna bob|anna|carl"),
        ("a;b;", "a;b;", "b;", "a;", "a b|b|a"),
    )
}
SAMPLES = {
    "rows": ODD_ROWS,
    "columns": ODD_COLUMNS,
    "not whole": NOT_WHOLE,
    "alike": ALIKE,
    "numbers": NUMBERS,
    "lists": LISTS,
}
CASES = [(kind, name) for kind, own in SAMPLES.items() for name in own]


def _sums(log: ParticipationLog) -> list[dict[str, Fraction]]:
    """Return the clients of each sum with their weights, the first of which is 1."""
    rows = []
    for row in log.participation.tolist():
        own = {
            str(name): int(value)
            for name, value in zip(log.clients, row, strict=True)
            if value
        }
        rows.append(own)
    return [_scaled(row) for row in rows]


def _scaled(row: dict[str, int]) -> dict[str, Fraction]:
    least = min(row.values())
    return {name: Fraction(value, least) for name, value in sorted(row.items())}


def _truth(sums: str) -> list[dict[str, Fraction]]:
    rows = []
    for one in sums.split("|"):
        parts = [part.partition("*") for part in one.split()]
        rows.append(_scaled({name: int(weight or 1) for name, _, weight in parts}))
    return rows


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_each_is_refused_and_its_command_reads_it(
    kind: str, name: str, tmp_path: pathlib.Path
) -> None:
    sample = SAMPLES[kind][name]
    path = tmp_path / "log.csv"
    path.write_text(
        sample.lines.replace("/1", "\n1").replace("/2", "\n2").replace("/3", "\n3")
        + "\n"
        if name != "N/A"
        else _rows("N/A").replace("/", "\n").replace("N\nA", "N/A")
    )
    with pytest.raises(ConfigurationError, match=sample.told) as refused:
        read_log(path)
    assert sample.flags in str(refused.value).splitlines()[-1]
    found = pasted(refused.value, path)
    assert found is not None
    if sample.sums is not None:
        assert _sums(found) == _truth(sample.sums)
    elif kind == "rows":
        assert [len(row) for row in _sums(found)] == [1, 2, 1]


def test_each_is_asked_about_in_other_forms_too(tmp_path: pathlib.Path) -> None:
    """Parquet, tables in memory, JSON Lines; wide tables under another name."""
    table = pd.DataFrame(
        {"round": [1, 1, 2, 2], "client": ["site-1", "server", "site-2", "server"]}
    )
    table.to_parquet(tmp_path / "log.parquet")
    lines = "".join(json.dumps(row) + "\n" for row in table.to_dict("records"))
    (tmp_path / "log.jsonl").write_text(lines)
    wide = pd.crosstab(table["round"], table["client"])
    wide.to_parquet(tmp_path / "wide.parquet")
    for log in (
        table,
        tmp_path / "log.parquet",
        tmp_path / "log.jsonl",
        wide,
        tmp_path / "wide.parquet",
    ):
        with pytest.raises(
            ConfigurationError, match=r"a column 'server'|'server', which names none"
        ) as refused:
            read_log(log)
        found = pasted(refused.value, log)
        assert found is not None
        assert _sums(found) == _truth("site-1|site-2")
        kept = read_log(log, odd_names="keep")
        assert "server" in kept.clients
        assert kept.decisions == ("odd_names=keep",)
        assert (
            "Names and numbers were read with odd_names=keep."
            in audit(kept, effort=0).sentences()
        )


def test_columns_of_one_client_are_joined(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("round,Site-1,site-2,site-3,site-1\n1,1,1,1,0\n2,0,1,0,1\n")
    with pytest.raises(
        ConfigurationError, match="one way to write a client"
    ) as refused:
        read_log(path)
    found = pasted(refused.value, path)
    assert found is not None
    assert _sums(found) == _truth("Site-1 site-2 site-3|Site-1 site-2")
    assert len(read_log(path, alike_names="different").clients) == 4
    path.write_text("round,Site-1,site-2,site-1\n1,1,1,1\n2,0,1,1\n")
    with pytest.raises(ConfigurationError, match="each client once in a round"):
        read_log(path, alike_names="same")


def test_floats_that_several_integers_share() -> None:
    for kind, first in ((np.float64, 2**53), (np.float32, 2**24), (np.float16, 2**11)):
        for base, is_shared in ((first, True), (first - 6, False)):
            ids = [base, base + 2, base + 4]
            table = pd.DataFrame({"round": [1, 2, 2], "client": np.array(ids, kind)})
            for log in (
                table,
                pa.Table.from_pandas(table) if kind != np.float16 else table,
            ):
                if is_shared:
                    with pytest.raises(ConfigurationError, match="lost digits"):
                        read_log(log)
                else:
                    assert read_log(log).clients == tuple(ids)


def test_ids_that_only_look_so_are_read(tmp_path: pathlib.Path) -> None:
    """Random ids of 64 bits, hexadecimal ones that look like exponents, short numbers of NumPy."""
    rng = random.Random(3)
    kinds = [
        [str(rng.getrandbits(63)) for _ in range(9)],
        [str(rng.getrandbits(63) - 2**62) for _ in range(40)],
        ["12345e78", "a0f19c22", "77b1c0de", "00ff12ab"],
        ["7.000e+00", "8.000e+00", "1.200e+01"],
        ["St. Mary 2", "Mayo", "Charité", "Köln Nord"],
        ["phone-1", "phone-2", "phone-3", "tablet-1", "tablet-2"],
        ["clinic, north", "clinic, south", "anna"],
        ["server-1", "server-2", "server-3"],
        ["Smith & Co", "Jones & Sons", "Müller"],
        ["a b", "c d", "e f"],
    ]
    for names in kinds:
        lines = "".join(f'{j},"{name}"\n' for j in (1, 2) for name in names)
        (tmp_path / "log.csv").write_text("round,client\n" + lines)
        assert len(read_log(tmp_path / "log.csv").clients) == len(names)


# ---- The order of rounds.

ORDERED = {
    "numbers": (["10", "9", "1"], ["1", "9", "10"]),
    "one text": (["round-10", "round-9"], ["round-9", "round-10"]),
    "dates": (["2026-02-01", "2026-01-31"], ["2026-01-31", "2026-02-01"]),
    "slashes": (["2026/2/1", "2026/1/31"], ["2026/1/31", "2026/2/1"]),
    "the end of summer time": (
        ["2026-10-25T02:10:00+01:00", "2026-10-25T02:30:00+02:00"],
        ["2026-10-25T02:30:00+02:00", "2026-10-25T02:10:00+01:00"],
    ),
    "a Z": (
        ["2026-10-25T01:00:00Z", "2026-10-25T02:30:00+02:00"],
        ["2026-10-25T02:30:00+02:00", "2026-10-25T01:00:00Z"],
    ),
    "days of one month": (["12/03/2026", "11/03/2026"], ["11/03/2026", "12/03/2026"]),
}
UNORDERED = {
    "hashes": ["b9ffa0", "a1ff3c"],
    "months": ["March", "April", "May"],
    "days and months": ["03/01/2026", "01/02/2026"],
    "German dates": ["03.01.2026", "01.02.2026"],
    "thousands": ["999", "1,000", "1,001"],
    "points of thousands": ["999", "1.000", "1.001"],
    "hexadecimal": ["9a", "10b"],
    "words": ["warmup", "main"],
    "with and without a zone": ["2026-10-25T02:30:00+02:00", "2026-10-25T02:31:00"],
    "two numbers": ["2-1", "1-9"],
    "weeks": ["week 51 of 2025", "week 2 of 2026"],
}


@pytest.mark.parametrize("name", ORDERED)
def test_names_that_show_their_order(name: str, tmp_path: pathlib.Path) -> None:
    written, right = ORDERED[name]
    (tmp_path / "log.csv").write_text(
        "round;client\n" + "".join(f"{j};a\n" for j in written)
    )
    log = read_log(tmp_path / "log.csv")
    assert (list(map(str, log.rounds)), log.is_ordered) == (right, True)


@pytest.mark.parametrize("name", UNORDERED)
def test_names_that_do_not(name: str, tmp_path: pathlib.Path) -> None:
    """They keep the file's order, and what needs the order of time asks for it."""
    written = UNORDERED[name]
    path = tmp_path / "log.csv"
    path.write_text(
        "round;client\n" + "".join(f"{j};{c}\n" for j in written for c in "ab")
    )
    log = read_log(path)
    assert (list(log.rounds), log.is_ordered) == (written, False)
    assert "do not show their order" in " ".join(audit(log, effort=0).sentences())
    for call in (
        lambda: audit(log, effort=0, memory=0.9),
        lambda: mj.privacy.hidden_among(log, memory=0.9),
        lambda: mj.privacy.hidden_among_trajectory(log, memory=0.9),
    ):
        with pytest.raises(ConfigurationError, match="--round-order file"):
            call()
    assert mj.privacy.hidden_among(log).shape == (2,)
    file, by_name = (
        inspect.unwrap(read_log)(path, round_order=how) for how in ("file", "sorted")
    )
    assert list(file.rounds) == written
    assert file.is_ordered
    assert by_name.is_ordered
    assert sorted(by_name.rounds) == sorted(written)
    audit(file, effort=0, memory=0.9)


def test_tables_state_an_order() -> None:
    months = pd.CategoricalDtype(["March", "April", "May"], ordered=True)
    table = pd.DataFrame(
        {"round": ["May", "March", "April"], "client": ["a", "b", "c"]}
    )
    assert not read_log(table).is_ordered
    table["round"] = table["round"].astype(months)
    for log in (table, pa.Table.from_pandas(table)):
        assert read_log(log).rounds == ("March", "April", "May")
        assert read_log(log).is_ordered
    times = pd.DataFrame(
        {"round": pd.to_datetime(["2026-02-01", "2026-01-01"]), "client": [1, 2]}
    )
    assert read_log(times).is_ordered


def test_the_command_asks_for_the_order(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.csv"
    path.write_text("round,client\nmay,1\nmay,2\napril,1\n")
    words = ["audit", str(path), "--effort", "0", "--memory", "0.9"]
    assert main(words) == 2
    assert "--round-order file" in capsys.readouterr().err
    assert main([*words, "--round-order", "file"]) == 0
    found = [
        "advise",
        "--log",
        str(path),
        "--round-order",
        "file",
        "--trials",
        "0",
        "--json",
    ]
    assert main([*found, "--num-clients", "12", "--cohort-size", "4"]) == 0


# ---- What people have.

RECORDS = [{"round": 1, "clients": ["a", "b"]}, {"round": 2, "clients": ["b", "c"]}]
WHOLE = {
    "an array": RECORDS,
    "an object with a list": {"run": "x", "history": RECORDS},
    "a round under each key": {"1": ["a", "b"], "2": ["b", "c"]},
    "a record under each key": {
        f"round_{r['round']}": {"clients": r["clients"]} for r in RECORDS
    },
    "a column under each key": {"round": [1, 1, 2, 2], "client": ["a", "b", "b", "c"]},
    "objects of clients": [
        {"round": r["round"], "clients": [{"id": c} for c in r["clients"]]}
        for r in RECORDS
    ],
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("indent", [None, 2])
def test_whole_documents_of_json(
    name: str, indent: int | None, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "log.json").write_text(json.dumps(WHOLE[name], indent=indent))
    assert _sums(read_log(tmp_path / "log.json")) == _truth("a b|b c")


@pytest.mark.parametrize(
    "key",
    [
        "clients",
        "participating_clients",
        "participants",
        "client_ids",
        "cids",
        "aggregated_clients",
        "Node IDs",
        "members",
    ],
)
def test_lists_of_clients_by_their_names(key: str, tmp_path: pathlib.Path) -> None:
    records = [
        {"server_round": r["round"], key: r["clients"], "loss": 0.5} for r in RECORDS
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert _sums(read_log(path)) == _truth("a b|b c")


@pytest.mark.parametrize(
    ("more", "told", "sums"),
    [
        (
            {"num_examples": [[3, 5], [4, 5]]},
            "column 'num_examples'",
            "a*3 b*5|b*4 c*5",
        ),
        ({"dropped": [["b"], []]}, "column 'dropped'", "a|b c"),
        ({"survivors": [["a"], ["b", "c"]], "clients": None}, None, "a|b c"),
        ({"selected": [["a", "b", "c"], ["b", "c"]]}, None, "a b|b c"),
        (
            {"selected_clients": [["a", "b"], ["b", "c"]], "clients": None},
            "selected",
            "a b|b c",
        ),
        (
            {
                "sampled": [["a", "b"], ["b", "c"]],
                "failed": [["a"], []],
                "clients": None,
            },
            "sampled",
            "b|b c",
        ),
        ({"metrics": [{"x": 1}, {"x": 2}]}, "nested values", "a b|b c"),
    ],
)
def test_lists_beside_the_clients(
    more: dict[str, Any], told: str | None, sums: str, tmp_path: pathlib.Path
) -> None:
    records = []
    for n, record in enumerate(RECORDS):
        own = {key: value[n] for key, value in more.items() if value is not None}
        records.append(
            {
                key: value
                for key, value in {**record, **own}.items()
                if key not in more or more[key] is not None
            }
        )
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    if told is None:
        assert _sums(read_log(path)) == _truth(sums)
        return
    with pytest.raises(ConfigurationError, match=told) as refused:
        read_log(path)
    found = pasted(refused.value, path)
    assert found is not None
    assert _sums(found) == _truth(sums)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[{"round": 1, "clients": ["a"]}, 3]',
            "element 2: expected a JSON object; found '3'",
        ),
        ('[{"round": 1, "clients": ["a"]}', "expected ',' in a JSON array"),
        ('[{"round": 1, "clients": ["a"]}] []', "expected one JSON array; found"),
        ('{"a": [{"round": 1}], "b": [{"round": 2}]}', "expected one list of records"),
        ('{"round": [1, 2], "client": ["a"]}', "expected columns of one length"),
        ("[" * 10_000, "values nested too deeply"),
        ('{"round": 1, "clients": []}', "expected a record with clients; found none"),
        (
            '{"round": 1, "clients": ["a"]}\n{"round": 2}',
            "log:2: expected the name or number",
        ),
        ('{"round": 1, "clients": ["a", "a"]}', "each client once in a round"),
        (
            '{"round": 1, "clients": [["a"]]}',
            "plain values in column 'clients'; found nested",
        ),
    ],
)
def test_documents_that_are_no_logs(
    text: str, message: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        read_log(tmp_path / "log")


PLAIN = "round,client\n1,a\n1,b\n2,b\n"
TEXTS = {
    "UTF-16": PLAIN.encode("utf-16"),
    "UTF-16 without a mark": PLAIN.encode("utf-16-be"),
    "UTF-32": PLAIN.encode("utf-32"),
    "a mark of UTF-8": b"\xef\xbb\xbf" + PLAIN.encode(),
    "sep=": b'"sep=;"\r\n' + PLAIN.replace(",", ";").encode(),
    "comments": b"# by hand\n\n# on Monday\n"
    + PLAIN.replace("2,b", "# a restart\n2,b").encode(),
    "a header in a comment": b"# round client\n1 7\n1 8\n2 8\n",
    "zstd": pa.compress(PLAIN.encode(), codec="zstd", asbytes=True),
    "xz": lzma.compress(PLAIN.encode()),
    "xz twice": lzma.compress(PLAIN[:20].encode()) + lzma.compress(PLAIN[20:].encode()),
    "gzip of UTF-16": gzip.compress(PLAIN.encode("utf-16")),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_as_programs_write_them(name: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "log").write_bytes(TEXTS[name])
    assert [len(row) for row in _sums(read_log(tmp_path / "log"))] == [2, 1]


def test_a_row_that_was_commented_out_is_asked_about(tmp_path: pathlib.Path) -> None:
    for line in ("#2,a", "# 2,a"):
        (tmp_path / "log").write_text(PLAIN + line + "\n")
        with pytest.raises(
            ConfigurationError, match=r"a round's number|one way to write a round"
        ):
            read_log(tmp_path / "log")


def test_masked_values_are_no_values() -> None:
    masked = np.ma.array([[1, 1], [0, 1]], mask=[[0, 1], [0, 0]])
    for call in (
        mj.privacy.first_exposure,
        mj.privacy.integer_weights,
        mj.privacy.hidden_among,
        mj.privacy.strong_privacy,
    ):
        for P in (masked, list(masked)):
            with pytest.raises(ConfigurationError, match="no masked values"):
                inspect.unwrap(call)(P)
    plain = np.ma.array([[1, 1], [0, 1]])
    assert mj.privacy.first_exposure(plain).tolist() == [1, 1]


# ---- Certificates.


def test_the_checker_takes_for_alike_what_the_readers_do() -> None:
    """Random names and their damaged forms.

    What is alike for a reader is so for the checker.
    """
    rng = random.Random(7)
    marks = [*"aAbeO0o1lI-_ .:#'\"%&;\u2013\u200b\u0430\u00e9\u0301", "\u00c3\u00a9"]
    names = ["".join(rng.choices(marks, k=rng.randint(1, 6))) for _ in range(1500)]
    names += [
        f"{base}{rng.choice([':5000', '.0', '', 'e2'])}"
        for base in (
            "10.0.0.1",
            "host-1.lan",
            "007",
            "1,500",
            "0xA3F1",
            "ipv4:10.0.0.1",
            "b'a'",
        )
        for _ in range(9)
    ]
    by_reader: dict[Any, set[Any]] = {}
    for name in names:
        by_reader.setdefault(likeness(name), set()).add(mrsa_check.alike_client(name))
    assert all(len(found) == 1 for found in by_reader.values())
    forms = {mrsa_check.alike_client(name) for name in names}
    assert 0.9 * len(by_reader) < len(forms) <= len(by_reader) < len(set(names)) - 50


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        (
            "round,client\n1,Site-1\n1,site-2\n2,site-1\n",
            {"alike_names": "same"},
            "save it as CSV",
        ),
        (
            "round,client\n1,Site-1\n1,site-1\n",
            {"alike_names": "different"},
            "takes apart",
        ),
        ("round,client\n1,3;5\n2,5\n", {"client_separator": ";"}, "save it as CSV"),
        (
            "round;client;weight\n1;a;1.500\n1;b;1\n",
            {"decimal": "comma"},
            "save it as CSV",
        ),
        ("# x\n" + PLAIN, {}, "save it as CSV"),
    ],
)
def test_what_the_checker_cannot_read_has_no_certificate(
    text: str, settings: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    log = inspect.unwrap(read_log)(path, **settings)
    with pytest.raises(ConfigurationError, match=message):
        certificate(log, audit(log, effort=0), path)


def test_names_that_are_kept_are_certified(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("round,client\n1,server\n1,site-1\n2,site-1\n")
    log = read_log(path, odd_names="keep")
    made = certificate(log, audit(log, effort=0), path)
    found = mrsa_check.check(json.dumps(made).encode(), path.read_bytes())
    assert {status for status, _ in found} <= {"checked", "not checked, no short proof"}
