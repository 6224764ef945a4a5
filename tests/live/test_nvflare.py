"""NVFlare's rounds under its simulator, in an environment that holds it and the recorder alone."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys

import pytest

from mrsa_watch import read_log

ROOT = pathlib.Path(__file__).parents[2]
UV = shutil.which("uv", path=str(pathlib.Path(sys.executable).parent))
needs_uv = pytest.mark.skipif(UV is None, reason="uv builds and installs")

LOST = {"site-1": [1], "site-2": [1, 3], "site-4": [0, 2]}
CLIENTS = [f"site-{i}" for i in range(1, 5)]
JOB = '''
"""A job of four clients that fail in chosen rounds, under NVFlare's simulator."""
import json, sys
import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply
from nvflare.app_common.app_constant import AppConstants


class Lossy(Executor):
    def __init__(self, lost):
        super().__init__()
        self.lost = lost

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        name = fl_ctx.get_identity_name()
        if shareable.get_header(AppConstants.CURRENT_ROUND) in self.lost.get(name, []):
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        steps = {MetaKey.NUM_STEPS_CURRENT_ROUND: 10 * int(name.split("-")[1])}
        data = {"numpy_key": np.ones((3, 3), np.float32)}
        return DXO(DataKind.WEIGHT_DIFF, data=data, meta=steps).to_shareable()


def main(workflow, lost, log, workspace):
    from nvflare.app_common.aggregators.intime_accumulate_model_aggregator import (
        InTimeAccumulateWeightedAggregator,
    )
    from nvflare.app_common.np.np_model_persistor import NPModelPersistor
    from nvflare.app_common.shareablegenerators.full_model_shareable_generator import (
        FullModelShareableGenerator,
    )
    from nvflare.app_common.workflows.fedavg import FedAvg
    from nvflare.app_common.workflows.scatter_and_gather import ScatterAndGather
    from nvflare.job_config.api import FedJob

    from lossy import Lossy
    from mrsa_watch.nvflare import ParticipationRecorder

    job = FedJob(name="lossy", min_clients=1)
    job.to_server(NPModelPersistor(), id="persistor")
    job.to_server(FullModelShareableGenerator(), id="shareable_generator")
    job.to_server(InTimeAccumulateWeightedAggregator("WEIGHT_DIFF"), id="aggregator")
    job.to_server(ParticipationRecorder(log, pseudonyms=False), id="recorder")
    if workflow == "fedavg":
        job.to_server(FedAvg(num_clients=4, num_rounds=5, ignore_result_error=True))
    else:
        job.to_server(ScatterAndGather(
            min_clients=4, num_rounds=5, wait_time_after_min_received=0,
            aggregator_id="aggregator", persistor_id="persistor",
            shareable_generator_id="shareable_generator", train_task_name="train",
            train_timeout=0, ignore_result_error=True))
    for name in ("site-1", "site-2", "site-3", "site-4"):
        job.to(Lossy(lost), name, tasks=["train"])
    job.simulator_run(workspace, threads=4)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:])
'''


def test_without_nvflare_the_import_says_what_to_install() -> None:
    if importlib.util.find_spec("nvflare"):
        pytest.skip("NVFlare is installed here")
    with pytest.raises(ImportError, match=r"needs it: pip install 'nvflare>=2\.9"):
        importlib.import_module("mrsa_jax.live.nvflare")


def _run(*words: object, **variables: str) -> str:
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON")
    }
    done = subprocess.run(
        [str(word) for word in words],
        env=own | variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return the programs of an environment without JAX."""
    folder = tmp_path_factory.mktemp("nvflare") / "env"
    _run(UV, "venv", "-q", "-p", sys.executable, folder)
    python = folder / "bin" / "python"
    _run(UV, "pip", "install", "-q", "-p", python, f"{ROOT / 'watch'}[nvflare]")
    found = _run(
        python, "-c", "import importlib.util as util; print(util.find_spec('jax'))"
    )
    assert found == "None\n"
    return folder / "bin"


@pytest.mark.slow
@needs_uv
@pytest.mark.parametrize("workflow", ["scatter_and_gather", "fedavg"])
def test_a_real_run_is_recorded_as_it_was(
    programs: pathlib.Path, tmp_path: pathlib.Path, workflow: str
) -> None:
    (tmp_path / "lossy.py").write_text(JOB)
    log, script = tmp_path / "log.jsonl", tmp_path / "lossy.py"
    words = [script, workflow, json.dumps(LOST), log, tmp_path / "workspace"]
    _run(programs / "python", *words, PYTHONPATH=str(tmp_path))
    header, *lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert header["system"].startswith("nvflare 2.")
    assert header["aggregation"] == "plain"
    assert [line["round"] for line in lines] == list(range(5))
    for line in lines:
        lost = [name for name in CLIENTS if line["round"] in LOST.get(name, ())]
        inside = [name for name in CLIENTS if name not in lost]
        assert (line["clients"], line["asked"]) == (inside, CLIENTS)
        assert line["weights"] == [10 * int(name[-1]) for name in inside]
        assert line.get("lost", {}).get("train", []) == lost
    recorded = read_log(log)
    if workflow == "scatter_and_gather":  # its own log says the same
        own = read_log(tmp_path / "workspace" / "server" / "log.txt")
        assert own.clients == recorded.clients
        assert own.participation.tolist() == (recorded.participation > 0).tolist()


@pytest.mark.slow
@needs_uv
def test_two_runs_of_the_example_know_the_same_sites(
    programs: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """And the log is watched where they ran."""
    log = tmp_path / "recorded.jsonl"
    for _ in range(2):
        said = _run(programs / "python", ROOT / "examples" / "nvflare" / "job.py", log)
        assert "deprecat" not in said.lower()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    rounds = [line for line in lines if "round" in line]
    assert [line["run"] for line in lines if "run" in line] == [0, 1]
    assert [line["round"] for line in rounds] == [0, 1, 2] * 2
    assert len({tuple(line["clients"]) for line in rounds}) == 1
    assert sorted(rounds[0]["weights"]) == [30, 40, 50, 60]
    assert not any("site" in name for name in rounds[0]["clients"])
    told = _run(programs / "mrsa-watch", "watch", log, "--once", "--fail-below", 2)
    assert told.count("4 clients, rank 1; 0 exposed") == 6


GUARD = '''
"""A site's privacy.json as NVFlare reads it, and what its filters let pass."""
import pathlib, sys
import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import make_reply
from nvflare.apis.utils.task_utils import apply_filters
from nvflare.apis.workspace import Workspace
from nvflare.app_common.app_constant import AppConstants
from nvflare.private.fed.app.fl_conf import create_privacy_manager
from nvflare.private.privacy_manager import Scope
from mrsa_watch import MrsaError

