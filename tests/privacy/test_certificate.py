"""Certificates of the brute-force suite, checked in full, and every kind of proof tampered with."""

from __future__ import annotations

import copy
import dataclasses
import gzip
import hashlib
import itertools
import json
import pathlib
import random
from fractions import Fraction

import numpy as np
import pytest
import row_space_oracle as oracle
from weak_families import FAMILIES

from mrsa_jax.privacy import (
    ParticipationLog,
    _certificate_claims,
    audit,
    certificate,
    read_log,
)
from mrsa_watch import mrsa_check

# All that may have no short proof where searches are small.
UNPROVEN = (
    "no client is exposed earlier, by the round that the audit names",
    "no client is hidden among more than the audit says: floats",
    "no client's value follows if all values are whole numbers",
    "fewer than",  # others do not expose somebody
    "a plain sum that follows is over at least",
)


def made_of(
    path: pathlib.Path, text: str, effort: float = 0.0, coalition=(), **options
):
    """Return a certificate of a log in text, with its log and its audit."""
    path.write_text(text)
    log = read_log(path, **options)
    found = audit(log, effort=effort, coalition=list(coalition))
    return certificate(log, found, path), log, found


def as_text(matrix) -> str:
    return "".join(",".join(map(str, row)) + "\n" for row in matrix)


def check(made, log: bytes, steps: int = mrsa_check.MOST_STEPS):
    return mrsa_check.check(json.dumps(made).encode(), log, steps)


def statuses(found) -> set[str]:
    return {status for status, _ in found}


def signless(matrix):
    return all(value >= 0 for row in matrix for value in row)


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_certificates_of_the_families_are_checked_in_full(name, tmp_path) -> None:
    hold_family(name, 3, 0.0, tmp_path / "log.csv")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_certificate_of_the_families_is_checked_in_full(name, tmp_path) -> None:
    hold_family(name, 10**6, 0.01, tmp_path / "log.csv")


