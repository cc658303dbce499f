"""The only code of rv that prints: answers on stdout, everything else on stderr.

Payloads print for themselves.
"""
