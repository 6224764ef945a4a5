"""Quantization errors.

Misuse, the paper's numbers, closed forms against counting, simulation.
"""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mrsa_jax import hetero, quantize
from mrsa_watch._base.errors import ConfigurationError

LEVELS = [2, 4, 8, 10, 12]  # Experiment 1: N = 20, G = 5, m = 199210
DIM = 199210
CHAIN = [[0, 0, -1], [-1, 1, 1], [0, -1, 0]]


def counted(matrix, levels, sizes, dim):
    """Return (11) on [0, 1], coordinate by coordinate and client by client."""
    segments = len(matrix)
    lengths = [dim // segments + (row < dim % segments) for row in range(segments)]
    total = Fraction(0)
    for row, length in zip(np.asarray(matrix), lengths, strict=True):
        for column, size in enumerate(sizes):
            label = int(row[column])
            own = levels[column if label < 0 else label]
            total += Fraction(size * length, (own - 1) ** 2)
    return float(total / (4 * sum(sizes) ** 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: hetero.quantization_error_bound(CHAIN, [2, 4], 2, 6),
            "`levels` must be one for each column; got 2 and 3",
        ),
        (
            lambda: hetero.quantization_error_bound(CHAIN, [1, 4, 4], 2, 6),
            "`levels` must be at least 2; got 1",
        ),
        (
            lambda: hetero.quantization_error_bound(CHAIN, [2, 8, 4], 2, 6),
            "`levels` must not descend",
        ),
        (
            lambda: hetero.quantization_error_bound(CHAIN, [2, 4, 8], 0, 6),
            "`group_size` must be at least 1; got 0",
        ),
        (
            lambda: hetero.quantization_error_bound(CHAIN, [2, 4, 8], [1, 2], 6),
            "`group_size` must be one number, or one for each column; got 2 and 3",
        ),
        (
            lambda: hetero.quantization_error_bound(CHAIN, [2, 4, 8], [0, 0, 0], 6),
            "`group_size` must count one client",
        ),
        (
            lambda: hetero.quantization_error_bound(CHAIN, [2, 4, 8], 2, 2),
            "`dim` must be at least the segments; got 2 and 3",
        ),
        (
            lambda: hetero.quantization_error_bound(CHAIN, [2, 4, 8], 2, 6, (1.0, 0.0)),
            "`value_range` must be finite with r1 < r2",
        ),
        (
            lambda: hetero.quantization_error_bound(
                CHAIN, [2, 4, 8], 2, 6, (0.0, math.nan)
            ),
            "`value_range` must be finite",
        ),
    ],
)
def test_misuse_of_bounds_names_argument_rule_and_value(call, message):
    with pytest.raises(ConfigurationError, match=message):
        call()


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        (np.zeros((4, 3)), r"`updates` must have the shape \[4, 2\]"),
        (np.full((4, 2), np.nan), "`updates` must be finite"),
        (np.full((4, 2), "a"), "`updates` must hold numbers"),
    ],
)
def test_misuse_of_the_exact_error(updates, message):
    layout = hetero.segment_layout("sc", [2, 2], [2, 3], dim=2)
    with pytest.raises(ConfigurationError, match=message):
        hetero.quantization_error(updates, layout, (0.0, 1.0))
    with pytest.raises(
        ConfigurationError, match="`value_range` must be finite with r1 < r2"
    ):
        hetero.quantization_error(np.zeros((4, 2)), layout, (1.0, 1.0))


def test_the_bounds_of_experiment_1_to_all_digits():
    wanted = {
        ("sc", None): 771.3528888659841,
        ("mc", None): 988.5915869580156,
        ("hc", 2): 987.3820136741565,
        ("hc", 3): 967.3004424059186,
    }
    for (scheme, threshold), value in wanted.items():
        matrix = hetero.segment_matrix(scheme, 5, threshold)
        assert hetero.quantization_error_bound(matrix, LEVELS, 4, DIM) == value
    assert hetero.quantization_error_bound([[-1]], [2], 20, DIM) == 2490.125
    one = hetero.quantization_error_bound([[-1]], [12], 20, DIM)
    assert one == pytest.approx(20.579545454545, rel=1e-13)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_counting_holds_for_ragged_segments_and_unequal_groups(data):
    columns = data.draw(st.integers(2, 6))
    scheme = data.draw(st.sampled_from(["sc", "mc"]))
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=columns, max_size=columns))
    levels = sorted(
        data.draw(st.lists(st.integers(2, 9), min_size=columns, max_size=columns))
    )
    dim = data.draw(st.integers(columns, 40))
    matrix = hetero.segment_matrix(scheme, columns)
    bound = hetero.quantization_error_bound(matrix, levels, sizes, dim)
    assert bound == counted(matrix, levels, sizes, dim)
    # the layout quantizes what was counted: all values halfway attain the bound
    layout = hetero.segment_layout(scheme, sizes, levels, dim, allow_small_groups=True)
    halfway = np.zeros((sum(sizes), dim))
    for (start, stop), of_slot in zip(layout.bounds, layout.levels_of(), strict=True):
        halfway[:, start:stop] = 0.5 / (of_slot[:, None] - 1)
    error = hetero.quantization_error(halfway, layout, (0.0, 1.0))
    assert error == pytest.approx(bound, rel=1e-12)
    rng = np.random.default_rng(dim)
    assert (
        hetero.quantization_error(rng.uniform(size=halfway.shape), layout, (0.0, 1.0))
        <= bound
    )


