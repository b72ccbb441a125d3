"""Use cases. They wire the rooms below together and print nothing."""
