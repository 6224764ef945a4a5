"""Schemes by name: those of the package, and a user's own."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mrsa_jax as mj
from mrsa_jax import ConfigurationError
from mrsa_jax.selection import Scheme, _bernoulli, register
from mrsa_jax.selection.registry import BUILT_IN

N, K = 12, 4


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class InTurn:
    """The next K clients in order, whoever is away.

    The round is skipped if one of them is.
    """

    cohort_size: Any
    num_clients: int = dataclasses.field(metadata={"static": True})

    def init(self) -> Any:
        return _bernoulli.SelectorState(jnp.zeros(self.num_clients, jnp.int32))

    def select(self, key: Any, state: Any, available: Any) -> tuple[Any, Any]:
        del key
        start = jnp.sum(state.counts) % self.num_clients
        place = (
            jnp.arange(self.num_clients, dtype=jnp.int32) - start
        ) % self.num_clients
        wanted = place < self.cohort_size
        cohort = wanted & jnp.all(available | ~wanted)
        return cohort, _bernoulli.SelectorState(state.counts + cohort.astype(jnp.int32))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Blind(InTurn):
    depends_on_data: ClassVar[bool] = False


def in_turn(num_clients: int, cohort_size: int, share: float = 1.0) -> InTurn:
    return InTurn(jnp.int32(round(cohort_size * share)), num_clients)


class NoPytree:
    num_clients = N

    def init(self) -> Any: ...

    def select(self, key: Any, state: Any, available: Any) -> Any: ...


def test_a_name_must_be_free_and_a_factory_take_n_and_k() -> None:
    for name, words in (
        ("uniform", "none of the package's own schemes; got 'uniform'"),
        ("In turn", "lower-case letters, digits and underscores; got 'In turn'"),
        ("a:b", "lower-case letters"),
    ):
        with pytest.raises(ConfigurationError, match=f"`name` must be .*{words}"):
            register(name, in_turn)
    for factory, words in (
        (lambda n: None, "`factory` must take the number of clients"),
        (lambda n, k, *, share: None, "parameters by their place"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            register("mine", factory)


def test_an_unknown_or_ill_formed_scheme_is_named() -> None:
    register("in_turn", in_turn)
    with pytest.raises(ConfigurationError, match="did you mean 'in_turn'"):
        Scheme.parse("in_turns")
    with pytest.raises(
        ConfigurationError, match="`scheme` must be written in_turn:SHARE; got"
    ):
        Scheme.parse("in_turn:1:2")
    register("needs", lambda n, k, number, rule="x": in_turn(n, k))
    with pytest.raises(
        ConfigurationError, match="must be written needs:NUMBER:RULE; got 'needs'"
    ):
        Scheme.parse("needs")


def test_what_a_factory_makes_is_checked_before_any_work() -> None:
    def study(scheme: str) -> mj.study.SimulateConfig:
        population = mj.study.PopulationConfig(N, K)
        return mj.study.SimulateConfig(
            rounds=4, schemes=(scheme,), population=population
        )

    register("plain", lambda n, k: NoPytree())
    register("other", lambda n, k: in_turn(n + 1, k))
    register("fails", lambda n, k: {}["nothing"])
    register("refuses", lambda n, k: mj.selection.batch_partitioning(n, k, 5))
    register("nothing", lambda n, k: None)
    for scheme, words in (
        ("plain", "`selector` must be a pytree.*register_dataclass.*got <"),
        ("other", "`factory` must make a selector over 12 clients; got 13"),
        (
            "fails",
            r"`factory` must make a selector; of \(12, 4\) it raised KeyError: "
            r"'nothing'",
        ),
        (
            "refuses",
            "factory of refuses raised: .*must be a multiple of .*; got 4 and 5",
        ),
        (
            "nothing",
            "`selector` must have `num_clients`, `init` and `select`; got None",
        ),
    ):
        with pytest.raises(ConfigurationError, match=words):
            mj.study.validate(study(scheme))


def test_a_selector_that_is_no_pytree_is_told_what_to_do() -> None:
    online = mj.availability.independent(0.0)
    for use in (
        lambda: mj.selection.rollout(0, NoPytree(), online, 3),
        lambda: mj.selection.minimum_separation(NoPytree(), 2),
    ):
        with pytest.raises(
            ConfigurationError, match="`selector` must be a pytree, so that its"
        ):
            use()


def test_parameters_are_numbers_where_they_are_written_so() -> None:
    seen: list[tuple[Any, ...]] = []

    def factory(n: int, k: int, *values: Any) -> InTurn:
        seen.append(values)
        return in_turn(n, k)

    register("any", factory)
    scheme = Scheme.parse("any:3:0.5:nan:word")
    scheme.build(N, K)
    assert seen == [(3, 0.5, "nan", "word")]
    assert scheme.written == "any:3:0.5:nan:word"
    assert scheme.label == "any (3, 0.5, nan, word)"


def test_a_scheme_says_whether_it_looks_at_data() -> None:
    """Of the package's rows what their selectors say.

    Of one's own what it says, or nothing.
    """
    register("mine", in_turn)
    texts = (
        "uniform",
        "weighted",
        "partition",
        "batch_partitioning:2",
        "crossing_partitions:2",
        "bernoulli:0.5",
        "poisson:0.5:0.2",
        "balls_in_bins:2",
        "power_of_choice:5",
        "mine",
    )
    assert {text.split(":")[0] for text in texts} >= set(BUILT_IN) - {
        "minimum_separation"
    }
    for text in (*texts, *(f"minimum_separation:2:{text}" for text in texts)):
        said = {"power_of_choice:5": True, "mine": None}.get(
            text.split("separation:2:")[-1], False
        )
        scheme = Scheme.parse(text)
        assert scheme.depends_on_data(16, 4) is said
        assert getattr(scheme.build(16, 4), "depends_on_data", None) is said
    register("blind", lambda n, k: Blind(jnp.int32(k), n))
    assert Scheme.parse("blind").depends_on_data(16, 4) is False


def test_a_label_is_text_or_a_function_or_the_name() -> None:
    register("mine", in_turn, label="In turn")
    assert Scheme.label_of("mine") == "In turn"
    assert Scheme.label_of("mine:0.5") == "In turn (0.5)"
    register("mine", in_turn, label=lambda share=1.0: f"{100 * share:g} %")
    assert Scheme.label_of("mine:0.5") == "50 %"
    register("mine", in_turn)
    assert Scheme.label_of("mine") == "mine"
    assert Scheme.label_of("nobody's") == "nobody's"


def test_parameters_may_be_axes_of_their_own() -> None:
    register("mine", lambda n, k, privacy_target, fairness="x": in_turn(n, k))
    assert Scheme.filled("mine", {"privacy_target": 3}) == "mine:3"
    assert Scheme.filled("mine:4", {"fairness": "y"}) == "mine:4:y"
    assert Scheme.filled("weighted", {"privacy_target": 3}) == "weighted"
    with pytest.raises(ConfigurationError, match="`privacy_target` must be given once"):
        Scheme.filled("mine:4", {"privacy_target": 3})
    with pytest.raises(
        ConfigurationError, match="`scheme` must be written mine:PRIVACY_TARGET"
    ):
        Scheme.filled("mine", {"fairness": "y"})


@pytest.mark.long
def test_a_scheme_of_ones_own_is_studied_like_the_others() -> None:
    """By hand: in turn, always online, 12 of 4: a block of 4 each, for ever."""
    register("in_turn", in_turn, label="In turn")
    population = mj.study.PopulationConfig(N, K, dropout_rates=(0.0,))
    config = mj.study.SimulateConfig(
        rounds=6,
        trials=2,
        schemes=("in_turn", "in_turn:0.5", "uniform"),
        population=population,
    )
    results = mj.study.run(config)
    assert results["scheme"].values.tolist() == ["In turn", "In turn (0.5)", "Random"]
    last = results.sel(scheme="in_turn").isel(round=-1)
    assert last["strong_privacy"].values.tolist() == [4, 4]
    assert last["rank"].values.tolist() == [3, 3]
    assert results["guaranteed_privacy"].values.tolist() == [1, 1, 1]
    # nobody says what it is expected to be
    assert np.isnan(results["expected_cardinality"].values).tolist() == [
        True,
        True,
        False,
    ]
    assert (
        results.sel(scheme="in_turn:0.5")["aggregation_cardinality"].values[0, -1]
        == 2.0
    )


def test_every_scheme_of_the_package_is_built_by_its_name() -> None:
    same = {
        "poisson:0.25:1": mj.selection.poisson(N, [0.25, 1.0] * 6),
        "bernoulli:0.25": mj.selection.bernoulli(N, 0.25),
        "crossing_partitions:2:greedy": mj.selection.crossing_partitions(
            N, K, 2, "greedy"
        ),
        "power_of_choice:6": mj.selection.power_of_choice(N, K, 6),
        "minimum_separation:3:batch_partitioning:2:greedy": mj.selection.minimum_separation(
            mj.selection.batch_partitioning(N, K, 2, "greedy"), 3
        ),
    }
    for text, wanted in same.items():
        ours = Scheme.parse(text).build(N, K)
        assert jax.tree.structure(ours) == jax.tree.structure(wanted)
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(wanted), strict=True):
            assert np.array_equal(np.asarray(a), np.asarray(b)), text


@pytest.mark.smoke
def test_a_user_s_papers_are_cited() -> None:
    entry = '@article{me2026, author = {Me and {You}}, title = "In turn", year = 2026}'
    register("mine", in_turn, papers=(entry, "cho2020client"))
    text = mj.cite("mine:0.5")
    assert "@article{me2026,\n  author = {Me and {You}},\n  title  = {In turn}," in text
    assert "cho2020client" in text
    assert "so2023securing" in mj.cite(mj.study.SimulateConfig(schemes=("mine",)))
    for papers, words in (
        ("none", "known keys: known: so2023.* more; got 'none'"),
        ("@x{y}", "with author and title"),
    ):
        register("mine", in_turn, papers=papers)
        with pytest.raises(
            ConfigurationError, match=f"`papers` must be BibTeX entries .*{words}"
        ):
            mj.cite("mine")
