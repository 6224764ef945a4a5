"""Items of CCESA on resources: Table 1 by measured growth, and bandwidths.

Every quantity of Table 1 is counted on sampled graphs and dropouts and fitted against
the growth that the paper claims. Errata as docs/errata.md lists them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from mrsa_jax import graphs, secagg
from mrsa_jax._core.streams import as_key, fold
from mrsa_jax.availability import independent_steps
from mrsa_papers.ccesa._theory import (
    SIZES,
    check_thresholds,
    step_rate,
    thresholds_of,
)
from mrsa_papers.harness import (
    Check,
    Context,
    Found,
    Values,
    compare,
    rows_to_frame,
    state,
)
from mrsa_papers.harness._figures import beside, log_ticks, panels
from mrsa_papers.harness._rows import printed_in
from mrsa_watch._base.errors import require

if TYPE_CHECKING:
    from mrsa_papers.harness._figures import Axes, Figure, pd

PROTOCOLS = {"SecAgg": "#E69F00", "CCESA": "#0072B2"}
"""Their colours."""

_MODULUS = 2**16  # the ring of Table 2
# of the fitted exponent: finite n leave constants next to the leading term
_CLOSE = 0.05


def _root(n: float | int) -> float:
    return math.sqrt(n * math.log(n))


# the factor m is the same at every n, so a fit over n need not know it
_GROWTHS: dict[str, Callable[[float], float]] = {
    "n": lambda n: n,
    "n^2": lambda n: n * n,
    "n log n": lambda n: n * math.log(n),
    "sqrt(n log n)": _root,
    "n sqrt(n log n)": lambda n: n * _root(n),
}
"""Words for a growth with n; `m` before it is a factor of its kind."""


_LOST_PADS = "server: keystream words of lost clients' pads"
_CELLS = printed_in("ccesa")["growth"]
"""Counted quantities and the growth that the paper states for each scheme."""


def growth(context: Context, settings: Values) -> Found:
    """Return Table 1: counted bytes and operations over n, with fitted exponents."""
    check_thresholds(settings.num_sizes, (settings.total_rate,), "total_rate")
    sizes = sorted(settings.num_sizes)
    require(len(sizes) > 1, "num_sizes", "must be two or more, to fit a growth", sizes)
    context.begin()
    data = rows_to_frame(
        {"scheme": scheme, "n": n, "quantity": name, "value": value}
        for n in context.steps("Table 1: counting rounds", sizes)
        for scheme in ("CCESA", "SecAgg")
        for name, value in _counted(context.seed, scheme, n, settings).items()
    )
    fits: dict[tuple[str, str], tuple[str, float]] = {}
    checks: list[Check] = []
    for name, scheme in itertools.product(_CELLS, ("CCESA", "SecAgg")):
        claim = _CELLS[name][scheme]
        chosen = (data["quantity"] == name) & (data["scheme"] == scheme)
        fits[name, scheme] = claim, _fit(data[chosen], claim)
        # few histories scatter, and a short range of n bends a fit
        is_enough = settings.num_trials >= 32 and sizes[-1] >= 8 * sizes[0]
        checks.append(_grows_as(name, scheme, *fits[name, scheme], is_enough=is_enough))
    checks += [
        _printed_server_cell(data),
        *_reliability_and_privacy(settings.total_rate),
    ]
    exponents = [
        fits[pair] for pair in zip(data["quantity"], data["scheme"], strict=True)
    ]
    data["claim"], data["exponent"] = zip(*exponents, strict=True)
    return Found(
        tuple(checks),
        data,
        f"Means over {settings.num_trials} sampled histories of dropouts on one graph "
        f"for each n (p*, Remark 4's t, q_total = {settings.total_rate:g}, m = "
        f"{settings.dim:,}, 16-bit ring; SecAgg: "
        "complete graph, t = n/2 + 1). A count is fitted as a power of the claimed "
        "growth: 1 means that it grows so. FedAvg moves the residues alone.",
    )


def _counted(seed: int, scheme: str, n: int, settings: Values) -> dict[str, float]:
    """Return means over sampled histories.

    Of clients who did everything, and the server's.
    """
    # graph and histories of an n do not depend on the other sizes
    total, dim = settings.total_rate, settings.dim
    key, q = fold(as_key(seed), n), step_rate(total)
    if scheme == "CCESA":
        p, _, t = thresholds_of(n, total)
        adjacency = np.asarray(graphs.erdos_renyi(n, p).sample(fold(key, 1)))
    else:
        # the complete graph: each client with all others
        t, adjacency = n // 2 + 1, ~np.eye(n, dtype=np.bool_)
    keys = jax.random.split(fold(key, 2), settings.num_trials)
    # one column per history, each with its own key
    everybody = jnp.ones((n, settings.num_trials), jnp.bool_)
    histories = np.asarray(jax.jit(independent_steps(q).sample)(keys, everybody))
    # [histories, steps, clients]
    survivors = np.moveaxis(histories, -1, 0)
    costs = secagg.round_costs(adjacency, survivors, t, dim, _MODULUS)
    did_everything, inputs = survivors[:, 4], survivors[:, 3].sum(axis=-1)
    # over the steps: bytes of each client in each history
    moved = (costs.bytes_up + costs.bytes_down).sum(axis=1)
    per_client = {
        # 16-bit residues: two bytes for each of m
        "client: bytes beyond residues": moved - 2 * dim,
        "client: field products of sharing": costs.client.share_products.sum(axis=1),
        "client: keystream words": costs.client.prg_words.sum(axis=1),
    }
    quantities = {
        name: float(values[did_everything].mean())
        for name, values in per_client.items()
    }
    # without the one pad that each summed client has for itself
    words = costs.server.prg_words.sum(axis=-1) - inputs * dim
    return quantities | {
        "server: bytes beyond residues": float(
            (moved.sum(axis=-1) - inputs * 2 * dim).mean()
        ),
        _LOST_PADS: float(words.mean()),
    }


def _fit(data: pd.DataFrame, claim: str) -> float:
    """Return the slope of log value against log of the claimed growth."""
    grows = _GROWTHS[claim.removeprefix("m ")]
    # a slope of 1 against the claimed growth is that growth
    x = np.log([grows(float(n)) for n in data["n"]])
    return float(np.polyfit(x, np.log(data["value"].to_numpy(float)), 1)[0])


def _grows_as(
    name: str, scheme: str, claim: str, exponent: float, *, is_enough: bool
) -> Check:
    is_corrected = scheme == "CCESA" and name == _LOST_PADS
    is_near = abs(exponent - 1.0) <= _CLOSE
    return state(
        f"{scheme}, {name}",
        is_near if is_near or is_enough else None,
        depends=(),
        paper=f"O({claim}), as corrected below" if is_corrected else f"O({claim})",
        ours=f"({claim})^{exponent:.3f}",
        tolerance=f"exponent within {_CLOSE:g} of 1",
    )


def _printed_server_cell(data: pd.DataFrame) -> Check:
    """Judge the cell O(m n log n), which leaves out that Theta(n) clients are lost."""
    chosen = (data["quantity"] == _LOST_PADS) & (data["scheme"] == "CCESA")
    exponent = _fit(data[chosen], "m n log n")
    return state(
        "CCESA, server: computation",
        exponent <= 1.0 + _CLOSE,
        depends=(),
        paper="O(m n log n)",
        ours=f"(m n log n)^{exponent:.3f}",
        tolerance=f"exponent at most {1 + _CLOSE:g}",
        otherwise="paper errs",
        note=(
            "with a fixed dropout rate up to order n clients are lost, each with order "
            "sqrt(n log n) pads to remove: O(m n sqrt(n log n)), which also gives the "
            "factor sqrt(n / log n) that the text claims"
        ),
    )


def _reliability_and_privacy(total: float) -> Iterator[Check]:
    """Judge the reliability and privacy cells by the first moment and Theorem 6."""
    shares, privacy = [], []
    for n in SIZES:
        p, q, t = thresholds_of(n, total)
        log = secagg.failures.log_reliability_first_moment(n, p, q, t)
        # c solves n e^(-c sqrt(n log n)) = the chance
        shares.append((math.log(n) - log) / _root(n))
        privacy.append(secagg.privacy_bound(n, p, q) / math.log(n))
    yield state(
        "CCESA: exponent of n e^(-c sqrt(n log n)), the chance that a round is "
        "unreliable",
        min(shares) >= 1.0,
        depends=(),
        paper="c = 1 (Table 1)",
        ours=f"c from {min(shares):.2f} to {max(shares):.2f} over n = 100 to 1000",
        tolerance="at least 1",
        otherwise="paper errs",
        note=(
            "Appendix E shows Theta(sqrt(n log n)) in the exponent, with a constant "
            "below 1; it also prints e^(-n log n) for it once. Computed from the "
            "expected number of unrecoverable secrets"
        ),
    )
    yield state(
        "CCESA: C of n^(-C), the chance that a round is not private",
        bool((np.diff(privacy) < 0).all()),
        depends=(),
        paper="any C > 0: falls faster than any power",
        ours=f"C = {-privacy[0]:.0f} at n = 100, {-privacy[-1]:.0f} at n = 1000",
        tolerance="C rises with every n",
    )


_BITS = ("n", "p", "B_CCESA", "B_SA", "wire_CCESA", "wire_SA")


def bandwidths(context: Context, settings: Values) -> Found:
    """Return Appendix D.1.

    B_CCESA beside B_SA and Turbo-aggregate, and what the wire carries.
    """
    chances = {
        n: secagg.connection_probability(n, 0.0) for n in sorted(settings.num_sizes)
    }
    for n, p in chances.items():
        require(p <= 1.0, "num_sizes", "must leave a p* of at most 1", n)
    context.begin()
    rows = []
    for n, p in chances.items():
        # the mean degree, which the paper's count takes for |Adj|
        degree = (n - 1) * p
        wire = [8 * sum(wire_terms(k).values()) for k in (degree, n - 1)]
        paper = (secagg.costs.printed_bits(degree), secagg.costs.printed_bits(n - 1))
        rows.append(dict(zip(_BITS, (n, p, *paper, *wire), strict=True)))
    data = rows_to_frame(rows)
    data["ratio"] = data["B_CCESA"] / data["B_SA"]
    data["wire_ratio"] = data["wire_CCESA"] / data["wire_SA"]
    return Found(
        (*_formula_checks(data), *_turbo_checks()),
        data,
        "Bits a client moves beyond FedAvg's residues at p* (q_total = 0, a_K = a_S = "
        "256), as a share of SecAgg's: the paper's count, and the messages really "
        "sent, with ids, headers, tags and 36-byte shares.",
    )


def wire_terms(degree: float | int) -> dict[str, float]:
    """Split the bytes that a client sends and receives by term, without residues.

    The paper's count is the first two terms at a_K = a_S = 256; the rest is what it
    leaves out. On the wire a share is 36 bytes (9 limbs of 31 bits in 32-bit words),
    not 32.
    """
    shares = 5 * degree + 1
    return {
        "public keys": 2.0 * 32 * (degree + 1),
        "shares": float(32 * shares),
        "limbs of 32 bits": float(4 * shares),
        "authentication tags": 2.0 * 16 * degree,
        # of the sender (4 messages), of neighbours (keys, shares up and down), of those
        # in V3, of the owners of the shares sent at last
        "identities": float(4 * (4 + 3 * degree + 2 * (degree + 1))),
        # entries of a list: one per list, two of the last message, one of residues
        "counts": float(7 * 4),
        "headers": float(7 * 8),
    }


def _formula_checks(data: pd.DataFrame) -> Iterator[Check]:
    # at a_K = a_S the two terms of B_SA add up
    equal = all(
        secagg.costs.printed_bits(n - 1) == (2 * n + 5 * n - 4) * 256
        for n in map(int, data["n"])
    )
    ratios = ", ".join(
        f"{row['ratio']:.3f} at n = {int(row['n'])}"
        for _, row in _labelled(data).iterrows()
    )
    wire = float((data["wire_ratio"] / data["ratio"] - 1).abs().max())
    exact = float((data["ratio"] / data["p"] - 1).abs().max())
    beyond = float((data["wire_CCESA"] / data["B_CCESA"]).max() - 1)
    yield state(
        "B_CCESA at |Adj| = n - 1",
        equal,
        depends=(),
        paper="B_SA = 2 n a_K + (5 n - 4) a_S",
        ours="equal" if equal else "differs",
    )
    yield state(
        "B_CCESA / B_SA",
        bool((np.diff(data["ratio"]) < 0).all()),
        depends=(),
        paper="tends to 0",
        ours=ratios,
        tolerance="falls with every n",
    )
    yield state(
        "B_CCESA / B_SA against p",
        exact <= 0.01,
        depends=(),
        paper="proportional to n p",
        ours=f"equal to p within {100 * exact:.2f} %",
        tolerance="1 %",
    )
    yield state(
        "the same ratio in bytes really sent",
        wire <= 0.01,
        depends=(),
        paper="B_CCESA / B_SA",
        ours=f"equal within {100 * wire:.2f} %",
        tolerance="1 %",
        note=(
            f"the messages carry up to {100 * beyond:.0f} % more than the paper's "
            "count: ids, headers, tags, and 36 bytes a share"
        ),
    )


def _labelled(data: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that are labelled: the paper's, or first and last."""
    chosen = data["n"].isin((100, 300, 500, 1000))
    return data[chosen] if chosen.any() else data.iloc[[0, -1]]


