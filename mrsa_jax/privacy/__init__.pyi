from mrsa_watch import ParticipationLog as ParticipationLog, read_log as read_log

from ._attribute import (
    AttributeBound as AttributeBound,
    attribute_bound as attribute_bound,
    bound_in_words as bound_in_words,
    smallest_target as smallest_target,
)
from ._audit import audit as audit, audit_steps as audit_steps
from ._audit_found import Audit as Audit, Gate as Gate
from ._blocks import hidden_in_blocks as hidden_in_blocks
from ._certificate import certificate as certificate
from ._clients import client_privacy as client_privacy
from ._coalitions import integer_weights as integer_weights
from ._collusion import CollusionRisk as CollusionRisk, collusion_risk as collusion_risk
from ._distinguish import (
    Distinguishability as Distinguishability,
    distinguishability as distinguishability,
)
from ._exposure import first_exposure as first_exposure
from ._hidden import (
    hidden_among as hidden_among,
    hidden_among_trajectory as hidden_among_trajectory,
)
from ._information import information as information
from ._mates import hidden_among_mates as hidden_among_mates
from ._policies import policy_privacy as policy_privacy
from ._recipe import Recipe as Recipe
from ._strong import (
    strong_privacy as strong_privacy,
    strong_privacy_trajectory as strong_privacy_trajectory,
)
from ._trajectory import weak_privacy_trajectory as weak_privacy_trajectory
from ._unweighted import unweighted_group as unweighted_group
from ._weak import weak_privacy as weak_privacy
from ._whole_numbers import (
    Determined as Determined,
    DeterminedRate as DeterminedRate,
    determined as determined,
    determined_rate as determined_rate,
)
