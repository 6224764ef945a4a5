from ._connectivity import (
    component_labels as component_labels,
    degrees as degrees,
    is_connected as is_connected,
)
from ._harary import harary as harary
from ._lists import (
    check_adjacency as check_adjacency,
    edges as edges,
    neighbour_lists as neighbour_lists,
)
from ._random import (
    Complete as Complete,
    ErdosRenyi as ErdosRenyi,
    complete as complete,
    erdos_renyi as erdos_renyi,
)
from ._random_regular import random_regular as random_regular
from ._registry import register as register
from ._secagg_plus import secagg_plus_parameters as secagg_plus_parameters
from ._types import GraphModel as GraphModel
