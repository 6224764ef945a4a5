"""Weak T after each round of many trials, as studies and sweeps keep it on request."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from mrsa_jax import privacy
from mrsa_jax.study.settings._config import WeakPrivacy, weak_wish
from mrsa_jax.study.stores._runner import VARIABLES, VARIABLES_OF_WEAK, Variable
from mrsa_watch._base.html import counted

MEMORY_BYTES = 2**28
"""Memory that bounds of weak T may take in addition to histories and results."""
_SECONDS_PER_EFFORT = 90.0  # as `privacy.weak_privacy` states it


def weak_variables(dims: tuple[str, ...], kept: Collection[str]) -> dict[str, Variable]:
    """Return the variables of weak T that points of a sweep keep on request.

    Args:
        dims: Dimensions of a point, such as `("trial",)`.
        kept: Names of what to keep; without a wish for weak T there are none.
    """
    wish = weak_wish(kept)
    variables = {}
    for name in _names(wish):
        about = VARIABLES_OF_WEAK[name]
        variables[name] = dataclasses.replace(about, dims=dims)
        variables[f"{name}_by_round"] = dataclasses.replace(
            about,
            dims=(*dims, "round"),
            description=f"{about.description}, after each round",
        )
    return variables


def weak_values(
    trials: Iterable[tuple[np.ndarray, np.ndarray]],
    num_rounds: int,
    kept: Collection[str],
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, np.ndarray]:
    """Return the values of `weak_variables` for some trials.

    Args:
        trials: Rows of the sums of each trial, [sums, N], booleans or weights, and the
            round of each row, ascending; not read without a wish for weak T.
        num_rounds: J.
        kept: Names of what to keep.
        progress: Called with (trials done, trials).

    Returns:
        int32 or int8 arrays [B] and, named `_by_round`, [B, J]; -1 before any sum.
    """
    wish = weak_wish(kept)
    if wish is None:
        return {}
    each = list(trials)
    curves = _together(each, num_rounds, wish, progress)
    values: dict[str, np.ndarray] = {}
    for place, name in enumerate(_names(wish)):
        paths = curves[:, place].astype(VARIABLES_OF_WEAK[name].dtype)
        values |= {name: paths[:, -1], f"{name}_by_round": paths}
    return values


def weak_words(kept: Collection[str], trials: int) -> str:
    """Say what weak T of a study costs at most; "" where it is not kept.

    Examples:
        >>> weak_words(["weak_privacy:certified:0.1"], 40)
        'weak T of 40 trials: proofs, at most about 9 s each, 6 min in all'
        >>> weak_words(["weak_privacy"], 40)
        'weak T of 40 trials: bounds, error chance below 2^-30 per trial'
    """
    wish = weak_wish(kept)
    if wish is None:
        return ""
    words = f"weak T of {counted(trials, 'trial')}"
    if wish.method == "bounds":
        return f"{words}: bounds, error chance below 2^-30 per trial"
    each = _SECONDS_PER_EFFORT * wish.effort
    total = f"{each * trials / 60:.2g} min in all"
    return f"{words}: proofs, at most about {each:.2g} s each, {total}"


def _names(wish: WeakPrivacy | None) -> Sequence[str]:
    if wish is None:
        return ()
    is_certified = wish.method == "certified"
    return (*VARIABLES["weak"], *(VARIABLES["certified"] if is_certified else ()))


def _together(
    trials: Sequence[tuple[np.ndarray, np.ndarray]],
    num_rounds: int,
    wish: WeakPrivacy,
    progress: Callable[[int, int], None] | None,
) -> np.ndarray:
    """Return lower and upper bounds and certificates, int32[B, 3, J]."""
    paths = np.full((len(trials), 3, num_rounds), -1, np.int32)
    lengths = {len(rows) for rows, _ in trials}
    # trials of as many sums are bounded in one program, others one after another
    if wish.method == "bounds" and len(lengths) == 1 and lengths != {0}:
        groups = [range(len(trials))]
    else:
        groups = [range(trial, trial + 1) for trial in range(len(trials))]
    for group in groups:
        rows = np.stack([trials[trial][0] for trial in group])
        if rows.shape[1]:
            bounds = privacy.weak_privacy_trajectory(
                rows, wish.method, effort=wish.effort, memory_bytes=MEMORY_BYTES
            )
            is_certified = np.where(bounds.upper < 0, -1, bounds.certified)
            curves = np.stack([bounds.lower, bounds.upper, is_certified], axis=1)
            for trial, curve in zip(group, curves, strict=True):
                paths[trial] = _by_round(curve, trials[trial][1], num_rounds)
        if progress is not None:
            progress(group[-1] + 1, len(trials))
    return paths


def _by_round(curve: np.ndarray, rounds: np.ndarray, num_rounds: int) -> np.ndarray:
    """Return curves after each sum, [3, sums], after each round, [3, J]."""
    before = np.full((len(curve), 1), -1, curve.dtype)
    # sums of a round count as soon as it is over, hence `right`
    sums = np.searchsorted(rounds, np.arange(num_rounds), side="right")
    return np.concatenate([before, curve], axis=1)[:, sums]
