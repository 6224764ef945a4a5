"""Studies: configurations, their stages, their results on disk, tables and reports.

What needs JAX loads when first used: the command line's help shows configurations and must not
wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mrsa_jax._late import late_names
from mrsa_jax.study._attack_config import (
    DisaggregationConfig,
    GradientsConfig,
    InconsistencyConfig,
    LeastSquaresConfig,
    MembershipConfig,
    ModelInversionConfig,
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
    load_config,
    parse_scheme,
    to_dict,
)
from mrsa_jax.study._kinds import validate
from mrsa_jax.study._secagg_config import SecaggConfig

if TYPE_CHECKING:
    from mrsa_jax.study._accessor import StudyAccessor
    from mrsa_jax.study._cite import cite
    from mrsa_jax.study._compare import compare, from_histories
    from mrsa_jax.study._explorer import Explorer
    from mrsa_jax.study._findings import Findings
    from mrsa_jax.study._progress import Notes, Progress
    from mrsa_jax.study._report_folder import SavedReport, report
    from mrsa_jax.study._run import check, run, run_and_save
    from mrsa_jax.study._store import open_study
    from mrsa_jax.study._study import SavedStudy
    from mrsa_jax.study._summary import Row, sentences, summarise
    from mrsa_jax.study._trial import History, analyse, attack_frozen
    from mrsa_jax.study.attack._findings import AttackFindings
    from mrsa_jax.study.audit._findings import AuditFindings
    from mrsa_jax.study.sweeps._engine import sweep

__all__ = [
    "AggregationConfig",
    "AttackFindings",
    "AuditConfig",
    "AuditFindings",
    "DataConfig",
    "DemoConfig",
    "DisaggregationConfig",
    "Explorer",
    "Findings",
    "GradientsConfig",
    "History",
    "InconsistencyConfig",
    "LeastSquaresConfig",
    "MembershipConfig",
    "ModelInversionConfig",
    "Notes",
    "PopulationConfig",
    "Progress",
    "ProtocolConfig",
    "ResourceConfig",
    "Row",
    "SavedReport",
    "SavedStudy",
    "Scheme",
    "SecaggConfig",
    "SegmentConfig",
    "SimulateConfig",
    "StudyAccessor",
    "TrainConfig",
    "TrainingConfig",
    "analyse",
    "attack_frozen",
    "check",
    "cite",
    "compare",
    "config_hash",
    "from_histories",
    "load_config",
    "open_study",
    "parse_scheme",
    "report",
    "run",
    "run_and_save",
    "sentences",
    "summarise",
    "sweep",
    "to_dict",
    "validate",
]

__getattr__, __dir__ = late_names(__name__)
