"""Keeping GPUs busy and seeing whether they stay right: the engines of `stress.py`."""
