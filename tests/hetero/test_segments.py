"""Matrices: misuse, the printed ones, Algorithms 1, 3 and 6 written out, and their structure."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mrsa_jax import hetero
from mrsa_watch._base.errors import ConfigurationError


def parse(text):
    """Read a printed matrix of numbers and '*'."""
    return [
        [-1 if cell == "*" else int(cell) for cell in line.split()] for line in text
    ]


def parse_pairs(text, subgroups):
    """Read a printed matrix of pairs such as 10 for (1,0), and '*'."""
    pairs = [(g, d) for g, count in enumerate(subgroups) for d in range(count)]
    order = {f"{g}{d}": z for z, (g, d) in enumerate(pairs)}
    return [
        [-1 if cell == "*" else order[cell] for cell in line.split()] for line in text
    ]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: hetero.segment_matrix("cs", 5),
            "`scheme` must be a known scheme; got 'cs'",
        ),
        (
            lambda: hetero.segment_matrix("sc", 1),
            "`num_groups` must be at least 2; got 1",
        ),
        (
            lambda: hetero.segment_matrix("sc", True),
            "`num_groups` must be an integer; got True",
        ),
        (
            lambda: hetero.segment_matrix("mc", 5, 2),
            '`hybrid_threshold` must be given for "hc"',
        ),
        (
            lambda: hetero.segment_matrix("hc", 5),
            '`hybrid_threshold` must be given for "hc"',
        ),
        (
            lambda: hetero.segment_matrix("hc", 5, 5),
            r"`hybrid_threshold` must lie in \[1, num_gr",
        ),
        (
            lambda: hetero.segment_matrix_plus("sc", []),
            "`subgroups` must hold a number",
        ),
        (
            lambda: hetero.segment_matrix_plus("sc", [2, 0]),
            "`subgroups` must be at least 1; got 0",
        ),
        (
            lambda: hetero.blocks_of([[0.0, 0.0]]),
            "`matrix` must hold integers; got .*float64",
        ),
        (
            lambda: hetero.blocks_of([0, 0]),
            r"must have the shape \[segments, groups\]; got",
        ),
        (
            lambda: hetero.blocks_of([[-2, -1]]),
            "must hold -1 or labels of groups; got -2",
        ),
        (
            lambda: hetero.blocks_of([[0, 2]]),
            "must hold -1 or labels of groups; got 0 and 2",
        ),
        (
            lambda: hetero.blocks_of([[0, -1]]),
            "by the smallest of them; got 'label 0 in row 0'",
        ),
        (
            lambda: hetero.blocks_of([[1, 1]]),
            "by the smallest of them; got 'label 1 in row 0'",
        ),
        (
            lambda: hetero.format_matrix([[0, 0]], [1, 2]),
            "`subgroups` must add up to the columns",
        ),
    ],
)
def test_misuse_names_argument_rule_and_value(call, message):
    with pytest.raises(ConfigurationError, match=message):
        call()


def test_the_printed_single_chain_of_five_groups():
    # the text's sixth column is the row number l
    printed = parse(["0 0 * * *", "* 1 1 * *", "* * 2 2 *", "* * * 3 3", "0 * * * 0"])
    assert hetero.segment_matrix("sc", 5).tolist() == printed


def test_the_printed_multiple_chains_of_six_groups():
    printed = parse(
        [
            "0 0 2 3 3 2",
            "0 * 0 3 * 3",
            "0 1 1 0 4 4",
            "0 1 * 1 0 *",
            "0 1 2 2 1 0",
            "* 1 2 * 2 1",
        ]
    )
    assert hetero.segment_matrix("mc", 6).tolist() == printed


def partners(matrix, group):
    """Return with whom a group sums each segment."""
    return [
        set(next(b for b in row if group in b)) - {group}
        for row in hetero.blocks_of(matrix)
    ]


def test_what_table_3_says_of_the_first_group():
    assert partners(hetero.segment_matrix("sc", 5), 0) == [
        {1},
        set(),
        set(),
        set(),
        {4},
    ]
    assert partners(hetero.segment_matrix("mc", 5), 0) == [{1}, {2}, {3}, {4}, set()]


def test_what_section_5a_says_of_the_first_row():
    assert set(hetero.blocks_of(hetero.segment_matrix("mc", 5))[0]) == {
        (0, 1),
        (2, 4),
        (3,),
    }


def test_the_readable_rows_of_equation_15():
    subgroups = [1, 2, 2]
    chain = parse_pairs(
        ["00 00 * * *", "* 10 10 * *", "* * 11 11 *", "* * * 20 20", "00 * * * 00"],
        subgroups,
    )
    assert hetero.segment_matrix_plus("sc", subgroups).tolist() == chain
    multiple = parse_pairs(
        ["00 00 11 * 11", "00 * 00 20 20", "00 10 10 00 *"], subgroups
    )
    assert hetero.segment_matrix_plus("mc", subgroups).tolist()[:3] == multiple
    hybrid = parse_pairs(["00 10 10 00 *", "00 10 * 10 00", "* 10 11 11 10"], subgroups)
    assert hetero.segment_matrix_plus("hc", subgroups, 2).tolist()[2:] == hybrid


@pytest.mark.smoke
def test_a_matrix_prints_as_the_paper_prints_it():
    text = hetero.format_matrix(hetero.segment_matrix_plus("mc", [1, 2, 2]), [1, 2, 2])
    assert text.splitlines()[0].split() == ["(0,0)", "(0,0)", "(1,1)", "*", "(1,1)"]
    assert len({len(line) for line in text.splitlines()}) == 1


def algorithm_1(size):
    matrix = np.full((size, size), -1)
    for g in range(size):
        matrix[g, g] = matrix[g, (g + 1) % size] = g % (size - 1)
    return matrix


def algorithm_3(size, threshold):
    matrix = np.full((size, size), -1)
    g_t = size - threshold - 1
    for g in range(size - 1):
        if g < g_t:
            for r in range(size - g - 1):
                row = (2 * g + r) % size
                matrix[row, g] = matrix[row, g + r + 1] = g
        else:
            row = (g_t + g) % size
            matrix[row, g] = matrix[row, g + 1] = g
    return matrix


def algorithm_6(parts, threshold):
    """As printed, but for d_T = z_T - Z_(g_T - 1), s from d, else s = s + 1, and d + d_T.

    A pair (g, d) stands at its place in the order of pairs.
    """
    total, last = sum(parts), len(parts) - 1
    before = [sum(parts[:g]) for g in range(len(parts))]  # Z_(g-1)
    place = {(g, d): before[g] + d for g in range(len(parts)) for d in range(parts[g])}
    z_t = total - threshold - 1
    g_t = next(
        g for g in range(len(parts)) if before[g] <= z_t <= before[g] + parts[g] - 1
    )
    d_t = z_t - before[g_t]
    matrix = np.full((total, total), -1)
    for g in range(len(parts)):
        for d in range(parts[g] - (g == last)):
            if (g, d) < (g_t, d_t):
                i, s = 0, d
                for r in range(total - before[g] - d - 1):
                    m = 2 * (before[g] + d) + r
                    if (d + r + 1) % sum(parts[g : g + i + 1]) == 0:
                        i, s = i + 1, 0
                    else:
                        s = s + 1
                    matrix[m % total, place[g, d]] = place[g, d]
                    matrix[m % total, place[g + i, s]] = place[g, d]
            else:
                row = (before[g_t] + before[g] + d + d_t) % total
                other = (g, d + 1) if d != parts[g] - 1 else (g + 1, 0)
                matrix[row, place[g, d]] = matrix[row, place[other]] = place[g, d]
    return matrix


@pytest.mark.parametrize("size", range(2, 13))
def test_algorithms_1_and_3_written_out(size):
    assert (hetero.segment_matrix("sc", size) == algorithm_1(size)).all()
    for threshold in range(1, size):
        ours = hetero.segment_matrix("hc", size, threshold)
        assert (ours == algorithm_3(size, threshold)).all()
    assert (hetero.segment_matrix("mc", size) == algorithm_3(size, 1)).all()


@pytest.mark.long
def test_algorithm_6_with_its_corrections_is_the_base_scheme_over_subgroups():
    vectors = [
        parts
        for groups in range(1, 5)
        for parts in itertools.product(range(1, 4), repeat=groups)
        if sum(parts) >= 2
    ]
    compared = 0
    for parts in vectors:
        for threshold in range(1, sum(parts)):
            ours = hetero.segment_matrix_plus("hc", parts, threshold)
            assert (ours == algorithm_6(list(parts), threshold)).all(), (
                parts,
                threshold,
            )
            compared += 1
    assert compared > 700


@given(st.integers(2, 40))
def test_a_row_of_multiple_chains_is_a_reflection(size):
    matrix = hetero.segment_matrix("mc", size)
    for row in range(size):
        mirrored = (row + 1 - np.arange(size)) % size
        expected = np.where(
            mirrored == np.arange(size), -1, np.minimum(mirrored, range(size))
        )
        assert (matrix[row] == expected).all()


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.data())
def test_blocks_partition_every_row_and_labels_give_the_matrix_back(subgroups, data):
    total = sum(subgroups)
    scheme = data.draw(st.sampled_from(["sc", "mc", "hc"]))
    threshold = data.draw(st.integers(1, total - 1)) if scheme == "hc" else None
    matrix = hetero.segment_matrix_plus(scheme, subgroups, threshold)
    again = np.full_like(matrix, -1)
    for segment, blocks in enumerate(hetero.blocks_of(matrix)):
        assert sorted(itertools.chain(*blocks)) == list(range(total))
        assert all(len(block) <= 2 for block in blocks)
        for block in blocks:
            if len(block) > 1:
                again[segment, list(block)] = block[0]
    assert (again == matrix).all()
    assert hetero.blocks_of(matrix.tolist()) == hetero.blocks_of(matrix)
