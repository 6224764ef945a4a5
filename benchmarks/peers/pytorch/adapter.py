"""PyTorch's plain loop over clients, in an environment of its own.

A workload holds samples, minibatches and starting parameters. A run is one pass over
all clients; each client's update is saved in the caller's layout of parameters, so that
correctness is compared before speed.
"""

import numpy as np
import torch
from serving import from_torch, into_torch, serve, torch_weights
from torch import nn
from torch.nn import functional


class Network(nn.Module):
    """Convolutions (5x5, relu, 2x2 max-pool each), then dense layers with relu."""

    def __init__(self, shape, convolutions, dense):
        super().__init__()
        height, width, channels = shape
        self.convolutions = nn.ModuleList()
        for features, padding in convolutions:
            self.convolutions.append(nn.Conv2d(channels, features, 5, padding=padding))
            height, width = ((side + 2 * padding - 4) // 2 for side in (height, width))
            channels = features
        self.last_shape = (height, width, channels)
        sizes = [height * width * channels, *dense]
        self.dense = nn.ModuleList(
            nn.Linear(a, b) for a, b in zip(sizes, dense, strict=False)
        )

    def forward(self, values):
        for layer in self.convolutions:
            values = functional.max_pool2d(functional.relu(layer(values)), 2)
        values = values.flatten(1)
        for layer in self.dense[:-1]:
            values = functional.relu(layer(values))
        return self.dense[-1](values)

    def weights(self):
        return torch_weights(self.convolutions, self.dense, self.last_shape)


class Workload:
    """A workload: every client trains from the same start over its minibatches."""

    def __init__(self, settings, arrays, threads):
        torch.set_num_threads(threads)
        self.rate, self.batch = settings["learning_rate"], settings["batch_size"]
        self.network = Network(
            settings["shape"], settings["convolutions"], settings["dense"]
        )
        inputs = np.ascontiguousarray(arrays["inputs"].transpose(0, 3, 1, 2))
        self.inputs = torch.from_numpy(inputs)
        self.labels = torch.from_numpy(arrays["labels"].astype(np.int64))
        self.order = torch.from_numpy(arrays["order"].astype(np.int64))
        start = into_torch(self.network.weights(), arrays["start"])
        self.start = [torch.from_numpy(values) for values in start]
        self.trained = []

    def run(self):
        """Train every client, one after another.

        Keep the parameters that each ends with.
        """
        parameters = [parameter for parameter, _, _ in self.network.weights()]
        self.trained = []
        for samples in self.order:
            with torch.no_grad():
                for parameter, value in zip(parameters, self.start, strict=True):
                    parameter.copy_(value)
            optimizer = torch.optim.SGD(parameters, lr=self.rate)
            for chosen in samples.split(self.batch):
                optimizer.zero_grad()
                logits = self.network(self.inputs[chosen])
                functional.cross_entropy(logits, self.labels[chosen]).backward()
                optimizer.step()
            self.trained.append(
                [parameter.detach().clone() for parameter in parameters]
            )

    def saved(self, what):
        """Return each client's update as one vector in the caller's layout."""
        rows = []
        for trained in self.trained:
            pairs = zip(trained, self.start, strict=True)
            moves = [(new - old).numpy() for new, old in pairs]
            rows.append(from_torch(self.network.weights(), moves))
        return np.stack(rows)


if __name__ == "__main__":
    serve(Workload, torch.__version__)
