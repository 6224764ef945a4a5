"""The server: Flower's federated averaging, with each round recorded and gated."""

import pathlib

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from mrsa_watch import Gate, Recorder, flower
from recorded.task import SIZE

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds; a run that finds the log of an earlier one continues it."""
    settings = context.run_config
    path = pathlib.Path(str(settings["log"])).expanduser()
    people = flower.Pseudonyms(grid)
    system = f"flower {flower.VERSION}"
    nodes, fraction = int(settings["nodes"]), float(settings["fraction"])
    # names are pseudonyms already, which the clients made: no salt, so that logs can be
    # joined
    with Recorder(path, system=system, aggregation="plain", salt=b"") as recorder:
        strategy = flower.record(
            FedAvg(
                fraction_train=fraction,
                fraction_evaluate=0.0,
                min_train_nodes=max(2, int(nodes * fraction)),
                min_available_nodes=nodes,
            ),
            recorder,
            gate=Gate.from_log(path, fail_below=int(settings["fail-below"])),
            name=people.name,
        )
        start = ArrayRecord([np.zeros(SIZE)])
        strategy.start(people, start, num_rounds=int(settings["rounds"]))
