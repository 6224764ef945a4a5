from mrsa_watch._base.errors import (
    ConfigurationError as ConfigurationError,
    DataNotFoundError as DataNotFoundError,
    MrsaError as MrsaError,
    OutputExistsError as OutputExistsError,
)

from . import (
    attacks as attacks,
    availability as availability,
    bench as bench,
    data as data,
    design as design,
    dp as dp,
    federated as federated,
    graphs as graphs,
    hetero as hetero,
    live as live,
    modular as modular,
    plotting as plotting,
    privacy as privacy,
    protocol as protocol,
    quantize as quantize,
    secagg as secagg,
    selection as selection,
    study as study,
)
from ._core.compile_cache import use_compile_cache as use_compile_cache
from ._core.forms import use_form as use_form
from ._core.status import Status as Status
from ._version import __version__ as __version__
from .study import cite as cite, explore as explore
