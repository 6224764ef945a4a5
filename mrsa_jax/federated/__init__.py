"""Federated training with a cohort's local training as one vectorised pure function.

What needs flax loads when first used: commands that train nothing do not wait for it.

**A worked example.** Eight clients share out a data set of small pictures, evenly and
at random:

>>> import mrsa_jax as mj
>>> digits = mj.data.load("digits")
>>> clients = mj.data.iid(0, digits, num_clients=8)

First the server decides which clients take part in each of twelve rounds. Four do, in
blocks of two clients that take part together or not at all. No scheme looks at the
model, so the whole participation history is known before the training:

>>> scheme = mj.selection.batch_partitioning(8, 4, 2)
>>> online = mj.availability.independent(0.1)
>>> history = mj.selection.rollout(0, scheme, online, num_rounds=12)

The model is softmax regression. A trainer says what one client computes in a round:
here, one epoch of SGD in batches of 50. The library maps it over the cohort:

>>> model = mj.federated.logistic(10)
>>> size = mj.federated.num_parameters(model, digits.input_shape)
>>> trainer = mj.federated.local_sgd(model, 0.1, batch_size=50)

An aggregator sums the updates of the four clients in a ring, with pads, and decodes
their mean:

>>> average = mj.secagg.ring_average(mj.quantize.stochastic(2**16, clip=0.5), 4, size)
>>> test = digits.test_inputs, digits.test_labels
>>> training = mj.federated.Training(
...     model, clients, history, trainer, average, test=test
... )
>>> result = mj.federated.train(0, training)
>>> bool(result.accuracy[-1] > 0.8)
True

A round that fails or is skipped leaves the model as it was, with a status that names
the reason. The server saw only the sums, of which this privacy remains:

>>> [mj.Status(code).name for code in result.status[:2]]
['OK', 'OK']
>>> mj.privacy.strong_privacy(result.participation)
2

Other trainers are `local_optax` and `scaffold`. `train_many` trains with several seeds
or learning rates in one program, `checkpoints` lets a training resume after an
interruption, and `json_lines` writes what each round reports.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
