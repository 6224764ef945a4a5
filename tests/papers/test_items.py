"""Items and verdicts.

What counts as reproduced, and items whose truth is known without us.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import math
import pathlib
import re
import typing

import numpy as np
import pytest
from hypothesis import given, strategies as st
from inside import function_of, inside, values_of_item

import mrsa_jax as mj
import mrsa_papers
from mrsa_papers import ITEMS, ReproduceConfig, check_targets, echelon_estimate, remake
from mrsa_papers._driver import totals
from mrsa_papers._folder import Made
from mrsa_papers._summary import standing, summary
from mrsa_papers.harness import (
    Check,
    Context,
    Item,
    Verdict,
    compare,
    schemes_for,
    state,
    targets_of,
)
from mrsa_papers.harness._items import VERDICTS, at_other_settings, on_other_data

leaks = inside("multiround.early_leaks")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check_targets("multiround.fg4a"), "did you mean 'multiround.fig4a'"),
        (lambda: check_targets(["multi"]), "did you mean 'multiround'"),
        (
            lambda: check_targets(["multiround", "ccesa.tabelg2"]),
            "did you mean 'ccesa.tableg2'",
        ),
        (
            lambda: check_targets(["theorem4"]),
            "'ccesa.theorem4' or 'heterosag.theorem4'",
        ),
        (lambda: check_targets(["fig3"]), "'multiround.fig3' or 'ccesa.fig3'"),
        (
            lambda: check_targets(["multiround."]),
            "known item; got 'multiround.'",
        ),
        (lambda: check_targets([".fig3"]), "`target` must be a known paper"),
        (lambda: remake(["multiround.tabel1"]), "did you mean 'multiround.table1'"),
        (
            lambda: remake(["multiround.table1"], seed=-1),
            r"`seed` must be an integer in \[0, 2\*\*32\)",
        ),
        (
            lambda: remake(["multiround.table1"], seed=2**32),
            r"`seed` must .*; got 4294967296",
        ),
        (lambda: remake(["multiround.table1"], seed=True), "`seed` must .*; got True"),
        (lambda: echelon_estimate([1, 0, 1]), "`P` must have"),
        (lambda: echelon_estimate([[0.5, 1.0]]), "`P` must"),
        (lambda: echelon_estimate(np.zeros((0, 3), bool)), "`P` must"),
    ],
)
def test_misuse_names_argument_and_rule(
    call: typing.Callable[[], object], message: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        call()


@pytest.mark.parametrize("paper", ITEMS)
def test_every_row_names_a_maker_and_a_figure_of_its_paper(paper: str) -> None:
    for name, row in ITEMS[paper].items():
        maker, figure = (function_of(paper, where) for where in (row.maker, row.figure))
        taken = ["context", "settings"] if row.settings else ["context"]
        assert list(inspect.signature(maker).parameters) == taken, name
        place = "figure" if row.axes is None else "ax"
        assert list(inspect.signature(figure).parameters) == [place, "data"], name
        assert maker.__doc__
        assert figure.__doc__
        assert maker.__module__ == figure.__module__
        assert 0 < row.fast_seconds <= row.seconds


def test_names_keep_the_papers_order_and_come_once() -> None:
    wanted = ("multiround.fig5a", "multiround.fig2", "multiround.fig2")
    assert check_targets(wanted) == (("multiround", "fig2"), ("multiround", "fig5a"))
    whole = tuple(("multiround", name) for name in ITEMS["multiround"])
    assert check_targets("multiround") == check_targets(["multiround"]) == whole
    assert check_targets("multiround.fig3") == (("multiround", "fig3"),)


def test_targets_are_papers_and_items_in_order_and_once() -> None:
    every = tuple((paper, item) for paper in ITEMS for item in ITEMS[paper])
    assert (
        check_targets(())
        == check_targets(["heterosag", "ccesa", "multiround"])
        == every
    )
    assert check_targets("ccesa.fig2") == (("ccesa", "fig2"),)
    # a name that one paper alone has, of an item or of a figure in a table
    assert check_targets(["fig9", "fig6"]) == (
        ("multiround", "table5"),
        ("multiround", "fig9"),
    )
    with pytest.raises(mj.ConfigurationError, match="did you mean 'tableg2'"):
        check_targets("tabelg2")
    mixed = [
        "heterosag.costs",
        "ccesa",
        "ccesa.fig3",
        "multiround.fig1",
        "multiround.fig10",
    ]
    wanted = [("multiround", "fig10"), *(("ccesa", name) for name in ITEMS["ccesa"])]
    assert check_targets(mixed) == (*wanted, ("heterosag", "costs"))


@pytest.mark.parametrize(
    ("paper", "ours", "tolerance", "truth", "verdict"),
    [
        (10, 10, 0, None, "reproduced"),
        (10, 11, 0, None, "differs"),
        (10.0, 10.4, 0.5, None, "reproduced"),
        (10, 11, 0, 11, "paper errs"),
        (10, 12, 0, 11, "differs"),
        (10, math.nan, 0.5, 10, "differs"),
    ],
)
def test_verdicts_of_numbers(
    paper: float, ours: float, tolerance: float, truth: float | None, verdict: Verdict
) -> None:
    assert (
        compare("x", paper, ours, tolerance=tolerance, truth=truth).verdict == verdict
    )


def test_an_item_is_as_good_as_its_worst_check() -> None:
    def item(*verdicts: Verdict) -> Verdict:
        checks = tuple(Check("c", "p", "o", "exact", verdict) for verdict in verdicts)
        return Item(
            "fig2", "t", checks, remake(["multiround.fig2"])[0].data, ""
        ).verdict

    assert item("reproduced", "reproduced") == "reproduced"
    assert item("paper errs", "reproduced") == "paper errs"
    assert item("paper errs", "differs", "reproduced") == "differs"
    words = {"paper": "p", "ours": "o", "tolerance": "t"}
    assert state("c", False, **words).verdict == "differs"
    assert state("c", False, otherwise="paper errs", **words).verdict == "paper errs"
    assert state("c", True, otherwise="paper errs", **words).verdict == "reproduced"
    assert state("c", None, otherwise="paper errs", **words).verdict == "undecided"


def test_data_in_place_of_the_papers_convict_no_paper() -> None:
    """Arithmetic on what is printed still does."""
    (item,) = remake(["multiround.fig2"])
    words = {"paper": "p", "ours": "o", "tolerance": "t", "otherwise": "paper errs"}
    checks = (
        state("trained", False, **words),
        state("counted", False, of_data=False, **words),
    )
    found = on_other_data(dataclasses.replace(item, checks=checks))
    assert [check.verdict for check in found.checks] == ["undecided", "paper errs"]


@pytest.mark.smoke
def test_what_is_undecided_is_counted_and_no_miss() -> None:
    (item,) = remake(["multiround.fig2"])
    item = dataclasses.replace(
        item, checks=tuple(Check("c", "p", "o", "t", v) for v in VERDICTS)
    )
    made = Made("multiround", item, 1.0)
    (row,) = summary([made], ReproduceConfig())
    assert row.counts == (1,) * (len(VERDICTS) - 1)
    for words in (
        "1 our reading",
        "1 not stated",
        "1 undecided",
        "1 differs (1 not expected)",
    ):
        assert words in row.verdicts
    assert "1 undecided, 1 differ (1 not expected)" in totals([row])
    assert standing(item.checks[VERDICTS.index("undecided")], None) == "undecided"
    assert standing(item.checks[VERDICTS.index("undecided")], "known") == "undecided"
    assert standing(item.checks[VERDICTS.index("our reading")], "known") == "explained"


@pytest.mark.smoke
def test_table_1_finds_the_misprint_and_nothing_else() -> None:
    (item,) = remake(["multiround.table1"])
    assert item.verdict == "paper errs"
    wrong = [check for check in item.checks if check.verdict != "reproduced"]
    assert [(check.paper, check.ours) for check in wrong] == [("91389", "91390")]
    assert math.comb(40, 4) == 91390
    sizes = dict(zip(item.data["scheme"], item.data["ours"], strict=True))
    assert sizes["Random"] == math.comb(120, 12)


def test_figure_2_is_all_unions_of_two_blocks() -> None:
    (item,) = remake(["multiround.fig2"])
    assert item.verdict == "reproduced"
    matrix = item.data.pivot(index="row", columns="client", values="member").to_numpy()
    blocks = [{0, 1}, {2, 3}, {4, 5}, {6, 7}]
    wanted = [a | b for a, b in itertools.combinations(blocks, 2)]
    assert [set(np.flatnonzero(row).tolist()) for row in matrix] == wanted


@pytest.mark.long
def test_figure_3_has_the_verified_values() -> None:
    """From exact rationals by another program."""
    (item,) = remake(["multiround.fig3"], fast=True)
    assert item.verdict == "reproduced"
    values = item.data.set_index(["p", "T"])["theorem"]
    for (rate, target), value in {
        (0.1, 12): 11.5656630406,
        (0.2, 4): 11.9996219672,
        (0.3, 6): 8.4001348921,
        (0.4, 3): 11.8024724385,
        (0.5, 12): 0.0292647094,
    }.items():
        assert values[rate, target] == pytest.approx(value, abs=6e-11)


@pytest.mark.long
def test_remark_7_swaps_within_a_block_change_no_sum() -> None:
    (item,) = remake(["multiround.remark7"], fast=True)
    assert item.verdict == "reproduced"
    assert (item.data.loc[item.data["T"] > 1, "sums"] > 0).all()


@pytest.mark.long
def test_remark_7_on_padded_sums() -> None:
    """The server's whole view of the totals is the same when a block's clients swap updates."""
    history = np.asarray(
        mj.selection.rollout(
            1,
            mj.selection.batch_partitioning(12, 6, 3),
            mj.availability.independent(0.1),
            8,
        )
    )
    updates = np.random.default_rng(0).normal(0, 0.1, (12, 5)).astype(np.float32)
    swapped = updates[[1, 2, 0, 5, 3, 4, 6, 8, 7, 10, 11, 9]]
    codes = [
        np.rint(values * 2**16).astype(np.int64) % 2**32
        for values in (updates, swapped)
    ]
    sums = [history.astype(np.int64) @ values % 2**32 for values in codes]
    assert history.any(axis=1).sum() >= 3
    np.testing.assert_array_equal(*sums)
    assert (codes[0] != codes[1]).any()


@pytest.mark.long
def test_theorem_3_at_small_size() -> None:
    (item,) = remake(["multiround.theorem3"], fast=True)
    assert item.verdict == "reproduced"
    bounds = item.data.groupby("N")["bound"].max()
    for n, value in {20: 0.369022, 40: 0.989054659}.items():
        assert bounds[n] == pytest.approx(value, abs=5e-7)
    for _, curve in item.data.groupby(["N", "selection"]):
        assert (np.diff(curve["full_rank"]) >= 0).all()


def test_targets_follow_the_schemes() -> None:
    assert list(targets_of(schemes_for()).values()) == [1, 1, 12, 6, 4, 3]
    online: typing.Any = Context(0, True).online()
    rates = np.unique(np.asarray(online.dropout_rates)).tolist()
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([[0, 0, 0]], [-1]),
        ([[1, 1, 0], [0, 1, 1]], [2, 2]),
        ([[1, 1, 0], [0, 1, 1], [1, 0, 1]], [2, 2, 1]),  # the paper's three users
        ([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]], [4, 2, 2]),
        ([[2, 2, 0], [3, 3, 0]], [2, 2]),
        # rows {3,4,5}, {0,1,2} make an echelon form of weights 3, 3; adding {0,1,2,3}
        # finds {3}
        ([[0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0]], [3, 3, 1]),
    ],
)
def test_the_estimate_is_the_smallest_echelon_row(
    rows: list[list[int]], wanted: list[int]
) -> None:
    assert echelon_estimate(rows).tolist() == wanted


def test_the_estimate_misses_a_lighter_combination() -> None:
    """Reduced rows of weight 4 and 4 whose difference has weight 2: T = 2, estimated 4."""
    rows = np.array([[1, 0, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0, 0]])
    assert echelon_estimate(rows).tolist() == [4, 4]
    assert np.count_nonzero(rows[0] - rows[1]) == 2


@pytest.mark.long
@given(st.integers(0, 2**32 - 1))
def test_the_estimate_is_an_upper_bound(seed: int) -> None:
    """Against all combinations of up to four sums with coefficients in -3..3 of a small matrix."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 2, (4, 6))
    weights = [
        int(np.count_nonzero(np.array(z) @ rows))
        for z in itertools.product(range(-3, 4), repeat=4)
        if np.any(np.array(z) @ rows)
    ]
    estimate = int(echelon_estimate(rows)[-1])
    assert estimate == -1 if not weights else estimate >= min(weights)


