"""The commands: each builds a request, calls one workflow function, and hands the result to ui."""
