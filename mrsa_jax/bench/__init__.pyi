from . import rivals as rivals, scaling as scaling
from ._harness import (
    Measurement as Measurement,
    machine as machine,
    record as record,
)
from ._run import Report as Report, check_topics as check_topics, run as run
from ._topics import TOPICS as TOPICS