def hold_family(name: str, most: int, effort: float, path: pathlib.Path) -> None:
    """Check certificates in full.

    Each claim is true by exhaustive search in exact integers.
    """
    cases = [matrix for matrix, _ in FAMILIES[name]() if signless(matrix)]
    for matrix in cases[:: max(1, len(cases) // most)]:
        made, _, found = made_of(path, as_text(matrix), effort=effort, layout="matrix")
        said = check(made, path.read_bytes())
        assert statuses(said) <= {"checked", "not checked, no short proof"}, matrix
        assert is_true(made, matrix)
        values = {(c["claim"], c.get("value")) for c in made["claims"]}
        if found.weak.rank:
            weak = found.weak
            assert {
                ("weak T at most", weak.upper),
                ("weak T at least", weak.lower),
            } <= values
            assert ("rank", oracle.rank(matrix)) in values
        assert ("strong T", oracle.strong_privacy(matrix)) in values
        claimed = [
            c for c in made["claims"] if c["claim"] == "exposed" and not c["others"]
        ]
        assert [c["clients"][0] for c in claimed] == list(oracle.exposed(matrix))
        left = [
            text for text in made["no short proof"] if not text.startswith(UNPROVEN)
        ]
        # hidden among all but one, by so little that floats do not show it
        assert not left or max(map(max, matrix)) > 2**29, (matrix, left)


def is_true(made, matrix) -> bool:
    """Hold every claim of a certificate against the definitions."""
    rows = oracle.as_rows(matrix)
    exposed = set(oracle.exposed(rows))
    weak = oracle.weak_privacy(rows)
    shares = oracle.leverages(rows)
    for claim in made["claims"]:
        kind, value = claim["claim"], claim.get("value")
        if kind == "exposed":
            (i,), others = claim["clients"], claim["others"]
            left = [
                [0 if j in others else v for j, v in enumerate(row)] for row in rows
            ]
            assert i in oracle.exposed(left)
        elif kind == "not exposed":
            assert exposed.isdisjoint(claim["clients"])
        elif kind == "strong T":
            assert value == oracle.strong_privacy(rows)
        elif kind == "rank":
            assert value == oracle.rank(rows)
        elif kind == "weak T at most":
            assert weak <= value
        elif kind == "weak T at least":
            assert weak >= value
        elif kind == "hidden among at least":
            assert all(Fraction(value) * shares[i] <= 1 for i in claim["clients"])
        else:
            assert kind == "plain sum"
            assert value >= oracle.weak_privacy(rows)
    return True


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """Return a certificate of searched claims, its log, and its matrix."""
    rng = random.Random(7)
    rows = [[0] * 14 for _ in range(6)]
    for row in rows:
        for i in rng.sample(range(12), 5):
            row[i] = 1
        row[12] = row[13] = row[0]  # who move with client 0
    rows.append([a + b for a, b in zip(rows[0], rows[1], strict=True)])
    path = tmp_path_factory.mktemp("certificate") / "log.csv"
    made, _, _ = made_of(path, as_text(rows), effort=0.05, layout="matrix")
    return made, path.read_bytes(), rows


@pytest.fixture(scope="module")
def exposing(tmp_path_factory):
    """Return the same of a log that exposes clients."""
    rows = [
        [1, 1, 1, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
        [1, 1, 0, 1, 1, 1],
        [0, 0, 0, 1, 0, 0],
    ]
    path = tmp_path_factory.mktemp("certificate") / "log.csv"
    made, _, _ = made_of(path, as_text(rows), effort=0.01)
    return made, path.read_bytes(), rows


def test_the_examples_have_claims_of_every_kind(example, exposing) -> None:
    kinds = {
        name.removeprefix("check_").replace("_", " ")
        for name in dir(mrsa_check.Checker)
        if name.startswith("check_")
    }
    assert {claim["claim"] for claim in example[0]["claims"]} == kinds
    for made, log, rows in (example, exposing):
        assert statuses(check(made, log)) == {"checked", "not checked, no short proof"}
        assert is_true(made, rows)
    assert place_of(example[0], "weak T at least", by="kernel")
    assert [
        claim["clients"]
        for claim in exposing[0]["claims"]
        if claim["claim"] == "exposed" and not claim["others"]
    ] == [[1], [3]]


def place_of(made, kind, **wanted):
    for place, claim in enumerate(made["claims"]):
        if claim["claim"] == kind and all(
            claim.get(key) == wanted[key] for key in wanted
        ):
            return place
    raise AssertionError(kind)


def verdict(made, log, place):
    """Return what is said of a claim, by its place."""
    (text,) = [
        (s, t) for s, t in check(made, log) if t.startswith(f"claim {place + 1}:")
    ]
    return text


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (
            "exposed",
            lambda c: c["combination"][0].__setitem__(1, c["combination"][0][1] + 1),
        ),
        ("exposed", lambda c: c["combination"].append(c["combination"][0])),
        ("exposed", lambda c: c["combination"].clear()),
        ("exposed", lambda c: c["clients"].append(3)),
        ("exposed", lambda c: c["others"].append(2) or c["clients"].__setitem__(0, 2)),
        ("exposed", lambda c: c["clients"].__setitem__(0, 0)),
        ("exposed", lambda c: c["clients"].__setitem__(0, -10)),
        ("exposed", lambda c: c["clients"].__setitem__(0, False)),
        ("exposed", lambda c: c["combination"][0].__setitem__(0, -1)),
        ("exposed", lambda c: c["combination"][0].__setitem__(1, "0x10")),
        ("exposed", lambda c: c["combination"][0].__setitem__(1, "9" * 5000)),
        ("exposed", lambda c: c["combination"][0].__setitem__(1, None)),
        ("not exposed", lambda c: c["clients"].append(1)),
        ("not exposed", lambda c: c["clients"].append(c["clients"][0])),
        ("not exposed", lambda c: c["clients"].append(99)),
        ("strong T", lambda c: c.update(value=2)),
        ("strong T", lambda c: c.update(value=None)),
        ("rank", lambda c: c.update(value=c["value"] + 1)),
        (
            "rank",
            lambda c: [
                c.update(value=c["value"] - 1),
                c["rows"].pop(),
                c["columns"].pop(),
            ],
        ),
        ("rank", lambda c: c["rows"].__setitem__(0, c["rows"][1])),
        ("rank", lambda c: c.update(modulus=1)),
        ("rank", lambda c: c.update(modulus=0)),
        ("rank", lambda c: c.update(modulus=-7)),
        ("rank", lambda c: c.update(modulus=2**70)),
        ("weak T at most", lambda c: c.update(value=c["value"] + 1)),
        ("weak T at most", lambda c: c.update(value=0, combination=[])),
        ("weak T at most", lambda c: c["combination"][0].__setitem__(1, "7")),
        ("weak T at least", lambda c: c.update(value=c["value"] + 1)),
        ("weak T at least", lambda c: c.update(by="trust", value=2)),
        ("plain sum", lambda c: c.update(value=c["value"] + 1)),
        ("hidden among at least", lambda c: c.update(value="14")),
        ("hidden among at least", lambda c: c.update(value="nan")),
        ("hidden among at least", lambda c: c.update(value="1e999999999")),
        ("hidden among at least", lambda c: c["clients"].append(5)),
    ],
)
def test_a_claim_that_is_tampered_with_is_not_checked(
    example, exposing, kind, change
) -> None:
    made, log, rows = exposing if "exposed" in kind else example
    changed = copy.deepcopy(made)
    place = place_of(made, kind)
    change(changed["claims"][place])
    assert changed != made
    status, text = verdict(changed, log, place)
    # a sum with one coefficient more may still be of that client alone
    if status == "checked":
        assert is_true(changed, rows), text
        assert "combination" in changed["claims"][place]
    else:
        assert status == "REFUSED"


def changed_kernel(made, change):
    changed = copy.deepcopy(made)
    change(changed["kernel"])
    return changed


@pytest.mark.parametrize(
    "change",
    [
        lambda U: U[0].__setitem__(0, int(U[0][0]) + 1),
        lambda U: U[-1].pop(),
        lambda U: U[0].append(0),
        lambda U: U.append([0.5] * len(U[0])),
        lambda U: U.append("1" * len(U[0])),
    ],
)
def test_a_vector_that_is_wrong_in_one_place_is_refused(example, change) -> None:
    made, log, _ = example
    (only,) = check(changed_kernel(made, change), log)
    assert only[0] == "REFUSED"


def test_vectors_of_zeros_prove_nothing(example) -> None:
    made, log, _ = example
    zeros = changed_kernel(
        made, lambda U: [u.__setitem__(slice(None), [0] * len(u)) for u in U]
    )
    found = [text for status, text in check(zeros, log) if status == "REFUSED"]
    assert any("without a vector" in text for text in found)
    assert any("rows of U are dependent" in text for text in found)
    assert any("it may be" in text for text in found)


@pytest.mark.parametrize("modulus", [2, 4, 9, 65_537 * 3, 2**20, 2**21 + 9, "5x"])
def test_the_modulus_of_a_search_need_not_be_believed(example, modulus) -> None:
    """Composite, too large, or so small that sets are dependent by chance.

    Never checked.
    """
    made, log, _ = example
    changed = copy.deepcopy(made)
    place = place_of(made, "weak T at least", by="kernel")
    changed["claims"][place]["modulus"] = modulus
    assert verdict(changed, log, place)[0] == "REFUSED"


def test_a_minor_needs_no_prime(tmp_path) -> None:
    """The rank modulo 2 and 3 is smaller.

    Modulo 35 every pivot is a unit, or it is refused.
    """
    fano = [[int((j - i) % 7 in (0, 1, 3)) for j in range(7)] for i in range(7)]
    path = tmp_path / "log.csv"
    made, _, _ = made_of(path, as_text(fano))
    place = place_of(made, "rank")
    seen = {}
    for modulus in (2, 3, 4, 6, 9, 35, 2**61 - 1):
        made["claims"][place]["modulus"] = modulus
        seen[modulus] = verdict(made, path.read_bytes(), place)[0]
    assert seen[2**61 - 1] == "checked"
    # det 24 is no unit
    assert seen[2] == seen[3] == seen[4] == seen[6] == seen[9] == "REFUSED"


def test_a_search_that_costs_too_much_is_left_out(example) -> None:
    made, log, _ = example
    place = place_of(made, "weak T at least", by="kernel")
    count = sum(map(len, made["sums"])) * (len(made["kernel"]) + 60) + 20_000
    count += 10 * len(json.dumps(made)) + 3 * len(log)
    found = check(made, log, steps=count)
    (said,) = [row for row in found if row[1].startswith(f"claim {place + 1}:")]
    assert said[0] == "not checked"
    assert "steps" in said[1]
    lied = copy.deepcopy(made)
    lied["claims"][place]["steps"] = 0  # what is stated is not what counts
    (said,) = [
        row
        for row in check(lied, log, count)
        if row[1].startswith(f"claim {place + 1}:")
    ]
    assert said[0] == "not checked"


def test_another_log_or_matrix_refuses_everything(example) -> None:
    made, log, _ = example
    lines = log.splitlines(keepends=True)
    for other in (
        log + b"\n",
        b"".join(lines[::-1]),
        log.replace(b"1", b"0", 1),
        b"",
        b"\xff\xfe",
    ):
        assert statuses(check(made, other)[1:]) == {"REFUSED"}
    reordered = copy.deepcopy(made)
    reordered["sums"] = reordered["sums"][::-1]
    assert "REFUSED" in statuses(check(reordered, log))
    assert "claim 1" not in str(check(reordered, log))
    renamed = copy.deepcopy(made)
    renamed["clients"][0], renamed["clients"][1] = (
        renamed["clients"][1],
        renamed["clients"][0],
    )
    assert check(renamed, log)[-1] == ("REFUSED", "log: it has another matrix")
    told = copy.deepcopy(made)
    told["coalition"] = [3]
    assert "REFUSED" in statuses(check(told, log))


def test_unknown_claims_are_not_checked(example) -> None:
    made, log, _ = example
    changed = copy.deepcopy(made)
    changed["claims"] = [
        {"claim": "all is well"},
        {"claim": "exposed\x1b[2J"},
        *made["claims"][:1] * 3,
    ]
    found = check(changed, log)[2:5]
    assert [status for status, _ in found] == ["not checked", "not checked", "checked"]
    assert "\x1b" not in str(found)
    for odd in (None, 5, [], ["exposed"], {"claim": ["exposed"]}, {"claim": None}, {}):
        changed["claims"] = [odd]
        assert check(changed, log)[2][0] == "REFUSED"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"text"',
        "1",
        "[" * 100_000,
        '{"format": NaN}',
        '{"a": 1, "a": 2}',
        '{"format": "mrsa-jax certificate", "version": 1}',
        '{"format": "mrsa-jax certificate", "version": true}',
        '{"format": 1e400}',
        '{"version": ' + "9" * 10_000 + "}",
        "\ud800",
    ],
)
def test_what_is_no_certificate_is_refused(example, text) -> None:
    _, log, _ = example
    data = text.encode("utf-8", errors="surrogatepass")
    (only,) = mrsa_check.check(data, log)
    assert only[0] == "REFUSED"


