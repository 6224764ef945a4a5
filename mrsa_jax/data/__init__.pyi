from ._dataset import (
    ClientData as ClientData,
    Dataset as Dataset,
    check_client_data as check_client_data,
    class_counts as class_counts,
    label_dropout_rates as label_dropout_rates,
    normalise as normalise,
)
from ._partition import (
    dirichlet_by_class as dirichlet_by_class,
    dirichlet_by_client as dirichlet_by_client,
    iid as iid,
    shards as shards,
    shards_with_shared as shards_with_shared,
)
from ._prepare import (
    available as available,
    plan_preparation as plan_preparation,
    prepare as prepare,
)
from ._recognise import recognise as recognise
from .sources import SOURCES as SOURCES, load as load
