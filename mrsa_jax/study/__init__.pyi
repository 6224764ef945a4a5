from . import attacks_on_models as attacks_on_models, attacks_on_sums as attacks_on_sums
from ._accessor import open_study as open_study
from ._attack_rows import SumsOfRounds as SumsOfRounds
from ._cite import cite as cite
from ._commands import (
    AdviseConfig as AdviseConfig,
    AuditConfig as AuditConfig,
    SecaggConfig as SecaggConfig,
)
from ._config import (
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
from ._load import load_config as load_config, to_dict as to_dict, to_toml as to_toml
from ._parts import register as register
from ._progress import Progress as Progress
from ._report_folder import report as report
from ._run import check as check, run as run, run_and_save as run_and_save
from ._study import compare as compare, from_histories as from_histories
from ._summary import sentences as sentences, summarise as summarise
from .advice._by_hand import explore as explore
from .advice._run import advise as advise
from .kinds import (
    KINDS as KINDS,
    register_attack as register_attack,
    validate as validate,
)
from .sweeps._merge import merge as merge
from .sweeps._sweep import sweep as sweep
