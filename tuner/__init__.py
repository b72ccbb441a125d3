"""llmtune: tunes LLM inference servers by live trials and writes the deployment files of the winner."""

__version__ = "0.1.0"
