"""JAX-accelerated simulator of multi-round secure aggregation in federated learning.

Sub-packages load when first used, so that `import mrsa_jax` costs nothing:

>>> import mrsa_jax as mj
>>> mj.selection.family_size(8, 4, 2)
6
"""

from mrsa_jax._version import __version__
from mrsa_watch import _version
from mrsa_watch._base import errors, late

if _version.__version__ != __version__:
    raise ImportError(
        f"mrsa_jax {__version__} and mrsa_watch must be of one version; got mrsa_watch "
        f"{_version.__version__}: pip uninstall -y mrsa-watch mrsa_jax, then install "
        "mrsa_jax"
    )
for _name in (
    "MrsaError",
    "ConfigurationError",
    "DataNotFoundError",
    "OutputExistsError",
):
    getattr(errors, _name).__module__ = __name__  # where users find them

__getattr__, __dir__, __all__ = late.late_names(__name__, __file__)
