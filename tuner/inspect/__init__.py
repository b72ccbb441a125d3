"""Reads other people's commands and files back into an EngineConfig."""
