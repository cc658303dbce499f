"""The statistics of `rv.payloads.contract.stats`."""

from rv.payloads.contract.stats import loss, mad, modified_z

__all__ = ["loss", "mad", "modified_z"]
