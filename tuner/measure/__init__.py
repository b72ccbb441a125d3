"""Arithmetic after a run: request records to estimates with intervals."""
