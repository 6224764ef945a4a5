"""What every adapter shares.

One JSON job a line on standard input, one JSON answer a line.
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
            start, cpu = time.perf_counter(), time.process_time()
            told = workload.run() or {}
            answer["seconds"] = time.perf_counter() - start
            answer["cpu_seconds"] = time.process_time() - cpu
            answer.update(told)
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
        own = self.order[round_index, client]
        return self.inputs[own], self.labels[own]

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
