"""Secure aggregation as array operations.

Real pads, ring sums and the average they carry.
**A worked example.** Five clients add their vectors so that the server learns only the
sum. Each pair of clients that shares a pad is an edge of a graph; here every pair does,
as in SecAgg.

>>> import mrsa_jax as mj
>>> import numpy as np
>>> inputs = np.array([[1, 2], [10, 20], [100, 200], [3, 3], [7, 7]])
>>> graph = ~np.eye(5, dtype=bool)

A round has four steps, and a client can be lost at each. Row s of `survivors` holds the
clients that are present after step s. Client 3 is lost before it uploads, so V3 lacks
it:

>>> survivors = np.ones((5, 5), dtype=bool)
>>> survivors[3:, 3] = False

Three shares rebuild a secret. Four clients remain, so the server can remove all pads
from the sum of these four, modulo 2^16. A status says how the round ended:

>>> result = mj.secagg.aggregate(0, inputs, graph, survivors, 3, modulus_bits=16)
>>> mj.Status(result.status).name, result.total.tolist()
('OK', [118, 229])

With a threshold of five shares the round fails. This is a result, not an exception:

>>> failed = mj.secagg.aggregate(0, inputs, graph, survivors, 5, modulus_bits=16)
>>> mj.Status(failed.status).name, failed.total.tolist()
('UNRELIABLE', [0, 0])

Two theorems decide the same without any pad: whether the sum can be formed, and whether
the server can learn a sum over fewer clients:

>>> (
...     mj.secagg.is_reliable(graph, survivors, 3),
...     mj.secagg.is_reliable(graph, survivors, 5),
... )
(True, False)
>>> mj.secagg.is_private(graph, survivors, 3)
True

In a sparse graph each client shares pads with few others, which saves bandwidth. CCESA
says how dense a random graph of 1,000 clients must be if 10 % of them are lost, and
which threshold fits:

>>> p = mj.secagg.connection_probability(1000, 0.1)
>>> round(p, 4), mj.secagg.share_threshold(1000, p)
(0.3106, 198)

Training needs the mean of real updates. An aggregator quantizes each coordinate to one
of `num_levels` levels within a clip range, sums the codes in the ring, and decodes the
sum:

>>> import jax
>>> import jax.numpy as jnp
>>> average = mj.secagg.ring_average(
...     mj.quantize.stochastic(3, 1.0), 2, 3, modulus_bits=8
... )
>>> updates = jnp.asarray([[1.0, 0.0, -1.0], [1.0, 1.0, -1.0]])
>>> everybody, slots = jnp.ones(2, bool), jnp.arange(2)
>>> out, state = average.aggregate(
...     jax.random.key(0), average.init(), updates, slots, everybody
... )
>>> out.update.tolist()
[1.0, 0.5, -1.0]

`protocol.run` exchanges real messages and agrees with `aggregate` bit for bit;
`failures` counts how often rounds fail; `costs` counts bytes and operations.
"""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
