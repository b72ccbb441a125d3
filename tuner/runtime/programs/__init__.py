"""Programs that other interpreters run by path. They import nothing of llmtune."""
