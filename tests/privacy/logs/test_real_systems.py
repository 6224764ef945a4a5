"""Logs as real systems write them.

Each read right, or refused with a command that reads it right.
The sums of each were written down by hand. A log that is read in silence is read as
they are; a refusal ends in a command (a call, for a table in memory), and what that
reads are they.
"""

from __future__ import annotations

import csv
import io
import json
import math
import pathlib
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd
import pytest
from refusals import pasted

from mrsa_jax import ConfigurationError
from mrsa_jax.cli import main
from mrsa_jax.privacy import ParticipationLog, read_log


class Log(NamedTuple):
    """A log: its lines (with / between them), its sums, and whether it must be asked about."""

    lines: str
    sums: str
    is_asked: bool = True


LONG = {
    "numbering restarted": Log(
        "round,client/1,a/1,b/2,a/2,b/1,c/1,d/2,c/2,d", "a b|a b|c d|c d"
    ),
    "restarted from a checkpoint": Log(
        "round,client/1,a/1,b/2,b/2,c/3,c/3,d/2,a/2,d/3,a/3,b", "a b|b c|c d|a d|a b"
    ),
    "restarted with the same clients": Log(
        "round,client/1,a/1,b/2,b/2,c/1,a/1,c", "a b|b c|a c"
    ),
    "a second run of small sums": Log(
        "round,client/1,a/1,b/2,a/2,b/1,c/2,c", "a b|a b|c|c"
    ),
    "run_id": Log(
        "run_id,round,client/x,1,a/x,1,b/x,2,a/y,1,c/y,1,d/y,2,c", "a b|a|c d|c"
    ),
    "jobs side by side": Log(
        "round,job,client/1,A,a/1,B,c/1,A,b/1,B,d/2,B,c/2,A,a/2,A,c", "a b|c d|c|a c"
    ),
    "experiment and seed": Log(
        "seed,round,client/7,1,a/7,1,b/8,1,b/8,1,c/7,2,a/8,2,b/8,2,c/7,2,c",
        "a b|b c|a c|b c",
    ),
    "days": Log(
        "date,round,client/2026-01-05,1,a/2026-01-05,1,b/2026-01-06,1,c/2026-01-06,1,d",
        "a b|c d",
    ),
    "Flower, train and evaluate": Log(
        "server-round,node-id,message-type/1,11,train/1,12,evaluate/1,13,evaluate/1,14,evaluate/"
        "2,12,train/2,13,train/2,11,evaluate/2,14,evaluate",
        "11|12 13",
    ),
    "Flower, fit and evaluate": Log(
        "server_round,cid,phase/1,a,fit/1,b,fit/1,c,evaluate/1,d,evaluate/2,a,fit/2,c,fit/"
        "2,b,evaluate",
        "a b|a c",
    ),
    "Flower, everything at once": Log(
        "server_round,cid,status,num_examples,train_loss,message_type/"
        "1,a,ok,30,0.7,train/1,b,ok,20,0.9,train/1,c,failed,0,nan,train/1,d,ok,10,0.8,evaluate/"
        "2,a,ok,30,0.6,train/2,c,ok,50,0.4,train/2,d,timeout,,nan,train",
        "a*3 b*2|a*3 c*5",
    ),
    "Flower, samples": Log(
        "server_round,cid,num_examples/1,a,30/1,b,20/2,a,30/2,b,40", "a*3 b*2|a*3 b*4"
    ),
    "Flower, names and times": Log(
        "timestamp,server_round,node_id,partition_id,hostname,duration,loss/"
        "2026-01-05T10:00:01,1,981,0,pc,1.5,0.71/2026-01-05T10:00:02,1,417,1,pc,2.5,0.64/"
        "2026-01-05T10:01:01,2,981,0,pc,1.25,0.53/2026-01-05T10:01:03,2,635,2,mac,0.75,0.55",
        "981 417|981 635",
        False,
    ),
    "OpenFL, tasks": Log(
        "round_number,collaborator_name,task_name,accuracy/1,one,train,0.5/1,one,validation,0.6/"
        "1,two,train,0.4/1,two,validation,0.7/1,three,validation,0.3/2,two,train,0.5/"
        "2,three,train,0.55/2,one,validation,0.7",
        "one two|two three",
    ),
    "pfl-research": Log(
        "central_iteration,user_id,train_loss,wall_time/0,u7,0.9,1.5/0,u9,0.8,2.5/1,u7,0.7,3.75",
        "u7 u9|u7",
        False,
    ),
    "FedML": Log(
        "round_idx,client_idx,sample_num/0,4,100/0,7,300/1,4,50/1,7,100",
        "4*1 7*3|4*1 7*2",
    ),
    "FATE": Log(
        "iteration,party_id,role,loss/1,9999,guest,0.5/1,10000,host,0.4/1,10001,host,0.3/"
        "2,9999,guest,0.25/2,10001,host,0.125",
        "9999 10000 10001|9999 10001",
    ),
    "NVFlare, its table": Log(
        "current_round,site,round_time/0,site-1,4.5/0,site-2,5.5/1,site-1,4.25/1,site-3,6.75",
        "site-1 site-2|site-1 site-3",
        False,
    ),
    "MLflow, a run for each fit": Log(
        "run_id,status,artifact_uri,start_time,params.round,params.client,metrics.loss/"
        "f1,FINISHED,s3://f1,2026-01-05 10:00:01,1,a,0.5/"
        "f2,FAILED,s3://f2,2026-01-05 10:00:02,1,b,0.75/"
        "f3,FINISHED,s3://f3,2026-01-05 10:00:03,1,c,0.25/"
        "f4,FINISHED,s3://f4,2026-01-05 10:01:04,2,a,0.375/"
        "f5,FINISHED,s3://f5,2026-01-05 10:01:06,2,b,0.125",
        "a c|a b",
    ),
    "attempts": Log(
        "round,attempt,client/1,1,a/1,1,b/1,2,c/1,2,d/2,1,a/2,1,c", "a b|c d|a c"
    ),
    "retries of a round": Log(
        "round,retry,client/1,0,a/1,0,b/1,1,a/1,1,c/2,0,b/2,0,c", "a b|a c|b c"
    ),
    "retries of an upload": Log(
        "round,client,status/1,a,ok/1,b,failed/1,b,ok/1,c,failed/2,b,ok/2,c,ok",
        "a b|b c",
    ),
    "HeteroSAg, groups": Log(
        "round,group,client/1,0,a/1,0,b/1,1,c/1,1,d/2,0,a/2,0,c/2,1,b/2,1,d",
        "a b|c d|a c|b d",
    ),
    "aggregators": Log(
        "round,client,aggregator/1,a,edge-1/1,b,edge-1/1,c,edge-2/1,d,edge-2", "a b|c d"
    ),
    "components": Log("rnd,user,component/1,a,0/1,b,0/1,c,1/1,d,1/1,e,1", "a b|c d e"),
    "files of edges, one after the other": Log(
        "round,client,edge/1,a,x/1,b,x/2,a,x/1,c,y/1,d,y/2,c,y/2,d,y", "a b|a|c d|c d"
    ),
    "epochs": Log("round,epoch,client/1,1,a/1,1,b/1,2,a/1,2,c", "a b|a c"),
    "status codes": Log(
        "round,client,code/1,a,200/1,b,503/1,c,200/2,b,200/2,c,201", "a c|b c"
    ),
    "exit codes": Log(
        "round,client,exit_code/1,a,0/1,b,137/1,c,0/2,a,0/2,b,0", "a c|a b"
    ),
    "an empty reply": Log(
        "round,client,replied_at/1,a,10:00:01/1,b,/1,c,10:00:05/2,b,10:01:02/2,c,10:01:03",
        "a c|b c",
    ),
    "a loss of nan": Log(
        "round,client,loss/1,a,0.5/1,b,nan/1,c,0.75/2,b,0.25/2,c,0.5", "a c|b c"
    ),
    "a loss of -1": Log(
        "round,client,loss/1,a,0.5/1,b,-1/1,c,0.75/2,b,0.25/2,c,0.5", "a c|b c"
    ),
    "seconds of 0": Log(
        "round,client,seconds/1,a,7/1,b,0/1,c,9/2,b,4/2,c,3", "a c|b c"
    ),
    "errors where there are some": Log(
        "round,client,error/1,a,/1,b,connection reset/1,c,/2,b,/2,c,", "a c|b c"
    ),
    "dropped": Log("round,client,dropped/1,a,0/1,b,1/1,c,0/2,b,0/2,c,0", "a c|b c"),
    "included": Log(
        "round,client,included/1,a,True/1,b,False/1,c,True/2,b,True/2,c,True", "a c|b c"
    ),
    "events": Log(
        "round,client,event/1,a,selected/1,b,selected/1,c,selected/1,a,uploaded/1,c,uploaded/"
        "2,b,selected/2,c,selected/2,b,uploaded/2,c,uploaded",
        "a c|b c",
    ),
    "rounds that failed": Log(
        "round,client,round_status/1,a,completed/1,b,completed/2,a,aborted/2,c,aborted/"
        "3,b,completed/3,c,completed",
        "a b|b c",
    ),
    "p_k": Log("round,client,p_k/1,a,0.5/1,b,1.5/2,a,0.25/2,b,0.25", "a*1 b*3|a b"),
    "alpha": Log(
        "round,client,alpha/1,a,0.5/1,b,0.75/2,a,0.25/2,b,0.5", "a*2 b*3|a*1 b*2"
    ),
    "scale": Log("round,client,scale/1,a,2/1,b,3/2,a,1/2,b,1", "a*2 b*3|a b"),
    "weights without a known name": Log(
        "round,client,omega/1,a,0.25/1,b,0.75/2,a,0.5/2,b,0.5", "a*1 b*3|a b"
    ),
    "staleness": Log(
        "round,client,staleness/1,a,0/1,b,2/1,c,0/2,a,1/2,c,0", "a b c|a c"
    ),
    "the same samples everywhere": Log(
        "round,client,num_examples,status/1,a,32,ok/1,b,32,ok/2,b,64,ok/2,c,64,ok",
        "a b|b c",
        False,
    ),
    "measured in some rounds": Log(
        "round,client,eval_accuracy,learning_rate/1,a,,0.1/1,b,,0.1/2,a,0.5,0.05/2,b,0.75,0.05",
        "a b|a b",
        False,
    ),
    "sorted by client": Log(
        "round,client/1,a/2,a/4,a/1,b/3,b/4,b/2,c/3,c/4,c/5,c/5,d",
        "a b|a c|b c|a b c|c d",
        False,
    ),
    "with the index of a table": Log(
        ",round,client/0,1,a/1,1,b/2,2,b/3,2,c", "a b|b c", False
    ),
}
WIDE = {
    "index": Log(",a,b,c/0,1,1,0/1,0,1,1", "a b|b c", False),
    "no index": Log("a,b,c/1,1,0/0,1,1", "a b|b c", False),
    "crosstab": Log("round,a,b,c/9,1,1,0/12,0,1,1", "a b|b c", False),
    "crosstab of bools": Log("round,a,b/9,True,False/10,True,True", "a|a b", False),
    "numbers of clients": Log("0,1,2,3/1,1,0,1/0,1,1,1", "0 1 3|1 2 3", False),
    "numbers with an index": Log(",4,7,9/0,1,1,0/1,1,0,1", "4 7|4 9", False),
    "more than clients": Log(
        "round,a,b,c,loss,clients/1,1,1,0,0.5,2/2,0,1,1,0.25,2", "a b|b c"
    ),
}
NVFLARE = "\n".join(
    f"2026-11-23 06:13:0{round_},068 - ScatterAndGather - INFO - [run={job}, "
    f"peer={site}] - "
    f"Contribution from {site} ACCEPTED by the aggregator at round {round_}."
    for job, clients in (("one", "12"), ("two", "13"))
    for round_ in range(2)
    for site in (f"site-{i}" for i in clients)
)


