from ._lists import (
    GraphModel as GraphModel,
    check_adjacency as check_adjacency,
    component_labels as component_labels,
    edges as edges,
    is_connected as is_connected,
)
from ._secagg_plus import secagg_plus_parameters as secagg_plus_parameters
from .models import (
    complete as complete,
    erdos_renyi as erdos_renyi,
    harary as harary,
    over_blocks as over_blocks,
    random_regular as random_regular,
)
from .registry import register as register
