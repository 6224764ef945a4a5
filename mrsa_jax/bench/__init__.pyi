from . import harness as harness, scaling as scaling
from ._run import (
    TOPICS as TOPICS,
    Report as Report,
    check_topics as check_topics,
    own_cases as own_cases,
    run as run,
)
