"""Records NVFlare's rounds, at the server and at a site.

`ParticipationRecorder` writes whose contribution is in each sum that the server makes;
`SiteGuard` what one site got and gave.

Import it where NVFlare is; nothing else here does. The lines that NVFlare's workflow
ScatterAndGather writes by itself are read by `mrsa_watch.read_log` without a recorder;
its newer FedAvg writes none that say who took part.

Source: NVFlare 2.9.0, `app_common/workflows/scatter_and_gather.py` and
`base_model_controller.py`: both workflows fire BEFORE_TRAIN_TASK,
AFTER_CONTRIBUTION_ACCEPT and AFTER_AGGREGATION. `private/fed/app/fl_conf.py` reads a
site's `privacy.json`, and `apis/utils/task_utils.py` runs its filters before the job's.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from mrsa_watch._base.errors import check_integer, how_to_install, require
from mrsa_watch._base.files import user_path
from mrsa_watch._base.locks import locked

if importlib.util.find_spec("nvflare") is None:
    raise ImportError(
        "mrsa_watch.nvflare records NVFlare's rounds and needs it: "
        f"{how_to_install('nvflare')} (with which it was tried)"
    )

import nvflare
from nvflare.apis.dxo import MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter, FilterChainType, FilterContextKey
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from mrsa_watch._base.errors import MrsaError
from mrsa_watch._recorder import Recorder

__all__ = ["ParticipationRecorder", "SiteGuard"]


class ParticipationRecorder(FLComponent):
    """A component for NVFlare's server that writes a log (`live.Recorder`).

    Add it to the server of a job:
    `job.to_server(ParticipationRecorder("/logs/x.jsonl"))`. A line is written when a
    round is aggregated: who was asked (who fetched the task), whose contribution the
    aggregator accepted, with which weight, and the others as lost in training. A round
    that ends without being aggregated is written as aborted when the job ends. Several
    jobs may continue one log. A round that cannot be recorded stops the job.

    NVFlare's weight of a contribution is the number of its steps, times the client's
    weight in the aggregator; one that comes after its round was aggregated is in no
    line of it.

    Args:
        path: The log, best absolute.
        aggregation: `"plain"` (the server sees every update by itself, as it does
            unless they are encrypted), or other text.
        pseudonyms: Whether names are pseudonyms by a salted hash; False keeps them as
            they are.
        aggregation_weights: The aggregator's weight of each client, where it was given
            some.
        part: The part of the vector that the job's sums are of, by a name; None for
            whole updates.

    Raises:
        ConfigurationError: As `live.Recorder`, when the job starts.
    """

    def __init__(
        self,
        path: str,
        aggregation: str = "plain",
        pseudonyms: bool = True,
        aggregation_weights: dict[str, float] | None = None,
        part: str | None = None,
    ) -> None:
        super().__init__()
        self.path = path
        self.aggregation = aggregation
        self.pseudonyms = pseudonyms
        self.aggregation_weights = aggregation_weights
        self.part = part
        self._guard = threading.Lock()
        self._recorder: Recorder | None = None
        self._asked: dict[int, set[str]] = {}  # of rounds that are not aggregated yet
        self._accepted: dict[int, dict[str, float]] = {}

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Take note of what an event of the server says.

        Args:
            event_type: NVFlare's name of the event.
            fl_ctx: Its context.
        """
        handlers = {
            EventType.START_RUN: self._start,
            AppEventType.BEFORE_TRAIN_TASK: self._ask,
            AppEventType.AFTER_CONTRIBUTION_ACCEPT: self._accept,
            AppEventType.AFTER_AGGREGATION: self._aggregate,
            EventType.END_RUN: self._end,
        }
        if event_type not in handlers:
            return
        try:
            with self._guard:
                handlers[event_type](fl_ctx)
        except (MrsaError, KeyError, TypeError, ValueError) as error:
            # NVFlare swallows what a handler raises: a log with a hole would look whole
            self.system_panic(
                f"the participation log cannot be written: {error}", fl_ctx
            )

    def _start(self, fl_ctx: Any) -> None:
        self._recorder = Recorder(
            self.path,
            system=f"nvflare {nvflare.__version__}",
            aggregation=self.aggregation,
            salt=None if self.pseudonyms else b"",
        )
        self.log_info(
            fl_ctx, f"the participation log of this job is {self._recorder.path}"
        )

    def _ask(self, fl_ctx: Any) -> None:
        task = fl_ctx.get_prop(AppConstants.TRAIN_SHAREABLE)
        current = None if task is None else task.get_header(AppConstants.CURRENT_ROUND)
        if current is not None and fl_ctx.get_peer_context() is not None:
            self._asked.setdefault(int(current), set()).add(_client(fl_ctx))

    def _accept(self, fl_ctx: Any) -> None:
        if not fl_ctx.get_prop(AppConstants.AGGREGATION_ACCEPTED):
            return
        client = _client(fl_ctx)
        result = fl_ctx.get_prop(AppConstants.TRAINING_RESULT)
        steps = from_shareable(result).get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND)
        factor = (self.aggregation_weights or {}).get(client, 1.0)
        weight = factor * (1.0 if steps is None else float(steps))
        current = int(fl_ctx.get_prop(AppConstants.CURRENT_ROUND))
        self._accepted.setdefault(current, {})[client] = weight

    def _aggregate(self, fl_ctx: Any) -> None:
        current = int(fl_ctx.get_prop(AppConstants.CURRENT_ROUND))
        self._write(current, is_summed=True)

    def _end(self, fl_ctx: Any) -> None:
        for current in sorted(self._asked):
            self._write(current, is_summed=False)
        if self._recorder is not None:
            self._recorder.close()

    def _write(self, current: int, is_summed: bool) -> None:
        """Write the line of a round; nothing was learnt where nobody was accepted."""
        recorder = self._recorder
        if recorder is None:
            raise ValueError("the job did not start")
        accepted = self._accepted.pop(current, {})
        asked = self._asked.pop(current, set()) | accepted.keys()
        inside = [
            client for client, weight in accepted.items() if is_summed and weight > 0
        ]
        lost = asked - accepted.keys()
        recorder.record(
            current,
            inside,
            weights=[accepted[client] for client in inside] if inside else None,
            status="learnt" if inside else "aborted",
            asked=asked,
            lost={"train": lost} if lost else None,
            part=self.part,
        )


