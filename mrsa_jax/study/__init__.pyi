from . import attacks_on_models as attacks_on_models, attacks_on_sums as attacks_on_sums
from ._attack_rows import SumsOfRounds as SumsOfRounds
from ._cite import cite as cite
from ._progress import Progress as Progress
from .advice._by_hand import explore as explore
from .advice._run import advise as advise
from .kinds import (
    KINDS as KINDS,
    register_attack as register_attack,
    validate as validate,
)
from .publishing._accessor import open_study as open_study
from .publishing._report_folder import report as report
from .publishing._summary import sentences as sentences, summarise as summarise
from .runs._run import check as check, run as run, run_and_save as run_and_save
from .runs._study import compare as compare, from_histories as from_histories
from .settings._commands import (
    AdviseConfig as AdviseConfig,
    AuditConfig as AuditConfig,
    SecaggConfig as SecaggConfig,
    SegmentsConfig as SegmentsConfig,
)
from .settings._config import (
    AggregationConfig as AggregationConfig,
    DataConfig as DataConfig,
    DemoConfig as DemoConfig,
    PopulationConfig as PopulationConfig,
    ProtocolConfig as ProtocolConfig,
    ResourceConfig as ResourceConfig,
    SegmentConfig as SegmentConfig,
    SimulateConfig as SimulateConfig,
    TrainConfig as TrainConfig,
    TrainingConfig as TrainingConfig,
    config_hash as config_hash,
    parse_scheme as parse_scheme,
)
from .settings._load import (
    load_config as load_config,
    to_dict as to_dict,
    to_toml as to_toml,
)
from .settings._parts import register as register
from .sweeps._merge import merge as merge
from .sweeps._sweep import sweep as sweep
