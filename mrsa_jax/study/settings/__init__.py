"""Settings of commands: fields, tables of names, files, and checks without JAX."""

from mrsa_watch._base.late import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
