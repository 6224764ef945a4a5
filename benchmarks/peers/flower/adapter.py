"""Flower, in an environment of its own.

Rounds of its simulation, and its SecAgg+ protocol.
Kind "rounds": `run_simulation` with its Ray engine, clients in PyTorch; the first round
only warms the engine up (its result is thrown away), and the seconds are those of the
rounds after it. Kind "secagg": the server's `SecAggPlusWorkflow` and the clients'
`secaggplus_mod`, all parties in this process, messages handed over in memory; the last
clients are gone when padded vectors are due.
"""

import os
import time

# before they are imported: neither calls home
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# one thread a client, where Ray starts them
os.environ["OMP_NUM_THREADS"] = "1"

import copy
import importlib.metadata
import logging

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client import ClientApp, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.common import (
    Code,
    FitIns,
    FitRes,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.common.secure_aggregation.secaggplus_constants import (
    RECORD_KEY_CONFIGS,
    Key as SecAggKey,
    Stage,
)
from flwr.compat.common import recorddict_compat as compat
from flwr.server import LegacyContext, ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.supercore.task_identity import TaskIdentity
from serving import Rounds, serve

VERSION = importlib.metadata.version("flwr")


class Trainer(NumPyClient):
    """One client: dense layers in PyTorch, one epoch of plain SGD."""

    def __init__(self, rounds, client):
        self.rounds, self.client = rounds, client

    def fit(self, parameters, config):
        import torch
        from torch.nn import functional

        torch.set_num_threads(1)
        values = [torch.tensor(array, requires_grad=True) for array in parameters]
        pairs = list(zip(values[::2], values[1::2], strict=True))
        optimizer = torch.optim.SGD(values, lr=self.rounds.rate)
        # the first round warms up
        inputs, labels = self.rounds.samples(max(config["round"] - 2, 0), self.client)
        inputs, labels = torch.from_numpy(inputs), torch.from_numpy(labels)
        for first in range(0, len(labels), self.rounds.batch):
            outputs = inputs[first : first + self.rounds.batch]
            for number, (bias, kernel) in enumerate(pairs):
                outputs = torch.addmm(bias, outputs, kernel)
                if number + 1 < len(pairs):
                    outputs = functional.relu(outputs)
            optimizer.zero_grad()
            loss = functional.cross_entropy(
                outputs, labels[first : first + self.rounds.batch]
            )
            loss.backward()
            optimizer.step()
        return [value.detach().numpy() for value in values], len(labels), {}


_LOADED = {}  # in each of Ray's processes: the workload by its file


def _rounds_of(path):
    if path not in _LOADED:
        with np.load(path, allow_pickle=True) as stored:
            _LOADED[path] = Rounds(stored["settings"].item(), stored)
    return _LOADED[path]


class Average(FedAvg):
    """FedAvg that keeps the start through the warm-up, and the time of later rounds."""

    def __init__(self, start, num_clients, answer):
        self.start, self.answer = ndarrays_to_parameters(start), answer
        super().__init__(
            fraction_fit=1.0,
            fraction_evaluate=0.0,
            min_fit_clients=num_clients,
            min_available_clients=num_clients,
            initial_parameters=ndarrays_to_parameters(start),
            on_fit_config_fn=lambda number: {"round": number},
        )

    def configure_fit(self, server_round, parameters, client_manager):
        # the engine is warm from here
        if server_round == 2:
            self.answer["begun"] = time.perf_counter()
        return super().configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(self, server_round, results, failures):
        if failures:
            raise RuntimeError(f"clients failed: {failures[0]}")
        parameters, metrics = super().aggregate_fit(server_round, results, failures)
        self.answer["ended"] = time.perf_counter()
        if server_round == 1:
            return self.start, metrics
        self.answer["found"] = parameters_to_ndarrays(parameters)
        return parameters, metrics


class Simulation:
    """Rounds of `run_simulation` over all clients."""

    def __init__(self, settings, arrays, threads):
        self.rounds = Rounds(settings, arrays)
        self.path = os.path.abspath("rounds.npz")
        np.savez(self.path, settings=np.array(settings, dtype=object), **arrays)
        self.answer = {}

    def run(self):
        from flwr.simulation import run_simulation

        path, layers = self.path, self.rounds.layers(self.rounds.start)
        start = [np.ascontiguousarray(part) for layer in layers for part in layer]
        count, num_rounds = self.rounds.num_clients, self.rounds.num_rounds

        def client(context):
            number = int(context.node_config["partition-id"])
            return Trainer(_rounds_of(path), number).to_client()

        def server(context):
            return ServerAppComponents(
                strategy=Average(start, count, self.answer),
                config=ServerConfig(num_rounds=num_rounds + 1),
            )

        self.answer.clear()
        run_simulation(
            server_app=ServerApp(server_fn=server),
            client_app=ClientApp(client_fn=client),
            num_supernodes=count,
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
        )
        # clients compute in Ray's processes, which this one does not count
        return {
            "seconds": self.answer["ended"] - self.answer["begun"],
            "cpu_seconds": None,
        }

    def saved(self, what):
        layers = self.answer["found"]
        return self.rounds.flat(list(zip(layers[::2], layers[1::2], strict=True)))


class Proxy:
    """A client as the workflow sees it, known by number."""

    def __init__(self, node_id):
        self.node_id, self.cid = node_id, str(node_id)


class Everyone(FedAvg):
    """A strategy that asks every client, and keeps what the protocol found."""

    def __init__(self, node_ids):
        super().__init__()
        self.node_ids, self.found = node_ids, None

    def configure_fit(self, server_round, parameters, client_manager):
        return [(Proxy(node_id), FitIns(parameters, {})) for node_id in self.node_ids]

    def aggregate_fit(self, server_round, results, failures):
        self.found = parameters_to_ndarrays(results[0][1].parameters)[0]
        return results[0][1].parameters, {}


class Manager:
    """The number of clients, for a line of the log."""

    def __init__(self, count):
        self.count = count

    def num_available(self):
        return self.count


class Network:
    """Hands messages to the clients' protocol in this process.

    Some clients leave on the way.
    """

    def __init__(self, updates, lost):
        self.updates, self.lost = updates, lost
        self.contexts = {
            node_id: Context(0, node_id, {}, RecordDict(), {}) for node_id in updates
        }

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            node_id = message.metadata.dst_node_id
            stage = message.content.config_records[RECORD_KEY_CONFIGS][SecAggKey.STAGE]
            if node_id in self.lost and stage in (
                Stage.COLLECT_MASKED_VECTORS,
                Stage.UNMASK,
            ):
                continue
            # as by a wire: clients take pieces out of what they get
            copied = copy.deepcopy(message)
            replies.append(secaggplus_mod(copied, self.contexts[node_id], self.fit))
        return replies

    def fit(self, message, context):
        """Stand for training: answer with the client's update."""
        update = ndarrays_to_parameters([self.updates[context.node_id]])
        result = FitRes(Status(Code.OK, ""), update, 1, {})
        content = compat.fitres_to_recorddict(result, keep_input=False)
        return Message(content, reply_to=message)


class SecAggPlus:
    """One round of the protocol over given updates."""

    def __init__(self, settings, arrays, threads):
        self.settings, self.updates = settings, arrays["updates"]
        self.found = None

    def run(self):
        settings, count = self.settings, len(self.updates)
        TaskIdentity.task_id = TaskIdentity.run_id = 1
        TaskIdentity.node_id = 0
        node_ids = list(range(1, count + 1))
        network = Network(
            dict(zip(node_ids, self.updates, strict=True)),
            set(node_ids[count - settings["lost"] :]),
        )
        strategy = Everyone(node_ids)
        context = LegacyContext(
            Context(0, 0, {}, RecordDict(), {}),
            ServerConfig(),
            strategy,
            Manager(count),
        )
        context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord(
            {Key.CURRENT_ROUND: 1}
        )
        nothing = ndarrays_to_parameters([np.zeros(1, np.float32)])
        context.state.array_records[MAIN_PARAMS_RECORD] = (
            compat.parameters_to_arrayrecord(nothing, keep_input=False)
        )
        SecAggPlusWorkflow(
            num_shares=settings["num_shares"],
            reconstruction_threshold=settings["threshold"],
            max_weight=1.0,
            clipping_range=settings["clip"],
            quantization_range=settings["levels"],
            modulus_range=2**32,
        )(network, context)
        if strategy.found is None:
            raise RuntimeError("the protocol was halted")
        self.found = strategy.found

    def saved(self, what):
        return self.found


def make(settings, arrays, threads):
    logging.getLogger("flwr").setLevel(logging.WARNING)
    kinds = {"rounds": Simulation, "secagg": SecAggPlus}
    return kinds[settings["kind"]](settings, arrays, threads)


if __name__ == "__main__":
    serve(make, VERSION)
