"""Settings of items: flags, keywords and axes of sweeps, and what they do to verdicts."""

from __future__ import annotations

import ast
import json
import math
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from small import small_values

import mrsa_jax as mj
import mrsa_papers
from mrsa_jax.cli import main
from mrsa_papers import ITEMS, remake
from mrsa_papers._config import check_targets, config_of
from mrsa_papers._driver import figure_of
from mrsa_papers._functions import item_function
from mrsa_papers.harness import compare, drawn, state
from mrsa_papers.harness._items import Item, at_other_settings
from mrsa_papers.harness._settings import Setting, values_of

WITH_SETTINGS = [
    f"{paper}.{name}"
    for paper, rows in ITEMS.items()
    for name, row in rows.items()
    if row.settings
]


@pytest.mark.parametrize("target", WITH_SETTINGS)
def test_every_setting_has_words_and_legal_values(target: str) -> None:
    ((paper, name),) = check_targets(target)
    settings = ITEMS[paper][name].settings
    assert len({each.name for each in settings}) == len(settings)
    for each in settings:
        assert each.words.endswith("."), each.name
        for value in (each.value, each.fast):
            config = config_of((paper, name))(**{each.name: value})
            mj.study.settings._load.check_types(config)
        # the default is the paper's, or the row says what the paper's is
        assert each.paper is None or type(each.paper) is type(each.value), each.name


def test_a_printed_number_stands_only_next_to_its_settings() -> None:
    settings = (
        Setting.of("num_clients", {"value": 120}),
        Setting.of("num_trials", {"value": 40, "ours": True}),
        Setting.of("rounds_before", {"value": 60, "paper": 1460, "least": True}),
    )
    checks = (
        compare("C", 8.4, 8.41, tolerance=0.1),
        compare("sets", 3, 3, depends=("num_clients",)),
        state("F falls", True, paper="falls", ours="falls"),
        state("F tends to 0", True, paper="tends to 0", ours="0.01", depends=()),
        state("C is whole", True, ours="whole"),
        state("C is near", None, paper="near 8.4", ours="8 or 9"),
    )
    item = Item("fig", "", checks, None, "As drawn.")  # type: ignore[arg-type]

    def verdicts(**given: Any) -> list[str]:
        values = values_of("fig", settings, given)
        made = at_other_settings(item, values.missed)
        return [check.verdict for check in made.checks]

    reproduced = ["reproduced"] * 4 + ["ours", "undecided"]
    assert verdicts(rounds_before=1460) == reproduced
    assert verdicts(rounds_before=2000, num_trials=1) == reproduced
    fewer = at_other_settings(item, values_of("fig", settings, {}).missed)
    assert [check.verdict for check in fewer.checks] == [
        "other settings",
        "reproduced",
        "our reading",
        "reproduced",
        "ours",
        "undecided",
    ]
    # what the paper printed is gone, and what differs stands in note and caption
    assert [fewer.checks[place].paper for place in (0, 1, 5)] == ["", "3", ""]
    assert "rounds_before: 60 (the paper: 1460)" in fewer.checks[0].note
    assert "rounds_before: 60 (the paper: 1460)" in fewer.caption
    assert verdicts(rounds_before=1460, num_clients=60)[:2] == ["other settings"] * 2


def test_a_setting_that_the_paper_leaves_open_compares_no_number() -> None:
    """No value of it is the paper's: a claim without a number is judged all the same."""
    settings = (
        Setting.of("num_rounds", {"value": 50, "fast": 24, "open": True}),
        Setting.of("num_trials", {"value": 40, "ours": True}),
    )
    assert "the paper states none, though its numbers depend on it" in settings[0].help
    checks = (
        state("accuracy", True, paper="98.21", ours="97.9"),
        state("worst", True, paper="partition", ours="partition"),
        state("sets", True, paper="190", ours="190", depends=()),
        state("trials", True, paper="40", ours="40", depends=("num_trials",)),
    )
    item = Item("table", "", checks, None, "As drawn.")  # type: ignore[arg-type]
    for given in ({}, {"num_rounds": 1000}):
        values = values_of("table", settings, given)
        assert not values.missed
        assert not values.are_papers
        made = at_other_settings(item, values.missed, values.unstated)
        assert [check.verdict for check in made.checks] == [
            "other settings",
            "reproduced",
            "reproduced",
            "reproduced",
        ]
        assert [check.paper for check in made.checks] == ["", "partition", "190", "40"]
        assert "(the paper states none)" in made.checks[0].note
        assert made.caption == "As drawn."
    assert values_of("table", settings[1:], {}).are_papers


