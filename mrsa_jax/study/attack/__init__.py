"""Attacks from settings: what a curious server gets out of the sums, tried and scored."""
