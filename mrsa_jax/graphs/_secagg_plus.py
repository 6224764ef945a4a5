"""Degree and threshold of SecAgg+ for given corruption and dropout.

Bell, Bonawitz, Gascón, Lepoint, Raykova, "Secure single-server aggregation with
(poly)logarithmic overhead" (CCS 2020), Section 3. n -> `num_clients`, k -> `degree`, t
-> `threshold`, gamma -> `corrupt_fraction`, delta -> `dropout_fraction`, sigma and eta
-> `security_bits`, `correctness_bits`.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
from jaxtyping import Float64

from mrsa_jax._core.array_types import Whole
from mrsa_watch._base.errors import check_integer, check_number, require

# Up to here counts are exact in float64 and tails sum few enough terms.
_MAX_CLIENTS = 10**9


@dataclasses.dataclass(frozen=True)
class SecAggPlusParameters:
    """A degree and a threshold for SecAgg+, with upper bounds on what may go wrong.

    Attributes:
        num_clients: n.
        degree: k, for `harary`.
        threshold: t, for every client.
        num_corrupt: Clients that may be corrupt, floor(gamma n).
        num_dropped: Clients that may be lost, floor(delta n).
        log2_exposed: log2 of the bound on the chance that corrupt neighbours, with a
            server that lies if that was asked for, can recover both secrets of some
            honest client.
        log2_disconnected: log2 of the bound on the chance that honest survivors are not
            connected, so that partial sums may leak.
        log2_unrecoverable: log2 of the bound on the chance that some client keeps fewer
            than t neighbours, so that the round may fail.

    A bound of 0 has the logarithm -inf.
    """

    cites = "secagg_plus"

    num_clients: int
    degree: int
    threshold: int
    num_corrupt: int
    num_dropped: int
    log2_exposed: float
    log2_disconnected: float
    log2_unrecoverable: float


def secagg_plus_parameters(
    num_clients: Whole,
    corrupt_fraction: float | int | Fraction | np.number,
    dropout_fraction: float | int | Fraction | np.number,
    security_bits: Whole = 40,
    correctness_bits: Whole = 20,
    *,
    lying_server: bool = False,
) -> SecAggPlusParameters:
    """Return the smallest degree k, and a threshold t, that SecAgg+ can work with.

    Let c = floor(gamma n) clients be corrupt and d = floor(delta n) be lost at any
    time, chosen without knowledge of the random places of `harary`. Then the k
    neighbours of a client are a uniform k-subset of the n - 1 others. With H(k, m) the
    number that k draws without replacement from n - 1 clients find of m marked ones,
    these hold by union bounds over n clients:

    1. Some honest client has t or more corrupt neighbours, with chance at most n P[H(k,
       c) >= t]. They and an honest server could otherwise recover both of its secrets.
    2. Some client, lost or not, keeps fewer than t neighbours, with chance at most
       n P[H(k, n - d - 1) < t]. (A lost client is one of the d; for it n - d others are
       left.)
    3. The honest survivors are not connected, with chance at most n times the product
       over j < h = floor(k/2) of (c + d - j)/(n - j) <= n (gamma + delta)^h. For then
       two survivors who follow each other round the ring are not joined, so at least
       the h places that follow the first hold nobody but corrupt and lost clients. The
       chance is 0 when c + d < k, since a Harary graph is k-connected.

    The first and the third are held below 2^-security_bits each, the second below
    2^-correctness_bits. Of the thresholds that do, the largest is taken: it leaves
    corrupt neighbours the least at the chance of failure that was allowed.

    Args:
        num_clients: n, in [2, 10^9].
        corrupt_fraction: gamma in [0, 1).
        dropout_fraction: delta in [0, 1), over all steps of the round.
        security_bits: sigma, at least 1.
        correctness_bits: eta, at least 1.
        lying_server: Ask that a server which tells some neighbours that a client is
            there and others that it is lost does not get both secrets either (CCESA's
            Appendix F attack, with corrupt clients; no other lie is ruled out by it).
            It gets k - x shares from honest neighbours, x of both kinds from corrupt
            ones, and the client's own share, so k + 1 + x < 2 t takes the place of x <
            t in the first statement. Other steps of the malicious protocol of Bell et
            al. (a graph that clients draw themselves, signed public keys) are not
            modelled.

    Returns:
        k, t and the three bounds.

    Raises:
        ConfigurationError: If an argument is out of range, or gamma and delta are so
            large that the complete graph is not enough: c + d > n - 2, or with a server
            that lies c + 2 d > n - 3.

    Edge cases: where few clients leave no room, k = n - 1, the complete graph. In the
    paper, a client's shares go to its k neighbours alone. This package's clients, as
    CCESA's, keep one share and return it for their self seed. So a server that lies
    finds k + 1 holders: t of half of them, which holds in the paper's game for odd k,
    is refused. Clients of V_3 have one share to spare in the second statement. For
    graphs other than `harary` the third statement
    does not hold as it is.

    Examples:
        >>> import mrsa_jax as mj
        >>> found = mj.graphs.secagg_plus_parameters(1000, 0.2, 0.1)
        >>> found.threshold <= found.degree < 100, found.log2_exposed <= -40.0
        (True, True)

    Source: Bell et al., Section 3 (semi-honest), Definition of a good graph and its
    lemmas. Differs from the paper in that tails are summed and not bounded, and the run
    of the third statement is drawn without replacement.
    """
    clients = check_integer(num_clients, "num_clients", 2, _MAX_CLIENTS)
    corrupt = _count("corrupt_fraction", corrupt_fraction, clients)
    dropped = _count("dropout_fraction", dropout_fraction, clients)
    security = check_integer(security_bits, "security_bits", 1)
    correctness = check_integer(correctness_bits, "correctness_bits", 1)
    rates = _Rates(clients, corrupt, dropped, security, correctness, lying_server)
    rule = (
        f"must leave room for a threshold, given `dropout_fraction`: with {corrupt} "
        "corrupt and "
        f"{dropped} lost of {clients} clients not even the complete graph is enough"
    )
    require(
        rates.complete_is_enough(),
        "corrupt_fraction",
        rule,
        corrupt_fraction,
        dropout_fraction,
    )
    degree, threshold = rates.smallest()
    bounds = (rates.exposed(degree)[threshold], rates.disconnected(degree))
    failed = rates.unrecoverable(degree)[threshold]
    logs = [float(value) / math.log(2) for value in (*bounds, failed)]
    return SecAggPlusParameters(clients, degree, threshold, corrupt, dropped, *logs)


def log_tails(
    population: int,
    marked: int,
    drawn: int,
) -> tuple[Float64[np.ndarray, " counts"], Float64[np.ndarray, " counts"]]:
    """Return ln P[H >= x] and ln P[H < x] for x = 0 to drawn + 1.

    -inf where that is impossible.
    H is the number of marked ones among `drawn`, without replacement, of `population`:
    P[H = x] = C(drawn, x) (marked)_x (population - marked)_(drawn - x) /
    (population)_drawn, with falling factorials. Sums of logarithms keep a relative
    error of about 1e-12 in any tail.
    """
    counts = np.arange(drawn + 1)
    factorials = _log_falling(drawn, drawn)[drawn] - _log_falling(drawn, drawn)[::-1]
    choose = factorials[drawn] - factorials - factorials[::-1]
    good, bad = _log_falling(marked, drawn), _log_falling(population - marked, drawn)
    mass = (
        choose
        + good[counts]
        + bad[drawn - counts]
        - _log_falling(population, drawn)[drawn]
    )
    mass = np.append(mass, -np.inf)
    upper = np.logaddexp.accumulate(mass[::-1])[::-1]
    lower = np.append(-np.inf, np.logaddexp.accumulate(mass)[:-1])
    return np.minimum(upper, 0.0), np.minimum(lower, 0.0)


def _log_falling(base: int, length: int) -> np.ndarray:
    """Return ln of base (base - 1) ... (base - j + 1) for j = 0 to `length`."""
    with np.errstate(divide="ignore"):
        factors = np.log(np.maximum(base - np.arange(length), 0).astype(np.float64))
    return np.append(0.0, np.cumsum(factors))


@dataclasses.dataclass(frozen=True)
class _Rates:
    """The three statements as natural logarithms, for any degree."""

    clients: int
    corrupt: int
    dropped: int
    security: int
    correctness: int
    lying_server: bool

    def exposed(self, degree: int) -> np.ndarray:
        """Return ln of the first bound for t = 0 to k + 1."""
        upper, _ = log_tails(self.clients - 1, self.corrupt, degree)
        if self.lying_server:  # at least 2 t - k - 1 corrupt neighbours are enough
            least = 2 * np.arange(degree + 2) - degree - 1
            upper = upper[np.clip(least, 0, degree + 1)]
        return np.minimum(upper + math.log(self.clients), 0.0)

    def unrecoverable(self, degree: int) -> np.ndarray:
        """Return ln of the second bound for t = 0 to k + 1."""
        _, lower = log_tails(self.clients - 1, self.clients - self.dropped - 1, degree)
        return np.minimum(lower + math.log(self.clients), 0.0)

    def disconnected(self, degree: int) -> float:
        """Return ln of the third bound."""
        bad, run = self.corrupt + self.dropped, degree // 2
        if degree == self.clients - 1 or (bad < degree and degree >= 2):
            return -math.inf
        at_most = _log_falling(bad, run)[run] - _log_falling(self.clients, run)[run]
        return min(0.0, math.log(self.clients) + float(at_most))

    def complete_is_enough(self) -> bool:
        """Return whether a threshold fits the complete graph.

        There nothing is left to chance.
        """
        last = self.clients - 1
        neighbours = last - self.dropped
        return (
            2 * neighbours > self.clients + self.corrupt
            if self.lying_server
            else neighbours > self.corrupt
        )

    def smallest(self) -> tuple[int, int]:
        """Return the smallest degree that works and its largest threshold.

        With one neighbour more, the least threshold of the first statement and the
        largest of the second each grow by one at most. So where they miss each other by
        g, fewer than g neighbours more cannot do, and are passed over. The complete
        graph works.
        """
        secure, correct = -self.security * math.log(2), -self.correctness * math.log(2)
        degree = min(2, self.clients - 1)
        while True:
            least = max(1, int(np.argmax(self.exposed(degree) <= secure)))
            largest = int(np.flatnonzero(self.unrecoverable(degree) <= correct)[-1])
            if least <= largest and self.disconnected(degree) <= secure:
                return degree, largest
            degree += max(1, least - largest)
            degree += self.clients * degree % 2


def _count(argument: str, fraction: object, clients: int) -> int:
    """Return the floor of a fraction of the clients, safe against binary rounding."""
    rule, kind = "must lie in [0, 1)", "must be a number in [0, 1)"
    value = check_number(
        fraction, argument, rule, 0.0, math.nextafter(1.0, 0.0), kind=kind
    )
    exact = (
        fraction
        if isinstance(fraction, Fraction)
        else Fraction(value).limit_denominator(10**9)
    )
    return math.floor(exact * clients)
