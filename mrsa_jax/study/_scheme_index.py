"""Schemes of a data set, found by their label and by what a configuration calls them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax.study._config import scheme_label

if TYPE_CHECKING:
    import xarray as xr


def find_schemes(results: xr.Dataset) -> xr.Dataset:
    """Return a data set whose axis of schemes, if it has one, finds both kinds of names.

    Before xarray 2026.9 an array of this axis meets one with a plain axis only if that went
    through here too.

    Examples:
        >>> import xarray as xr
        >>> data = xr.Dataset(coords={"scheme": ["Random", "Multi-RoundSecAgg (T=4)"]})
        >>> found = find_schemes(data)
        >>> found.sel(scheme="batch_partitioning:4").scheme.item()
        'Multi-RoundSecAgg (T=4)'
        >>> found.sel(scheme="Random").scheme.item()
        'Random'
    """
    for name in map(str, results.xindexes):
        if results[name].attrs.get("field", name) == "scheme":
            results = results.drop_indexes(name).set_xindex(name, _index())
    return results


@functools.cache
def _index() -> Any:
    """Return the index's class; xarray, which it stands on, takes a second to import."""
    from xarray.indexes import PandasIndex

    class SchemeIndex(PandasIndex):
        """An index of labels that also knows `batch_partitioning:4` and the like."""

        def sel(self, labels: dict[Any, Any], method: Any = None, tolerance: Any = None) -> Any:
            """Return where labels are, or the schemes that are written so."""
            ((name, wanted),) = labels.items()
            if isinstance(wanted, str):
                wanted = self._label(wanted)
            elif isinstance(wanted, list | tuple | np.ndarray):
                wanted = [self._label(one) for one in np.ravel(wanted).tolist()]
            return super().sel({name: wanted}, method, tolerance)

        def _label(self, wanted: Any) -> Any:
            return wanted if wanted in self.index else scheme_label(wanted)

    SchemeIndex.__qualname__ = SchemeIndex.__name__  # where pickle looks for it
    return SchemeIndex


def __getattr__(name: str) -> Any:
    if name == "SchemeIndex":
        return _index()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
