from ._latency import (
    LatencyModel as LatencyModel,
    latency_model as latency_model,
    operation_seconds as operation_seconds,
    round_latency as round_latency,
)
from ._printed import (
    printed_bits as printed_bits,
    turbo_aggregate_bits as turbo_aggregate_bits,
)
