"""Data loading: how many workers pay, and that every sample comes exactly once."""
