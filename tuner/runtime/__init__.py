"""Effects on machines: starting, watching and ending engine processes, reading hosts and GPUs."""