@pytest.mark.slow
def test_two_thousand_mutations_are_refused_or_still_true(example) -> None:
    mutate(example, 2000)


@pytest.mark.long
def test_some_mutations_are_refused_or_still_true(example) -> None:
    mutate(example, 150)


def mutate(example, count: int) -> None:
    """Change single bytes; whatever is still checked holds by exhaustive search."""
    made, log, rows = example
    data = json.dumps(made).encode()
    assert statuses(mrsa_check.check(data, log)) <= {
        "checked",
        "not checked, no short proof",
    }
    rng = random.Random(count)
    kept = 0
    for _ in range(count):
        place = rng.randrange(len(data))
        byte = (
            rng.choice(b'0123456789-"[]{},.eE x')
            if rng.random() < 0.8
            else rng.randrange(256)
        )
        changed = data[:place] + bytes([byte]) + data[place + 1 :]
        if changed == data:
            continue
        found = mrsa_check.check(changed, log)
        if found[0][0] != "checked" or "REFUSED" in dict(found[:2]):
            continue
        content = json.loads(changed)
        good = [
            text
            for status, text in found
            if status == "checked" and text.startswith("claim")
        ]
        numbers = {int(text.split(":")[0].split()[1]) - 1 for text in good}
        content["claims"] = [c for i, c in enumerate(content["claims"]) if i in numbers]
        for claim in content["claims"]:
            for key in ("clients", "others"):
                claim[key] = [int(i) for i in claim.get(key, [])]
            if (
                claim["claim"] not in ("hidden among at least", "strong T")
                and "value" in claim
            ):
                claim["value"] = int(claim["value"])
        assert content["clients"] == made["clients"]
        assert content["coalition"] == []
        content["claims"] = [c for c in content["claims"] if c not in made["claims"]]
        assert is_true(content, rows), changed[place - 20 : place + 20]
        kept += 1
    assert kept > count // 50


