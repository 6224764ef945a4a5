"""The checker of certificates on claims written by hand.

What is true passes, what is not does not.
The log has three clients and two sums, a + b and b + c, of which a - b + c is nothing.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from mrsa_watch import mrsa_check

LOG = b"a,b,c\n1,1,0\n0,1,1\n"
BLOCKS = b"a,b,c,d,e,f\n1,1,1,0,0,0\n0,0,0,1,1,1\n"


def _statuses(
    *claims: dict[str, Any],
    log: bytes = LOG,
    kernel: Any = ((1, -1, 1),),
    coalition: Any = (),
    asked: Any = (),
) -> list[str]:
    names, *rows = log.decode().split()
    columns = names.split(",")
    content = {
        "format": mrsa_check.FORMAT,
        "version": mrsa_check.VERSION,
        "made by": "hand",
        "no short proof": [],
        "log": {"name": "log.csv", "sha256": hashlib.sha256(log).hexdigest()},
        "reading": {"layout": "matrix", "delimiter": ",", "header": 1, "left_out": []},
        "clients": columns,
        "rounds": [str(j) for j in range(len(rows))],
        "sums": [
            [[i, 1] for i, x in enumerate(row.split(",")) if x == "1"] for row in rows
        ],
        "coalition": list(coalition),
        "kernel": [list(vector) for vector in kernel],
        "claims": list(claims),
    }
    who = [columns[i] for i in coalition] or None
    found = mrsa_check.check(
        json.dumps(content).encode(), log, asked=asked, coalition=who
    )
    assert [status for status, _ in found[:2]] == ["checked"] * 2, found
    return [status for status, _ in found[2:]]


def _exposed(client: int, *terms: tuple[int, int], others: Any = ()) -> dict[str, Any]:
    combination = [list(term) for term in terms]
    return {
        "claim": "exposed",
        "clients": [client],
        "others": list(others),
        "combination": combination,
    }


def _sum(kind: str, value: int, *terms: tuple[int, int]) -> dict[str, Any]:
    return {
        "claim": kind,
        "value": value,
        "combination": [list(term) for term in terms],
    }


def _hidden(value: str) -> dict[str, Any]:
    return {
        "claim": "hidden among at least",
        "clients": [0],
        "value": value,
        "vector": [1, -1, 1],
    }


def _rank(value: int) -> dict[str, Any]:
    return {
        "claim": "rank",
        "value": value,
        "rows": [*range(value)],
        "columns": [*range(value)],
        "modulus": 101,
    }


def _least(value: int, by: str, **more: int) -> dict[str, Any]:
    return {"claim": "weak T at least", "value": value, "by": by, **more}


TRUE = [
    _exposed(0, (0, 1), others=[1]),  # once b joins
    {"claim": "not exposed", "clients": [0, 1, 2]},
    {"claim": "strong T", "value": 1},
    _rank(2),
    _sum("weak T at most", 2, (0, 1)),
    _sum("plain sum", 2, (0, 1)),
    _sum("weak T at most", 2, (0, 1), (1, -1)),  # a - c
    _least(2, "kernel", modulus=101, vectors=1, steps=0),
    _hidden("3/2"),  # 1 + 1 / (1 + 1)
]
FALSE = [
    _exposed(0, (0, 1)),  # the sum has b too
    _exposed(0, (0, 1), (1, -1)),
    {"claim": "strong T", "value": 2},
    _rank(1),
    _sum("weak T at most", 1, (0, 1)),
    _sum("plain sum", 3, (0, 1), (1, 1)),  # a + 2 b + c
    _least(3, "kernel", modulus=101, vectors=1, steps=0),  # a + b has two
    _least(2, "classes"),
    _hidden("1.6"),
]


@pytest.mark.parametrize("claim", TRUE)
def test_what_is_true_is_checked(claim: dict[str, Any]) -> None:
    assert _statuses(claim) == ["checked"]


@pytest.mark.parametrize("claim", FALSE)
def test_what_is_not_true_is_refused(claim: dict[str, Any]) -> None:
    assert _statuses(claim) == ["REFUSED"]


def test_a_client_needs_a_vector_not_to_be_exposed() -> None:
    assert _statuses({"claim": "not exposed", "clients": [0]}, kernel=()) == ["REFUSED"]


def test_a_coalition_takes_its_updates_out_of_the_sums() -> None:
    claims = [_exposed(1, (1, 1)), _exposed(0, (0, 1), (1, -1))]
    assert _statuses(*claims, kernel=(), coalition=[2]) == ["checked"] * 2


def test_shares_are_rounded_up() -> None:
    """Two sums of three, each hidden among three: T is 3, and no rounding makes it 4."""
    assert _statuses(_least(3, "hidden"), log=BLOCKS, kernel=()) == ["checked"]
    assert _statuses(_least(4, "hidden"), log=BLOCKS, kernel=()) == ["REFUSED"]


def test_an_equality_takes_both_bounds() -> None:
    most = _sum("weak T at most", 2, (0, 1))
    found = _statuses(
        most, asked=["weak T <= 2", "weak T <= 3", "weak T = 2", "weak T = 3"]
    )
    assert found == ["checked", "checked", "checked", "REFUSED", "REFUSED"]
    both = (most, _least(2, "kernel", modulus=101, vectors=1, steps=0))
    assert _statuses(*both, asked=["weak T = 2"]) == ["checked"] * 3
