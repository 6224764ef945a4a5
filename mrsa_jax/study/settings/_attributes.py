"""Keep attributes of data sets in a form that files of every format can hold.

Formats such as netCDF hold numbers and text only. So settings and lists are stored as
JSON text, which Python reads as settings and lists. A file gives back plain text, which
`attributes` reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr


class JsonText(str):
    """JSON text that is indexed, iterated and compared as its settings or list too.

    Examples:
        >>> text = JsonText('{"rounds": 9}')
        >>> text["rounds"], text == {"rounds": 9}, text == '{"rounds": 9}'
        (9, True, True)
    """

    __slots__ = ()

    @property
    def value(self) -> Any:
        """The settings or the list."""
        return json.loads(str(self))

    def __getitem__(self, key: Any) -> Any:
        return self.value[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __contains__(self, key: object) -> bool:
        return key in self.value

    def __eq__(self, other: object) -> bool:
        return (
            str(self) == other if isinstance(other, str) else bool(self.value == other)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def get(self, key: str, default: Any = None) -> Any:
        """Return a setting, or the default if no setting has that name."""
        return self.value.get(key, default)

    def keys(self) -> Any:
        """Return the names of the settings."""
        return self.value.keys()

    def values(self) -> Any:
        """Return the settings without their names."""
        return self.value.values()

    def items(self) -> Any:
        """Return the settings with their names."""
        return self.value.items()


def with_attributes(results: xr.Dataset, added: Mapping[str, Any]) -> xr.Dataset:
    """Return a data set with further attributes, without those that are None."""
    every = {**results.attrs, **added}
    written = {
        name: _writable(value) for name, value in every.items() if value is not None
    }
    return results.drop_attrs(deep=False).assign_attrs(written)


def _writable(value: Any) -> Any:
    is_structure = isinstance(value, dict | list | tuple)
    return JsonText(json.dumps(value)) if is_structure else value


def attributes(results: xr.Dataset) -> dict[str, Any]:
    """Return a data set's attributes, with settings and lists instead of JSON text."""
    return {str(name): _read(value) for name, value in results.attrs.items()}


def _read(value: Any) -> Any:
    if isinstance(value, JsonText):
        return value.value
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:  # text that begins so
            return value
    return value
