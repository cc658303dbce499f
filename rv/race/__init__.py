"""A race from its directory to its end: stage, submit, watch, resolve, cancel, recover."""
