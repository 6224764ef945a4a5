"""Gradient inversion by `breaching`, in an environment of its own.

Reads one JSON job a line from standard input and answers with one JSON line: `load` a
workload (image, label, parameters of the small LeNet, iterations), `run` its attack
"invertinggradients" from one random start, `save` the gradient that it attacks
("gradient") or the image that it found ("images"), so that both sides are known to
attack the same thing. Nothing of mrsa_jax is imported.
"""

import json
import sys
import time

import breaching
import numpy as np
import torch
from breaching.cases.models.model_preparation import LeNetZhu
from omegaconf import OmegaConf
from torch.nn import functional


class Workload:
    """One image and the gradient at it."""

    def __init__(self, path):
        with np.load(path) as stored:
            settings = json.loads(str(stored["settings"]))
            image, label, start = stored["image"], stored["label"], stored["start"]
        height, width, channels = image.shape
        self.image = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))[
            None
        ]
        self.label = torch.from_numpy(np.asarray([label], np.int64))
        self.model = LeNetZhu(
            num_classes=settings["num_classes"], num_channels=channels
        )
        self.last_shape = (-(-height // 4), -(-width // 4), 12)
        at = 0
        for parameter, there, back in self.weights():
            shape = back(parameter.detach().numpy()).shape
            values = start[at : at + parameter.numel()].reshape(shape)
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(np.ascontiguousarray(there(values))))
            at += parameter.numel()
        loss = functional.cross_entropy(self.model(self.image), self.label)
        self.gradient = torch.autograd.grad(loss, list(self.model.parameters()))
        config = breaching.get_attack_config("invertinggradients")
        config.optim.max_iterations = settings["num_steps"]
        config.optim.callback = settings["num_steps"]
        config.regularization.total_variation.scale = settings["smoothness"]
        config.init = "rand"
        self.attacker = breaching.attacks.prepare_attack(
            self.model,
            torch.nn.CrossEntropyLoss(),
            config,
            {"device": torch.device("cpu"), "dtype": torch.float},
        )
        shape = [channels, height, width]
        zeros, ones = [0.0] * channels, [1.0] * channels
        self.metadata = OmegaConf.create(
            {
                "shape": shape,
                "modality": "vision",
                "mean": zeros,
                "std": ones,
                "classes": 10,
            }
        )
        self.found = None

    def weights(self):
        """Yield each parameter with the way from the caller's layout to PyTorch's and back."""
        for layer in (self.model.body[0], self.model.body[2], self.model.body[4]):
            yield layer.bias, lambda a: a, lambda a: a
            yield (
                layer.weight,
                lambda a: a.transpose(3, 2, 0, 1),
                lambda a: a.transpose(2, 3, 1, 0),
            )
        height, width, channels = self.last_shape
        yield self.model.fc[0].bias, lambda a: a, lambda a: a

        def there(a):  # rows by height, width, channel become columns by channel first
            rows = a.reshape(height, width, channels, -1)
            return rows.transpose(3, 2, 0, 1).reshape(a.shape[1], -1)

        def back(a):
            rows = a.reshape(-1, channels, height, width)
            return rows.transpose(2, 3, 1, 0).reshape(-1, a.shape[0])

        yield self.model.fc[0].weight, there, back

    def run(self):
        """Attack the gradient once."""
        payload = [
            {
                "parameters": [p.detach() for p in self.model.parameters()],
                "buffers": [],
                "metadata": self.metadata,
            }
        ]
        shared = [
            {
                "gradients": [g.clone() for g in self.gradient],
                "buffers": [],
                "metadata": {
                    "num_data_points": 1,
                    "labels": self.label,
                    "local_hyperparams": None,
                },
            }
        ]
        found, _ = self.attacker.reconstruct(payload, shared, {}, dryrun=False)
        self.found = found["data"]

    def saved(self, what):
        """Return the gradient in the caller's layout, or the image found."""
        if what == "images":
            return self.found.numpy().transpose(0, 2, 3, 1)
        by_parameter = dict(
            zip(map(id, self.model.parameters()), self.gradient, strict=True)
        )
        parts = [
            back(by_parameter[id(p)].numpy()).ravel() for p, _, back in self.weights()
        ]
        return np.concatenate(parts)


def main():
    """Answer jobs until standard input ends."""
    workload, answers = None, sys.stdout
    sys.stdout = sys.stderr  # breaching prints
    for line in sys.stdin:
        job = json.loads(line)
        answer = {"version": breaching.__dict__.get("__version__", "0.1.2")}
        if job["command"] == "load":
            torch.set_num_threads(job["threads"])
            workload = Workload(job["path"])
        elif job["command"] == "run":
            start, cpu = time.perf_counter(), time.process_time()
            workload.run()
            answer["seconds"] = time.perf_counter() - start
            answer["cpu_seconds"] = time.process_time() - cpu
        elif job["command"] == "save":
            np.save(job["path"], workload.saved(job["what"]))
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
