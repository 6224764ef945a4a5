"""NVFlare's own log lines.

Whose contribution its aggregator took, against what was injected.
"""

from __future__ import annotations

import json
import pathlib

import pytest

from mrsa_jax import ConfigurationError
from mrsa_jax.privacy import audit, read_log

VECTOR = json.loads(
    (pathlib.Path(__file__).parents[2] / "vectors" / "nvflare_2_9_0.json").read_text()
)
CLIENTS = [f"site-{i}" for i in range(1, 5)]
TRUTH = [
    [j not in VECTOR["lost"].get(client, ()) for client in CLIENTS] for j in range(5)
]
TEXT: list[str] = VECTOR["log.txt"]


def _log(folder: pathlib.Path, lines: list[str]) -> pathlib.Path:
    path = folder / "log.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("kind", ["log.txt", "log.json"])
def test_a_real_log_says_who_was_in_each_sum(tmp_path: pathlib.Path, kind: str) -> None:
    log = read_log(_log(tmp_path, VECTOR[kind]))
    assert log.rounds == tuple(range(5))
    assert log.clients == tuple(CLIENTS)
    assert log.participation.tolist() == TRUTH
    assert len(log.notes) == 1
    assert (
        audit(log, effort=0)
        .sentences()[-1]
        .startswith("NVFlare's server sees every update")
    )


def test_it_is_known_by_its_content_wherever_it_begins(tmp_path: pathlib.Path) -> None:
    accepted = next(i for i, line in enumerate(TEXT) if "ACCEPTED" in line)
    for lines in (TEXT, TEXT[accepted:], ["a line of another program", *TEXT]):
        assert read_log(_log(tmp_path, lines)).participation.shape == (5, 4)


def test_rejected_contributions_are_in_no_sum(tmp_path: pathlib.Path) -> None:
    """By the other word of the same line, scatter_and_gather.py: ACCEPTED or REJECTED."""
    place = next(i for i, line in enumerate(TEXT) if "site-4 ACCEPTED" in line)
    lines = [
        line.replace("ACCEPTED", "REJECTED") if i == place else line
        for i, line in enumerate(TEXT)
    ]
    log = read_log(_log(tmp_path, lines))
    assert log.participation.tolist()[1] == [False, False, True, False]
    unlike, rejected = log.notes[1:]
    assert rejected == "Contributions that were rejected, and are in no sum: 1."
    assert "2 at round 1, of which 1 are named" in unlike


def test_lines_that_are_lost_are_told_of(tmp_path: pathlib.Path) -> None:
    """The aggregator counts what it took in a line of its own."""
    lines = [line for line in TEXT if "site-3 ACCEPTED" not in line]
    log = read_log(_log(tmp_path, lines))
    assert log.clients == ("site-1", "site-2", "site-4")
    assert [f"at round {j}," in log.notes[1] for j in range(5)] == [True] * 5


def test_lines_that_contradict_each_other(tmp_path: pathlib.Path) -> None:
    accepted = next(line for line in TEXT if "ACCEPTED" in line)
    with pytest.raises(ConfigurationError, match="a decision on column 'start'"):
        read_log(_log(tmp_path, [*TEXT, accepted]))  # after the sum of its round
    with pytest.raises(
        ConfigurationError, match="the rows of round 0 next to each other"
    ):
        read_log(_log(tmp_path, [*TEXT, accepted]), ignore_columns="start")
    with pytest.raises(
        ConfigurationError, match=r"each client once in a round .*; found client"
    ):
        read_log(
            _log(tmp_path, [*TEXT, accepted]), restarts="same", ignore_columns="start"
        )
    other = accepted.replace("run=simulate_job", "run=another").replace(
        "round 0", "round 9"
    )
    # another round
    assert read_log(_log(tmp_path, [*TEXT, other])).rounds == (*range(5), 9)


def test_logs_that_say_nothing_of_contributions(tmp_path: pathlib.Path) -> None:
    quiet = [line for line in TEXT if "ACCEPTED" not in line]
    for settings, message in (
        (
            {},
            "log.txt: expected a line 'Contribution from .*recorder: "
            "mrsa_watch.nvflare.; fou",
        ),
        (
            {"round_column": "round"},
            "log.txt: expected a line 'Contribution from .*; found none",
        ),
    ):
        with pytest.raises(ConfigurationError, match=message):
            read_log(_log(tmp_path, quiet), **settings)  # type: ignore[arg-type]
