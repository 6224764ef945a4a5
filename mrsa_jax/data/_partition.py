"""Spread a data set's samples over clients: at random, by shards, by Dirichlet draws.

Source: Multi-RoundSecAgg (So, Ali, Guler, Jiao, Avestimehr), Section 6 and appendix:
IID, sorted shards (MNIST), and sorted shards in addition to a set that everybody holds
(CIFAR-10).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from mrsa_jax._core.streams import Stream, as_key, host_generator
from mrsa_jax._core.traced import needs_values
from mrsa_jax.data._dataset import ClientData, Dataset, check_dataset, client_data
from mrsa_watch._base.errors import POSITIVE, check_count, check_number, require


@needs_values
def iid(
    seed: int | Key[Array, ""], dataset: Dataset, num_clients: int | np.integer
) -> ClientData:
    """Deal the shuffled training samples to the clients in turn.

    Sizes differ by at most one.

    Args:
        seed: Integer or key.
        dataset: What to spread.
        num_clients: Number of clients N, at most one for each sample.

    Returns:
        The clients' samples; each training sample is held exactly once.

    Raises:
        ConfigurationError: If `num_clients` is not an integer in [1, M].

    Examples:
        >>> import mrsa_jax as mj
        >>> clients = mj.data.iid(0, mj.data.load("digits"), num_clients=10)
        >>> int(clients.sizes.sum()), int(clients.sizes.max() - clients.sizes.min())
        (1442, 1)

    Source: Multi-RoundSecAgg, Section 6 (IID setting).
    """
    generator = partition_generator(seed, dataset, num_clients)
    order = generator.permutation(len(dataset.train_labels))
    return client_data(dataset, np.array_split(order, num_clients))


@needs_values
def shards(
    seed: int | Key[Array, ""],
    dataset: Dataset,
    num_clients: int | np.integer,
    *,
    shards_per_client: int | np.integer = 1,
    single_label: bool = False,
) -> ClientData:
    """Sort the samples by label, cut equal shards, and deal each client a few.

    The shards are the papers' non-IID setting. Equal shards do not end where a class
    ends: some hold two labels (in the paper's own MNIST setting 9 of 120 do, against
    its "only one digit label"). `single_label=True` cuts inside the classes instead:
    each class gets shards in proportion to its samples, and every shard holds one
    label.

    Args:
        seed: Integer or key; orders the samples inside a class and deals the shards.
        dataset: What to spread.
        num_clients: Number of clients N.
        shards_per_client: Shards that each client receives.
        single_label: Let no shard hold two labels (shard sizes then differ a little
            more).

    Returns:
        The clients' samples; each training sample is held exactly once.

    Raises:
        ConfigurationError: If there are fewer samples than shards, or, for
            `single_label`, fewer shards than classes.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> digits = mj.data.load("digits")
        >>> clients = mj.data.shards(0, digits, num_clients=20, single_label=True)
        >>> bool(np.all((mj.data.class_counts(clients) > 0).sum(axis=1) == 1))
        True

    Source: Multi-RoundSecAgg, appendix (MNIST: 120 sorted shards of 500, one per
    client). Differs from the paper only with `single_label`.
    """
    generator = partition_generator(seed, dataset, num_clients)
    num_samples = len(dataset.train_labels)
    check_count(shards_per_client, "shards_per_client")
    num_shards = num_clients * shards_per_client
    rule, sizes = (
        "must leave at least one sample for each shard",
        f"{num_samples} samples",
    )
    require(
        num_shards <= num_samples,
        "shards_per_client",
        rule,
        f"{num_shards} shards",
        sizes,
    )
    by_label = _by_label(dataset, generator.permutation(num_samples))
    if single_label:
        pieces = _single_label_shards(
            by_label, dataset.train_labels[by_label], num_shards
        )
    else:
        pieces = np.array_split(by_label, num_shards)
    return client_data(
        dataset, list(map(np.concatenate, _dealt(generator, pieces, num_clients)))
    )


@needs_values
def shards_with_shared(
    seed: int | Key[Array, ""],
    dataset: Dataset,
    num_clients: int | np.integer,
    *,
    shared_size: int | np.integer = 200,
    balanced: bool = True,
) -> ClientData:
    """Give each client one sorted shard, and all clients a small shared set.

    The shared set G softens one label per client. The rest of the samples is sorted by
    label and cut into equal shards, one per client. With a balanced G each class loses
    as many samples, so that where classes are of equal size and the shards divide them,
    as in the paper's CIFAR-10 (4,980 = 12 x 415), every shard holds one label.

    Args:
        seed: Integer or key; chooses G, orders the samples inside a class and deals the
            shards.
        dataset: What to spread.
        num_clients: Number of clients N.
        shared_size: Samples in G, 0 for none.
        balanced: Take G evenly from the classes (where it does not divide, the first
            classes give one more); otherwise from all samples at random.

    Returns:
        The clients' samples, those of G first in each row. The pool holds each sample
        once; a sample of G is in every client's row, any other in one. `class_counts`
        counts both.

    Raises:
        ConfigurationError: If `shared_size` is not an integer that leaves a sample for
            each client, or a class has fewer samples than a balanced G takes from it.

    Examples:
        >>> import mrsa_jax as mj
        >>> import numpy as np
        >>> digits = mj.data.load("digits")
        >>> clients = mj.data.shards_with_shared(0, digits, 10, shared_size=20)
        >>> int(clients.sizes.sum()) == len(digits.train_labels) + 9 * 20
        True
        >>> bool((mj.data.class_counts(clients) >= 2).all())
        True

    Source: Multi-RoundSecAgg, Section 6 (CIFAR-10 non-IID: 200 shared samples, 49,800
    in 120 shards of 415). The paper says "one label" of each shard but not how G is
    chosen; a random G gives about 8 shards of two labels.
    """
    generator = partition_generator(seed, dataset, num_clients)
    num_samples = len(dataset.train_labels)
    check_count(shared_size, "shared_size", "must be 0 or positive", 0)
    fits = int(shared_size) + int(num_clients) <= num_samples
    rule, sizes = (
        "must leave at least one sample for each client",
        f"{num_samples} samples",
    )
    require(fits, "shared_size", rule, shared_size, f"{sizes} of {num_clients} clients")
    order = generator.permutation(num_samples)
    is_shared = np.zeros(num_samples, bool)
    if balanced:
        order_labels = dataset.train_labels[order]
        # The first samples of each class in the shuffled order.
        for label, quota in enumerate(_quotas(dataset, int(shared_size))):
            is_shared[np.flatnonzero(order_labels == label)[:quota]] = True
    else:
        is_shared[:shared_size] = True
    common, rest = order[is_shared], order[~is_shared]
    pieces = np.array_split(_by_label(dataset, rest), num_clients)
    dealt = _dealt(generator, pieces, num_clients)
    return client_data(dataset, [np.concatenate([common, *shard]) for shard in dealt])


def _quotas(dataset: Dataset, shared_size: int) -> np.ndarray:
    """Return the number of samples that a balanced shared set takes of each class."""
    quotas = np.full(dataset.num_classes, shared_size // dataset.num_classes)
    # The remainder goes to the first classes, one sample each.
    quotas[: shared_size % dataset.num_classes] += 1
    counts = np.bincount(dataset.train_labels, minlength=dataset.num_classes)
    short = np.flatnonzero(counts < quotas)
    rule = "must not take more of a class than it has, or come with balanced=False"
    first = f"{counts[short[:1]].sum()} samples of label {short[:1].sum()}"
    require(len(short) == 0, "shared_size", rule, shared_size, first)
    return quotas


def _single_label_shards(
    by_label: np.ndarray, sorted_labels: np.ndarray, num_shards: int
) -> list[np.ndarray]:
    """Cut each class by itself into shards in proportion to its size, at least one."""
    _, starts, counts = np.unique(sorted_labels, return_index=True, return_counts=True)
    rule = "must be used together with at least one shard for each class"
    sizes = f"{num_shards} shards", f"{len(counts)} classes"
    require(num_shards >= len(counts), "single_label", rule, *sizes)
    allotted = np.ones(len(counts), np.int64)
    # the next shard goes where shards are largest
    for _ in range(num_shards - len(counts)):
        allotted[np.argmax(counts / allotted)] += 1
    pieces: list[np.ndarray] = []
    for start, count, parts in zip(starts, counts, allotted, strict=True):
        pieces.extend(np.array_split(by_label[start : start + count], parts))
    return pieces


def partition_generator(
    seed: Any, dataset: Dataset, num_clients: Any
) -> np.random.Generator:
    """Return the generator that deals samples.

    Raise unless the data set is valid and has a sample for each client.
    """
    check_dataset(dataset)
    check_count(num_clients, "num_clients")
    most, rule = (
        len(dataset.train_labels),
        "must not exceed the number of training samples",
    )
    require(num_clients <= most, "num_clients", rule, num_clients, most)
    return host_generator(as_key(seed), Stream.PARTITION, 1)


def _dealt(
    generator: np.random.Generator, pieces: Sequence[np.ndarray], num_clients: Any
) -> list[list[np.ndarray]]:
    """Deal as many pieces to each client, at random."""
    # Every client gets len(pieces) / N pieces, as the reshape requires.
    order = generator.permutation(len(pieces)).reshape(num_clients, -1)
    return [[pieces[piece] for piece in row] for row in order]


def _by_label(dataset: Dataset, samples: np.ndarray) -> np.ndarray:
    """Sort samples by label, else in their order."""
    return samples[np.argsort(dataset.train_labels[samples], kind="stable")]


# Source: Multi-RoundSecAgg (So, Ali, Guler, Jiao, Avestimehr): two versions of the text
# describe two splits of CIFAR-100 with one concentration, 0.5, that could hardly differ
# more.
@needs_values
def dirichlet_by_class(
    seed: int | Key[Array, ""],
    dataset: Dataset,
    num_clients: int | np.integer,
    *,
    concentration: float | int | np.floating = 0.5,
) -> ClientData:
    """Spread each class over the clients by proportions from a symmetric Dirichlet.

    For each class c draw d_c ~ Dirichlet(concentration, ..., concentration) over the N
    clients; client i receives the share d_{c,i} of the class. Clients become ragged, in
    size and in labels. With few samples or a small concentration some receive nothing:
    such a client stays, with size 0, and its update is zero (it still counts in the
    mean of a cohort's updates).

    Args:
        seed: Integer or key.
        dataset: What to spread.
        num_clients: Number of clients N.
        concentration: Positive; small is uneven, large approaches equal shares.

    Returns:
        The clients' samples; each training sample is held exactly once.

    Raises:
        ConfigurationError: If `concentration` is not a positive finite number.

    Examples:
        >>> import mrsa_jax as mj
        >>> digits = mj.data.load("digits")
        >>> clients = mj.data.dirichlet_by_class(0, digits, 10, concentration=0.5)
        >>> int(clients.sizes.sum()) == len(digits.train_labels)
        True

    Source: Multi-RoundSecAgg in its anonymous version (each class over the users,
    concentration 0.5). Differs from the AAAI text, whose per-user form gives 1.7
    classes to a user and does not fit its published accuracies.
    """
    generator, num_clients = _started(seed, dataset, num_clients, concentration)
    held: list[list[np.ndarray]] = [[] for _ in range(num_clients)]
    for label in range(dataset.num_classes):
        members = _shuffled(generator, dataset, label)
        shares = _normalised(
            _log_dirichlet(generator, np.full(num_clients, float(concentration)))
        )
        # Rounded cumulative shares: parts add up to the class, and errors do not
        # accumulate.
        cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for client, part in enumerate(np.split(members, cuts)):
            held[client].append(part)
    return client_data(dataset, [np.concatenate(parts) for parts in held])


@needs_values
def dirichlet_by_client(
    seed: int | Key[Array, ""],
    dataset: Dataset,
    num_clients: int | np.integer,
    *,
    concentration: float | int | np.floating = 0.5,
) -> ClientData:
    """Give each client its own mixture of classes, drawn around that of the data.

    With pi the classes' shares of the training samples, client i draws
    pi_i ~ Dirichlet(concentration * pi) and fills up with samples whose class is drawn
    from pi_i. All clients are of equal size, within one sample. The concentration is
    the *total* over the classes: with 100 equal classes 0.5 leaves 1.7 effective
    classes (1 / sum of squared shares) to a client, and 1.9 to 2.0 once late clients
    have taken what is left. Choose `dirichlet_by_class` (35.8) for the milder split,
    which fits the paper's accuracies.

    Every sample is held exactly once, so late clients find some classes gone. A client
    whose draw hits a class that has run out draws again: its mixture is renormalised
    over the classes that are left. (What is left of a Dirichlet vector, renormalised,
    is Dirichlet again.) Clients are served one after the other in random order, so that
    no index is favoured.

    Args:
        seed: Integer or key.
        dataset: What to spread.
        num_clients: Number of clients N.
        concentration: Positive; small is uneven, large approaches the whole set's
            mixture.

    Returns:
        The clients' samples; each training sample is held exactly once.

    Raises:
        ConfigurationError: If `concentration` is not a positive finite number.

    Examples:
        >>> import mrsa_jax as mj
        >>> digits = mj.data.load("digits")
        >>> clients = mj.data.dirichlet_by_client(0, digits, 10, concentration=0.5)
        >>> int(clients.sizes.sum()), int(clients.sizes.max() - clients.sizes.min())
        (1442, 1)

    Source: Multi-RoundSecAgg, AAAI version (pi_i ~ Dir(kappa pi), kappa = 0.5). The
    text does not say what happens when a class runs out.
    """
    generator, num_clients = _started(seed, dataset, num_clients, concentration)
    members = [
        _shuffled(generator, dataset, label) for label in range(dataset.num_classes)
    ]
    remaining = np.asarray([len(part) for part in members])
    prior = remaining / remaining.sum()
    sizes = [
        len(part) for part in np.array_split(np.empty(remaining.sum()), num_clients)
    ]
    held: list[np.ndarray] = [np.empty(0, np.int64)] * num_clients
    for client, size in zip(generator.permutation(num_clients), sizes, strict=True):
        logs = np.full(len(prior), -np.inf)
        logs[prior > 0] = _log_dirichlet(generator, concentration * prior[prior > 0])
        counts = _draw_counts(generator, logs, remaining, size)
        parts = [
            # Taken from the end: the first `remaining` samples of each class are still
            # free.
            part[n - k : n]
            for part, n, k in zip(members, remaining, counts, strict=True)
        ]
        held[client] = np.concatenate(parts)
        remaining = remaining - counts
    return client_data(dataset, held)


def _started(
    seed: Any, dataset: Dataset, num_clients: Any, concentration: Any
) -> tuple[np.random.Generator, int]:
    """Check the arguments; return what draws, and the number of clients."""
    generator = partition_generator(seed, dataset, num_clients)
    check_number(
        concentration, "concentration", "must be a positive finite number", POSITIVE
    )
    return generator, int(num_clients)


def _shuffled(
    generator: np.random.Generator, dataset: Dataset, label: int
) -> np.ndarray:
    """Return the samples of a class in random order."""
    return generator.permutation(np.flatnonzero(dataset.train_labels == label))


def _draw_counts(
    generator: np.random.Generator, logs: np.ndarray, remaining: np.ndarray, size: int
) -> np.ndarray:
    """Draw `size` samples by class.

    A draw from a class that has run out is drawn again.
    """
    counts = np.zeros(len(remaining), np.int64)
    while (missing := size - int(counts.sum())) > 0:
        # in logarithms: the classes that are left may have shares far below the
        # smallest float
        shares = _normalised(np.where(counts < remaining, logs, -np.inf))
        # A class may run out: keep what it has, and draw the rest from the others
        # again.
        counts = np.minimum(counts + generator.multinomial(missing, shares), remaining)
    return counts


def _log_dirichlet(
    generator: np.random.Generator, concentrations: np.ndarray
) -> np.ndarray:
    """Draw Dirichlet proportions as logarithms up to a constant.

    Small ones do not become 0.
    """
    # Gamma(a) = Gamma(a + 1) * U**(1/a)
    logs = np.log(generator.gamma(concentrations + 1.0))
    uniform = generator.random(len(concentrations)) + np.finfo(np.float64).tiny
    return logs + np.log(uniform) / concentrations


def _normalised(logs: np.ndarray) -> np.ndarray:
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()
