"""The best value along an axis of a sweep, for each point of the others, and how surely."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mrsa_jax._core.statistics import best_of
from mrsa_jax.study.publishing import _points
from mrsa_jax.study.settings._attributes import attributes
from mrsa_watch._base.errors import check_known, require
from mrsa_watch._base.html import number

if TYPE_CHECKING:
    import xarray as xr

_USUAL = "accuracy"


def asked_of(results: xr.Dataset) -> Mapping[str, Any] | None:
    """Return what the study file says with `best_over`, or None."""
    asked = attributes(results).get("config", {}).get("best_over")
    return asked if isinstance(asked, Mapping) else None


def best_over(
    results: xr.Dataset,
    axis: str | None = None,
    *,
    by: str | None = None,
    least: bool | None = None,
) -> xr.Dataset:
    """Return the best value along an axis for each point of the other axes.

    The best value has the best mean over the repetitions: the trials of a point, and the
    places on an axis of seeds. `share` and `certainty` state how far these decide it.

    Args:
        results: A sweep.
        axis: The axis, or a setting along it; None for that of the study's `best_over`.
        by: Quantity with one number per point, or per trial; None for the study's, or
            the accuracy. A number that is missing at a complete point, as that of a
            training that diverged, is worse than any other.
        least: Whether less of it is better; None for the study's, or False.

    Returns:
        A data set over the other axes: `best`, the value; `mean`, of the quantity there;
        `share` of the repetitions in which this value is the best by itself;
        `certainty`, the share of bootstrap draws of the repetitions in which it has the
        best mean (nan of a single one); `compared`, how many values were complete. A
        value that lacks a repetition is not compared.

    Raises:
        ConfigurationError: For an unknown axis or quantity (naming the nearest), or one
            that is no single number.
    """
    require(_points.is_sweep(results), "results", "must be those of a sweep")
    asked = asked_of(results) or {}
    axes = _points.axes_of(results)
    rule = "must name the axis, as the study has no `best_over`"
    named = axis if axis is not None else asked.get("axis")
    require(named is not None, "axis", rule)
    along = _axis_of(results, str(named))
    quantity = str(by if by is not None else asked.get("by", _USUAL))
    is_least = bool(asked.get("least", False) if least is None else least)
    numbers = [
        str(name)
        for name, values in results.data_vars.items()
        if values.dtype.kind in "fiub"
        and name != "done"
        and {*axes} <= {*values.dims} <= {*axes, "trial"}
    ]
    check_known(quantity, "by", numbers, "a number of each point or trial")
    seeds = [name for name in _points.columns_of(results, "seed") if name in axes]
    require(along not in seeds, "axis", "must not be an axis of seeds", along)
    scores = results[quantity].astype(np.float64)
    repeats = [*seeds, *(["trial"] if "trial" in scores.dims else [])]
    others = [name for name in axes if name not in (along, *seeds)]
    table = scores.transpose(*others, along, *repeats).to_numpy()
    table = table.reshape(*table.shape[: len(others) + 1], -1)
    done = results["done"].astype(bool).transpose(*others, along, *seeds).to_numpy()
    done = done.reshape(*done.shape[: len(others) + 1], -1)
    is_done = np.asarray(done.all(axis=-1))
    found = _found(results, along, others, table, is_done, sign=-1 if is_least else 1)
    return found.assign_attrs(
        axis=along, by=quantity, least=str(is_least), repetitions=table.shape[-1]
    )


def _axis_of(results: xr.Dataset, named: str) -> str:
    """Return the axis that has a name, or along which a setting changes."""
    fields = {
        str(name): results[name].attrs.get("field", name)
        for name in _points.point_columns(results)
        if name != "label"
    }
    by_field = {field: name for name, field in fields.items()}
    known = check_known(named, "axis", (*fields, *by_field), "an axis of the sweep")
    return str(results[by_field.get(known, known)].dims[0])


def _found(
    results: xr.Dataset,
    along: str,
    others: list[str],
    table: np.ndarray,
    is_done: np.ndarray,
    *,
    sign: int,
) -> xr.Dataset:
    """Return the best value of each point by the scores, times 1 or -1."""
    import xarray as xr

    shape, places = table.shape[: len(others)], np.asarray(results[along])
    missing: Any = "" if places.dtype.kind in "UO" else math.nan
    best = np.full(shape, missing, object)
    columns = {name: np.full(shape, np.nan) for name in ("mean", "share", "certainty")}
    for place in itertools.product(*map(range, shape)):
        complete = np.flatnonzero(is_done[place])
        if not complete.size:
            continue
        scores = table[place][complete]
        chosen = best_of(sign * scores)
        best[place] = places[complete[chosen.place]]
        columns["mean"][place] = scores[chosen.place].mean()
        columns["share"][place] = chosen.share
        columns["certainty"][place] = chosen.certainty
    kind = str if missing == "" else np.float64
    return xr.Dataset(
        {
            "best": (others, best.astype(kind)),
            **{name: (others, values) for name, values in columns.items()},
            "compared": (others, is_done.sum(axis=-1)),
        },
        {name: results[name].to_numpy() for name in others},
    )


def best_rows(best: xr.Dataset) -> Iterator[dict[str, Any]]:
    """Go through the points of what `best_over` returned, as plain values."""
    shape = best["best"].shape
    for place in itertools.product(*map(range, shape)):
        at = dict(zip(map(str, best["best"].dims), place, strict=True))
        row = {name: best[name].to_numpy()[index].item() for name, index in at.items()}
        yield row | {
            str(name): values.to_numpy()[place].item()
            for name, values in best.data_vars.items()
        }


def best_sentences(results: xr.Dataset) -> tuple[str, ...]:
    """State the best values that the study asks for, a sentence for each point."""
    if asked_of(results) is None:
        return ()
    best = best_over(results)
    along, by, count = (best.attrs[name] for name in ("axis", "by", "repetitions"))
    words = along.replace("_", " ")
    said = []
    for row in best_rows(best):
        where = ", ".join(
            str(row[name])
            if name == "scheme"
            else f"{name.replace('_', ' ')} {row[name]}"
            for name in map(str, best["best"].dims)
        )
        lead = f"{where}: " if where else ""
        if not row["compared"]:
            said.append(f"{lead}no {words} is complete.")
            continue
        sure = (
            "a single repetition does not show how surely"
            if count == 1
            else f"the best in {100 * row['share']:.0f} % of {count} repetitions and in "
            f"{100 * row['certainty']:.0f} % of their bootstrap draws"
        )
        value = row["best"] if isinstance(row["best"], str) else f"{row['best']:g}"
        said.append(
            f"{lead}{words} {value} is the best of {row['compared']} by mean "
            f"{by.replace('_', ' ')}, {number(row['mean'])}; {sure}."
        )
    return tuple(said)
