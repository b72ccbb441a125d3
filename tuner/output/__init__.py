"""Effects on files: evidence, plans, deployment files and reports."""
