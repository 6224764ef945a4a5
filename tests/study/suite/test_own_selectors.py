"""Selectors that break a rule of selectors get no card, and the rule is named."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import secrets
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax._core.selector import SelectorState, check_select
from mrsa_jax.selection.registry import OF_OTHERS
from mrsa_jax.study.suite import Version, run_suite, verify_card

from .test_cards import made

N, K = 24, 6
COUNTER = itertools.count()
Cohort = Callable[[jax.Array], Any]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Own:
    """The first K online clients, and what a test changes of a cohort and a state."""

    num_clients: int = dataclasses.field(metadata={"static": True})
    cohort_size: int = dataclasses.field(metadata={"static": True})
    changed: Cohort = dataclasses.field(metadata={"static": True})
    kept: Cohort = dataclasses.field(metadata={"static": True})

    def init(self) -> SelectorState:
        return SelectorState(jnp.zeros(self.num_clients, jnp.int32))

    def select(self, key: Any, state: Any, available: Any) -> tuple[Any, Any]:
        places = jnp.cumsum(available, dtype=jnp.int32)
        cohort = available & (places <= self.cohort_size)
        cohort &= places[-1] >= self.cohort_size
        counts = state.counts + cohort.astype(jnp.int32)
        return self.changed(cohort), SelectorState(self.kept(counts))


def own(changed: Cohort = lambda x: x, kept: Cohort = lambda x: x) -> Own:
    return Own(N, K, changed, kept)


def client(number: int) -> Any:
    """Compare the clients with a number that differs each time, hardly ever repeated."""
    return jnp.arange(N) == number % 2**31


WRONG = {
    "float": (lambda x: x.astype(jnp.float32), None, "returns bool"),
    "integer": (lambda x: x.astype(jnp.int32), None, "returns bool"),
    "short": (lambda x: x[:-1], None, "returns bool"),
    "square": (lambda x: x[:, None], None, "returns bool"),
    "counts": (None, lambda x: x.astype(jnp.float32), "as `init` returns it"),
    "shorter counts": (None, lambda x: x[:-1], "as `init` returns it"),
    "clock": (lambda x: x & ~client(time.time_ns()), None, "no clock"),
    "timer": (lambda x: x & ~client(time.perf_counter_ns()), None, "no clock"),
    "entropy": (lambda x: x & ~client(secrets.randbits(60)), None, "no clock"),
    "counter": (lambda x: x & ~client(next(COUNTER)), None, "no clock"),
    "random": (
        lambda x: x & (np.random.default_rng().random(N) < 0.5),
        None,
        "no clock",
    ),
    "value": (lambda x: x if x.any() else ~x, None, "it raised TracerBool"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_round_of_another_form_or_not_reproducible_is_refused(name: str) -> None:
    changed, kept, rule = WRONG[name]
    same: Cohort = lambda x: x  # noqa: E731
    selector = own(changed or same, kept or same)
    with pytest.raises(mj.ConfigurationError, match=f"`factory` .*{rule}"):
        check_select(selector, "factory")


@pytest.mark.long
def test_the_package_s_own_rounds_keep_the_rule(
    suite_of: Callable[..., Version],
) -> None:
    version = suite_of("whole_numbers")
    for text in version.schemes.values():
        scheme = version.scenarios["whole_numbers"].written(text)
        check_select(mj.selection.Scheme.parse(scheme).build(N, K), "factory")
    check_select(own(), "factory")


@pytest.mark.long
@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize(
    ("name", "changed", "rule"),
    [
        ("honest", lambda x: x, None),
        ("offline", lambda x: x | ~x, "online clients only"),
        ("one_more", lambda x: x & ~(jnp.cumsum(x) == 1), "select 6 clients or none"),
    ],
)
def test_cohorts_are_of_online_clients_and_of_the_stated_size(
    name: str,
    changed: Cohort,
    rule: str | None,
    suite_of: Callable[..., Version],
    tmp_path: pathlib.Path,
) -> None:
    suite_of("thousand_rounds")
    mj.selection.register(name, lambda n, k: own(changed), depends=())
    with jax.numpy_dtype_promotion("standard"):
        if rule is None:
            run_suite(name, out=tmp_path)
            return
        with pytest.raises(mj.ConfigurationError, match=f"`scheme` .*{rule}"):
            run_suite(name, out=tmp_path)
    assert not (tmp_path / name / "card.json").exists()


def test_names_of_the_suite_s_schemes_are_taken() -> None:
    for name in ("uniform", *OF_OTHERS):
        with pytest.raises(mj.ConfigurationError, match="`name` must be none of"):
            mj.selection.register(name, mj.selection.uniform)
    assert len(OF_OTHERS) == 3


def test_a_card_of_an_unknown_scheme_names_the_flag() -> None:
    card: dict[str, Any] = made() | {"scheme": "unheard"}
    with pytest.raises(mj.ConfigurationError, match=r"`scheme` .*--plugin.*unheard"):
        verify_card(card)
