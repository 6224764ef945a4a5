"""HeteroSAg's items.

Numbers verified by another program, the errata, and where verdicts come from.
Trainings run here at two rounds: what is compared, in which time, and from which data.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import typing
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from inside import inside, values_of_item

import mrsa_jax as mj
from mrsa_jax.cli import main
from mrsa_papers import ITEMS, ReproduceConfig, remake, run_and_save
from mrsa_papers.harness import Check, Context, Item, difference

accuracy = inside("heterosag.fig3a")
byzantine = inside("heterosag.fig3b")
errors = inside("heterosag.error_bounds")
matrices = inside("heterosag.matrices")
privacy = inside("heterosag.theorem1")
training = accuracy.training
GROUPS = training.Groups((2, 4, 8, 10, 12), 4)

UNTRAINED = [name for name in ITEMS["heterosag"] if not name.startswith("fig")]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: remake(["heterosag.fig3"]), "did you mean 'heterosag.fig3"),
        (
            lambda: remake(["heterosag.matrices"], seed=-1),
            r"`seed` must be an integer in \[0, 2\*\*32\)",
        ),
        (
            lambda: remake(["heterosag.fig3a"], dataset="mnist5k"),
            "did you mean 'mnist_5k'",
        ),
        (
            lambda: remake(["heterosag.fig3b"], dataset="idx"),
            "`directory` must name the folder",
        ),
    ],
)
def test_misuse_names_argument_and_rule(
    call: typing.Callable[[], object], message: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        call()


@pytest.mark.long
@pytest.mark.parametrize(
    ("paper", "item"), [("ccesa", "tableg2"), ("heterosag", "theorem4")]
)
def test_data_are_chosen_for_trainings_alone(
    tmp_path: pathlib.Path, paper: str, item: str
) -> None:
    config = ReproduceConfig(
        (f"{paper}.{item}",), dataset="digits", out=tmp_path / "out"
    )
    with pytest.raises(
        mj.ConfigurationError, match="`dataset` must not be set if no item"
    ):
        run_and_save(config)


@pytest.mark.long
def test_data_that_are_not_here_are_named_before_any_work(
    tmp_path: pathlib.Path,
) -> None:
    with pytest.raises(mj.DataNotFoundError):
        remake(
            ["heterosag.theorem1", "heterosag.fig3a"], dataset="idx", directory=tmp_path
        )


@pytest.fixture(scope="module")
def items(claims: list) -> dict[str, Item]:
    return {
        item.name: item
        for item in remake([f"heterosag.{name}" for name in UNTRAINED], fast=True)
    }


@pytest.mark.long
def test_a_condition_that_nothing_turns_is_blind(claims: list) -> None:
    """What is written down, and what is asked of nobody."""
    state, before, numbers = errors.state, len(claims), [3, 4]
    words: typing.Any = {"paper": "", "ours": "", "tolerance": ""}
    state("written down", False, **words)
    state("of nobody", all(n > 2 for n in numbers[:0]), **words)
    found = all(n > 2 for n in numbers)
    state("asked", found, **words)
    assert [one.is_blind for one in claims[before:]] == [True, True, False]
    del claims[before:]


@pytest.mark.long
def test_every_verdict_can_fall(items: dict[str, Item], claims: list) -> None:
    """With one wrong value among those that it is read from; see conftest.py."""
    assert len(claims) >= sum(len(item.checks) for item in items.values())
    assert [f"{one.place}: {one.claim}" for one in claims if one.is_blind] == []


def _by_verdict(item: Item, verdict: str) -> list[Check]:
    return [check for check in item.checks if check.verdict == verdict]


@pytest.mark.long
@pytest.mark.parametrize("name", UNTRAINED)
def test_nothing_is_missed(items: dict[str, Item], name: str) -> None:
    assert not _by_verdict(items[name], "differs")
    assert items[name].caption
    assert all(check.tolerance for check in items[name].checks)


@pytest.mark.long
def test_readable_rows_are_equal_and_the_others_said_to_be_lost(
    items: dict[str, Item],
) -> None:
    """By hand, Section V-B: rows 3 and 4 of MC+ alone cannot be read."""
    found = {check.claim.split(":")[0]: check for check in items["matrices"].checks}
    assert [check.ours for check in items["matrices"].checks[:5]] == [
        "5 equal",
        "6 equal",
        "5 equal",
        "3 equal",
        "5 equal",
    ]
    note = found["MC+, Example 5"].note
    assert note == "row 3: the row above, printed again; row 4: an entry is lost"
    rows = items["matrices"].data.groupby(["matrix", "segment"])["print"].first()
    assert (rows.str.startswith("equal")).sum() == 24


@pytest.mark.long
def test_a_row_that_differs_is_found() -> None:
    ours = [["0", "0", "*"], ["*", "1", "1"]]
    assert matrices._readings([["0", "*", "0"], ["*", "1", "1"]], ours) == [
        "differs",
        "equal",
    ]
    read = matrices._readings([["0", "0", "*", "*"], ["*", "1"]], ours)
    assert read == ["equal but for one token too many", "an entry is lost"]
    check = matrices._rows_check(matrices._PRINTED[0], ["differs", *["equal"] * 4])
    assert check.verdict == "differs"


@pytest.mark.long
def test_example_1_again(items: dict[str, Item]) -> None:
    """In Python integers: 12 triples, 54 of 216 sums wrong, and which."""
    wrong = 0
    for pads in itertools.product(range(2), range(6), range(6)):
        if sum(pads) % 6:
            continue
        for codes in itertools.product(range(2), range(3), range(3)):
            sent = (
                (codes[0] + pads[0]) % 2
                + (codes[1] + pads[1]) % 6
                + (codes[2] + pads[2]) % 6
            )
            wrong += sent % 6 != sum(codes)
    data = items["examples"].data
    assert (len(data), int(data["is wrong"].sum())) == (216, 54) == (216, wrong)
    errs = _by_verdict(items["examples"], "paper errs")
    assert [check.ours for check in errs] == [
        "54 of 216 sums wrong, of 108 with overflow",
        "(1,0) by the rule, (1,1) by z_T - Z_(g_T - 1)",
    ]


@pytest.mark.long
def test_privacy_levels_have_the_verified_values(items: dict[str, Item]) -> None:
    data = items["theorem1"].data
    mc = data[data["scheme"] == "MC"].set_index("G")["true fraction"]
    assert mc[[5, 6, 9, 13, 15]].tolist() == ["4/5", "1/2", "2/3", "12/13", "2/3"]
    wrong = data[(data["scheme"] == "HC") & ~data["holds"]]
    assert list(zip(wrong["G"], wrong["T"].astype(int), strict=True)) == [
        (8, 2),
        (9, 2),
        (10, 2),
        (10, 3),
        (12, 2),
        (12, 3),
        (14, 2),
        (14, 3),
        (14, 4),
        (15, 2),
        (15, 3),
        (15, 4),
    ]
    assert data[data["scheme"] == "SC"]["holds"].all()
    assert len(_by_verdict(items["theorem1"], "paper errs")) == 5


@pytest.mark.long
def test_known_segments_are_counted_by_brute_force() -> None:
    """G = 6: the level over all 62 unions, by sets written here."""
    rows = [
        [{0, 1}, {2, 5}, {3, 4}],
        [{0, 2}, {1}, {3, 5}, {4}],
        [{0, 3}, {1, 2}, {4, 5}],
        [{0, 4}, {1, 3}, {2}, {5}],
        [{0, 5}, {1, 4}, {2, 3}],
        [{0}, {1, 5}, {2, 4}, {3}],
    ]
    matrix = mj.hetero.segment_matrix("mc", 6)
    most = 0
    for bits in range(1, 63):
        union = {group for group in range(6) if bits >> group & 1}
        own = sum(all(b <= union or not b & union for b in row) for row in rows)
        assert privacy.segments_known(matrix, union) == own
        most = max(most, own)
    assert privacy._truth("mc", 6, None)[0] == 1 - Fraction(most, 6)


@pytest.mark.long
def test_equation_18_errs_where_the_last_group_holds_the_threshold(
    items: dict[str, Item],
) -> None:
    (wrong,) = _by_verdict(items["error_bounds"], "paper errs")
    assert wrong.claim == "(18) as printed against counting"
    assert int(wrong.ours.split()[2]) > 0
    assert errors._counted("SC", 199_210, GROUPS) == pytest.approx(
        771.3528888659841, rel=1e-14
    )
    data = items["error_bounds"].data
    halfway = data[data["updates"] == "halfway"]
    np.testing.assert_allclose(halfway["exact"], halfway["bound"], rtol=1e-5)


@pytest.mark.long
def test_expansion_and_survival_and_attackers(items: dict[str, Item]) -> None:
    assert [check.ours for check in items["expansion"].checks[:4]] == [
        "1.875",
        "1.25",
        "15",
        "4",
    ]
    assert items["theorem4"].verdict == "our reading"
    data = items["theorem4"].data.set_index(["n", "p", "Z"])["formula"]
    assert data[(4, 0.5, 1)] == pytest.approx(1 - 5 / 16)
    assert data[(4, 0.5, 5)] == pytest.approx((1 - 5 / 16) ** 5)
    exact = items["byzantine_bound"].data.set_index("G")["exact"]
    assert exact[[2, 4, 5, 8, 9, 12]].tolist() == [0, 0, 1, 1, 2, 2]
    tolerated = items["byzantine_bound"].data.set_index("G")
    for name, scheme, trim in (
        ("SC", "sc", 0),
        ("HC", "hc", 0),
        ("trimmed", "mc", 0.25),
    ):
        for size in (4, 6, 7, 12):
            threshold = 3 if scheme == "hc" else None
            matrix = mj.hetero.segment_matrix(scheme, size, threshold)
            assert tolerated[name][size] == _tolerated(matrix, trim)
    assert len(items["costs"].checks) == 9


def _tolerated(matrix: np.ndarray, trim: float) -> int:
    """Return the most attacked groups that every placing of them leaves harmless."""

    def is_safe(groups: tuple[int, ...]) -> bool:
        for row in mj.hetero.blocks_of(matrix):
            bad = sum(not set(groups).isdisjoint(block) for block in row)
            if bad > trim * len(row) if trim else 2 * bad >= len(row):
                return False
        return True

    columns = range(matrix.shape[1])
    return max(
        count
        for count in range(len(columns))
        if all(map(is_safe, itertools.combinations(columns, count)))
    )


@pytest.mark.long
def test_algorithm_6_is_run_as_printed_but_for_its_errata() -> None:
    """Example 5's matrix of HC+, row by row from the print."""
    found = privacy._algorithm_6((1, 2, 2), 2)
    text = mj.hetero.format_matrix(found, [1, 2, 2]).splitlines()
    assert [line.split() for line in text[2:]] == [
        ["(0,0)", "(1,0)", "(1,0)", "(0,0)", "*"],
        ["(0,0)", "(1,0)", "*", "(1,0)", "(0,0)"],
        ["*", "(1,0)", "(1,1)", "(1,1)", "(1,0)"],
    ]


