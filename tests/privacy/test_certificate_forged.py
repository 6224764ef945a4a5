"""Forged certificates.

True of a matrix that is not the log's, or saying what nobody would see.
Each is written by hand, so that no audit stands between the forger and the checker.
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import pathlib
import time

import pytest

from mrsa_watch import mrsa_check

LOG = b"round,client\n1,anna\n1,bob\n2,anna\n2,bob\n"
READING = {"layout": "long", "delimiter": ",", "header": 1, "columns": ["round", "client", None],
           "where": []}  # fmt: skip
LINES = (
    b'{"format": "mrsa-jax participation log", "version": 1, "system": "x", "aggregation": '
    b'"secagg+", "pseudonyms": null, "run": 0}\n'
)
MATRIX = {"layout": "matrix", "delimiter": ",", "header": 1, "left_out": ["v"]}
WHERE = {**READING, "where": [["status", ["ok"]]]}
BOTH = [{"claim": "strong T", "value": 2},
        {"claim": "not exposed", "clients": [0, 1]},
        {"claim": "weak T at most", "value": 2, "combination": [[0, 1]]},
        {"claim": "plain sum", "value": 2, "combination": [[0, 1]]},
        {"claim": "weak T at least", "value": 2, "by": "classes"},
        {"claim": "hidden among at least", "clients": [0, 1], "value": "2",
         "vector": None}]  # fmt: skip
TOGETHER = {
    "clients": ["anna", "bob"],
    "rounds": ["1", "2"],
    "sums": [[[0, 1], [1, 1]]] * 2,
}
IN_ROWS = {**TOGETHER, "rounds": ["0", "1"]}


def forged(
    log: bytes = LOG, reading: object = READING, **changes: object
) -> dict[str, object]:
    """Return a certificate of two clients who move together, or of something else."""
    return copy.deepcopy(
        {
            "format": mrsa_check.FORMAT,
            "version": 1,
            "made by": "somebody",
            "log": {"name": "log.csv", "sha256": hashlib.sha256(log).hexdigest()},
            "reading": reading,
            **TOGETHER,
            "coalition": [],
            "kernel": [],
            "claims": BOTH,
            "no short proof": [],
        }
        | changes
    )


def outcome(made: object, log: bytes = LOG, **options: object) -> tuple[int, str]:
    """Return the exit status and all that is printed."""
    data = made if isinstance(made, bytes) else json.dumps(made).encode()
    found = mrsa_check.check(data, log, **options)
    statuses = {status for status, _ in found}
    text = "\n".join(f"{status}: {said}" for status, said in found)
    return 1 if "REFUSED" in statuses else 3 if "not checked" in statuses else 0, text


def test_what_is_forged_below_is_checked_before_it_is_forged() -> None:
    assert outcome(forged())[0] == 0
    assert outcome(forged(), asked=["weak T >= 2"])[0] == 0


def _set(value: object, *path: object):
    def change(made):
        for key in path[:-1]:
            made = made[key]
        made[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("x", "comment"),
        _set("x", "log", "comment"),
        _set("x" * 400, "reading", "comment"),
        _set("x", "claims", 0, "comment"),
        _set("x", "claims", 5, "by"),
        _set(["bob"], "reading", "left_out"),
        lambda made: made.pop("made by"),
        lambda made: made["reading"].pop("where"),
        _set([], "claims"),
        _set(True, "version"),
        _set(True, "sums", 0, 0, 1),
        _set(True, "reading", "header"),
        _set(1.0, "sums", 0, 0, 1),
        _set([], "claims", 1, "clients"),
        _set([], "claims", 5, "clients"),
        _set("classes\x1b[2J\rchecked: all of it", "claims", 4, "by"),
        _set("trust", "claims", 4, "by"),
        _set({"anna": 1}, "made by"),
        _set(["x" * 20_000], "no short proof"),
        _set([*TOGETHER["sums"], []], "sums"),
        _set("01", "claims", 1, "clients"),
        _set(["round", "round", None], "reading", "columns"),
        _set(["round", "client"], "reading", "columns"),
        _set(";", "reading", "delimiter"),
        _set(0, "reading", "header"),
        _set("0" * 5000, "claims", 0, "value"),
    ],
)
def test_a_certificate_of_another_form_is_refused(change) -> None:
    made = forged()
    change(made)
    status, text = outcome(made)
    assert status == 1, text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("log", "reading", "matrix"),
    [
        # 10:00 would be lost: all rounds of a day are one, with clients of one name
        # each
        (
            b"day,round,client\n2026-1-1 1,a x\n",
            {**READING, "delimiter": " ", "columns": ["0", "1", None], "header": 0},
            {},
        ),
        (
            b"day;who,client\n1;a,anna\n1;b,bob\n2;a,anna\n2;b,bob\n",
            {**READING, "delimiter": ";", "columns": ["day", "who,client", None]},
            {**TOGETHER, "clients": ["a,anna", "b,bob"]},
        ),
        # the first row is no header: anna alone was in it
        (
            b"0,1\n1,1\n1,1\n",
            {**MATRIX, "left_out": []},
            {**IN_ROWS, "clients": ["0", "1"]},
        ),
        (
            b"3,9\n1,anna\n1,bob\n2,anna\n2,bob\n",
            {**READING, "columns": ["3", "9", None]},
            {},
        ),
        # of another's lines those with a status of its own would be passed over
        (
            b'{"round": 1, "clients": ["anna", "bob"]}\n'
            b'{"round": 2, "clients": ["anna", "bob"]}\n'
            b'{"round": 3, "clients": ["anna"], "status": "ok"}\n',
            {"layout": "lines"},
            {},
        ),
        (
            LINES
            + b'{"round": 1, "clients": ["anna", "bob"]}\n{"round": 2, "clients": ["anna", '
            b'"bob"]}\n{"round": 3, "clients": ["anna"], "status": "ok"}\n',
            {"layout": "lines"},
            {},
        ),
        (
            LINES
            + b'{"round": 1, "clients": ["anna", "bob"]}\n{"round": 2, "clients": ["anna"], '
            b'"clients": ["anna", "bob"]}\n',
            {"layout": "lines"},
            {},
        ),
        (
            LINES
            + b'{"round": 1, "clients": ["anna", "bob"]}\n{"round": 2, "clients": ["anna", '
            b'"bob"], "weigths": [1, 2]}\n',
            {"layout": "lines"},
            {},
        ),
        # one client under two names
        (
            "round,client\n1,anna\n1,anna\u200b\n2,anna\n2,anna\u200b\n".encode(),
            READING,
            {**TOGETHER, "clients": ["anna", "anna\u200b"]},
        ),
        (
            b"round,client\n1,1\n1,1.0\n2,1\n2,1.0\n",
            READING,
            {**TOGETHER, "clients": ["1", "1.0"]},
        ),
        # nothing is left
        (
            b"round,client,status\n1,anna,ok\n",
            {**WHERE, "where": [["status", []]]},
            {
                "clients": [],
                "rounds": [],
                "sums": [],
                "claims": [{"claim": "strong T", "value": None}],
            },
        ),
    ],
)
def test_a_reading_that_is_not_the_logs_is_refused(log, reading, matrix) -> None:
    status, text = outcome(forged(log, reading, **matrix), log)
    assert status == 1, text
    assert "claim 1" not in text


CUT = b"a,v,anna,bob\n7,0,1,1\n8,1,1,1\n"
DROPPED = b"round,client,status\n1,anna,ok\n1,bob,ok\n2,anna,ok\n2,bob,ok\n2,victim,lost\n2,eve,no\n"


@pytest.mark.parametrize(
    ("log", "reading", "matrix", "told"),
    [
        (
            CUT,
            {**MATRIX, "left_out": ["a", "v"]},
            IN_ROWS,
            [
                "LEFT OUT: 2 of 4 columns",
                "column 'v', which is not 0 in 1 of 2 rows",
                "column 'a', which is not 0 in 2 of 2 rows",
            ],
        ),
        (
            DROPPED,
            WHERE,
            TOGETHER,
            [
                "LEFT OUT where 'status' is not 'ok': 2 of 6 rows, with all rows of 2 "
                "of 4 clients: "
                "'victim', 'eve'"
            ],
        ),
        (
            DROPPED,
            {
                **READING,
                "where": [
                    ["status", ["ok", "lost"]],
                    ["client", ["anna", "bob", "eve"]],
                ],
            },
            TOGETHER,
            [
                "where 'status' is not 'ok' or 'lost': 1 of 6 rows, with all rows of 1 "
                "of 4 clients: "
                "'eve'",
                "where 'client' is not 'anna' or 'bob' or 'eve': 1 of 6 rows, with all "
                "rows of "
                "1 of 4 clients: 'victim'",
                "by all of these together: 2 of 6 rows, with all rows of 2 "
                "of 4 clients: 'victim', 'eve'",
            ],
        ),
    ],
)
def test_what_a_reading_leaves_out_is_told_and_needs_a_word(
    log, reading, matrix, told
) -> None:
    made = forged(log, reading, **matrix)
    status, text = outcome(made, log)
    assert status == 0
    for line in told:
        assert line in text
    status, text = outcome(made, log, asked=["weak T >= 2"])
    assert status == 3
    assert f"--reading '{json.dumps(reading)}'" in text
    assert outcome(made, log, asked=["weak T >= 2"], reading=reading)[0] == 0
    assert outcome(made, log, reading=READING)[0] == 1


@pytest.mark.smoke
def test_columns_that_are_not_used_and_lines_that_count_for_nothing_are_told() -> None:
    log = b"round,client,group\n1,anna,1\n1,bob,2\n2,anna,1\n2,bob,2\n"
    assert "not used: column 'group'" in outcome(forged(log), log)[1]
    log = LINES + (
        b'{"round": 1, "clients": ["anna", "bob"]}\n{"round": 2, "clients": ["anna", '
        b'"bob"]}\n{"round": 3, "status": "aborted"}\n{"round": 3#torn\n'
    )
    status, text = outcome(forged(log, {"layout": "lines"}), log, asked=["weak T >= 2"])
    assert status == 0
    assert "1 lines are of sums that were aborted" in text
    assert "1 lines are torn" in text


def test_columns_of_other_names_need_a_word() -> None:
    """Rounds and clients changed about: the transposed matrix."""
    log = b"client,round\nanna,1\nbob,1\nanna,2\nbob,2\n"
    swapped = {**READING, "columns": ["client", "round", None]}
    made = forged(log, swapped, clients=["1", "2"], rounds=["anna", "bob"])
    assert outcome(made, log, asked=["weak T >= 2"])[0] == 3
    assert outcome(made, log, asked=["weak T >= 2"], reading=swapped)[0] == 0


@pytest.mark.parametrize(
    ("claim", "status"),
    [
        ("weak T >= 2", 0),
        ("weak T>=1", 0),
        ("weak T >= 3", 1),
        ("weak T = 2", 0),
        ("weak T <= 2", 0),
        ("weak T <= 1", 1),
        ("strong T >= 2", 0),
        ("strong T = 3", 1),
        ("plain sum >= 2", 0),
        ("plain sum = 2", 0),
        ("plain sum >= 3", 1),
        ("rank = 1", 1),
        ("not exposed", 0),
        ("not exposed anna 'bob'", 0),
        ("not exposed eve", 1),
        ("not exposed carl", 1),
        ("exposed anna", 1),
        ("hidden among >= 2", 0),
        ("hidden among >= 3/2 bob", 0),
        ("hidden among >= 2.01", 1),
        ("weak T >= 2 anna", 1),
        ("weak T >= 1e9", 1),
        ("all is well", 1),
        ("exposed", 1),
        ("not exposed 'anna", 1),
        ("hidden among <= 9", 1),
        ("", 1),
        ("weak T > 1", 1),
        ("weak T >= 1/0", 1),
    ],
)
def test_what_is_asked_for_must_follow(claim, status) -> None:
    """Eve is in no sum: of her nothing is shown that anybody would ask for."""
    made = forged(clients=["anna", "bob", "eve"])
    assert outcome(made)[0] == 0
    assert outcome(made, asked=["weak T >= 1", claim])[0] == status


@pytest.mark.parametrize(
    ("kept", "claim", "status"),
    [
        ([0], "weak T >= 2", 0),
        ([2], "weak T >= 2", 1),
        ([4], "weak T >= 2", 0),
        ([2], "weak T <= 2", 0),
        ([3], "weak T <= 2", 0),
        ([3], "plain sum <= 2", 0),
        ([2], "plain sum <= 2", 1),
        ([4], "not exposed", 0),
        ([1], "not exposed", 0),
        ([4], "strong T >= 2", 1),
        ([2], "strong T >= 2", 1),
    ],
)
def test_only_claims_that_are_there_show_something(kept, claim, status) -> None:
    made = forged(claims=[BOTH[k] for k in kept])
    assert outcome(made, asked=[claim])[0] == status


def test_a_claim_that_is_refused_or_left_out_shows_nothing() -> None:
    weak = {"claim": "weak T at least", "value": 5, "by": "classes"}
    status, text = outcome(forged(claims=[weak]), asked=["weak T >= 5"])
    assert status == 1
    assert text.count("REFUSED") == 2
    assert outcome(forged(claims=[{"claim": "peace"}]), asked=["weak T >= 1"])[0] == 1


def test_whom_the_server_knows_is_asked_for_too() -> None:
    """Who is exposed could be put among those whose updates the server knows anyway."""
    log = LOG + b"2,victim\n"
    sums = [[[0, 1], [1, 1]], [[0, 1], [1, 1], [2, 1]]]
    made = forged(log, clients=["anna", "bob", "victim"], sums=sums, coalition=[2])
    assert outcome(made, log)[0] == 0
    for claim in ("weak T >= 2", "not exposed"):
        status, text = outcome(made, log, asked=[claim])
        assert status == 1
        assert "the server knows 'victim'" in text
        assert outcome(made, log, asked=[claim], coalition=["victim"])[0] == 0
        assert outcome(made, log, asked=[claim], coalition=["anna"])[0] == 1
    assert (
        outcome(made, log, asked=["not exposed victim"], coalition=["victim"])[0] == 1
    )


def test_exposed_clients_are_shown_with_who_has_to_join() -> None:
    log = b"round,client\n1,anna\n1,bob\n2,carl\n"
    claims = [
        {"claim": "exposed", "clients": [2], "others": [], "combination": [[1, 1]]},
        {"claim": "exposed", "clients": [0], "others": [1], "combination": [[0, 1]]},
    ]
    made = forged(
        log,
        clients=["anna", "bob", "carl"],
        sums=[[[0, 1], [1, 1]], [[2, 1]]],
        claims=claims,
    )
    for claim, status in [
        ("exposed carl", 0),
        ("exposed anna", 1),
        ("exposed anna with bob", 0),
        ("exposed carl with bob", 0),
        ("exposed anna with carl", 1),
        ("not exposed anna", 0),
        ("not exposed carl", 1),
        ("weak T <= 1", 0),
    ]:
        assert outcome(made, log, asked=[claim])[0] == status, claim


def test_the_matrix_of_a_log_that_cannot_be_read_shows_nothing() -> None:
    status, text = outcome(forged(reading=None), asked=["weak T >= 2"])
    assert status == 3
    assert (
        "not checked: --claim 'weak T >= 2': of a matrix that is not known to be"
        in text
    )


@pytest.mark.parametrize(
    "text",
    [
        '"claims": [{"claim": "strong T", "value": 9, "value": 2}]',
        '"version": 1.0',
        '"version": 1e0',
        '"coalition": [-0.0]',
        '"coalition": NaN',
        '"kernel": [[Infinity]]',
        '"claims": ' + "[" * 5000 + "]" * 5000,
        '"claims": [1e999999999]',
        '"claims": [' + "9" * 10**6 + "]",
        '"kernel": [["' + "9" * 5000 + '"]]',
    ],
)
def test_json_that_has_two_readings_is_refused(text: str) -> None:
    data = json.dumps(
        {key: value for key, value in forged().items() if f'"{key}"' not in text}
    )
    assert outcome(f"{data[:-1]}, {text}}}".encode())[0] == 1


@pytest.mark.long("log0-reading0")
@pytest.mark.parametrize(
    ("log", "reading"),
    [
        (b"0,1\n" * 2**20, {**MATRIX, "left_out": [], "header": 0}),
        (b"0," * 2**24 + b"0\n", {**MATRIX, "left_out": [], "header": 0}),
        (b"round,client\n" + b"1,a\n" * 10, READING),
    ],
)
def test_a_log_that_unfolds_is_refused_before_it_is_held(
    log, reading, monkeypatch
) -> None:
    monkeypatch.setattr(mrsa_check, "MOST_ENTRIES", 10_000)
    packed = gzip.compress(log, 1)
    status, text = outcome(forged(packed, reading), packed)
    assert status == 1
    assert "claim 1" not in text


def test_a_certificate_that_unfolds_is_refused_before_it_is_read(monkeypatch) -> None:
    monkeypatch.setattr(mrsa_check, "MOST_ITEMS", 10_000)
    status, text = outcome(forged(kernel=[[]] * 10_001))
    assert status == 1
    assert "10000 items" in text


def _one_row(clients: int, **changes: object) -> tuple[dict[str, object], bytes]:
    """Return a certificate of clients of which two each move together, and its log."""
    sums = [[[2 * j, 1], [2 * j + 1, 1]] for j in range(clients // 2)]
    log = b"".join(
        b",".join(b"%d" % (i // 2 == j) for i in range(clients)) + b"\n"
        for j in range(clients // 2)
    )
    names = {
        "clients": [str(i) for i in range(clients)],
        "sums": sums,
        "rounds": [str(j) for j in range(clients // 2)],
    }
    return forged(log, {**MATRIX, "header": 0, "left_out": []}, **names | changes), log


WORK = {
    "search": {
        "claim": "weak T at least",
        "value": 9,
        "by": "kernel",
        "modulus": 1_048_573,
        "vectors": 60,
        "steps": 0,
    },
    "rank": {
        "claim": "rank",
        "value": 60,
        "rows": [*range(60)],
        "columns": [*range(60)],
        "modulus": 2**61 - 1,
    },
    "hidden": {
        "claim": "hidden among at least",
        "clients": [0, 1],
        "value": "9",
        "vector": [0] * 60,
    },
    "names": {"claim": "not exposed", "clients": [*range(120)]},
}


@pytest.mark.parametrize("kind", WORK)
def test_steps_bound_the_time(kind: str) -> None:
    """No kind of work costs more than microseconds for each step, however it is blown up."""
    vectors = [["9" * 4000] * 60 for _ in range(60)] if kind == "search" else []
    made, log = _one_row(120, claims=[WORK[kind]] * 200)
    checker = mrsa_check.Checker()
    checker.read(*checker.load(json.dumps(made).encode()))
    checker.kernel = [[int(value) for value in vector] for vector in vectors]
    checker.longest, checker.left = 13_300, 300_000
    start = time.process_time()
    for claim in made["claims"]:
        try:
            checker.run(claim)
        except (mrsa_check.Refused, mrsa_check.Unchecked):
            continue
    assert time.process_time() - start < 3e-6 * 300_000 + 0.1
    assert outcome(made, log, steps=10)[0] == 3


def test_the_command_takes_claims(tmp_path: pathlib.Path, capsys) -> None:
    log = LOG + b"2,victim\n"
    sums = [[[0, 1], [1, 1]], [[0, 1], [1, 1], [2, 1]]]
    made = forged(log, clients=["anna", "bob", "victim"], sums=sums, coalition=[2])
    paths = [str(tmp_path / "cert.json"), str(tmp_path / "log.csv")]
    (tmp_path / "cert.json").write_text(json.dumps(made))
    (tmp_path / "log.csv").write_bytes(log)
    ask = [
        "--claim",
        "weak T >= 2",
        "--claim",
        "not exposed bob",
        "--coalition",
        "victim",
    ]
    assert mrsa_check.main([*paths, *ask]) == 0
    out = capsys.readouterr().out
    assert "checked: --claim 'not exposed bob': " in out
    assert mrsa_check.main([*paths, *ask, "--reading", json.dumps(READING)]) == 0
    assert mrsa_check.main([*paths, *ask, "--reading", "{}"]) == 1
    assert mrsa_check.main([*paths, *ask[:2]]) == 1
    for words in (
        ["--claim", "weak T"],
        ["--reading", "{"],
        ["--claim", "not exposed 'bob"],
    ):
        with pytest.raises(SystemExit) as caught:
            mrsa_check.main([*paths, *words])
        assert caught.value.code == 2
    assert "--claim" in capsys.readouterr().err
