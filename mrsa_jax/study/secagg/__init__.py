"""Rounds of secure aggregation from settings, and studies of their failures."""