@pytest.mark.long
def test_the_times_of_a_round_by_hand() -> None:
    """Five segments of one coordinate: 20 users at 1 bit or 4 bits, then residues."""
    assert accuracy.seconds("K = 2", 5, GROUPS) == (5e-6, 25e-6)
    assert accuracy.seconds("K = 12", 5, GROUPS) == (20e-6, 40e-6)
    # slowest group: SC sums segments 0 and 4 by eight (9 values), the others by four (5
    # values)
    assert accuracy.seconds("SC", 5, GROUPS) == pytest.approx(
        (5e-6, (2 * 4 + 3 * 3) * 1e-6)
    )
    assert accuracy.seconds("MC", 5, GROUPS) == pytest.approx(
        (5e-6, (4 * 4 + 3) * 1e-6)
    )


@pytest.mark.long
def test_the_clip_range_is_the_pilots_largest_entry_rounded_up() -> None:
    assert training.clip_range(np.asarray([[0.0, -0.0361], [0.02, 0.01]])) == 0.037
    assert training.clip_range(np.asarray([0.25])) == 0.25


@pytest.mark.long
def test_differences_are_paired_by_seed() -> None:
    """By hand: gaps 1, 2, 3 points, mean 2, t(2) = 4.3027 standard errors of 1/sqrt(3)."""
    found = difference([0.51, 0.62, 0.73], [0.50, 0.60, 0.70])
    assert found.mean == pytest.approx(2.0)
    assert found.half == pytest.approx(4.302653 / 3**0.5)
    assert (found.low, found.high) == (found.mean - found.half, found.mean + found.half)
    assert difference([0.5], [0.4]).low == -np.inf