LONG = """server_round;cid;status;weight
1;anna;ok;2
1;bob;ok;1/3
1;carl;lost;1
2;bob;ok;0.25
2;"d; e";ok;1e2
10;anna;late;3
10;carl;late;0
"""


@pytest.mark.parametrize(
    ("text", "options", "coalition"),
    [
        ("round,client\n1,anna\n1,bob\n2,bob\n", {}, ()),
        ("round,client\r\n1, anna \r\n1,bob\r\n2,bob\r\n", {}, ("bob",)),
        (LONG, {"where": "status=ok,late"}, ()),
        (LONG, {"where": "status=ok,late"}, ("anna",)),
        ("1 0 1\n1 1 0\n", {}, ()),
        (
            "a\tb\tsize\n1\t.5\t7\n2\t1e-3\t7\n",
            {"layout": "matrix", "ignore_columns": "size"},
            (),
        ),
        ("True,False\nTrue,True\n", {"layout": "matrix"}, ()),
        ("a,b,c\n1,1,0\n0,1,1\n", {}, ()),
        (",a,b,c\n0,1,1,0\n1,0,1,1\n", {}, ()),
        ("1,10\n1,11\n2,11\n", {"layout": "long"}, ()),
        ("1,10,2\n1,11,3/7\n2,11,1\n", {"layout": "long"}, ()),
        ("\ufeffround,client\n1,\u00e5ngstr\u00f6m\n1,bob\n", {}, ()),
        ("0,0\n0,0\n", {}, ()),
        ("1,1,0\n0,0,0\n1,1,0\n", {}, ()),
        ("1,1,0\n", {}, ("0", "1")),
    ],
)
def test_logs_of_many_kinds_are_read_again(tmp_path, text, options, coalition) -> None:
    path = tmp_path / "log.csv"
    made, log, found = made_of(path, text, coalition=coalition, **options)
    said = check(made, path.read_bytes())
    assert statuses(said) <= {"checked", "not checked, no short proof"}, said
    assert made["reading"] is not None
    assert [str(log.clients[i]) for i in made["coalition"]] == list(
        map(str, found.coalition)
    )
    for name in found.coalition:
        assert ascii(str(name)) in said[0][1]
    named = [
        c["clients"]
        for c in made["claims"]
        if c["claim"] == "exposed" and not c["others"]
    ]
    assert [log.clients[i] for (i,) in named] == sorted(
        (c for c, _ in found.exposed), key=str
    )
    free = [
        i for c in made["claims"] if c["claim"] == "not exposed" for i in c["clients"]
    ]
    told = {*made["coalition"], *(i for (i,) in named)}
    assert sorted([*free, *told]) == list(range(len(log.clients)))


