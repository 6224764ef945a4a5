from ._curves import changes as changes, curves as curves, fit_law as fit_law
from ._harness import (
    Measurement as Measurement,
    machine as machine,
    record as record,
)
from ._peers import PEERS as PEERS, how_to_make as how_to_make, python_of as python_of
from ._run import Report as Report, check_topics as check_topics, run as run
from ._topics import TOPICS as TOPICS