def test_windows_and_their_witness_agree_with_a_loop() -> None:
    rng = np.random.default_rng(3)
    history = rng.random((4, 12, 10)) < 0.3
    upper = leaks.window_bounds(history)
    for trial, rounds in itertools.product(range(4), (1, 2, 5, 12)):
        past = history[trial, :rounds].astype(int)
        pairs = [
            past[t - 2 * m : t - m].sum(0) - past[t - m : t].sum(0)
            for t in range(1, rounds + 1)
            for m in range(1, t // 2 + 1)
        ]
        weights = [int(np.count_nonzero(row)) for row in [*past, *pairs]]
        assert upper[trial, rounds - 1] == min([w for w in weights if w], default=11)
    witness = leaks.window_witness(history[0], 10)
    assert witness is not None
    assert leaks.recount(history[0], witness) == np.count_nonzero(
        np.array(witness) @ history[0]
    )
    assert leaks.window_witness(np.eye(4, dtype=bool)[:2], 1) is None


def test_weighted_random_leaks_at_multiples_of_an_epoch() -> None:
    (item,) = remake(["multiround.early_leaks"], fast=True)
    assert {check.as_made for check in item.checks} == {"reproduced"}
    leaked = item.data.pivot(index="rounds", columns="scheme", values="leaked")
    rises = np.flatnonzero(np.diff(leaked["Weighted random"], prepend=0.0)) + 1
    assert len(rises) > 0
    assert (rises % 6 == 0).mean() > 0.5


_FIELD = re.compile(r"(?<![{_^])\{[A-Za-z_][^{}\s]*\}(?!\})")
"""A field of a format that nobody filled in, such as {seeds}.

Not LaTeX's ^{16} and _{total}.
"""


def _unfilled(source: str) -> list[str]:
    """Return the fields that plain strings print as they stand, docstrings apart."""
    tree = ast.parse(source)
    known = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    formatted = {
        n.func.value.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and n.func.attr == "format"
        and isinstance(n.func.value, ast.Name)
    }
    known |= {
        id(n.value)
        for n in ast.walk(tree)
        if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") in formatted
    }
    texts = (
        n.value
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and id(n) not in known
    )
    return [
        field
        for text in texts
        if isinstance(text, str)
        for field in _FIELD.findall(text)
    ]


def test_no_item_prints_a_field_that_nobody_filled_in() -> None:
    """As a caption did: an f before one of its lines was missing."""
    assert _unfilled('f"{n} rounds " "of {seeds} seeds, $2^{16}$"') == ["{seeds}"]
    assert not _unfilled(
        'WORDS = "of {data}"\nWORDS.format(data=1)\nf"$q_{{total}}$ {1:g}"'
    )
    folder = pathlib.Path(inspect.getfile(mrsa_papers)).parent
    found = {
        str(path): _unfilled(path.read_text("utf-8")) for path in folder.rglob("*.py")
    }
    assert len(found) > 30
    assert not {name: fields for name, fields in found.items() if fields}


@pytest.mark.parametrize("is_met", [False, True])
@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_setting_that_is_not_met_lowers_a_verdict(
    verdict: Verdict, is_met: bool
) -> None:
    """What was expected is held against the verdict as made, so that no miss gets lost."""
    checks = tuple(
        Check("c", "falls", "falls", "1", verdict, depends=depends)
        for depends in (None, ())
    )
    made = Item("fig9", "t", checks, None, "words.")  # type: ignore[arg-type]
    fewer = {} if is_met else {"rounds": "rounds: 60 (the paper: 1460)"}
    item = at_other_settings(made, fewer)
    hangs, formula = item.checks
    assert formula == checks[1]
    is_lowered = not is_met and verdict in (
        "reproduced",
        "holds on other data",
        "paper errs",
        "differs",
    )
    assert (hangs.verdict, hangs.as_made) == (
        ("our reading", verdict) if is_lowered else (verdict, None)
    )
    assert ("rounds: 60 (the paper: 1460)" in hangs.note) == is_lowered
    assert item.caption.endswith("(the paper: 1460).") == (not is_met)
    for why in (None, "known"):
        assert standing(hangs, why) == standing(checks[0], why)


@pytest.mark.parametrize(("item", "before"), [("fig9", 1_460), ("fig8_2021", 260)])
def test_windows_begin_where_the_papers_do_or_are_our_reading(
    item: str, before: int
) -> None:
    """Figure 9 has t0 = 1460, and Figure 8 of 2021 t0 = 260."""
    target = f"multiround.{item}"
    fewer = values_of_item(target, rounds_before=before - 1).missed
    assert set(fewer) == {"rounds_before"}
    assert f"(the paper: {before})" in fewer["rounds_before"]
    assert not values_of_item(target, rounds_before=before).missed
    assert not values_of_item(target, rounds_before=before + 1).missed
    faster = values_of_item(target, fast=True, rounds_before=before).missed
    assert {"model"} <= set(faster) <= {"model", "privacy_targets"}


@pytest.mark.long
def test_half_of_the_papers_clients_reproduce_nothing() -> None:
    """Figure 4a at the fast size has 60 clients where the paper has 120."""
    (item,) = remake(["multiround.fig4a"], fast=True)
    assert "num_clients: 60 (the paper: 120)" in item.caption
    verdicts = {check.verdict for check in item.checks}
    assert verdicts <= {"other settings", "our reading", "undecided"}
