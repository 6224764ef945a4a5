"""Pieces of HTML: escaped, bounded, and what of settings is marked as changed."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mrsa_jax import (
    availability,
    data,
    dp,
    federated,
    privacy,
    quantize,
    secagg,
    selection,
)
from mrsa_jax._core.arrays import on_device
from mrsa_jax.study import (
    AuditConfig,
    DemoConfig,
    ProtocolConfig,
    SecaggConfig,
    TrainConfig,
)
from mrsa_jax.study._findings import AttackFindings, AuditFindings, Findings
from mrsa_watch._base.html import (
    Markup,
    brief,
    card,
    config_repr,
    settings_rows,
    shown,
    table,
    tidy,
)

EVIL = "<script>alert('x')</script>&"


def test_everything_but_markup_is_escaped() -> None:
    for text in (tidy(EVIL), table([(EVIL, EVIL)], [EVIL]), card(EVIL, [], note=EVIL)):
        assert "<script" not in text
        assert "&lt;script&gt;" in text
    assert tidy(Markup("<b>")) == "<b>"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "yes"),
        (False, "no"),
        (3, "3"),
        (99_999, "99999"),
        (100_000, "100,000"),
        (0.1, "0.1"),
        (float("nan"), "nan"),
        ((), "none"),
        ((0.1, 0.5), "0.1, 0.5"),
        ({"a": 1}, "a: 1"),
        (np.float32(0.5), "0.5"),
        (np.zeros((3, 4), np.uint32), "uint32[3, 4]"),
    ],
)
def test_values_are_short_texts(value: object, text: str) -> None:
    assert shown(value) == text


@dataclasses.dataclass(frozen=True)
class _Some:
    one: object
    key_material: object = None

    __repr__ = brief


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.int32(7), "7"),
        (np.float32(0.1), "0.1"),
        (np.arange(12, dtype=np.int32).reshape(3, 4), "int32[3, 4] in [0, 11]"),
        (np.array([True, False, True]), "bool[3], 2 true"),
        (np.zeros((0, 2), np.float32), "float32[0, 2]"),
        (np.array([np.nan, 1.0]), "float64[2] in [nan, nan]"),
        (np.array(["a"]), "<U1[1]"),
        (lambda: jax.random.key(0), "key<fry>[]"),
        (lambda: on_device(np.arange(3, dtype=np.uint32)), "uint32[3] in [0, 2]"),
        ((1,), "(1,)"),
        (tuple(range(100)), "(0, 1, 2, 3, 4, 5, ... 100 in all)"),
        ([np.arange(2), None], "[int64[2] in [0, 1], None]"),
        (_Some(3), "_Some(one=3, key_material=None)"),
        (EVIL, repr(EVIL)),
    ],
)
def test_a_repr_holds_no_dump(value: object, text: str) -> None:
    value = value() if callable(value) else value
    assert repr(_Some(value)) == f"_Some(one={text}, key_material=None)"


def test_a_repr_never_fails_and_tells_no_secret() -> None:
    given_away = jnp.arange(4)
    given_away.delete()
    assert repr(_Some(given_away)) == "_Some(one=int32[4], key_material=None)"
    seen: list[str] = []

    def traced(x: jax.Array) -> jax.Array:
        seen.append(repr(_Some(x)))
        return x

    jaxpr = jax.make_jaxpr(traced)(on_device(np.ones((2, 3), np.float32)))
    assert seen == ["_Some(one=float32[2, 3], key_material=None)"]
    assert not jaxpr.eqns  # looking computes nothing
    average = secagg.ring_average(
        quantize.stochastic(2**12, 0.5), 4, 650, key_material=7
    )
    words = np.asarray(average.key_material)
    assert "key_material=uint32[8]" in repr(average)
    assert not any(str(word) in repr(average) for word in words)
    assert repr(_Some(1, b"secret")) == "_Some(one=1, key_material=...)"


@pytest.mark.long
def test_public_values_have_short_reprs() -> None:
    """Of 1,000 clients and 200 rounds, what a notebook shows."""
    history = np.random.default_rng(0).random((200, 1000)) < 0.1
    shown_ = [
        selection.weighted(1000, 100),
        selection.crossing_partitions(900, 90, 30),
        availability.independent(np.linspace(0.1, 0.5, 1000)),
        availability.replay(history),
        secagg.ring_average(quantize.stochastic(2**12, 0.5), 100, 650),
        dp.ring_mechanism(
            "skellam", 1.0, 1.0, dim=16, num_clients=100, modulus_bits=24
        ),
        privacy.weak_privacy_trajectory(history[:20], "bounds"),
        privacy.weak_privacy(history[:20], effort=0.0),
        dp.ledger(history, 1.0),
        data.iid(0, data.load("digits"), num_clients=100),
    ]
    for value in shown_:
        assert len(repr(value)) < 900, repr(value)
        assert "\n" not in repr(value)


@pytest.mark.long
def test_findings_are_a_line_and_a_table_whatever_they_are_called() -> None:
    evil, P = EVIL + "\x1b[2J\u202e", np.random.default_rng(0).random((12, 60)) < 0.3
    log = privacy.ParticipationLog(
        P, tuple(range(12)), tuple(f"{evil}{i}" for i in range(60))
    )
    audit = privacy.audit(log, effort=0.0)
    rows: list[dict[str, Any]] = [{evil: evil * 9, "rate": 1 / 3, "count": 7}] * 100
    inputs, complete = np.zeros((60, 4), np.uint32), ~np.eye(60, dtype=bool)
    values = [
        log,
        audit,
        AuditFindings(pathlib.Path(evil), log, audit),
        AttackFindings(title=evil, summary=rows, sentences=[evil * 99] * 9),
        Findings(evil, [evil * 99] * 9, {"huge": list(range(10**5))}),
        privacy.client_privacy(P, effort=0.0),
        secagg.aggregate(0, inputs, complete, np.ones((5, 60), bool), 31, 16),
        secagg.failure_rates(0, 8, 0.5, 0.1, 2, 20),
        secagg.expected_costs(60, 9, 5, 100, 2**16, step_dropout_rate=0.1),
        selection.RoundHistory(np.ones((12, 5, 60), bool), P, np.zeros(12, np.int32)),
    ]
    for value in values:
        text, page = repr(value), value._repr_html_()  # type: ignore[attr-defined]
        assert text.startswith(f"{type(value).__name__}(")
        assert len(text) < 1600
        assert len(page) < 30_000
        assert "\n" not in text
        assert not any(odd in text + page for odd in "\x1b\u202e")
        assert "<script" not in page
        assert page.count("<table") == page.count("</table>") >= 1
    assert f"exposed clients: {len(audit.exposed)}; weak T: " in repr(audit)
    assert len(repr(audit)) < 410
    assert "0.3333" in values[3]._repr_html_()  # type: ignore[attr-defined]


def test_a_training_says_how_it_ended() -> None:
    names = (field.name for field in dataclasses.fields(federated.TrainingResult))
    own: dict[str, Any] = dict.fromkeys(names, np.zeros(0)) | {
        "aggregates": None,
        "drift": None,
    }
    own |= {"parameters": np.zeros(7, np.float32), "status": np.zeros(4, np.int32)}
    own |= {"participation": np.eye(4, 3, dtype=bool), "diverged_round": None}
    own |= {"evaluated_rounds": np.array([1, 3]), "accuracy": np.array([0.5, 0.87654])}
    told = federated.TrainingResult(**own | {"loss": np.array([1.0, 0.25])})
    words = "rounds: 4, 3 with a sum; parameters: float32[7]; test accuracy: 87.65 %, after round 4"
    assert repr(told) == f"TrainingResult({words}; test loss: 0.25)"
    own |= {"accuracy": np.array([0.5, np.nan]), "loss": np.array([1.0, np.nan])}
    diverged = federated.TrainingResult(**own | {"diverged_round": 2})
    assert "test accuracy: - %" in repr(diverged)
    assert "in round 3" in diverged._repr_html_()
    none = np.zeros(0)
    untested = own | {"evaluated_rounds": none, "accuracy": none, "loss": none}
    assert "accuracy" not in repr(federated.TrainingResult(**untested))


def test_a_repr_looks_at_no_huge_array() -> None:
    class Huge:
        shape, dtype, size = (2**11, 2**10), "float32", 2**21

        def __array__(self, *_: object, **__: object) -> np.ndarray:
            pytest.fail("it was fetched")

    assert repr(_Some(Huge())) == "_Some(one=float32[2048, 1024], key_material=None)"


def test_what_is_huge_stays_short() -> None:
    assert len(shown(range(10**9))) <= 120
    assert len(shown("x" * 10**6)) == 120
    assert len(shown(np.zeros((10**4, 10**3), np.uint8))) < 30
    rows = [(k, k) for k in range(1000)]
    assert table(rows).count("<tr>") == 41
    assert "... and 960 more" in table(rows)


def test_settings_that_differ_are_marked_and_lists_are_tuples() -> None:
    values = {"a": 1, "b": [1, 2], "more": {"c": 3.0, "new": "x"}}
    defaults = {"a": 2, "b": (1, 2), "unset": None, "later": 7, "more": {"c": 3.0}}
    (top, rows), (name, inner) = settings_rows(values, defaults)
    assert (top, name) == ("", "more")
    assert rows == (
        ("a", 1, 2, True),
        ("b", [1, 2], (1, 2), False),
        ("unset", None, None, False),
    )
    # no default is known
    assert inner == (("c", 3.0, 3.0, False), ("new", "x", None, False))
    assert not any(row[3] for _, lines in settings_rows(values, None) for row in lines)


def test_a_configuration_shows_what_was_changed_in_bold() -> None:
    page = config_repr(
        TrainConfig(rounds=7, protocol=ProtocolConfig(step_dropout_rate=0.25))
    )
    assert "<strong>7</strong> (default 150)" in page
    assert "<strong>0.25</strong> (default 0)" in page
    short, every = page.split("<details>")
    assert short.count("<strong>") == 3  # the title and two values
    assert "step_dropout_rate" in short
    assert "concentration" not in short  # nothing of the data was changed
    assert "concentration" in every


@pytest.mark.parametrize(
    "config", [DemoConfig(), SecaggConfig(dim=5), ProtocolConfig()]
)
def test_configurations_show_themselves(config: object) -> None:
    page = config._repr_html_()  # type: ignore[attr-defined]
    assert type(config).__name__ in page
    assert page.count("<table") == page.count("</table>") >= 1


def test_a_configuration_without_all_defaults_is_shown_too() -> None:
    @dataclasses.dataclass(frozen=True)
    class Needs:
        size: int
        name: str = EVIL

    page = config_repr(Needs(3))
    assert "size" in page
    assert "<script" not in page
    assert "fail_below" in config_repr(AuditConfig())


def test_certificates_say_how_sure_they_are() -> None:
    page = privacy.weak_privacy([[1, 1, 0, 0], [0, 0, 1, 1]])._repr_html_()
    assert "2 (certified)" in page
    assert "0 (none)" in page  # exposed
    exposed = privacy.weak_privacy([[1, 1], [0, 1]])._repr_html_()
    assert "2 (0, 1)" in exposed
    assert (
        "no client took part"
        in privacy.weak_privacy(np.zeros((2, 3), bool))._repr_html_()
    )


def test_an_audit_escapes_the_names_of_clients() -> None:
    text = f"round,client\n1,{EVIL.replace(',', '')}\n1,b\n2,b\n"
    page = privacy.audit(_log(text))._repr_html_()
    assert "<script" not in page
    assert "2 rounds, 2 clients" in page


def _log(text: str) -> privacy.ParticipationLog:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "log.csv"
        path.write_text(text, encoding="utf-8")
        return privacy.read_log(path)


@pytest.mark.long
def test_a_round_shows_its_sum_and_what_it_cost() -> None:
    adjacency = ~np.eye(4, dtype=bool)
    survivors = np.ones((5, 4), bool)
    survivors[2:, 0] = False
    inputs = np.arange(40, dtype=np.uint32).reshape(4, 10)
    result = secagg.aggregate(0, inputs, adjacency, survivors, 3, 16)
    page = result._repr_html_()
    assert "3 of 4" in page
    first = [int(inputs[1:, k].sum()) for k in range(6)]
    assert ", ".join(map(str, first)) + ", ..." in page
    assert page.count("<tr>") == 6 + 1 + 4
    assert "4, 4, 3, 3, 3" in result.transcript._repr_html_()
    assert "uint32[4, 10]" in result.transcript._repr_html_()
