"""What advice reads from logs.

The losses that were written into them, and what cannot be known.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import pathlib
from typing import Any

import numpy as np
import pytest

from mrsa_jax import ConfigurationError, DataNotFoundError, live, study
from mrsa_jax.study.advice import Rate
from mrsa_jax.study.advice._log import measure_log
from mrsa_watch.logs import FORMAT

HEADER = {
    "format": FORMAT,
    "version": 1,
    "system": "s",
    "aggregation": "secagg+",
    "pseudonyms": None,
    "run": 0,
}


def _write(
    path: pathlib.Path, *lines: dict[str, Any] | str, header: Any = HEADER
) -> pathlib.Path:
    texts = [
        one if isinstance(one, str) else json.dumps(one) + "\n"
        for one in (header, *lines)
    ]
    path.write_text("".join(texts), encoding="utf-8")
    return path


def _simulated(path: pathlib.Path, rounds: int) -> dict[str, tuple[int, int]]:
    """Record rounds with losses at each stage.

    Return the counts that were drawn, by their kind.
    """
    draw = np.random.default_rng(7)
    truth = {"before": [0, 0], "inside": [0, 0], "unmasking": [0, 0]}
    with live.Recorder(path, system="s", aggregation="secagg+") as recorder:
        for number in range(1, rounds + 1):
            asked = draw.choice(40, 12, replace=False)
            early = [c for c in asked if draw.random() < 0.2]
            began = [c for c in asked if c not in early]
            shares = [c for c in began if draw.random() < 0.05]
            uploads = [c for c in began if c not in shares and draw.random() < 0.1]
            inside = [c for c in began if c not in shares and c not in uploads]
            late = [c for c in inside if draw.random() < 0.3]
            lost = {
                "setup": early,
                "share_keys": shares,
                "upload": uploads,
                "unmask": late,
            }
            status = "learnt" if len(inside) > 1 else "aborted"
            inside = inside if status == "learnt" else []
            recorder.record(
                number, inside, asked=asked, lost=lost if inside else {}, status=status
            )
            for kind, own, of in (
                ("before", early, asked),
                ("inside", shares + uploads, began),
                ("unmasking", late, inside),
            ):
                truth[kind][0] += len(own)
                truth[kind][1] += len(of)
    return {kind: (count, total) for kind, (count, total) in truth.items()}


@pytest.mark.long
def test_rates_are_those_that_made_the_log(tmp_path: pathlib.Path) -> None:
    truth = _simulated(tmp_path / "log.jsonl", 200)
    found = measure_log(tmp_path / "log.jsonl")
    for kind, counts in truth.items():
        rate = getattr(found, kind)
        assert (rate.count, rate.total) == counts
    for rate, chance in (
        (found.before, 0.2),
        (found.inside, 0.145),
        (found.unmasking, 0.3),
    ):
        assert rate is not None
        assert rate.lower < chance < rate.upper  # with this seed
    assert (found.num_clients, found.cohort_size, found.num_rounds) == (40, 12, 200)
    assert found.says_lost
    assert not found.varies


@pytest.mark.long
def test_advice_from_a_log_takes_what_it_measured(tmp_path: pathlib.Path) -> None:
    truth = _simulated(tmp_path / "log.jsonl", 200)
    log = str(tmp_path / "log.jsonl")
    found = study.advise(log=log, trials=0)
    own = found.setting
    before, inside = (truth[kind][0] / truth[kind][1] for kind in ("before", "inside"))
    assert (own.num_clients, own.cohort_size) == (40, 12)
    assert (*own.dropout_rates, own.loss_rate) == pytest.approx((before, inside))
    assert "lost at setup" in " ".join(found.sentences)
    same = study.advise(40, 12, before, loss_rate=inside, trials=0)
    assert found.options == same.options
    # what is given wins
    given = study.advise(44, None, 0.05, log=log, loss_rate=0.0, trials=0).setting
    assert (given.num_clients, given.cohort_size) == (44, 12)
    assert (given.dropout_rates, given.loss_rate) == ((0.05,), 0.0)
    with pytest.raises(
        ConfigurationError, match="`num_clients` must be at least 40, the clients"
    ):
        study.advise(39, log=log, trials=0)


def test_a_rate_and_its_interval() -> None:
    alone = Rate.of([3], [10])
    assert alone is not None
    assert alone.lower == pytest.approx(0.0667, abs=1e-4)  # Clopper and Pearson's
    assert alone.upper == pytest.approx(0.6525, abs=1e-4)
    bursts = Rate.of([10, 0, 0, 0], [10] * 4)  # a round that went down as a whole
    spread = Rate.of([3, 2, 3, 2], [10] * 4)
    assert bursts is not None
    assert spread is not None
    assert bursts.rate == spread.rate == 0.25
    assert bursts.upper > 0.9 > spread.upper
    assert Rate.of([0, 0], [0, 0]) is None


def test_sums_of_one_round_are_one_round(tmp_path: pathlib.Path) -> None:
    path = _write(
        tmp_path / "log.jsonl",
        {
            "round": 1,
            "sum": 0,
            "clients": ["a", "b"],
            "asked": ["a", "b", "c"],
            "lost": {"upload": ["c"]},
        },
        {"round": 1, "sum": 1, "clients": ["d", "e"], "asked": ["d", "e"]},
        {"round": 2, "status": "refused"},
        {
            "round": 3,
            "status": "aborted",
            "asked": ["a", "b", "c", "d", "e"],
            "lost": {"setup": ["a"], "train": ["b", "c"]},
        },
    )
    found = measure_log(path)
    assert (found.cohort_size, found.num_rounds, found.num_sums, found.aborted) == (
        5,
        2,
        2,
        1,
    )
    assert (found.before.count, found.before.total) == (1, 10)  # type: ignore[union-attr]
    assert (found.inside.count, found.inside.total) == (3, 9)  # type: ignore[union-attr]
    assert found.participations == (0, 1.0, 1)


def test_who_is_lost_twice_in_a_round_is_one_client(tmp_path: pathlib.Path) -> None:
    """Each line keeps the rules; together they must not make rates above 1."""
    asked = {"asked": ["a", "b", "c"]}
    found = measure_log(
        _write(
            tmp_path / "log.jsonl",
            {"round": 1, "status": "aborted", **asked, "lost": {"setup": ["a", "b"]}},
            {
                "round": 1,
                "sum": 1,
                "status": "aborted",
                **asked,
                "lost": {"upload": ["a", "b", "c"]},
            },
            {"round": 2, "status": "aborted", **asked, "lost": {"unmask": ["a", "b"]}},
            {"round": 2, "sum": 1, **asked, "clients": ["c"]},
        )
    )
    rates = found.before, found.inside, found.unmasking
    counts = [(one.count, one.total) for one in rates if one is not None]
    assert counts == [(2, 6), (3, 4), (0, 1)]


def test_who_is_missing_without_a_word_was_lost(tmp_path: pathlib.Path) -> None:
    path = _write(
        tmp_path / "log.jsonl",
        {"round": 1, "clients": ["a", "b"], "asked": list("abcd")},
    )
    found = measure_log(path)
    assert (found.inside.count, found.inside.total) == (2, 4)  # type: ignore[union-attr]
    assert "So few rounds" in " ".join(found.sentences())


def test_cohorts_that_vary(tmp_path: pathlib.Path) -> None:
    lines = [
        {"round": i, "clients": list("abcdef"[:size])}
        for i, size in enumerate([4, 6, 4, 5])
    ]
    found = measure_log(_write(tmp_path / "log.jsonl", *lines))
    assert found.varies
    # who was asked is not known: sums lack of the largest, and nothing is known of
    # before
    assert (found.cohort_size, found.cohort_sizes, found.before) == (6, (4, 6), None)
    assert (found.inside.count, found.inside.total) == (5, 24)  # type: ignore[union-attr]
    words = " ".join(found.sentences())
    assert "4 to 6 of them summed per round" in words
    assert "--dropout-rates" in words
    asked = [{**line, "asked": line["clients"]} for line in lines]
    assert measure_log(_write(tmp_path / "asked.jsonl", *asked)).cohort_size == 4


def test_a_log_in_columns(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.csv"
    rows = ["1,a", "1,b", "1,c", "2,a", "2,b", "3,c", "3,d", "3,a"]
    path.write_text("\n".join(["when,who", *rows]) + "\n")
    found = study.advise(
        log=str(path), round_column="when", client_column="who", trials=0
    )
    assert found.measured is not None
    assert (found.setting.num_clients, found.setting.cohort_size) == (4, 3)
    assert found.setting.loss_rate == pytest.approx(1 / 9)
    assert not found.measured.says_lost


def test_logs_are_read_as_audits_read_them(tmp_path: pathlib.Path) -> None:
    """Packed, with a mark of the order of bytes, and other JSON Lines."""
    lines = [{"round": 1, "clients": ["a", "b"], "asked": ["a", "b", "c"]}]
    plain = measure_log(_write(tmp_path / "log.jsonl", *lines))
    data = (tmp_path / "log.jsonl").read_bytes()
    (tmp_path / "packed").write_bytes(gzip.compress(data))
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbf" + data)
    for name in ("packed", "marked"):
        found = measure_log(tmp_path / name)
        assert found == dataclasses.replace(plain, file=found.file)
    rows = [{"round": 1, "client": name} for name in "abc"]
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows)
    )
    found = measure_log(tmp_path / "rows.jsonl")
    assert (found.num_clients, found.cohort_size, found.says_lost) == (3, 3, False)


def test_plain_sums_and_torn_lines_are_told(tmp_path: pathlib.Path) -> None:
    line = {"round": 1, "clients": ["a", "b"]}
    path = _write(
        tmp_path / "log.jsonl",
        line,
        '{"round": 2, "cli',
        header={**HEADER, "aggregation": "plain"},
    )
    words = " ".join(measure_log(path).sentences())
    assert "saw every update by itself" in words
    assert "last line is incomplete" in words


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "`log` must be of a log with a round of two clients or more"),
        (
            [{"round": 1, "status": "aborted"}],
            "`log` must be of a log with a round of two",
        ),
        (
            [{"round": 1, "clients": ["a"]}],
            "`log` must be of a log with a round of two",
        ),
        (
            [{"round": 1, "clients": ["a", "a"]}],
            "log.jsonl:2: expected each client once",
        ),
        (["nonsense\n"], "log.jsonl:2"),
        (
            [
                {
                    "round": 1,
                    "status": "aborted",
                    "asked": ["a", "b"],
                    "lost": {"setup": ["a", "b"]},
                }
            ],
            "`log` must be of a log in which not everybody is lost before rounds",
        ),
    ],
)
def test_logs_that_say_too_little(
    lines: list[Any], message: str, tmp_path: pathlib.Path
) -> None:
    path = _write(tmp_path / "log.jsonl", *lines)
    with pytest.raises(ConfigurationError, match=message):
        study.advise(log=str(path), trials=0)


def test_no_log(tmp_path: pathlib.Path) -> None:
    with pytest.raises(DataNotFoundError, match="expected a file"):
        study.advise(log=str(tmp_path / "none.jsonl"))
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ConfigurationError, match=r"empty\.csv"):
        study.advise(log=str(tmp_path / "empty.csv"))
    with pytest.raises(DataNotFoundError):
        study.advise(log=str(tmp_path))


def test_weights_of_a_log_lower_what_blocks_hide(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.csv"
    weights = [8, 1, 2, 8, 1, 2, 8, 2]
    rows = ["round,client,weight"]
    for number in range(6):
        members = range(8) if number % 2 else range(4)
        rows += [f"{number},c{client},{weights[client]}" for client in members]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    columns = {"weight_column": "weight", "num_clients": 8, "cohort_size": 4}
    found = study.advise(log=str(path), trials=0, want_hidden=2.0, **columns)
    assert found.chosen is not None
    assert found.chosen.strong_privacy == 2
    words = " ".join(found.sentences)
    # the heaviest with the lightest: (64 + 1) / 64
    assert "heaviest client among 1.02 in the worst division" in words
    # 8 8 | 8 2 | 2 2 | 1 1: (64 + 4) / 64
    assert "the worst client is hidden among 1.06" in words
    content = json.loads(json.dumps(found.to_dict()))["measured"]
    assert content["has_weights"] is True
    assert "weights" not in content
    # weights that change keep no T
    path.write_text(
        "\n".join(rows).replace("5,c0,8", "5,c0,7") + "\n", encoding="utf-8"
    )
    found = study.advise(log=str(path), trials=0, want_hidden=2.0, **columns)
    assert "change their weights between sums" in " ".join(found.sentences)
    # equal weights are none
    path.write_text(
        "round,client,weight\n0,a,5\n0,b,5\n1,a,5\n1,b,5\n", encoding="utf-8"
    )
    found = study.advise(log=str(path), trials=0, weight_column="weight")
    assert "weights in the log" not in " ".join(found.sentences)