def _turbo_checks() -> Iterator[Check]:
    """Section 1: n = 100, m = 10^6, R = 32, L = 10, a_K = a_S = 256."""
    # bits per client, as printed
    turbo = secagg.costs.turbo_aggregate_bits(100, 10**6, 32, 10)
    printed = math.sqrt(100 * math.log(100)) * (2 * 256 + 5 * 256) + 32e6
    degree = 99 * secagg.connection_probability(100, 0.0)
    exact = secagg.costs.printed_bits(degree) + 32e6
    yield compare("Turbo-aggregate, 4 m n R / L (bits)", 1.28e9, turbo, depends=())
    yield compare(
        "CCESA / Turbo-aggregate (%), by Section 1's formula",
        3.0,
        100 * printed / turbo,
        tolerance=0.5,
        depends=(),
        note=(
            "printed to a whole percent; nearly all is L / (4 n), the residues "
            "themselves"
        ),
    )
    yield compare(
        "the same (%), with B_CCESA at p*",
        3.0,
        100 * exact / turbo,
        tolerance=0.5,
        depends=(),
    )


def draw_growth(figure: Figure, data: pd.DataFrame) -> None:
    """Draw each quantity of Table 1 on axes of its own."""
    figure.set_size_inches(13, 7)
    title = {"fontsize": 9.5}
    panels(figure, data, "quantity", _draw_quantity, rows=2, columns=3, title=title)


