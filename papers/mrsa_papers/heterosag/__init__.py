"""HeteroSAg, remade and judged: one row an item (`items.toml`).

Elkordy, Avestimehr, "Secure Aggregation with Heterogeneous Quantization in Federated
Learning": Algorithms 1 to 6, Examples 1 to 5, Tables II and III, Theorems 1 to 4,
Section VI, Figure 3. Errata and open readings: docs/errata.md.
"""
