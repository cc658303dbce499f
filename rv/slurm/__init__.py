"""What the cluster says: one probe, pure parsers of Slurm's text, and what the watcher asks.

Parsers take any text and never raise; only `probe` uses a transport and only `cache` a file.
"""
