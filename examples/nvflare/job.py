"""Federated averaging under NVFlare's simulator, recorded.

`python job.py /logs/recorded.jsonl`.
"""

import pathlib
import sys

from nvflare.app_common.np.np_model_persistor import NPModelPersistor
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.fuel.utils.constants import FrameworkType
from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import ScriptRunner

from mrsa_watch.nvflare import ParticipationRecorder

if __name__ == "__main__":
    log = pathlib.Path(sys.argv[1]).absolute()
    job = FedJob(name="recorded", min_clients=4)
    job.to_server(NPModelPersistor(model=[0.0] * 8), id="persistor")
    job.to_server(FedAvg(num_clients=4, num_rounds=3))
    job.to_server(ParticipationRecorder(str(log)), id="recorder")
    script = pathlib.Path(__file__).with_name("client.py")
    job.to_clients(ScriptRunner(script=str(script), framework=FrameworkType.NUMPY))
    job.simulator_run(str(log.parent / "simulation"), n_clients=4)