root = pathlib.Path(sys.argv[1])
(root / "local").mkdir()
(root / "startup").mkdir()
ledger = root / "ledger.jsonl"
# as docs/how_to/site_side.md shows it
(root / "local" / "privacy.json").write_text(sys.argv[2])
manager = create_privacy_manager(Workspace(str(root), "site-1"), names_only=False)


class OfJob(Filter):
    """The job's filter: it runs last, so it sees what the site lets out."""

    seen = 0

    def process(self, shareable, fl_ctx):
        OfJob.seen += 1
        return shareable


def passed(shareable, kind, direction):
    context = FLContext()
    context.set_prop(FLContextKey.SCOPE_OBJECT, manager.get_scope(None))
    context.set_prop(ReservedKey.RUN_NUM, "job-1")
    filters = {"train" + FilterKey.DELIMITER + direction: [OfJob()]}
    return apply_filters(kind, shareable, context, filters, "train", direction)


def model(value, current):
    data = {"b": np.full(2, value), "a": np.zeros((1, 2), np.float32)}
    shareable = DXO(DataKind.WEIGHTS, data=data).to_shareable()
    shareable.set_header(AppConstants.CURRENT_ROUND, current)
    return shareable


def result():
    return DXO(DataKind.WEIGHT_DIFF, data={"a": np.ones(2)}).to_shareable()


inward = Scope.TASK_DATA_FILTERS_NAME, FilterKey.IN
outward = Scope.TASK_RESULT_FILTERS_NAME, FilterKey.OUT
passed(model(1.0, 0), *inward)
assert passed(result(), *outward)["DXO"]["data"]["a"].tolist() == [1, 1]
passed(model(2.0, 1), *inward)
failed = make_reply(ReturnCode.EXECUTION_EXCEPTION)
failed["secret"] = 7
assert "secret" not in passed(failed, *outward)
passed(model(1.0, 2), *inward)
passed(result(), *outward)
before = OfJob.seen
try:
    passed(result(), *outward)
except MrsaError as error:
    print("refused:", error)
assert OfJob.seen == before
try:
    passed(DXO(DataKind.WEIGHTS, data={"a": object()}).to_shareable(), *inward)
except MrsaError as error:
    print("refused:", error)
print(ledger.read_text())
'''


@pytest.mark.slow
@needs_uv
def test_a_guard_of_a_site_counts_and_digests(
    programs: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    script = tmp_path / "guard.py"
    script.write_text(GUARD)
    site = tmp_path / "site"
    site.mkdir()
    page = (ROOT / "docs" / "how_to" / "site_side.md").read_text(encoding="utf-8")
    policy = page.split("<!-- file: privacy.json -->\n```json\n")[1].split("```")[0]
    policy = policy.replace("/data/ledger.jsonl", str(site / "ledger.jsonl"))
    said = _run(programs / "python", script, site, policy.replace("100", "2"))
    assert f"refused: `max_results` of {site / 'ledger.jsonl'} is 2" in said
    assert "refused: the model's /a must be an array of numbers" in said
    lines = [
        json.loads(line) for line in (site / "ledger.jsonl").read_text().splitlines()
    ]
    assert [(line["round"], "gave" in line) for line in lines] == [
        (0, False),
        (0, True),
        (1, False),
        (2, False),
        (2, True),
    ]
    # SHA-256 by hand: names in order, with type, shape and bytes
    arrays = [
        ("/a", "<f4", (1, 2), bytes(8)),
        ("/b", "<f8", (2,), struct.pack("<2d", 1, 1)),
    ]
    expected = hashlib.sha256()
    for name, kind, shape, words in arrays:
        expected.update(f"{name} {kind} {shape}\n".encode() + words)
    digests = [line["model"] for line in lines if "model" in line]
    assert digests[0] == digests[2] == expected.hexdigest()
    assert digests[1] != digests[0]
