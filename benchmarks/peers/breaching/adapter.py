"""Gradient inversion by `breaching`, in an environment of its own.

A workload holds an image, its label, parameters of the small LeNet, and a number of
iterations. A run is its attack "invertinggradients" from one random start. The gradient
that it attacks ("gradient") and the image that it found ("images") are saved, so that
both sides are known to attack the same thing.
"""

import breaching
import numpy as np
import torch
from breaching.cases.models.model_preparation import LeNetZhu
from omegaconf import OmegaConf
from serving import from_torch, into_torch, serve, torch_weights
from torch.nn import functional


class Workload:
    """One image and the gradient at it."""

    def __init__(self, settings, arrays, threads):
        torch.set_num_threads(threads)
        image = arrays["image"]
        height, width, channels = image.shape
        pixels = np.ascontiguousarray(image.transpose(2, 0, 1))
        self.image = torch.from_numpy(pixels)[None]
        self.label = torch.from_numpy(np.asarray([arrays["label"]], np.int64))
        self.model = LeNetZhu(
            num_classes=settings["num_classes"], num_channels=channels
        )
        self.last_shape = (-(-height // 4), -(-width // 4), 12)
        weights = self.weights()
        for (parameter, _, _), values in zip(
            weights, into_torch(weights, arrays["start"]), strict=True
        ):
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(values))
        loss = functional.cross_entropy(self.model(self.image), self.label)
        self.gradient = torch.autograd.grad(loss, list(self.model.parameters()))
        # one random start, no reports on the way
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
        self.images = None

    def weights(self):
        convolutions = self.model.body[0], self.model.body[2], self.model.body[4]
        return list(torch_weights(convolutions, self.model.fc[:1], self.last_shape))

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
        images, _ = self.attacker.reconstruct(payload, shared, {}, dryrun=False)
        self.images = images["data"]

    def saved(self, what):
        """Return the gradient in the caller's layout, or the image found."""
        if what == "images":
            return self.images.numpy().transpose(0, 2, 3, 1)
        # PyTorch lists a layer's weight before its bias
        parameters = map(id, self.model.parameters())
        slopes = dict(zip(parameters, self.gradient, strict=True))
        weights = self.weights()
        return from_torch(weights, [slopes[id(p)].numpy() for p, _, _ in weights])


if __name__ == "__main__":
    serve(Workload, breaching.__dict__.get("__version__", "0.1.2"))
