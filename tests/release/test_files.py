"""Files that the last release wrote mean the same today, and are still written so.

`files/` holds what mrsa_jax 1.0.0 wrote. A field with another name would pass all other
tests, if both its writer and its reader changed.
"""

from __future__ import annotations

import json
import pathlib
import shutil

import pytest

import mrsa_jax as mj
from mrsa_watch import mrsa_check
from mrsa_watch._register import Register
from mrsa_watch.logs import LineParser

FILES = pathlib.Path(__file__).with_name("files")
LOG = FILES / "log.jsonl"


def _lines(path: pathlib.Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_its_log_is_read() -> None:
    log = mj.privacy.read_log(LOG)
    assert log.rounds == (1, 2, 4)  # nothing was learnt in round 3
    assert list(log.clients) == ["anna", "bob", "carl", "dora"]
    sums = [[120, 80, 100, 0], [120, 80, 0, 0], [0, 1, 1, 1]]
    assert log.participation.tolist() == sums
    lines = LOG.read_bytes().splitlines(keepends=True)
    read = list(LineParser("log").sums(lines))
    assert [one.status for one in read] == ["learnt", "learnt", "aborted", "learnt"]
    assert list(read[1].asked or ()) == ["anna", "bob", "carl"]
    assert {stage: list(lost) for stage, lost in read[2].lost.items()} == {
        "setup": ["bob", "carl"]
    }


def test_fields_of_its_log_are_still_written(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.jsonl"
    names = ["anna", "bob", "carl"]
    with mj.live.Recorder(
        path, system="my server 2.1", aggregation="secagg", salt=b""
    ) as recorder:
        recorder.record(1, names, weights=[120, 80, 100])
        lost = {"upload": ["carl"]}
        recorder.record(2, names[:2], weights=[120, 80], asked=names, lost=lost)
        lost = {"setup": ["bob", "carl"]}
        recorder.record(3, [], status="aborted", asked=names[1:], lost=lost)
        recorder.record(4, ["bob", "carl", "dora"])
    for was, now in zip(_lines(LOG), _lines(path), strict=True):
        assert was.pop("time", "") == "" or now["time"]
        assert {name: now.get(name) for name in was} == was


@pytest.mark.parametrize(("claim", "status"), [("exposed carl", 0), ("weak T >= 2", 1)])
def test_its_certificate_is_checked(claim: str, status: int) -> None:
    words = [str(FILES / "certificate.json"), str(LOG)]
    assert mrsa_check.main(words) == 0
    assert mrsa_check.main([*words, "--claim", claim]) == status


def test_its_register_is_read_and_continued(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "register.json"
    shutil.copy(FILES / "register.json", path)
    register = Register(path, 4)
    assert register.places == {"anna": 0, "bob": 1, "carl": 2}
    register.join(["dora"])
    (was,), (now,) = _lines(FILES / "register.json"), _lines(path)
    assert now == was | {"clients": ["anna", "bob", "carl", "dora"]}
