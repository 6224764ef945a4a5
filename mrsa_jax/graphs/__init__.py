"""Assignment graphs: who shares keys, shares and pads with whom, and what losses leave of them."""

__all__: list[str] = []
