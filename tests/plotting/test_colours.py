"""A scheme has one colour, which no other has, whatever a user calls their own."""

from __future__ import annotations

import re
import subprocess
import sys

from mrsa_jax.plotting import scheme_colour
from mrsa_jax.plotting.styles import FAMILIES, NAMED, scheme_dashes
from mrsa_jax.selection.registry import BUILT_IN, ROWS, Scheme

BUILT = [*NAMED, *(f"Multi-RoundSecAgg (T={t})" for t in (1, 2, 5, 8, 10, 12, 15, 20))]
BUILT += [f"Bernoulli ({p:g})" for p in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.8, 1)]
BUILT += ["Crossing partitions (T=4)", "Poisson (0.05, 0.2)", "Balls in bins (7)"]
HOSTILE = [
    "", " ", "_", "random", "RANDOM", "Random ", "Random\n", "mine", "mine 1", "mine 2", "mine 10",
    "<script>alert(1)</script>", "$x^2$", "$\\frac{", "\\", "%s{}", "\x00", "\ud800", "\u202eabc",
    "\u200b", "名", "名 2", "🙂", "é", "e\u0301", "²", "٣", "9" * 5000, "a" * 10_000, "None", "nan",
    "-1", "#000000", "Multi-RoundSecAgg", "Multi-RoundSecAgg (T=3 )", "multi-roundsecagg (t=3)",
]  # fmt: skip


def _channels(colour: str) -> list[int]:
    assert re.fullmatch("#[0-9A-F]{6}", colour)
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def test_no_two_schemes_share_a_colour() -> None:
    labels = [*BUILT, *HOSTILE]
    assert (
        len({scheme_colour(label) for label in labels})
        == len(set(labels))
        == len(labels)
    )
    looks = {
        (scheme_colour(one), scheme_dashes(one))
        for one in (f"s{i}" for i in range(300))
    }
    assert len(looks) >= 299
    # schemes that differ in a number only are told apart at a glance
    for one in range(60):
        near, far = (_channels(scheme_colour(f"mine ({one + k})")) for k in (0, 1))
        assert max(abs(a - b) for a, b in zip(near, far, strict=True)) > 30


def test_a_user_s_colour_is_far_from_those_built_in_and_seen_on_white() -> None:
    built = [_channels(scheme_colour(label)) for label in BUILT]
    for label in [*HOSTILE, *(f"scheme {i}" for i in range(200))]:
        if label.startswith(FAMILIES):
            continue
        own = _channels(scheme_colour(label))
        assert (
            min(
                sum((a - b) ** 2 for a, b in zip(own, one, strict=True))
                for one in built
            )
            > 400
        )
        linear = [
            (c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4)
            for c in own
        ]
        light = sum(
            w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
        )
        assert 1.05 / (light + 0.05) >= 2.9


def test_families_are_those_of_the_registry() -> None:
    """A scheme that is built in and has no colour by name begins with a family's words."""
    own = {
        "batch_partitioning:4",
        "crossing_partitions:2",
        "bernoulli:0.1",
        "poisson:0.1",
    }
    own |= {"balls_in_bins:5", "power_of_choice:20", "minimum_separation:2:weighted"}
    plain = {"uniform", "weighted", "partition"}
    assert {text.split(":")[0] for text in own | plain} == set(BUILT_IN) & set(ROWS)
    assert all(Scheme.parse(text).label in NAMED for text in plain)
    assert all(Scheme.parse(text).label.startswith(FAMILIES) for text in own)


def test_colours_need_nothing_heavy_and_are_the_same_in_every_process() -> None:
    code = (
        "import sys; from mrsa_jax.plotting import scheme_colour; "
        "assert not {'jax', 'matplotlib', 'pandas', 'xarray', 'scipy'} & "
        "set(sys.modules); "
        "print(scheme_colour('mine'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == scheme_colour("mine")
