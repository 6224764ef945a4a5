"""pfl-research's federated averaging on its PyTorch backend, in its environment."""

import itertools
import logging

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from pfl.version import __version__
from serving import Rounds, serve
from torch.nn import functional


class Network(torch.nn.Module):
    """Dense layers with relu between them, and what pfl asks of a model."""

    def __init__(self, widths):
        super().__init__()
        pairs = itertools.pairwise(widths)
        self.dense = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in pairs)

    def forward(self, values):
        for layer in self.dense[:-1]:
            values = functional.relu(layer(values))
        return self.dense[-1](values)

    def loss(self, inputs, labels, eval=False):
        self.train(not eval)
        return functional.cross_entropy(self(inputs), labels)

    def metrics(self, inputs, labels, eval=False):
        return {}


class Workload:
    """Rounds of `FederatedAveraging` over all clients, evaluated nowhere."""

    def __init__(self, settings, arrays, threads):
        torch.set_num_threads(threads)
        logging.disable(logging.INFO)
        self.rounds = Rounds(settings, arrays)
        self.network = Network(self.rounds.widths)
        self.users = {}
        for number in range(self.rounds.num_rounds):
            for client in range(self.rounds.num_clients):
                inputs, labels = self.rounds.samples(number, client)
                tensors = [torch.from_numpy(inputs), torch.from_numpy(labels)]
                self.users[number, client] = tensors

    def run(self):
        with torch.no_grad():
            for layer, (bias, kernel) in zip(
                self.network.dense, self.rounds.layers(self.rounds.start), strict=True
            ):
                layer.bias.copy_(torch.from_numpy(bias))
                layer.weight.copy_(torch.from_numpy(np.ascontiguousarray(kernel.T)))
        model = PyTorchModel(
            self.network,
            local_optimizer_create=torch.optim.SGD,
            # a step of 1 puts the model at the average of the clients' models
            central_optimizer=torch.optim.SGD(self.network.parameters(), lr=1.0),
        )
        # pfl asks for one user after another: these come round by round
        queue = iter(self.users)
        data = FederatedDataset(
            lambda user: Dataset(self.users[user]), lambda: next(queue)
        )
        backend = SimulatedBackend(training_data=data, val_data=None)
        FederatedAveraging().run(
            algorithm_params=NNAlgorithmParams(
                central_num_iterations=self.rounds.num_rounds,
                evaluation_frequency=10**9,
                train_cohort_size=self.rounds.num_clients,
                val_cohort_size=0,
            ),
            backend=backend,
            model=model,
            model_train_params=NNTrainHyperParams(
                local_num_epochs=1,
                local_learning_rate=self.rounds.rate,
                local_batch_size=self.rounds.batch,
            ),
            model_eval_params=NNEvalHyperParams(local_batch_size=self.rounds.batch),
            send_metrics_to_platform=False,
        )

    def saved(self, what):
        layers = [
            (layer.bias.detach().numpy(), layer.weight.detach().numpy().T)
            for layer in self.network.dense
        ]
        return self.rounds.flat(layers)


if __name__ == "__main__":
    serve(Workload, __version__)
