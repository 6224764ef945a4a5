from ._bandwidth import (
    ccesa_bandwidth_bits as ccesa_bandwidth_bits,
    secagg_bandwidth_bits as secagg_bandwidth_bits,
    turbo_aggregate_bandwidth_bits as turbo_aggregate_bandwidth_bits,
    wire_terms as wire_terms,
)
from ._latency import (
    LatencyModel as LatencyModel,
    OperationSeconds as OperationSeconds,
    calibrate as calibrate,
    latency_model as latency_model,
    operation_seconds as operation_seconds,
    round_latency as round_latency,
)
from ._stragglers import (
    Slowdown as Slowdown,
    exponential_tail as exponential_tail,
    lognormal as lognormal,
    pareto as pareto,
    steady as steady,
)
