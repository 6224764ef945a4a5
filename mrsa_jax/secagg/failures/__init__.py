"""How often a round fails, by bounds, exact sums and simulation: Theorems 1 to 6 of CCESA."""
