"""What membw.py measures: device memory, host links, links between GPUs, and patterns in memory."""