def test_the_range_scales_the_error_by_its_square():
    matrix = hetero.segment_matrix("mc", 3)
    layout = hetero.segment_layout("mc", [2, 2, 2], [2, 3, 5], dim=7)
    values = np.random.default_rng(0).uniform(size=(6, 7))
    one, nine = ((0.0, 1.0), (-1.0, 2.0))
    bounds = [
        hetero.quantization_error_bound(matrix, [2, 3, 5], 2, 7, span)
        for span in (one, nine)
    ]
    assert bounds[1] == pytest.approx(9 * bounds[0], rel=1e-14)
    errors = [
        hetero.quantization_error(values, layout, one),
        hetero.quantization_error(3 * values - 1, layout, nine),
    ]
    assert errors[1] == pytest.approx(9 * errors[0], rel=1e-12)


def test_values_on_levels_have_no_error_and_clipping_is_a_bias():
    layout = hetero.segment_layout("groups", [2], [3], dim=2)
    assert hetero.quantization_error([[0, 0.5], [1, 1]], layout, (0, 1)) == 0.0
    # 2 and -1 are clipped by -1 and +1: nothing is left of it in the sum; 3 alone loses
    # 2
    assert hetero.quantization_error([[2, 0], [-1, 0]], layout, (0, 1)) == 0.0
    assert hetero.quantization_error([[3, 0], [0.5, 0]], layout, (0, 1)) == 4 / 4


def test_the_exact_error_is_that_of_the_quantizer():
    """4,000 rounds; the mean of the squared errors must lie within 4.9 standard errors.

    For a normal mean that fails with probability 1e-6; each squared error sums 36
    terms.
    """
    rounds, dim = 4000, 36
    layout = hetero.segment_layout("sc", [2, 2, 2], [2, 3, 6], dim=dim)
    span = (-0.75, 1.25)
    values = np.random.default_rng(5).uniform(-0.8, 2.2, (6, dim)).astype(np.float32)
    encode = jax.jit(lambda quantizer, key, updates: quantizer.encode(key, updates))
    total = np.zeros((rounds, dim))
    for number, block in enumerate(layout.blocks):
        quantizer = quantize.stochastic(block.num_levels, value_range=span)
        step = (span[1] - span[0]) / (block.num_levels - 1)
        for client in block.members:
            part = values[client, block.start : block.stop]
            key = jax.random.fold_in(jax.random.key(number), client)
            codes = np.asarray(
                encode(quantizer, key, jnp.broadcast_to(part, (rounds, len(part))))
            )
            total[:, block.start : block.stop] += span[0] + step * codes - part
    found = (total**2).sum(axis=1) / 6**2
    exact = hetero.quantization_error(values, layout, span)
    assert abs(found.mean() - exact) < 4.9 * found.std() / rounds**0.5
    # and the tolerance is tight enough to tell clipping's part
    inside = hetero.quantization_error(np.clip(values, *span), layout, span)
    assert exact - inside > 4.9 * found.std() / rounds**0.5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"scheme": "xc"}, "`scheme` must be a known scheme"),
        ({"levels": [4, 2]}, "`levels` must not descend"),
        ({"dim": 5}, "`dim` must be a multiple of the number of segments"),
        ({"subgroups": [1]}, "`subgroups` must be one number for each group"),
        ({"hybrid_threshold": 1}, '`hybrid_threshold` must be given for "hc" alone'),
        ({"group_size": 0}, "`group_size` must be at least 1"),
        ({"value_range": (1.0, 0.0)}, "`value_range` must be finite with r1 < r2"),
    ],
)
def test_arguments_of_closed_forms_are_checked(arguments, words):
    usual = {"scheme": "sc", "levels": [2, 4], "group_size": 2, "dim": 4}
    with pytest.raises(ConfigurationError, match=words):
        hetero.scheme_error_bound(**usual | arguments)


def test_closed_forms_of_a_range_are_those_of_counting():
    levels, ends = [2, 3, 5, 9], (-0.5, 1.5)
    for scheme, threshold in (("sc", None), ("mc", None), ("hc", 2)):
        matrix = hetero.segment_matrix(scheme, 4, threshold)
        counted = hetero.quantization_error_bound(matrix, levels, 3, 8, ends)
        closed = hetero.scheme_error_bound(
            scheme, levels, 3, 8, hybrid_threshold=threshold, value_range=ends
        )
        assert closed == counted
