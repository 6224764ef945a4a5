from . import harness as harness, scaling as scaling
from ._run import TOPICS as TOPICS, Report as Report, check_topics as check_topics, run as run
