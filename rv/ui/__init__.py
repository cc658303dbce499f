"""The only code that prints: answers on stdout, everything else on stderr."""