def _draw_quantity(ax: Axes, data: pd.DataFrame) -> None:
    """Draw one quantity over n on log axes with its fit.

    The columns are scheme, n, value, claim and those of the fit.
    """
    for scheme, curve in data.groupby("scheme", sort=False):
        claim, exponent = curve.iloc[0][["claim", "exponent"]]
        base = claim if claim.isalnum() else f"({claim})"
        marker = "s" if scheme == "CCESA" else "o"
        ax.plot(
            curve["n"],
            curve["value"],
            marker=marker,
            ms=5,
            color=PROTOCOLS[str(scheme)],
            label=f"{scheme}: {base}^{exponent:.2f}",
        )
    ax.set(xscale="log", yscale="log", xlabel="clients n")
    log_ticks(ax, data["n"])
    ax.legend(loc="upper left")


def draw_bandwidths(ax: Axes, data: pd.DataFrame) -> None:
    """Draw CCESA's additional bandwidth over SecAgg's.

    The columns are n, ratio and wire_ratio.
    """
    ax.plot(
        data["n"],
        data["ratio"],
        color=PROTOCOLS["CCESA"],
        marker="s",
        ms=5,
        label="the paper's count, B_CCESA / B_SA",
    )
    ax.plot(
        data["n"],
        data["wire_ratio"],
        "x",
        color="#444444",
        ms=8,
        mew=1.6,
        label="bytes really sent",
    )
    for _, row in _labelled(data).iterrows():
        beside(ax, f"{row['ratio']:.3f}", (row["n"], row["ratio"]), (2, 8))
    ax.set_xlim(None, 1.09 * data["n"].max())
