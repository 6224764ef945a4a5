"""Readers of the participation logs of other systems."""
