"""Turn settings into schemes, models, bounds and noise: the one registry of studies."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from mrsa_jax import availability, data, dp, federated, quantize, secagg, selection
from mrsa_jax._core.device import platform
from mrsa_jax._core.selector import block_size_of, cohort_size_of
from mrsa_jax._core.status import FEWEST_IN_A_SUM
from mrsa_jax._core.streams import Stream, as_key, fold
from mrsa_jax.availability.registry import Model
from mrsa_jax.graphs.registry import Graph
from mrsa_jax.selection.registry import BUILT_IN
from mrsa_jax.study.settings._config import (
    DataConfig,
    PopulationConfig,
    ProtocolConfig,
    ResourceConfig,
    Scheme,
    SegmentConfig,
    TrainingConfig,
)
from mrsa_jax.study.settings._parts import build, load_data
from mrsa_jax.study.settings._tables import (
    AggregationConfig,
    check_reachable,
    check_threshold,
    graph_of,
    least_safe_threshold,
)
from mrsa_jax.study.settings._training_tables import (
    PARTITIONS,
    DataSplit,
    LocalSchedule,
)
from mrsa_watch._base.errors import ConfigurationError, require

if TYPE_CHECKING:
    import optax  # type: ignore[import-untyped]

_FINEST = 2**22  # steps of a lattice in the clip norm, where the ring has room for more


def build_mechanism(
    config: AggregationConfig, cohort_size: int, dim: int
) -> dp.RingMechanism:
    """Return lattice and noise of a study whose clients add noise.

    Raises:
        ConfigurationError: If the ring has no room for the noise.
    """
    return dp.ring_mechanism(
        config.noise,
        config.noise_multiplier,
        float(config.clip_norm or 0.0),
        dim=dim,
        num_clients=cohort_size,
        modulus_bits=config.modulus_bits,
    )


def code_dim(config: AggregationConfig, is_segmented: bool, dim: int) -> int:
    """Return the number of coordinates that a client sends.

    A lattice rotates updates, which pads them to a power of two.
    """
    if config.clip_norm is None or is_segmented:
        return dim
    # step and norm do not matter for the number of coordinates
    return quantize.lattice(1.0, 1.0, dim).padded_dim


def build_noise(config: AggregationConfig, cohort_size: int, step: float) -> Any:
    """Return the noise of a client on the lattices of blocks, in units of updates.

    It is None without noise.

    Raises:
        ConfigurationError: If the coarsest lattice, of this step, is too coarse for its
            law.
    """
    if not config.is_noisy:
        return None
    # the cohort's clients add the variance together
    whole = config.noise_multiplier * float(config.clip_norm or 0.0)
    deviation = whole / math.sqrt(cohort_size)
    if config.noise == "skellam":
        return dp.skellam(deviation**2)
    rule = (
        "must leave a client's discrete Gaussian half a step or more, for a bound on "
        "sums"
    )
    size = f"{deviation / step:.3g} of a step"
    require(deviation >= step / 2, "group_levels", rule, size)
    return dp.discrete_gaussian(deviation**2)


def build_bounded(
    config: AggregationConfig, cohort_size: int, dim: int
) -> tuple[Any, Any]:
    """Return the quantizer of updates of bounded norm, and each client's noise or None.

    Without noise it is the finest lattice on which a cohort's sum stays in the ring.

    Raises:
        ConfigurationError: If the ring has no room for a cohort's sum.
    """
    if config.is_noisy:
        mechanism = build_mechanism(config, cohort_size, dim)
        return mechanism.quantizer, mechanism.noise
    clip_norm, bits = float(config.clip_norm or 0.0), config.modulus_bits
    # half of the ring for each sign, divided by the clients in a sum
    most = (2 ** (bits - 1) - 1) // cohort_size  # of one client's code
    # rounding can lengthen the padded update by half a step in each coordinate
    padded = 1 << (dim - 1).bit_length()
    steps = min(_FINEST, most - math.ceil(math.sqrt(padded) / 2) - 2)
    rule = "must leave room for a cohort's sum on a lattice that updates are rounded to"
    size = f"{cohort_size} clients, {dim} entries"
    require(steps >= 1, "modulus_bits", rule, bits, size)
    return quantize.lattice(clip_norm / steps, clip_norm, dim), None


# Measured on two cores, ms a round of one and of both: 18 and 30 at 2**21, 123 and 109
# at 2**24.
_WORTH_SHARING = 2**23


def sizes_of(selector: selection.Selector) -> tuple[int | None, int]:
    """Return K of a selector that asks K or no clients, None if any number, and T."""
    return cohort_size_of(selector), block_size_of(selector)


def guaranteed_privacy(
    selector: selection.Selector,
    protocol: ProtocolConfig | None = None,
    segments: SegmentConfig | None = None,
    *,
    loses: bool = False,
) -> int:
    """Return the weak T that a selector keeps for any number of rounds; 1 for none.

    A `privacy_target` that the selector states is kept while sums are its cohorts: no
    client is lost from one inside a round, and none is cut up. Blocks of T move
    together for any number of rounds where the selection never parts them and no sum
    does: clients enforce them; or no client is lost inside a round, or the policy drops
    or aborts for whole blocks, the graph cannot become disconnected, and each group of
    each segment holds whole blocks. A fixed cohort of all clients is a block, unless
    the policy drops the selection's blocks from it.

    `loses`: whether clients were lost inside rounds although no step loses any, as
    where uploads have failed.
    """
    protocol = protocol or ProtocolConfig()
    k, block = sizes_of(selector)
    loses = loses or protocol.step_dropout_rate > 0
    # a cohort of all: each round is the same block, or none
    is_one = k == selector.num_clients and not (
        loses and protocol.split_policy == "drop_block"
    )
    target = selector.num_clients if is_one else block
    stated = int(getattr(selector, "privacy_target", 1))
    # a lost client leaves a sum that the selector did not choose
    if loses and protocol.split_policy != "abort":
        stated = 1
    if protocol.whole_blocks:
        return block
    is_whole = is_connected(protocol, loses=loses)
    if not is_whole or (loses and protocol.split_policy == "ignore"):
        return 1
    if segments is None or segments.is_plain or k is None:
        return max(target, stated)
    # within a block of clients that sum a segment, only graphs over blocks of clients
    # are sure to join mates
    graph = Graph.parse(protocol.graph).row
    if not graph.is_complete and not graph.fields:
        return 1
    columns = zip(segments.column_sizes(k, block), segments.cuts, strict=True)
    # each subgroup of a group must hold whole blocks too
    holds = all(size % (cut * block) == 0 for size, cut in columns)
    return block if holds else 1


def is_connected(protocol: ProtocolConfig, *, loses: bool = False) -> bool:
    """Return whether a round's graph stays connected, so that it has one sum.

    `loses`: as in `guaranteed_privacy`.
    """
    graph = Graph.parse(protocol.graph)
    numbers = graph.parameters or (protocol.degree or 0,)
    loses = loses or protocol.step_dropout_rate > 0
    return graph.row.is_complete or (graph.row.is_connected(*numbers) and not loses)


def build_selector(scheme: Scheme, population: PopulationConfig) -> selection.Selector:
    """Return the selector of a scheme over a population."""
    sizes = population.num_clients, population.cohort_size
    # only plain parameters can be keys of the cache
    is_plain = all(
        isinstance(parameter, str | int | float) for parameter in scheme.parameters
    )
    is_own = is_plain and scheme.name in BUILT_IN
    return _kept_selector(scheme, *sizes, _state()) if is_own else scheme.build(*sizes)


# Points of a sweep share few schemes and populations, and each is built at planning,
# for the rollout and for its expectations: objects that follow from settings alone are
# built once.
_KEPT = ("independent", "markov", "cyclic", "diurnal")  # models that read no file
_MOST_KEPT = 10_000  # clients


def _state() -> tuple[Any, ...]:
    """Return the options of JAX that arrays and keys depend on, besides settings."""
    config: Any = jax.config
    return (
        config.jax_default_prng_impl,
        config.jax_default_device,
        config.jax_enable_x64,
    )


@functools.lru_cache(maxsize=64)
def _kept_selector(
    scheme: Scheme, clients: int, cohort: int, state: Any
) -> selection.Selector:
    return scheme.build(clients, cohort)


@functools.lru_cache(maxsize=64)
def _kept_online(
    seed: int, population: PopulationConfig, state: Any
) -> tuple[availability.Availability, np.ndarray]:
    model, rates = _new_online(seed, population, None)
    rates.setflags(write=False)
    return model, rates


def build_rates(
    seed: int, population: PopulationConfig, clients: data.ClientData | None = None
) -> np.ndarray:
    """Return each client's dropout rate, float32[N], as the configuration assigns them.

    `clients` are needed where rates follow from their labels.
    """
    if population.assignment == "by_label":
        if clients is None:
            raise ConfigurationError("`clients` must be given for rates by label")
        return np.asarray(data.label_dropout_rates(clients, population.dropout_rates))
    rates = availability.assign_rates(
        fold(as_key(seed), int(Stream.ASSIGNMENT)),
        population.dropout_rates,
        population.num_clients,
        how=population.assignment,
    )
    return np.asarray(rates)


def build_online(
    seed: int, population: PopulationConfig, clients: data.ClientData | None = None
) -> tuple[availability.Availability, np.ndarray]:
    """Return the model of clients online, and each one's dropout rate, float32[N].

    Rates are those in the long run.

    `clients` are needed where rates follow from their labels.
    """
    name = population.availability.partition(":")[0]
    # a list of rates cannot be a key of the cache
    hashable = dataclasses.replace(
        population, dropout_rates=tuple(population.dropout_rates)
    )
    if clients is not None or name not in _KEPT or population.num_clients > _MOST_KEPT:
        return _new_online(seed, hashable, clients)
    # else all clients are alike
    is_drawn = len(hashable.dropout_rates) > 1 or name == "diurnal"
    return _kept_online(seed if is_drawn else 0, hashable, _state())


def online_of_any_seed(
    seed: int, population: PopulationConfig
) -> availability.Availability:
    """Return a model of clients online of equal shapes, perhaps of another seed."""
    is_kept = population.availability.partition(":")[0] in _KEPT
    return build_online(0 if is_kept else seed, population)[0]


def _new_online(
    seed: int, population: PopulationConfig, clients: data.ClientData | None
) -> tuple[availability.Availability, np.ndarray]:
    rates_given = population.dropout_rates
    model = Model.parse(population.availability, rates_given)
    rates = build_rates(seed, population, clients)

    def places(count: int) -> np.ndarray:  # dealt out as rates are
        shares = dataclasses.replace(
            population, dropout_rates=tuple(i / count for i in range(count))
        )
        # fractions i / count come back as i, dealt out among the clients
        return np.rint(build_rates(seed, shares) * count).astype(np.int32)

    return model.row.build(rates, rates_given, places, *model.parameters)


def expected_cardinality(
    selector: selection.Selector, rates: np.ndarray | None
) -> tuple[float, float]:
    """Return the expected size of a round's sum and its standard deviation over rounds.

    Both are nan if the selector does not know them, or rounds are not of independent
    `rates`.
    """
    cardinality = getattr(selector, "cardinality", None)
    if cardinality is None or rates is None:
        return np.nan, np.nan
    mean, deviation = cardinality(rates.astype(np.float64))
    return float(mean), float(deviation)


# of which F of eq. (6) is computed, and simulated, in about a second
_MOST_COMPUTED, _MOST_SIMULATED = 10_000, 500


def expected_fairness(
    selector: selection.Selector, online: availability.Availability, seed: int
) -> tuple[float, float]:
    """Return F of eq. (6) and its standard error, 0 if it is exact.

    Both are nan of selectors that ask one client, whose sums are withheld, or any
    number.
    """
    size, _ = sizes_of(selector)
    if size is None or size < FEWEST_IN_A_SUM:
        return np.nan, np.nan
    gap = selection.expected_fairness_gap(selector, online, seed=seed)
    return gap.value, gap.standard_error


def is_fairness_quick(
    selector: selection.Selector, online: availability.Availability
) -> bool:
    """Return whether `expected_fairness` takes about a second at most.

    Loops that take any size, and so are not compiled for it, exist for blocks alone.
    """
    n, (_, block) = selector.num_clients, sizes_of(selector)
    rates = getattr(online, "dropout_rates", None)
    share_gap: Any = getattr(selector, "share_gap", None)
    if rates is None or share_gap is None:
        return False
    count = n // block
    if count > _MOST_COMPUTED:
        return False
    known = share_gap(np.broadcast_to(np.asarray(rates, np.float64), (n,)))
    return known is not None or count <= _MOST_SIMULATED


def build_clients(
    seed: int, config: DataSplit, num_clients: int
) -> tuple[data.Dataset, data.ClientData]:
    """Load the data set, normalise it if set, and split it over the clients."""
    dataset = load_data(config.dataset, seed, config.directory)
    if isinstance(config, DataConfig) and config.normalise:
        dataset = data.normalise(dataset)
    key = fold(as_key(seed), int(Stream.PARTITION))
    function, *names = PARTITIONS[config.partition]
    arguments = {name: getattr(config, name) for name in names}
    return dataset, getattr(data, function)(key, dataset, num_clients, **arguments)


def build_model(config: TrainingConfig, dataset: data.Dataset) -> Any:
    """Return the flax module that a configuration names."""
    return build("model", config.model, dataset.num_classes)


def build_trainer(config: TrainingConfig, model: Any) -> Any:
    """Return the clients' local trainer."""
    return build("trainer", config.trainer or "sgd", model, config)


