"""Commands, options, exit codes, progress and tables."""