def test_what_decides_a_printed_accuracy_is_the_papers_or_open() -> None:
    """Rounds and steps of a training decide its accuracy, and what is attacked in it."""
    decide = {"num_rounds", "num_epochs", "learning_rate", "rounds_before"}
    printing = {"table3", "table4", "table5", "fig9", "fig8_2021"}
    seen = set()
    for rows in ITEMS.values():
        for name in printing & set(rows):
            for setting in rows[name].settings:
                if setting.name in decide:
                    seen.add(setting.name)
                    assert setting.is_open or setting.paper is not None, (name, setting)
    assert seen == decide


def test_fast_is_nothing_but_other_values() -> None:
    """No maker asks for it, and an item at its values is the fast item."""
    folder = pathlib.Path(mrsa_papers.__file__).parent
    makers = [file for paper in ITEMS for file in (folder / paper).glob("*.py")]
    assert len(makers) > 30
    for file in makers:
        asked = [
            node.attr
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Attribute) and "fast" in node.attr
        ]
        assert not asked, file
    (setting,) = ITEMS["multiround"]["remark6"].settings
    assert setting.fast != setting.value
    fast, given = remake("multiround.remark6", fast=True), mrsa_papers.remark6
    assert fast[0].checks == given(num_clients=setting.fast).checks