def build_rate_schedule(config: LocalSchedule) -> Any:
    """Return the factor on the learning rate by round; None if it never changes."""
    if not config.decay_rounds:
        return None
    return federated.decay_at(config.decay_rounds, config.decay_factor)


def build_server(config: TrainingConfig) -> optax.GradientTransformation | None:
    """Return the server's optimizer; None for plain averaging."""
    # imports optax, which only trainings need
    from mrsa_jax.study.runs._servers import SERVERS

    return SERVERS[config.server](config.server_learning_rate)


def build_mesh(
    config: ResourceConfig, work: float = math.inf
) -> jax.sharding.Mesh | None:
    """Return the devices that share a round's clients; None if one has them all.

    By default it takes all that JAX sees, a device a core of a CPU among them
    (`mrsa_jax.cli` asks JAX for these), unless the memory is bounded, of which every
    device needs a share for its own copy of the data, or a round is so little work that
    handing it out takes longer.

    Args:
        config: What of the machine may be used.
        work: Parameters times samples of a round.

    Raises:
        ConfigurationError: If the machine has fewer devices than are asked for.
    """
    devices = jax.devices()
    wanted = config.devices
    if wanted is None:
        is_one = config.memory_gib is not None or work < _WORTH_SHARING
        # devices of a CPU share its memory; accelerators have their own, and all are
        # used
        wanted = 1 if platform() == "cpu" and is_one else len(devices)
    rule = "must be no more than there are"
    require(wanted <= len(devices), "devices", rule, wanted, len(devices))
    if wanted == 1:
        return None
    return jax.sharding.Mesh(np.asarray(devices[:wanted]), ("clients",))