def _curves(**levels: float) -> pd.DataFrame:
    rows = []
    for scheme, level in levels.items():
        for seed in range(3):
            rows += [
                {
                    "classes": "sorted classes",
                    "scheme": scheme.replace("_", " = "),
                    "factor": 1.0,
                    "seed": seed,
                    "round": at,
                    "accuracy": level + 0.001 * seed,
                }
                for at in (50, 95, 100)
            ]
    return pd.DataFrame(rows)


@pytest.mark.long
@pytest.mark.parametrize(
    ("levels", "verdicts"),
    [
        ((0.5, 0.75, 0.72, 0.76), ["reproduced"] * 3),
        ((0.68, 0.75, 0.72, 0.80), ["differs", "differs", "reproduced"]),
        ((0.5, 0.72, 0.75, 0.76), ["reproduced", "reproduced", "differs"]),
        ((0.5, 0.77, 0.75, 0.76), ["reproduced"] * 3),
    ],
)
def test_claims_are_judged_both_ways(
    levels: tuple[float, ...], verdicts: list[str]
) -> None:
    frame = _curves(**dict(zip(("K_2", "SC", "MC", "K_12"), levels, strict=True)))
    values = values_of_item("heterosag.fig3a", num_seeds=3)
    checks = accuracy._accuracy_checks(frame, values, 0.04)
    assert [check.verdict for check in checks] == verdicts
    small = next(accuracy._order_checks(frame, values, 0.04))
    assert (small.verdict == "reproduced") == (levels[3] > max(levels[:3]))


