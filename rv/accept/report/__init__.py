"""The report of acceptance runs: one HTML page that needs nothing beside it, and Markdown."""
