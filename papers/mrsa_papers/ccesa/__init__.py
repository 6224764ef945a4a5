"""CCESA's tables and figures, remade and judged: one row an item (`items.toml`).

Choi, Sohn, Han, Moon, "Communication-Computation Efficient Secure Aggregation for
Federated Learning": Theorems 1 to 6, Tables 1, 2, 3, B.1 and G.2, Figures 2, 3, 4, B.1
and B.2, Remark 4, Proposition 1, Appendix D.1 and the comparison with Turbo-aggregate.
Errata and open readings: docs/errata.md.
"""
