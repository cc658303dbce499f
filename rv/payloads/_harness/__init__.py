"""What every payload shares: flags, devices, ranks, results and verdicts. Stdlib; torch if there.

Lies beside the payloads, which import it from their own folder, wherever that was copied to.
"""
