from . import harness as harness, scaling as scaling
from ._run import Report as Report, check_topics as check_topics, run as run
from ._topics import TOPICS as TOPICS
