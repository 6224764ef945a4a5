"""A Flower app whose rounds are recorded and gated by mrsa-watch."""
