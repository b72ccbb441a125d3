"""Arithmetic before any launch. Every number from here is PREDICTED."""
