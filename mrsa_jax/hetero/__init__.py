"""HeteroSAg: clients with unequal quantizers that hide in common secure sums."""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
