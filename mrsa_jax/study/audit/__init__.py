"""Audits of participation logs from settings."""
