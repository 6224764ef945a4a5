from . import logs as logs, mrsa_check as mrsa_check
from ._base.errors import (
    ConfigurationError as ConfigurationError,
    MrsaError as MrsaError,
)
from ._follow import follow as follow
from ._gate import Gate as Gate, GateAnswer as GateAnswer, GateState as GateState
from ._preflight import Preflight as Preflight, preflight as preflight
from ._recorder import Recorder as Recorder
from ._version import __version__ as __version__
from .logs import ParticipationLog as ParticipationLog, read_log as read_log
