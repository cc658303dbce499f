"""The payloads of an acceptance run, in turn on one node."""