def test_a_client_whom_the_server_knows_is_not_hidden_from_it(tmp_path) -> None:
    path = tmp_path / "log.csv"
    made, _, _ = made_of(
        path, "round,client\n1,anna\n1,bob\n1,carl\n", coalition=["bob"]
    )
    place = place_of(made, "not exposed")
    assert made["claims"][place]["clients"] == [0, 2]
    made["claims"][place]["clients"] = [0, 1]
    said = f"claim {place + 1}: the server knows some of their updates"
    assert verdict(made, path.read_bytes(), place) == ("REFUSED", said)


@pytest.mark.long
def test_gzip_is_read_and_other_formats_are_not(tmp_path) -> None:
    packed = tmp_path / "log.csv.gz"
    packed.write_bytes(gzip.compress(b"round,client\n1,anna\n1,bob\n2,bob\n"))
    log = read_log(packed)
    made = certificate(log, audit(log, effort=0), packed)
    assert statuses(check(made, packed.read_bytes())) == {
        "checked",
        "not checked, no short proof",
    }
    bomb = gzip.compress(bytes(mrsa_check.MOST_BYTES + 10))
    made["log"]["sha256"] = hashlib.sha256(bomb).hexdigest()
    said = f"log: a line of more than {mrsa_check.MOST_LINE} characters"
    assert check(made, bomb)[1] == ("REFUSED", said)
    path = tmp_path / "log.npy"
    np.save(path, np.array([[1, 1, 0], [0, 1, 1]], bool))
    log = read_log(path)
    made = certificate(log, audit(log, effort=0), path)
    found = check(made, path.read_bytes())
    assert made["reading"] is None
    assert [status for status, _ in found][:3] == ["checked", "not checked", "checked"]


