"""Numbers that docs/errata.md states on thresholds and on Appendix E of CCESA."""

import math
import pathlib
from fractions import Fraction

import pytest

import mrsa_jax as mj
from mrsa_jax.study.attacks_on_models import MembershipConfig

N, TOTAL = 1000, 0.1
Q = 1.0 - (1.0 - TOTAL) ** 0.25
LOG10 = math.log(10.0)
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "errata.md"


def stated(*texts):
    """Require that the page states each text, on one line or over two."""
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    for text in texts:
        assert text in page


def first_moment(p, t):
    return mj.secagg.failures.log_reliability_first_moment(N, p, Q, t)


def test_majorities_make_the_sparse_graph_work():
    assert f"{math.exp(first_moment(0.04, 'majority')):.1e}" == "5.2e-06"
    assert round(300 * math.exp(first_moment(0.02, "majority")), 1) == 7.0
    assert mj.secagg.share_threshold(N, 0.04) == 63
    assert round(math.exp(first_moment(0.04, "remark4"))) == 949
    disconnected = mj.secagg.failures.log_disconnection_probability(N, 0.04, Q)
    assert round(disconnected / LOG10, 1) == -13.4
    dense = mj.secagg.connection_probability(N, TOTAL)
    t = mj.secagg.share_threshold(N, dense)
    assert (round(dense, 4), t) == (0.3106, 198)
    unmasked = mj.secagg.failures.unmasking_bound(N, round(dense, 4), t)
    assert round(unmasked / LOG10, 1) == -5.1
    words = [
        mj.secagg.expected_costs(N, (N - 1) * p, 21, 10_000, 2**16).client.prg_words
        for p in (round(dense, 4), 0.04)
    ]
    paper, sparse = (float(each[2, 0]) for each in words)
    assert round(paper / 1e6, 2) == 3.11
    assert round(sparse / 1e4) == 41
    assert round(paper / sparse, 1) == 7.6
    stated(
        "has 5.2e-6 lost secrets on average",
        "With Remark 4's t = 63, it has 949",
        "is disconnected is 10^-13.4",
        "7.0 of 300 rounds fail",
        "7.6 times the keystream",
        "probability of 10^-5.1",
    )


def test_table_1_s_reliability_of_secagg_is_too_good():
    assert round(first_moment(1.0, N // 2 + 1), 1) == -507.8
    assert round(math.log(N) - N, 1) == -993.1
    stated("is e^-507.8", "n e^-n = e^-993.1")


def test_lemmas_of_appendix_e():
    assert round(-N * (1 - Q) ** 6 / 2, 1) == -426.9
    p, m, k = 0.3106, 924, 1
    rate = p * N / math.log(N)  # lambda
    assert round(-k * (m - k) * p, 1) == -286.7
    assert round(-rate * k * (m - k) / m * math.log(m), 1) == -306.7
    stated("e^-426.9 against e^-1000", "e^-306.7 against e^-286.7")


def test_subgroups_and_thresholds_of_heterosag():
    users, p = 4, Fraction(1, 5)
    one = 1 - users * (1 - p) * p ** (users - 1) - p**users
    assert round(float(one), 4) == 0.9728
    assert round(float(one) ** 64, 3) == 0.171
    for n in range(2, 30):
        least = next(t for t in range(1, n + 1) if 2 * t > n)
        assert math.ceil(n / 2) + 1 - least == n % 2
        assert least == max(1, n // 2 + 1)
    stated("it is .9728 for one, and .171 for all of 64", "t = 3 suffices for N = 5")


def test_remark_6_of_heterosag_trades_expansion_for_survivors():
    factor, survive = (
        mj.hetero.costs.expansion_factor,
        mj.hetero.costs.survival_probability,
    )
    assert [factor(2**16, 2 * users) for users in (4, 7)] == [1.1875, 1.25]
    p = Fraction(1, 5)
    for users, subgroups, number in (
        (4, 1, 0.9728),
        (7, 1, 0.9996),
        (4, 64, 0.171),
        (7, 64, 0.977),
    ):
        alone = 1 - users * (1 - p) * p ** (users - 1) - p**users
        assert round(float(alone) ** subgroups, len(str(number)) - 2) == number
        assert math.isclose(survive(users, 0.2, subgroups), float(alone) ** subgroups)
    stated("from 1.1875 to 1.25", "from .9728 to .9996", "from .171 to .977")


def test_a_trimmed_mean_breaks_the_printed_bound_at_12_groups():
    tolerated = mj.hetero.tolerated_byzantine
    for groups in range(4, 13):
        printed = math.floor(0.25 * groups - 1)
        chain = tolerated(mj.hetero.segment_matrix("sc", groups), weighted=False)
        assert chain.anywhere >= printed
        assert min(chain.num_blocks) == groups - 1
        several = mj.hetero.segment_matrix("mc", groups)
        for threshold in range(1, groups):
            matrix = mj.hetero.segment_matrix("hc", groups, threshold)
            fewest = min(map(len, mj.hetero.blocks_of(matrix)))
            assert fewest == max(threshold, min(map(len, mj.hetero.blocks_of(several))))
        trimmed = tolerated(several, trim=0.25, weighted=False).anywhere
        assert (trimmed < printed) == (groups == 12)
    assert (trimmed, printed) == (1, 2)
    stated("at G = 12, where 0.25 G - 1 is 2")


@pytest.mark.slow
def test_membership_is_clearer_in_the_mean_of_a_small_group():
    areas = []
    for summed in (2, 4, 20):
        config = MembershipConfig(
            seen=("sum",),
            num_summed=summed,
            methods=("loss",),
            num_targets=8,
            client_size=30,
            seed=1,
        )
        (row,) = mj.study.run(config).summary
        areas.append(round(row["auc"], 2))
    assert areas[0] > areas[1] > areas[2] + 0.05
    stated(*(f".{round(100 * area)} in a" for area in areas))


@pytest.mark.parametrize("p", [0.02, 0.04])
def test_no_majority_can_be_unmasked(p):
    rates = mj.secagg.failure_rates(0, 100, p, 0.02, "majority", 20)
    assert rates.unmaskable.count == 0
