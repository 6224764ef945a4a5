"""Which T lasts, what has no value, and how a scheme is found.

Read off rounds that were played.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import xarray as xr
from packaging.version import Version

from mrsa_jax import plotting, study
from mrsa_jax.study import (
    PopulationConfig,
    ProtocolConfig,
    SegmentConfig,
    SimulateConfig,
    parse_scheme,
)
from mrsa_jax.study.publishing._accessor import find_schemes
from mrsa_jax.study.runs import _build, _segments

SMALL = PopulationConfig(num_clients=12, cohort_size=6, dropout_rates=(0.1,))
LOSSES = 0.05

PROTOCOLS = {
    "plain": ProtocolConfig(),
    "ignore": ProtocolConfig(step_dropout_rate=LOSSES),
    "drop_block": ProtocolConfig(step_dropout_rate=LOSSES, split_policy="drop_block"),
    "abort": ProtocolConfig(step_dropout_rate=LOSSES, split_policy="abort"),
    "harary": ProtocolConfig(graph="harary", degree=2),
    "harary with losses": ProtocolConfig(
        graph="harary",
        degree=2,
        threshold=1,
        step_dropout_rate=0.2,
        split_policy="drop_block",
        allow_unmasking_risk=True,
    ),
    "falls apart": ProtocolConfig(
        graph="erdos_renyi",
        connection_probability=0.3,
        threshold=1,
        allow_unmasking_risk=True,
    ),
}
KEEPS = {"plain": True, "ignore": False, "drop_block": True, "abort": True, "harary": True,
         "harary with losses": False, "falls apart": False}  # fmt: skip

# a block that is dropped, or a member, breaks a line
LINES = ("plain", "abort", "harary")


def _played(
    protocol: ProtocolConfig, population: PopulationConfig = SMALL
) -> xr.Dataset:
    schemes = ("uniform", "batch_partitioning:2", "partition", "crossing_partitions:3")
    return study.run(
        SimulateConfig(
            rounds=60,
            trials=2,
            schemes=schemes,
            population=population,
            protocol=protocol,
        )
    )


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in PROTOCOLS]


@pytest.mark.long
@pytest.mark.parametrize("name", ["ignore", "drop_block", *SLOW])
def test_what_is_guaranteed_is_kept_and_what_is_not_is_lost(name: str) -> None:
    results = _played(PROTOCOLS[name])
    promised = dict(
        zip(
            ("uniform", "batch_partitioning:2", "partition", "crossing_partitions:3"),
            results["guaranteed_privacy"].values.tolist(),
            strict=True,
        )
    )
    assert promised == {
        "uniform": 1,
        "batch_partitioning:2": 2 if KEEPS[name] else 1,
        "partition": 6 if KEEPS[name] else 1,
        "crossing_partitions:3": 3 if name in LINES else 1,
    }
    exposed = results["exposed_clients"].sel(scheme="crossing_partitions:3")
    assert (promised.pop("crossing_partitions:3") == 1) or not exposed.any()
    for scheme, least in promised.items():
        found = results["strong_privacy"].sel(scheme=scheme)
        assert float(found.min()) >= least
        if scheme == "batch_partitioning:2" and least == 1:
            assert float(found.min()) == 1, (
                "nothing was guaranteed, and nothing was lost"
            )


def test_a_cohort_of_everybody_is_one_block() -> None:
    """All of them, or no sum: nobody is ever told from another."""
    protocol = ProtocolConfig()
    for text in ("uniform", "weighted", "partition", "batch_partitioning:2"):
        assert _build.guaranteed_privacy(parse_scheme(text).build(6, 6), protocol) == 6
    loose = parse_scheme("bernoulli:1")  # any number of them
    assert _build.guaranteed_privacy(loose.build(6, 6), protocol) == 1


@pytest.mark.long
def test_groups_keep_what_is_promised_where_they_cut_no_block() -> None:
    """Every layout of a few groups and cuts, over random cohorts of whole blocks."""
    rng = np.random.default_rng(0)
    cuts = {(2, 4): ((), (1, 2), (2, 2)), (2, 4, 8): ((), (1, 1, 2))}
    kept = []
    for text, block in (
        ("partition", 12),
        *((f"batch_partitioning:{t}", t) for t in (2, 3, 6)),
    ):
        for levels, subgroups in (
            (own, each) for own, several in cuts.items() for each in several
        ):
            config = SegmentConfig(
                "mc",
                levels,
                subgroups,
                client_rates=(1.0, 3.0, 2.0),
                allow_small_groups=True,
            )
            selector = parse_scheme(text).build(24, 12)
            made = _segments.build_segments(1, config, selector, 60, None)
            assert made is not None
            cohorts = np.zeros((8, 24), bool)
            for row in cohorts:
                row.reshape(-1, block)[rng.permutation(24 // block)[: 12 // block]] = (
                    True
                )
            survivors = np.broadcast_to(cohorts[:, None], (8, 5, 24))
            sums = np.concatenate(made.play(survivors)[1].participation)
            of_blocks = sums.reshape(len(sums), -1, block)
            is_whole = bool((of_blocks.all(-1) == of_blocks.any(-1)).all())
            promised = _build.guaranteed_privacy(selector, ProtocolConfig(), config)
            assert promised == (block if is_whole else 1), (text, levels, subgroups)
            kept.append(is_whole)
    assert min(sum(kept), len(kept) - sum(kept)) > 3


def _numbers(results: xr.Dataset) -> dict[str, np.ndarray]:
    return {
        str(name): np.asarray(own.values, np.float64)
        for name, own in results.data_vars.items()
        if own.dtype.kind in "iufb"
    }


@pytest.mark.long
def test_what_has_no_value_enters_no_mean() -> None:
    """Blocks of twelve at a high dropout rate: some trials never have a sum."""
    config = SimulateConfig(
        rounds=12,
        trials=8,
        schemes=("partition",),
        population=PopulationConfig(24, 12, (0.3,)),
    )
    results = study.run(config)
    strong = results["strong_privacy"].isel(scheme=0)
    assert 0 < int(np.isnan(strong.isel(round=-1)).sum()) < 8
    assert set(strong.mean("trial").values[~np.isnan(strong).all("trial").values]) == {
        12.0
    }
    for name, values in _numbers(results).items():
        assert not (values < 0).any(), name
    drawn = np.asarray(
        plotting.plot_study(results, "strong_privacy").get_lines()[0].get_ydata()
    )
    assert set(drawn[~np.isnan(drawn)]) == {12.0}


def test_a_scheme_is_found_by_what_was_put_in_and_by_its_label(
    results: xr.Dataset,
) -> None:
    own = find_schemes(results)
    for written, label in (("uniform", "Random"), ("partition", "User partition")):
        for name in (written, label):
            assert own.sel(scheme=name).identical(results.sel(scheme=label))
            assert (
                own["rank"]
                .sel(scheme=[name])
                .equals(results["rank"].sel(scheme=[label]))
            )
            assert (
                own["rank"]
                .loc[{"scheme": name}]
                .equals(results["rank"].sel(scheme=label))
            )
    assert own.sel(
        scheme=np.array(["partition", "uniform"])
    ).scheme.values.tolist() == ["User partition", "Random"]
    for unknown in ("weighted", "nonsense", 3):
        with pytest.raises(KeyError):
            own.sel(scheme=unknown)


def test_the_names_outlive_what_is_done_with_a_data_set(results: xr.Dataset) -> None:
    own = find_schemes(results)
    copies: list[Any] = [
        own.isel(round=-1),
        own.mean("client"),
        own.transpose(),
        own.copy(),
        copy.deepcopy(own),
        pickle.loads(pickle.dumps(own)),
        own.sortby("scheme"),
        own.isel(scheme=[1, 0]),
        own.rename(scheme="kind"),
    ]
    for one in copies:
        name = "kind" if "kind" in one.dims else "scheme"
        assert one.sel({name: "uniform"})[name].item() == "Random"
    assert float(abs(own["rank"] - find_schemes(results)["rank"]).max()) == 0
    if Version(xr.__version__) >= Version("2026.9"):  # with a plain index beside it
        assert float(abs(own["rank"] - results["rank"]).max()) == 0
        assert own.merge(results).identical(own)