def _client(fl_ctx: Any) -> str:
    """Return the name of the client whose request or result is handled."""
    return str(fl_ctx.get_peer_context().get_identity_name())


class SiteGuard(Filter):
    """A filter that the owner of a site installs, and that no job can take out.

    List it in the site's `privacy.json`, among `task_data_filters` and among
    `task_result_filters`, with the same arguments. It writes a ledger: a line for each
    model that the site gets, with its SHA-256, and a line for each result before that
    leaves. Mates who compare their ledgers see whether all got the same model, and
    a site sees whether the server's log has the rounds in which it gave an update.

    It cannot see who else is in a sum. Filters of a job run after it: where the job
    encrypts results, that is not checked.

    Args:
        path: The ledger, one for all jobs of the site; best absolute.
        max_results: The most results that leave, over all jobs; None for no limit.

    Raises:
        ConfigurationError: If an argument is of another type or out of range.
        MrsaError: From `process`, if one more result may not leave, or a model holds
            what is no array of numbers. NVFlare then answers with an error instead.
    """

    def __init__(self, path: str, max_results: int | None = None) -> None:
        super().__init__()
        require(isinstance(path, str) and bool(path), "path", "must be a path", path)
        if max_results is not None:
            check_integer(max_results, "max_results", 1)
        self.path = user_path(path)
        self.max_results = max_results

    def process(self, shareable: Shareable, fl_ctx: Any) -> Shareable:
        """Write a line for what passes, and return it.

        Args:
            shareable: A model for the site, or its result.
            fl_ctx: NVFlare's context.
        """
        chain = self.get_prop(FilterContextKey.CHAIN_TYPE)
        line = {
            "job": str(fl_ctx.get_job_id()),
            "round": shareable.get_header(AppConstants.CURRENT_ROUND),
        }
        if chain == FilterChainType.TASK_DATA_CHAIN:
            self._append(line | {"model": _model_digest(shareable)})
            return shareable
        code = shareable.get_return_code()
        if code != ReturnCode.OK:
            # an error carries nothing else
            return make_reply(code)
        self._append(line | {"gave": True})
        return shareable

    def _append(self, line: dict[str, Any]) -> None:
        """Put a line on the disk, unless it is of a result too many."""
        with self.path.open("a+", encoding="utf-8") as file:
            # jobs of a site are processes
            locked(file, waits=True)
            file.seek(0)
            before = [json.loads(text) for text in file]
            if "gave" in line:
                num_results = sum("gave" in entry for entry in before)
                if self.max_results is not None and num_results >= self.max_results:
                    raise MrsaError(
                        f"`max_results` of {self.path} is {self.max_results}: no "
                        "further result leaves this site"
                    )
                if line["round"] is None:
                    # the round of the model that the job got last
                    rounds = [
                        entry["round"]
                        for entry in before
                        if entry["job"] == line["job"]
                    ]
                    line["round"] = rounds[-1] if rounds else None
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _model_digest(shareable: Shareable) -> str | None:
    """Return the digest of the model in a task, or None where there is no model."""
    try:
        dxo = from_shareable(shareable)
    except ValueError:
        return None
    return _digest(dxo.data)


def _digest(data: Any) -> str:
    """Return the SHA-256 of a model's arrays with their names."""
    total = hashlib.sha256()
    for name, value in _arrays(data, ""):
        array = np.ascontiguousarray(value)
        if array.dtype.kind not in "biufc":
            raise MrsaError(
                f"the model's {name or 'data'} must be an array of numbers; got "
                f"{type(value).__name__}"
            )
        head = f"{name} {array.dtype.str} {array.shape}\n"
        total.update(head.encode())
        total.update(array.tobytes())
    return total.hexdigest()


def _arrays(data: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the parts of nested dictionaries in the order of their names."""
    if not isinstance(data, dict):
        yield name, data
        return
    for key in sorted(data, key=str):
        yield from _arrays(data[key], f"{name}/{key}")
