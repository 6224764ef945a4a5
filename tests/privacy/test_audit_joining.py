"""Who exposes whom by joining the server, as an audit tells it."""

from __future__ import annotations

import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax.privacy import ParticipationLog, audit, audit_steps, client_privacy

SITES = ("site-01", "site-02", "site-03", "site-04", "site-05")
P = np.array([[1, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]], bool)
LOG = ParticipationLog(P, (3, 9, 12), SITES)


@pytest.mark.parametrize(
    ("coalition", "message"),
    [
        ("site-01", "must be a list of clients' names; got 'site-01'"),
        (["site-06"], "must name clients of the log; got 'site-06'"),
        ([1], "must name clients of the log; got 1"),
        (["site-01", "site-01"], "must name a client once"),
        (SITES, "must leave a client out; got 'all 5'"),
    ],
)
def test_rejects_what_is_no_coalition(coalition: object, message: str) -> None:
    with pytest.raises(mj.ConfigurationError, match=f"^`coalition` {message}"):
        audit(LOG, coalition=coalition)  # type: ignore[arg-type]


def test_clients_of_note_are_those_whom_the_fewest_expose() -> None:
    found = audit(LOG)
    assert [own.text for own in found.joining] == [
        "Client site-03 is exposed if this client joins the server: site-04.",
        "Client site-04 is exposed if this client joins the server: site-03.",
    ]
    assert found.joining[0].text in found.sentences()
    assert found.to_dict()["joining"][0] == {
        "client": "site-03",
        "others": ["site-04"],
        "fewest": 1,
        "text": found.joining[0].text,
    }
    assert found.to_dict()["coalition"] == []
    each = client_privacy(LOG)
    assert each.upper.tolist() == [3, 3, 2, 2, 1]
    assert audit(LOG, effort=0).joining == ()


@pytest.mark.long
def test_a_coalition_by_name_is_one_by_index() -> None:
    found = audit(LOG, coalition=["site-04", "site-02"])
    assert found.coalition == ("site-02", "site-04")
    assert dict(found.exposed) == {"site-03": 9, "site-01": 9, "site-05": 12}
    assert found.weak.exposed == mj.privacy.weak_privacy(P, coalition=[3, 1]).exposed
    known = "The server knows the updates of clients site-02 and site-04; "
    assert found.sentences()[0] == known + "what follows is of all others."
    assert found.to_dict()["coalition"] == ["site-02", "site-04"]
    after = found.over_rounds(LOG)
    assert after.exposed.tolist() == [0, 2, 3]
    assert not found.gate(2).passed


def test_numbers_are_names_too() -> None:
    left = audit(P, coalition=["3", 1])
    assert left.coalition == (1, 3)
    assert set(left.exposed) == {(2, 1), (0, 1), (4, 2)}
    alone = audit([[1, 1]], coalition=[0])
    assert alone.exposed == ((1, 0),)
    nobody = audit([[1, 0]], coalition=[0])
    assert "No client took part" in nobody.sentences()[1]


def test_it_comes_last_and_can_be_left_out() -> None:
    *_, before, last = audit_steps(LOG)
    assert (before.pending, before.joining) == (("who exposes whom",), ())
    assert last.pending == ()
    assert last.joining