def test_a_prime_that_loses_the_rank_makes_no_false_proof(
    tmp_path, monkeypatch
) -> None:
    prime = 2**31 - 19
    monkeypatch.setattr(_certificate_claims, "draw_primes", lambda count: (prime,))
    # equal modulo the prime; their difference is client 0's
    rows = [[1, 1, 1], [1 + prime, 1, 1]]
    made, log, _ = made_of(tmp_path / "log.csv", as_text(rows), layout="matrix")
    said = check(made, (tmp_path / "log.csv").read_bytes())
    assert statuses(said) <= {"checked", "not checked, no short proof"}
    assert is_true(made, rows)
    assert f"client {log.clients[0]} is exposed" in made["no short proof"]


def test_misuse_raises(tmp_path) -> None:
    path = tmp_path / "log.csv"
    _, log, found = made_of(path, "1,1,0\n0,1,1\n", effort=0.01)
    forged = dataclasses.replace(
        found, group=dataclasses.replace(found.group, witness=(1, 1))
    )
    with pytest.raises(
        ValueError, match=r"`found` must be .*; got 'another plain sum'"
    ):
        certificate(log, forged, path)
    other = ParticipationLog(np.ones((3, 3), bool), (0, 1, 2), (0, 1, 2))
    with pytest.raises(ValueError, match="`found` must be the audit of this log"):
        certificate(other, found, path)
    other = ParticipationLog(np.ones((2, 3), bool), (0, 1), (0, 1, 2))
    with pytest.raises(ValueError, match="`found` must be the audit of this log"):
        certificate(other, found, path)
    with pytest.raises(FileNotFoundError, match=r"none\.csv: expected a log"):
        certificate(log, found, tmp_path / "none.csv")


def test_the_search_sees_dependent_sets_of_any_size() -> None:
    """Rows of U over all small cases: as all sets' ranks modulo the prime say."""
    rng = random.Random(3)
    prime = 101
    for case in range(300):
        count, width = rng.randrange(2, 8), rng.randrange(1, 6)
        sizes = sorted(rng.choice([1, 1, 1, 2, 3]) for _ in range(count))
        rows = [
            tuple(rng.randrange(-1, 2) % prime for _ in range(width))
            for _ in range(count)
        ]
        if case % 2:
            rows = [
                tuple(rng.randrange(prime) for _ in range(width)) for _ in range(count)
            ]
        if case % 5 == 0 and count > 3:  # three on a line
            rows[3] = tuple(
                (a + 2 * b) % prime for a, b in zip(rows[0], rows[2], strict=True)
            )
        limit = rng.randrange(1, 7)
        wanted = all(
            mrsa_check.are_independent([list(rows[k]) for k in chosen], prime)
            for number in range(1, count + 1)
            for chosen in itertools.combinations(range(count), number)
            if sum(sizes[k] for k in chosen) <= limit
        )
        checker = mrsa_check.Checker()
        checker.prime = prime
        checker.inverse = [0, *(pow(x, -1, prime) for x in range(1, prime))]
        try:
            found = checker.all_independent(list(zip(sizes, rows, strict=True)), limit)
        except (
            IndexError,
            ValueError,
        ):  # larger sets than vectors: a claim that is refused
            found = False
        assert found == wanted, (sizes, rows, limit)
