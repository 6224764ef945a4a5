"""Records NVFlare's rounds: whose contribution is in each sum that its server makes.

Import it where NVFlare is; nothing else here does. The lines that NVFlare's workflow
ScatterAndGather writes by itself are read by `mrsa_watch.read_log` without a recorder;
its newer FedAvg writes none that say who took part.

Source: NVFlare 2.9.0, `app_common/workflows/scatter_and_gather.py` and
`base_model_controller.py`: both workflows fire BEFORE_TRAIN_TASK,
AFTER_CONTRIBUTION_ACCEPT and AFTER_AGGREGATION.
"""

from __future__ import annotations

import importlib.util
import threading
from typing import Any

from mrsa_watch._base.errors import how_to_install

if importlib.util.find_spec("nvflare") is None:
    raise ImportError(
        "mrsa_watch.nvflare records NVFlare's rounds and needs it: "
        f"{how_to_install('nvflare')} (with which it was tried)"
    )

import nvflare
from nvflare.apis.dxo import MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType

from mrsa_watch._base.errors import MrsaError
from mrsa_watch._recorder import Recorder

__all__ = ["ParticipationRecorder"]


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