def clip_rule(config: AggregationConfig) -> quantize.ClipRule | None:
    """Return the rule by which the clip range moves; None if it is fixed."""
    if config.clip_rule == "fixed":
        return None
    statistic: Any = config.clip_rule.removeprefix("last_")
    return quantize.following_range(
        config.clip_multiplier, floor=config.clip_floor, statistic=statistic
    )


def build_rule(
    protocol: ProtocolConfig, selector: selection.Selector
) -> secagg.GraphRule | None:
    """Return the rule of the sums of a round; None if that is the cohort's sum.

    Raises:
        ConfigurationError: If there is no such graph, the threshold would let CCESA's
            Appendix F attack unmask single clients and that is not allowed, or clients
            are to enforce blocks that the scheme or the graph has not.
    """
    if protocol.is_plain:
        return None
    size, block = sizes_of(selector)
    n = selector.num_clients if size is None else size
    # any number of clients suits a complete graph whose threshold is a majority
    usual = protocol.threshold in (None, "majority")
    free = Graph.parse(protocol.graph).row.is_complete and usual
    rule = (
        "must be complete, with majorities as thresholds, where cohorts differ in size (a "
        "selector that "
        "asks K clients or nobody shows this by an attribute `cohort_size`)"
    )
    require(free or size is not None, "graph", rule, protocol.graph)
    graph, threshold = graph_of(protocol, n), protocol.threshold
    fields = dict(zip(graph.row.fields, graph.parameters, strict=False))
    block_size = fields.get("block_size", block)
    rule = "must be over blocks of the scheme's T, or of whole blocks of it"
    require(block_size % block == 0, "graph", rule, protocol.graph, block)
    if protocol.whole_blocks:
        rule = "must not be set with a scheme without blocks of 2 clients or more"
        require(block > 1, "whole_blocks", rule, True)
        rule = "must be complete or over_blocks:T:K with --whole-blocks"
        fits = graph.row.is_complete or bool(graph.row.fields)
        require(fits, "graph", rule, protocol.graph)
        rule = (
            "must not be set with --whole-blocks, whose clients accept no such "
            "threshold"
        )
        require(not protocol.allow_unmasking_risk, "allow_unmasking_risk", rule, True)
    # a given one is checked, not raised
    if threshold is not None:
        check_reachable(threshold, n)
        check_threshold(protocol, threshold, least_safe_threshold(graph, n))
    else:
        threshold = "remark4" if graph.degree(n) is None else "majority"
    return secagg.graph_rule(
        graph.build(n),
        selector.num_clients,
        threshold=threshold,
        policy=protocol.split_policy,
        blocks=block,
        keeps_blocks=protocol.whole_blocks,
    )