def _table(lines: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(lines), na_values=["nan"], keep_default_na=True)


def _csv(folder: pathlib.Path, lines: str) -> Any:
    path = folder / "a log's.csv"
    path.write_text(lines + "\n")
    return path


def _json(folder: pathlib.Path, lines: str) -> Any:
    path = folder / "log.jsonl"
    rows = []
    for row in csv.DictReader(io.StringIO(lines)):
        rows.append({key: _value(text) for key, text in row.items() if text != ""})
    path.write_text(
        "".join(json.dumps(row) + "\n" for row in rows).replace("NaN", "null")
    )
    return path


def _value(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _parquet(folder: pathlib.Path, lines: str) -> Any:
    _table(lines).to_parquet(folder / "log.parquet", index=False)
    return folder / "log.parquet"


FORMS: dict[str, Callable[[pathlib.Path, str], Any]] = {
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
    "table": lambda _, lines: _table(lines),
}


def _sums(log: ParticipationLog) -> list[dict[str, int]]:
    """Return the clients of each sum with their weights, in lowest terms, in any order."""
    rows = []
    for row in log.participation.tolist():
        scale = math.gcd(*map(int, row))
        rows.append(
            {
                str(name): int(value) // scale
                for name, value in zip(log.clients, row, strict=True)
                if value
            }
        )
    return sorted(rows, key=lambda row: sorted(row.items()))


def _read_sums(error: ConfigurationError, log: Any) -> list[dict[str, int]]:
    """Return the sums that the command reads in which a refusal ends."""
    found = pasted(error, log)
    assert found is not None
    return _sums(found)


def _truth(sums: str) -> list[dict[str, int]]:
    rows = []
    for one in sums.split("|"):
        parts = [part.partition("*") for part in one.split()]
        rows.append({name: int(weight or 1) for name, _, weight in parts})
    return sorted(rows, key=lambda row: sorted(row.items()))


def _check(log: Any, own: Log, **settings: Any) -> None:
    if own.is_asked:
        with pytest.raises(ConfigurationError) as told:
            read_log(log, **settings)
        found = pasted(told.value, log)
        assert found is not None
    else:
        found = read_log(log, **settings)
    assert _sums(found) == _truth(own.sums)


@pytest.mark.smoke("events")
@pytest.mark.parametrize("name", LONG)
def test_long_logs(name: str, tmp_path: pathlib.Path) -> None:
    """As CSV, JSON Lines, Parquet and a table in memory."""
    own = LONG[name]
    lines = own.lines.replace("s3://", "s3:").replace("/", "\n")
    names = {"round_column": "params.round", "client_column": "params.client"}
    settings = names if name.startswith("MLflow") else {}
    for form, write in FORMS.items():
        if form == "json" and name == "with the index of a table":
            continue  # no key is empty
        _check(write(tmp_path, lines), own, **settings)


@pytest.mark.parametrize("name", WIDE)
def test_wide_logs(name: str, tmp_path: pathlib.Path) -> None:
    own = WIDE[name]
    lines = own.lines.replace("/", "\n")
    for form in ("csv", "parquet", "table"):
        _check(FORMS[form](tmp_path, lines), own)


def test_a_server_log_of_two_jobs(tmp_path: pathlib.Path) -> None:
    """NVFlare's; each job numbers its rounds from 0."""
    path = tmp_path / "log.txt"
    path.write_text(NVFLARE + "\n")
    own = Log("", "site-1 site-2|site-1 site-2|site-1 site-3|site-1 site-3")
    _check(path, own)
    log = read_log(path, where="job=two")
    assert (log.rounds, log.clients) == ((0, 1), ("site-1", "site-3"))


def test_rows_that_come_late(tmp_path: pathlib.Path) -> None:
    """They look as a restart does.

    The command errs on the safe side, the other word is right.
    """
    lines = "round,client\n1,a\n1,b\n2,a\n1,c\n2,b\n2,c\n3,a\n3,b\n"
    for form, write in FORMS.items():
        log = write(tmp_path, lines)
        with pytest.raises(
            ConfigurationError, match="--restarts same: it is the same sum"
        ) as told:
            read_log(log)
        split = _read_sums(told.value, log)
        assert split == _truth("a b|a|c|b c|a b"), form
        assert _sums(read_log(log, restarts="same")) == _truth("a b c|a b c|a b")


def test_a_refusal_names_every_column_at_once(tmp_path: pathlib.Path) -> None:
    lines = LONG["Flower, everything at once"].lines.replace("/", "\n")
    with pytest.raises(ConfigurationError) as told:
        read_log(_csv(tmp_path, lines))
    for name in ("status", "num_examples", "train_loss", "message_type"):
        assert f"'{name}' (" in str(told.value)


def test_the_command_works_where_it_is_pasted(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client is alone in the first sum; merged with evaluations it passed for hidden."""
    lines = LONG["Flower, train and evaluate"].lines.replace("/", "\n")
    path = _csv(tmp_path, lines)
    assert main(["audit", str(path), "--fail-below", "2"]) == 2
    program, *words = shlex.split(capsys.readouterr().err.splitlines()[-1].strip())
    assert program == "mrsa-jax"
    assert main([*words, "--effort", "0", "--fail-below", "2", "--json"]) == 3
    content = json.loads(capsys.readouterr().out)
    assert content["exposed"] == [{"client": 11, "first_round": 1}]


@pytest.mark.parametrize("name", ["a,b", "it's", '"x"', "--json", "été", "two words"])
def test_commands_quote_what_a_shell_would_take_apart(
    name: str, tmp_path: pathlib.Path
) -> None:
    """Names and values of columns with all that shells, flags and lists have marks for."""
    for value, other in (
        ("ok", "failed"),
        ("ok, done", "no, failed"),
        ("-ok", "'failed\""),
    ):
        table = pd.DataFrame(
            {
                "round": [1, 1, 1, 2, 2],
                "client": list("abcbc"),
                name: [value, other, value, value, value],
                f"{name} 2": list("vwxyz"),
            }
        )
        table.to_parquet(tmp_path / "log.parquet")
        for log in (table, tmp_path / "log.parquet"):
            with pytest.raises(ConfigurationError) as told:
                read_log(log)
            assert _read_sums(told.value, log) == _truth("a c|b c")


def test_times_and_losses_of_sums_tell_them_apart(tmp_path: pathlib.Path) -> None:
    """What is written once for each sum does not vary freely."""
    for name in ("timestamp", "loss"):
        rows = "1,a,10.5\n1,b,10.5\n1,c,12.25\n1,d,12.25\n2,a,13.5\n2,c,13.5"
        _check(_csv(tmp_path, f"round,client,{name}\n{rows}"), Log("", "a b|c d|a c"))
