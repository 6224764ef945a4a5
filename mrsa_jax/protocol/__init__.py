"""The secure-aggregation protocol with real messages and real cryptography."""

__all__: list[str] = []
