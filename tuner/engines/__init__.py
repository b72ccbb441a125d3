"""Pure translation between llmtune's nouns and one engine's own words; one file an engine."""
