from ._latency import (
    LatencyModel as LatencyModel,
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