def _tiny(context: Context | None = None) -> Context:
    return context or Context(0, True, dataset="digits")


@pytest.mark.long
def test_experiment_1_runs_all_schemes_from_the_same_start() -> None:
    values = values_of_item(
        "heterosag.fig3a",
        fast=True,
        num_rounds=2,
        evaluate_every=1,
        num_spread_seeds=1,
        num_clip_seeds=1,
        clip_factors=(2.0,),
        model="logistic",
    )
    item = accuracy.accuracy(_tiny(), values)
    counts = item.data.groupby(["classes", "factor", "scheme"])["seed"].nunique()
    assert counts["sorted classes", 1.0].eq(2).all()
    assert counts["spread classes", 1.0].index.tolist() == ["MC", "SC"]
    assert counts["sorted classes", 2.0].eq(1).all()
    assert item.data["round"].unique().tolist() == [1, 2]
    assert item.checks[-1].ours == "bit-equal models"
    assert "digits" in item.caption


@pytest.mark.long
def test_each_group_holds_the_classes_it_is_said_to() -> None:
    dataset = mj.data.load("digits", seed=0)
    clients = training.one_class_each(_key(), dataset, 20)
    classes = mj.data.class_counts(clients).argmax(axis=1)
    assert (mj.data.class_counts(clients) > 0).sum(axis=1).tolist() == [1] * 20
    assert classes.tolist() == sorted(classes.tolist())
    spread = (
        mj.data.class_counts(accuracy._spread(clients)).argmax(axis=1).reshape(5, 4)
    )
    assert all(len(set(group.tolist())) == 4 for group in spread)


def _key() -> typing.Any:
    import jax

    return jax.random.key(3)


@pytest.mark.long
def test_experiment_2_runs_with_and_without_the_attacker() -> None:
    chosen = {name: byzantine.RUNS[name] for name in byzantine.RUNS}
    assert len(chosen) == 6
    values = values_of_item(
        "heterosag.fig3b", fast=True, num_rounds=2, evaluate_every=1
    )
    item = byzantine.byzantine(_tiny(), values)
    assert item.data["run"].unique().tolist() == list(chosen)
    assert item.checks[0].claim.startswith("n_B = 1, median, against n_B = 0, mean")
    assert len(item.checks) == 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("levels", "verdicts"),
    [
        ((0.8, 0.79, 0.79, 0.3, 0.78, 0.7), ["reproduced"] * 3),
        ((0.8, 0.79, 0.6, 0.8, 0.7, 0.7), ["differs", "differs", "differs"]),
    ],
)
def test_the_attack_is_judged_both_ways(
    levels: tuple[float, ...], verdicts: list[str]
) -> None:
    rows = [
        {"run": run, "seed": seed, "round": 100, "accuracy": level + 0.001 * seed}
        for run, level in zip(byzantine.RUNS, levels, strict=True)
        for seed in range(3)
    ]
    values = values_of_item("heterosag.fig3b")
    checks = byzantine._checks(pd.DataFrame(rows), "read", "digits", 0.01, values)
    assert [check.verdict for check in checks] == verdicts


@pytest.mark.long
def test_the_command_writes_items_of_heterosag(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = [f"heterosag.{name}" for name in ("matrices", "examples", "expansion")]
    assert main(["reproduce", *words, "--fast", "--out", str(out), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    names = [item["verdict"] for item in content["items"]]
    assert names == ["reproduced", "paper errs", "reproduced"]
    figures = {f"matrices.{end}" for end in ("png", "svg", "csv")}
    assert figures < {
        path.name for path in (out / "items/heterosag.matrices").iterdir()
    }
    assert "mrsa_jax reproduce" in (out / "report.html").read_text()
