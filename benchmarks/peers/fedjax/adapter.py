"""FedJAX's federated averaging (`fedjax.algorithms.fed_avg`) in its environment.

Its batches come without its shuffle, from samples that lie in the wanted order.
"""

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
from serving import Rounds, serve

VERSION = "0.0.17"


class Workload:
    """Rounds of `fedjax.algorithms.fed_avg` with plain SGD on both sides."""

    def __init__(self, settings, arrays, threads):
        del threads  # XLA takes all cores
        self.rounds = Rounds(settings, arrays)

        def loss(params, batch, rng):
            values = batch["x"]
            for number, (bias, kernel) in enumerate(params):
                values = values @ kernel + bias
                if number + 1 < len(params):
                    values = jax.nn.relu(values)
            chosen = jnp.take_along_axis(
                jax.nn.log_softmax(values), batch["y"][:, None], axis=1
            )
            return -jnp.mean(chosen)

        self.algorithm = fedjax.algorithms.fed_avg.federated_averaging(
            jax.grad(loss),
            fedjax.optimizers.sgd(self.rounds.rate),
            fedjax.optimizers.sgd(1.0),
            fedjax.ShuffleRepeatBatchHParams(
                batch_size=self.rounds.batch, num_epochs=1, skip_shuffle=True
            ),
        )
        # samples lie in the wanted order, so no shuffle
        self.clients = [
            [
                (
                    b"%d" % client,
                    self._dataset(number, client),
                    jax.random.PRNGKey(client),
                )
                for client in range(self.rounds.num_clients)
            ]
            for number in range(self.rounds.num_rounds)
        ]
        self.found = None

    def _dataset(self, number, client):
        inputs, labels = self.rounds.samples(number, client)
        return fedjax.ClientDataset({"x": inputs, "y": labels.astype(np.int32)})

    def run(self):
        state = self.algorithm.init(self.rounds.layers(jnp.asarray(self.rounds.start)))
        for clients in self.clients:
            state, _ = self.algorithm.apply(state, clients)
        self.found = jax.block_until_ready(state.params)

    def saved(self, what):
        return self.rounds.flat(self.found)


if __name__ == "__main__":
    serve(Workload, VERSION)
