"""Multi-RoundSecAgg's tables and figures, remade and judged.

One row an item (`items.toml`).
So, Ali, Guler, Jiao, Avestimehr, "Securing Secure Aggregation: Mitigating Multi-Round
Privacy Leakage in Federated Learning" (AAAI version): Tables 1, 3, 4, 5, Figures 1 to
10, Theorems 1 to 3, Remarks 6 and 7, and Figure 8 of the 2021 text; beside them what
the published estimate of T misses, who leaks earlier, and what least squares recovers.
Errata and open readings: docs/errata.md.
"""
