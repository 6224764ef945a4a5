"""Studies: configurations, their stages, their results on disk, tables and reports.

What needs JAX loads when first used: the command line's help shows configurations and must not
wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._late import late_names
from mrsa_jax.study._advise_config import AdviseConfig
from mrsa_jax.study._attack_rows import SumsOfRounds
from mrsa_jax.study._attacks_on_models import (
    GradientsConfig,
    InconsistencyConfig,
    MembershipConfig,
    ModelInversionConfig,
)
from mrsa_jax.study._attacks_on_sums import (
    CanariesConfig,
    DisaggregationConfig,
    DistinguishConfig,
    LeastSquaresConfig,
)
from mrsa_jax.study._audit_config import AuditConfig
from mrsa_jax.study._config import (
    AggregationConfig,
    DataConfig,
    DemoConfig,
    PopulationConfig,
    ProtocolConfig,
    ResourceConfig,
    Scheme,
    SegmentConfig,
    SimulateConfig,
    TrainConfig,
    TrainingConfig,
    config_hash,
    parse_scheme,
)
from mrsa_jax.study._kinds import KINDS, register_attack, validate
from mrsa_jax.study._load import load_config, to_dict, to_toml
from mrsa_jax.study._secagg_config import SecaggConfig

if TYPE_CHECKING:
    from mrsa_jax.study._cite import cite
    from mrsa_jax.study._compare import compare, from_histories
    from mrsa_jax.study._progress import Progress
    from mrsa_jax.study._report_folder import report
    from mrsa_jax.study._run import check, run, run_and_save
    from mrsa_jax.study._store import open_study
    from mrsa_jax.study._summary import sentences, summarise
    from mrsa_jax.study.advice._door import advise
    from mrsa_jax.study.sweeps._engine import sweep

__all__ = [
    "KINDS",
    "AdviseConfig",
    "AggregationConfig",
    "AuditConfig",
    "CanariesConfig",
    "DataConfig",
    "DemoConfig",
    "DisaggregationConfig",
    "DistinguishConfig",
    "GradientsConfig",
    "InconsistencyConfig",
    "LeastSquaresConfig",
    "MembershipConfig",
    "ModelInversionConfig",
    "PopulationConfig",
    "Progress",
    "ProtocolConfig",
    "ResourceConfig",
    "Scheme",
    "SecaggConfig",
    "SegmentConfig",
    "SimulateConfig",
    "SumsOfRounds",
    "TrainConfig",
    "TrainingConfig",
    "advise",
    "check",
    "cite",
    "compare",
    "config_hash",
    "from_histories",
    "load_config",
    "open_study",
    "parse_scheme",
    "register_attack",
    "report",
    "run",
    "run_and_save",
    "sentences",
    "summarise",
    "sweep",
    "to_dict",
    "to_toml",
    "validate",
]

__getattr__, __dir__ = late_names(__name__)
