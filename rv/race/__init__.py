"""A race from its directory to its end: stage, submit, watch, tell the truth, stop, reap."""