def test_a_claim_of_ours_is_never_a_hit_or_a_miss_of_the_paper() -> None:
    fails = state("more than asked", False, ours="less")
    assert (fails.verdict, fails.as_made) == ("ours", "differs")
    both = Item("x", "", (fails, compare("n", 1, 1)), None, "")  # type: ignore[arg-type]
    assert both.verdict == "reproduced"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_size": [100]}, "did you mean 'num_sizes'"),
        ({"num_sizes": [2]}, "`num_sizes` must be at least 3; got 2"),
        ({"num_sizes": "many"}, "`num_sizes` must be"),
        ({"total_rates": [1.0]}, "`total_rates` must lie in"),
        ({"total_rates": [0.2]}, "must leave a p\\* of at most 1"),
    ],
)
def test_misuse_is_answered_in_one_sentence(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(mj.ConfigurationError, match=message):
        remake("ccesa.fig3", **settings)


def test_settings_are_of_one_item() -> None:
    with pytest.raises(mj.ConfigurationError, match="must be set for one item"):
        remake("ccesa", num_sizes=[100])


def test_an_item_is_a_function_of_its_settings() -> None:
    item = mrsa_papers.ccesa.tableg2(num_sizes=(100, 250))
    assert item.data["n"].unique().tolist() == [100, 250]
    # a pair that the table has is compared, another one has no printed number
    printed = item.data.set_index(["q_total", "n"])["printed"]
    assert printed[0.0, 100] == pytest.approx(0.636, abs=0.1)
    assert math.isnan(printed[0.0, 250])
    assert "num_sizes" in (mrsa_papers.tableg2.__doc__ or "")
    assert "fig9" in dir(mrsa_papers.multiround)
    with pytest.raises(AttributeError, match=r"mrsa_papers\.multiround\.fig3"):
        mrsa_papers.fig3()
    with pytest.raises(AttributeError, match="has no item 'fig99'"):
        mrsa_papers.ccesa.fig99()


def test_help_lists_an_item_s_settings_without_jax() -> None:
    code = (
        "import sys; from mrsa_jax.cli import main; "
        "status = main(['reproduce', 'ccesa.fig3', '--help']); "
        "assert 'jax' not in sys.modules; sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    words = " ".join(done.stdout.replace("│", " ").split())
    assert "Figure 3: bounds on the chances of failure" in words
    assert "Independent trials. (default: 40000; the paper states none" in words
    assert "--fast: 4000" in words


def test_the_command_line_takes_them(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "ccesa.tableg2", "--num-sizes", "150", "--json"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    content = json.loads(capsys.readouterr().out)
    checks = content["items"][0]["checks"]
    assert [check["verdict"] for check in checks] == ["reproduced", "other settings"]
    assert checks[1]["paper"] == ""
    # the same again is taken as it is; other settings are refused
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    words[3] = "160"
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert "choose another --out" in capsys.readouterr().err
    words[3] = "2"
    assert main([*words, "--out", str(tmp_path / "other")]) == 2
    assert "`num_sizes` must be at least 3; got 2" in capsys.readouterr().err


def test_a_folder_keeps_the_items_of_earlier_runs(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with its own settings, on one page; the exit status is of what was asked."""
    out = ["--out", str(tmp_path / "out"), "--json"]
    assert main(["reproduce", "ccesa.tableg2", "--num-sizes", "150", *out]) == 0
    assert main(["reproduce", "ccesa.bandwidth", *out]) == 0
    capsys.readouterr()
    assert main(["reproduce", "bandwidth", *out]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [row["item"] for row in content["summary"]] == [
        "ccesa.tableg2",
        "ccesa.bandwidth",
    ]
    assert content["items"][0]["checks"][1]["verdict"] == "other settings"
    # a name that one paper alone has is stored with its paper
    assert content["manifest"]["config"]["targets"] == ["ccesa.bandwidth"]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "Table G.2" in page
    assert "Appendix D.1" in page


def test_a_sweep_takes_an_item(tmp_path: pathlib.Path) -> None:
    (tmp_path / "items.toml").write_text(
        f'command = "reproduce tableg2"\nout = "{tmp_path}/out"\n'
        "[grid]\nnum_sizes = [[100, 150], [120]]\n"
    )
    results = mj.study.sweep(tmp_path / "items.toml")
    assert results["done"].all()
    assert main(["report", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "What the item found at each point" in page
    assert page.count(">other settings<") == 2
    found = mj.study.open_study(tmp_path / "out")
    assert found["verdict"].isel(claim=slice(3)).values[1].tolist() == [
        "reproduced",
        "other settings",
        "",
    ]
    (item,) = remake("ccesa.tableg2", num_sizes=[120])
    ours = found["ours"].isel(num_sizes=1).values
    assert ours[0] == item.checks[0].ours
    assert found["value"].isel(num_sizes=1).values[0] == float(item.checks[0].ours)
    assert np.isnan(found["value"].values[1, 3])


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("reproduce ccesa", "must name one item"),
        ("reproduce ccesa.figg3", "did you mean 'ccesa.fig3'"),
        ("reproduse", "known: simulate"),
    ],
)
def test_a_sweep_refuses_what_is_no_item(
    tmp_path: pathlib.Path, command: str, message: str
) -> None:
    (tmp_path / "items.toml").write_text(f'command = "{command}"\n[grid]\nseed = [0]\n')
    with pytest.raises(mj.ConfigurationError, match=message):
        mj.study.sweep(tmp_path / "items.toml", out=tmp_path / "out")


def _weight(target: str) -> Any:
    """Mark an item that trains: at small values it costs more than the others."""
    ((paper, name),) = check_targets(target)
    trains = ITEMS[paper][name].trains
    return pytest.param(target, marks=pytest.mark.slow if trains else ())


@pytest.mark.long
@pytest.mark.parametrize(
    "target",
    # those of the other papers are tried in test_other_settings.py
    [_weight(target) for target in WITH_SETTINGS if target.startswith("multiround.")],
)
def test_every_item_runs_at_other_values_of_all_its_settings(target: str) -> None:
    ((paper, name),) = check_targets(target)
    values = small_values(target)
    for each in ITEMS[paper][name].settings:
        assert values[each.name] not in (each.value, each.fast), each.name
    item = item_function(target)(**values)
    assert item.checks
    assert item.caption
    # what the paper states of every setting holds at these too
    assert "differs" not in [check.verdict for check in item.checks], item.checks
    missed = values_of(target, ITEMS[paper][name].settings, values).missed
    for words in missed.values():
        assert words in item.caption
    assert drawn(figure_of((paper, name)), item.data).axes


@pytest.mark.long
@pytest.mark.parametrize("paper", ITEMS)
def test_an_item_of_each_paper_takes_its_settings_as_flags(
    paper: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = [
        target
        for target in WITH_SETTINGS
        if target.startswith(f"{paper}.")
        and not ITEMS[paper][target.partition(".")[2]].trains
    ]
    if not quick:
        pytest.skip("no item of this paper has settings without training")
    values = small_values(quick[0])
    words = ["reproduce", quick[0], "--json", "--out", str(tmp_path / "out")]
    for name, value in values.items():
        several = value if isinstance(value, tuple) else (value,)
        words += [f"--{name.replace('_', '-')}", *map(str, several)]
    assert main(words) == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    made = item_function(quick[0])(**values)
    assert [check["ours"] for check in item["checks"]] == [
        check.ours for check in made.checks
    ]
    # lists of nothing, and of the same twice, are refused
    settings = ITEMS[paper][quick[0].partition(".")[2]].settings
    repeats = {each.name for each in settings if each.repeats}
    for name, value in values.items():
        if isinstance(value, tuple) and name not in repeats:
            with pytest.raises(mj.ConfigurationError, match=f"`{name}` must hold at"):
                item_function(quick[0])(**{name: ()})
            with pytest.raises(mj.ConfigurationError, match="must not contain dup"):
                item_function(quick[0])(**{name: (value[0],) * 2})
