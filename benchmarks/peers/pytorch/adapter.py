"""PyTorch's plain loop over clients, in an environment of its own.

Reads one JSON job a line from standard input and answers with one JSON line: `load` a
workload (an .npz of samples, minibatches and starting parameters), `run` it (seconds of
one pass over all clients), `save` each client's update in the caller's layout of
parameters, so that correctness is compared before speed. Nothing of mrsa_jax is
imported here.
"""

import json
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Network(nn.Module):
    """Convolutions (5x5, relu, 2x2 max-pool each), then dense layers with relu between them."""

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
        """Yield each parameter with the way from the caller's layout to PyTorch's and back."""
        for layer in self.convolutions:
            yield layer.bias, lambda a: a, lambda a: a
            yield (
                layer.weight,
                lambda a: a.transpose(3, 2, 0, 1),
                lambda a: a.transpose(2, 3, 1, 0),
            )
        height, width, channels = self.last_shape
        for number, layer in enumerate(self.dense):
            yield layer.bias, lambda a: a, lambda a: a
            if number or not self.convolutions:
                yield layer.weight, lambda a: a.T, lambda a: a.T
                continue

            # rows by height, width, channel become columns by channel first
            def there(a):
                rows = a.reshape(height, width, channels, -1)
                return rows.transpose(3, 2, 0, 1).reshape(a.shape[1], -1)

            def back(a):
                rows = a.reshape(-1, channels, height, width)
                return rows.transpose(2, 3, 1, 0).reshape(-1, a.shape[0])

            yield layer.weight, there, back


class Workload:
    """One workload: every client trains from the same start over its own minibatches."""

    def __init__(self, path):
        with np.load(path) as stored:
            settings = json.loads(str(stored["settings"]))
            inputs, labels = stored["inputs"], stored["labels"]
            start, order = stored["start"], stored["order"]
        self.rate, self.batch = settings["learning_rate"], settings["batch_size"]
        self.network = Network(
            settings["shape"], settings["convolutions"], settings["dense"]
        )
        self.inputs = torch.from_numpy(
            np.ascontiguousarray(inputs.transpose(0, 3, 1, 2))
        )
        self.labels = torch.from_numpy(labels.astype(np.int64))
        self.order = torch.from_numpy(order.astype(np.int64))
        self.start = []
        at = 0
        for parameter, there, back in self.network.weights():
            shape = back(parameter.detach().numpy()).shape
            size = parameter.numel()
            values = there(start[at : at + size].reshape(shape))
            self.start.append(torch.from_numpy(np.ascontiguousarray(values)))
            at += size
        self.trained = []

    def run(self):
        """Train every client, one after another.

        Keep the parameters that each ends with.
        """
        parameters = [parameter for parameter, _, _ in self.network.weights()]
        self.trained = []
        for own in self.order:
            with torch.no_grad():
                for parameter, value in zip(parameters, self.start, strict=True):
                    parameter.copy_(value)
            optimizer = torch.optim.SGD(parameters, lr=self.rate)
            for chosen in own.split(self.batch):
                optimizer.zero_grad()
                logits = self.network(self.inputs[chosen])
                functional.cross_entropy(logits, self.labels[chosen]).backward()
                optimizer.step()
            self.trained.append(
                [parameter.detach().clone() for parameter in parameters]
            )

    def updates(self):
        """Return each client's update as one vector in the caller's layout."""
        rows = []
        for trained in self.trained:
            parts = []
            for (_, _, back), new, old in zip(
                self.network.weights(), trained, self.start, strict=True
            ):
                parts.append(back((new - old).numpy()).ravel())
            rows.append(np.concatenate(parts))
        return np.stack(rows)


def main():
    """Answer jobs until standard input ends."""
    workload = None
    for line in sys.stdin:
        job = json.loads(line)
        answer = {"version": torch.__version__}
        if job["command"] == "load":
            torch.set_num_threads(job["threads"])
            workload = Workload(job["path"])
        elif job["command"] == "run":
            start, cpu = time.perf_counter(), time.process_time()
            workload.run()
            answer["seconds"] = time.perf_counter() - start
            answer["cpu_seconds"] = time.process_time() - cpu
        elif job["command"] == "save":
            np.save(job["path"], workload.updates())
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
