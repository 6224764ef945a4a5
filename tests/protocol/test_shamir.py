"""Secret sharing: a printed example, Python's integers, and what too few shares tell."""

import inspect
import itertools
import json
import pathlib

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from mrsa_jax import ConfigurationError
from mrsa_jax.protocol import recover, shamir, share
from mrsa_jax.protocol.errors import ForgedShareError

PRIME = 2**31 - 1
EXAMPLE = json.loads(
    (pathlib.Path(__file__).parents[1] / "vectors" / "shamir.json").read_text()
)
SECRET = bytes(range(200, 232))
EXTREMES = [bytes(32), b"\xff" * 32, b"\x01" + bytes(31), bytes(31) + b"\x80"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((b"short", 1, [1]), "`secret` must be 32 bytes long; got 5"),
        ((SECRET, 0, [1]), "`threshold` must be at least 1; got 0"),
        ((SECRET, 1.0, [1]), "`threshold` must be an integer"),
        ((SECRET, 1, [0, 1]), "`points` must lie in"),
        ((SECRET, 1, [PRIME]), "non-zero elements"),  # too many clients for the field
        ((SECRET, 1, [2, 2]), "`points` must be distinct"),
        ((SECRET, 1, []), "`points` must hold at least one"),
        ((SECRET, 1, [1.5, 2.5]), "`points` must hold integers; got"),  # never 1 and 2
        ((SECRET, 1, [True, 2]), "`points` must hold integers"),
        ((SECRET, 1, ["3", 4]), "`points` must hold integers"),
        ((SECRET, 1, None), "`points` must be a list of integers; got None"),
        (("a" * 32, 1, [1]), "`secret` must be bytes"),
        ((None, 1, [1]), "`secret` must be bytes; got None"),
    ],
)
def test_share_refuses(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        inspect.unwrap(share)(*arguments, 0)


def test_recover_refuses():
    shares = share(SECRET, 3, [1, 2, 3], 0)
    with pytest.raises(ConfigurationError, match="at least `threshold`; got 2 and 3"):
        recover([1, 2], shares[:2], 3)
    with pytest.raises(
        ConfigurationError, match=r"`shares` must have the shape \(3, 9\)"
    ):
        recover([1, 2, 3], shares[:2], 3)
    with pytest.raises(ConfigurationError, match="`shares` must be uint32"):
        recover([1, 2, 3], shares.astype(np.int64), 3)
    with pytest.raises(ConfigurationError, match="below 2"):
        recover([1, 2, 3], np.full((3, 9), PRIME, np.uint32), 3)


@pytest.mark.smoke
def test_printed_example():
    prime, points = EXAMPLE["prime"], EXAMPLE["points"]
    column = np.asarray(EXAMPLE["coefficients"], np.uint64)[:, None]
    shares = shamir.evaluate(column, points, prime)
    assert shares[:, 0].tolist() == EXAMPLE["shares"]
    assert [value % prime for value in EXAMPLE["integers"]] == EXAMPLE["shares"]
    for chosen in itertools.permutations(range(6), 3):
        weights = shamir._weights(tuple(points[k] for k in chosen), (0,), prime)
        assert shamir.combine(weights, shares[list(chosen)], prime).tolist() == [[1234]]


def lagrange_at_zero(points, values):
    """The textbook formula in Python integers."""
    total = 0
    for x, value in zip(points, values, strict=True):
        top = bottom = 1
        for other in points:
            if other != x:
                top, bottom = top * -other % PRIME, bottom * (x - other) % PRIME
        total += value * top * pow(bottom, -1, PRIME)
    return total % PRIME


@pytest.mark.parametrize("secret", [SECRET, *EXTREMES], ids=lambda s: s[:2].hex())
def test_shares_are_points_of_polynomials_through_the_limbs(secret):
    points = [1, 2, 5, 1000, PRIME - 1]
    shares = share(secret, 3, points, 0)
    assert shares.dtype == np.uint32
    assert shares.shape == (5, 9)
    limbs = [int.from_bytes(secret, "little") >> 30 * k & (2**30 - 1) for k in range(9)]
    for chosen in itertools.combinations(range(5), 3):
        where = [points[k] for k in chosen]
        for k in range(9):
            assert lagrange_at_zero(where, shares[list(chosen), k].tolist()) == limbs[k]
        assert recover(where, shares[list(chosen)], 3) == secret
    assert recover(points, shares, 3) == secret


def test_threshold_one_shares_are_the_secret():
    shares = share(SECRET, 1, [4, 9], 0)
    assert (shares[0] == shares[1]).all()
    assert recover([9], shares[1:], 1) == SECRET


def test_too_high_a_threshold_never_recovers():
    # no polynomial of that degree is drawn
    shares = share(SECRET, 2**31 - 1, [1, 2], 0)
    with pytest.raises(ConfigurationError, match="at least `threshold`"):
        recover([1, 2], shares, 2**31 - 1)
    # the line through both misses the secret, for the polynomial's degree is 2
    first_limb = int.from_bytes(SECRET, "little") & (2**30 - 1)
    assert lagrange_at_zero([1, 2], shares[:, 0].tolist()) != first_limb


def test_one_share_fewer_says_nothing():
    """Every value of the missing share gives another secret: t - 1 shares fit them all."""
    shares = share(SECRET, 3, [1, 2, 3], 0)
    seen = {
        lagrange_at_zero([1, 2, 3], [*shares[:2, 0].tolist(), x]) for x in range(500)
    }
    assert len(seen) == 500


@pytest.mark.parametrize("limb", range(9))
@pytest.mark.parametrize("holder", range(5))
def test_a_forged_share_among_more_than_t_is_found(holder, limb):
    points = [3, 1, 4, 15, 9]
    shares = share(SECRET, 3, points, 0)
    shares[holder, limb] = (shares[holder, limb] + np.uint32(1)) % PRIME
    with pytest.raises(
        ForgedShareError, match="5 shares lie on no polynomial of degree 2"
    ):
        recover(points, shares, 3)


def test_shares_of_no_256_bit_number_are_refused():
    too_big = np.zeros((1, 9), np.uint32)
    too_big[0, 8] = 2**16
    with pytest.raises(ForgedShareError, match="256-bit"):
        recover([1], too_big, 1)
    too_wide = np.zeros((1, 9), np.uint32)
    too_wide[0, 0] = 2**30
    with pytest.raises(ForgedShareError, match="256-bit"):
        recover([1], too_wide, 1)


def test_field_elements_are_uniform_below_the_prime():
    """The one word that is no field element is drawn again, and nothing is reduced."""

    class Fixed:
        is_secure = False

        def __init__(self):
            words = np.asarray(
                [PRIME, 2**32 - 1, 2**31, 5, 2**31 + 6, PRIME - 1], "<u4"
            )
            self.stream = words.tobytes()

        def draw(self, count):
            drawn, self.stream = self.stream[:count], self.stream[count:]
            return drawn

    assert inspect.unwrap(shamir._uniform)(Fixed(), 3).tolist() == [0, 5, 6]


def test_two_secrets_have_polynomials_of_their_own():
    both = shamir.share_all([SECRET, SECRET], 2, [1, 2], 0)
    assert both.shape == (2, 2, 9)
    assert (both[0] != both[1]).any()
    for shares in both:
        assert recover([1, 2], shares, 2) == SECRET


@hypothesis.given(
    secret=st.binary(min_size=32, max_size=32),
    points=st.lists(st.integers(1, PRIME - 1), min_size=1, max_size=12, unique=True),
    data=st.data(),
)
def test_any_t_shares_recover(secret, points, data):
    threshold = data.draw(st.integers(1, len(points)))
    shares = share(secret, threshold, points, data.draw(st.integers(0, 2**64)))
    order = data.draw(st.permutations(range(len(points))))
    chosen = order[: data.draw(st.integers(threshold, len(points)))]
    assert recover([points[k] for k in chosen], shares[chosen], threshold) == secret


def test_large_sums_of_products_do_not_wrap():
    """The largest residues, 300 of them: combined exactly."""
    top = np.full((2, 300), PRIME - 1, np.uint64)
    column = np.full((300, 1), PRIME - 1, np.uint64)
    assert shamir.combine(top, column, PRIME).tolist() == [[300], [300]]
