"""JAX-accelerated simulator of multi-round secure aggregation in federated learning.

Sub-packages load when first used, so that `import mrsa_jax` costs nothing:

>>> import mrsa_jax as mj
>>> mj.selection.family_size(8, 4, 2)
6
"""

from mrsa_jax._core.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
