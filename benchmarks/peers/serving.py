"""The loop of every adapter, and layouts of parameters that several of them share.

One JSON job per line on standard input, one JSON answer per line on standard output.
`load` reads a workload (an .npz with a JSON text "settings"), `run` does it once,
`save` writes an array that it keeps. Only the adapter's own system and NumPy are there:
nothing of mrsa_jax.
"""

import json
import sys
import time

import numpy as np


def serve(make, version):
    """Answer jobs until standard input ends.

    `make(settings, arrays, threads)` returns a workload with `run()` (which may return
    numbers for the answer) and `saved(what)`.
    """
    workload, answers = None, sys.stdout
    sys.stdout = sys.stderr  # whatever a system prints must not be taken for an answer
    for line in sys.stdin:
        job = json.loads(line)
        answer = {"version": version}
        if job["command"] == "load":
            with np.load(job["path"]) as stored:
                arrays = {
                    name: stored[name] for name in stored.files if name != "settings"
                }
                settings = json.loads(str(stored["settings"]))
            workload = make(settings, arrays, job["threads"])
        elif job["command"] == "run":
            # timed in this process: pipes and JSON take no part in the seconds
            start, cpu = time.perf_counter(), time.process_time()
            reported = workload.run() or {}
            answer["seconds"] = time.perf_counter() - start
            answer["cpu_seconds"] = time.process_time() - cpu
            answer.update(reported)
        elif job["command"] == "save":
            np.save(job["path"], workload.saved(job["what"]))
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class Rounds:
    """Rounds of federated averaging.

    Every client of every round with its samples in order.
    A dense network with relu between its layers (none: softmax regression); all clients
    hold as many samples, train one epoch of plain SGD in minibatches, and their models
    are averaged.
    """

    def __init__(self, settings, arrays):
        self.rate, self.batch = settings["learning_rate"], settings["batch_size"]
        self.widths = settings["widths"]  # inputs, hidden layers, classes
        self.inputs, self.labels = arrays["inputs"], arrays["labels"].astype(np.int64)
        # [rounds, clients, samples]
        self.order, self.start = arrays["order"], arrays["start"]

    @property
    def num_rounds(self):
        return len(self.order)

    @property
    def num_clients(self):
        return self.order.shape[1]

    def samples(self, round_index, client):
        chosen = self.order[round_index, client]
        return self.inputs[chosen], self.labels[chosen]

    def layers(self, flat):
        """Cut a vector into (bias, kernel [inputs, outputs]) of each layer."""
        parts, at = [], 0
        for inputs, outputs in zip(self.widths[:-1], self.widths[1:], strict=True):
            bias, at = flat[at : at + outputs], at + outputs
            kernel, at = flat[at : at + inputs * outputs], at + inputs * outputs
            parts.append((bias, kernel.reshape(inputs, outputs)))
        return parts

    @staticmethod
    def flat(layers):
        """Join (bias, kernel) of each layer to one vector."""
        return np.concatenate(
            [np.asarray(part).ravel() for layer in layers for part in layer]
        )


def torch_weights(convolutions, dense, last_shape):
    """Yield each parameter with the way into PyTorch's layout and back.

    The caller's layout is flax's: kernels [height, width, inputs, outputs] and [inputs,
    outputs], and images whose channels come last.

    Args:
        convolutions: Convolution layers, in order.
        dense: Dense layers, in order.
        last_shape: Height, width and channels that the first dense layer reads.
    """

    def same(values):
        return values

    for layer in convolutions:
        yield layer.bias, same, same
        yield (
            layer.weight,
            lambda kernel: kernel.transpose(3, 2, 0, 1),
            lambda kernel: kernel.transpose(2, 3, 1, 0),
        )
    # flattened images: the channel comes last in flax, first in PyTorch
    height, width, channels = last_shape

    # rows by height, width, channel become columns by channel first
    def into(kernel):
        pixels = kernel.reshape(height, width, channels, -1)
        return pixels.transpose(3, 2, 0, 1).reshape(kernel.shape[1], -1)

    def back(kernel):
        pixels = kernel.reshape(-1, channels, height, width)
        return pixels.transpose(2, 3, 1, 0).reshape(-1, kernel.shape[0])

    for number, layer in enumerate(dense):
        yield layer.bias, same, same
        if convolutions and number == 0:
            yield layer.weight, into, back
        else:
            yield layer.weight, np.transpose, np.transpose


def into_torch(weights, flat):
    """Cut a vector of the caller's layout into PyTorch's arrays, one per parameter."""
    parts = []
    first = 0
    for parameter, into, back in weights:
        shape = back(parameter.detach().numpy()).shape
        values = flat[first : first + parameter.numel()].reshape(shape)
        parts.append(np.ascontiguousarray(into(values)))
        first += parameter.numel()
    return parts


def from_torch(weights, arrays):
    """Join PyTorch's arrays, one per parameter, to a vector of the caller's layout."""
    pairs = zip(weights, arrays, strict=True)
    return np.concatenate([back(array).ravel() for (_, _, back), array in pairs])
