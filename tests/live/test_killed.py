"""A recorder killed at any moment.

What it confirmed is in the log, and the next one goes on.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from mrsa_watch import read_log
from mrsa_watch.logs import LineParser

MOMENTS = 10
# Each child records rounds without end and says each one that was confirmed; it is
# killed a little later each time, in the middle of whatever it does.
CODE = """
import itertools, json, os, signal, sys, time
from mrsa_watch import Recorder

path, moments = sys.argv[1], int(sys.argv[2])
for run in range(moments):
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        os.close(told)
        with Recorder(path, system="x", aggregation="secagg", salt=b"") as recorder:
            os.write(tell, b"\\n")
            for j in itertools.count():
                clients = [f"client {run} {i}" for i in range(300 + j)]
                recorder.record(j, clients, weights=range(1, 301 + j))
                os.write(tell, b"%d\\n" % j)
    os.close(tell)
    assert os.read(told, 1)  # the header is written
    time.sleep(0.003 + 0.0137 * run)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(told) as stream:
        rounds = [int(line) for line in stream.read().split()]
    print(json.dumps(rounds), flush=True)
"""


@pytest.mark.long
def test_kill_at_ten_moments(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(path), str(MOMENTS)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    confirmed = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(confirmed) == MOMENTS
    assert sum(map(len, confirmed)) > MOMENTS
    parser = LineParser(path.name)
    lines = path.read_bytes().splitlines(keepends=True)
    whole = lines if lines[-1].endswith(b"\n") else lines[:-1]
    sums = [found for line in whole if (found := parser.feed(line)) is not None]
    assert [header.run for header in parser.headers] == list(range(MOMENTS))
    rounds = {
        run: [one.round for one in sums if one.run == run] for run in range(MOMENTS)
    }
    for run, own in enumerate(confirmed):
        assert own == list(range(len(own)))
        # at most one more was written than confirmed, and none is missing
        assert rounds[run] in (own, [*own, len(own)])
    for one in sums:
        count = 300 + one.round
        assert set(one.clients) == {f"client {one.run} {i}" for i in range(count)}
        assert one.weights is not None
        by_name = dict(zip(one.clients, one.weights, strict=True))
        assert all(by_name[f"client {one.run} {i}"] == i + 1 for i in range(count))
    assert len(parser.torn) < MOMENTS
    assert read_log(path).participation.shape[0] == len(sums)
