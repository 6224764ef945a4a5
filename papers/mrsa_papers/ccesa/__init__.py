"""CCESA's tables and figures, remade and judged: one row an item.

Choi, Sohn, Han, Moon, "Communication-Computation Efficient Secure Aggregation for Federated
Learning": Theorems 1 to 6, Tables 1, 2, 3, B.1 and G.2, Figures 2, 3, 4, B.1 and B.2, Remark 4,
Proposition 1, Appendix D.1 and the comparison with Turbo-aggregate. Errata and open readings:
docs/errata.md.
"""

from __future__ import annotations

from mrsa_papers.harness import Miss, Row

__all__ = ["ALIASES", "ROWS"]

ALIASES = {"figb2": "fig2", "tableb1": "table3"}

ROWS: dict[str, Row] = {
    "theorem1": Row(
        "Theorem 1: when the sum is learnt", 8, 2, "conditions.reliable", "conditions.draw_reliable"
    ),
    "theorem2": Row(
        "Theorem 2: when no part's sum is learnt", 8, 2,
        "conditions.private", "conditions.draw_private",
    ),
    "theorem3": Row(
        "Theorem 3: reliable for many clients", 6, 1,
        "asymptotic.reliable", "asymptotic.draw_reliable",
    ),
    "theorem4": Row(
        "Theorem 4: private for many clients", 15, 1,
        "asymptotic.private", "asymptotic.draw_private",
    ),
    "table1": Row(
        "Table 1: how resources grow with n", 60, 4, "costs.growth", "costs.draw_growth"
    ),
    "fig3": Row(
        "Figure 3: bounds on the chances of failure at p = p*", 20, 2,
        "theory.error_bounds", "theory.draw_bounds",
    ),
    "tableg2": Row(
        "Table G.2: connection probabilities p*", 1, 1,
        "thresholds.threshold_probabilities", "thresholds.draw_probabilities",
    ),
    "remark4": Row(
        "Remark 4: the share threshold t", 1, 1,
        "thresholds.share_thresholds", "thresholds.draw_thresholds",
    ),
    "proposition1": Row(
        "Proposition 1: the unmasking attack", 1, 1, "theory.unmasking", "theory.draw_unmasking"
    ),
    "bandwidth": Row(
        "Appendix D.1: additional bandwidth of a client", 1, 1,
        "costs.bandwidths", "costs.draw_bandwidths",
    ),
    "table2": Row(
        "Table 2: running times", 280, 30, "times.running_times", "times.draw_times"
    ),
    "fig4": Row(
        "Figure 4: accuracy of CCESA(1000, p) and SecAgg", 1500, 38,
        "reliability.objects", "reliability.draw_reliability", "cifar10",
        (
            Miss("SecAgg with two shards a client against IID",
                 "Clients hold four digits each, the paper's 50 images of CIFAR-10: two sorted "
                 "shards cost 0.3 points here, within the noise of three seeds (0.6)."),
        ),
    ),
    "figb1": Row(
        "Figure B.1: accuracy of CCESA(40, p) and SecAgg, t = 21", 600, 45,
        "reliability.faces", "reliability.draw_reliability", "olivetti",
        (
            Miss("p = 0.7 against SecAgg, one class each, q_total = 0.1",
                 "At p = .7, t = 21 and q_total = .1, 68 % of the rounds fail (simulated; Theorem "
                 "5's bound is 1 there, and p* is over 1): a third as many rounds are learnt.",
                 "both", None),
        ),
    ),
    "fig2": Row(
        "Figures 2 and B.2: model inversion of what clients send", 60, 10,
        "inversion.inversion", "inversion.draw_inverted", "olivetti",
    ),
    "table3": Row(
        "Tables 3 and B.1: membership inference on what clients send", 165, 25,
        "membership.members", "membership.draw_members", "cifar10",
    ),
}  # fmt: skip
"""Its items, in the order in which they are made."""