def build_aggregator(
    secret_seed: bytes,
    config: AggregationConfig,
    num_participants: int,
    dim: int,
    *,
    rule: secagg.GraphRule | None = None,
    samples: np.ndarray | None = None,
    cohort_size: int,
) -> secagg.RingAverage:
    """Return the aggregator: quantize, add noise, pad, sum in the ring, decode.

    All secrets come from `secret_seed`, which is each run's own. `samples`, each
    client's number, bound the weights where the average is a weighted one; of a whole
    cohort's noise each client adds one in `cohort_size`.
    """
    options: dict[str, Any]
    if config.clip_norm is not None:
        quantizer, noise = build_bounded(config, cohort_size, dim)
        options = {"noise": noise}
    else:
        quantizer = build("quantizer", config.quantizer or "stochastic", dim, config)
        options = {
            "max_weight": samples if config.weighted else None,
            "clip_rule": clip_rule(config),
        }
    return secagg.ring_average(
        quantizer,
        num_participants,
        dim,
        modulus_bits=config.modulus_bits,
        fidelity=config.fidelity,
        key_material=secret_seed,
        rule=rule,
        **options,
    )


def for_attack(config: AggregationConfig) -> AggregationConfig:
    """Return the aggregation of frozen models: without pads, with a fixed range."""
    return dataclasses.replace(config, fidelity="sets", clip_rule="fixed")
