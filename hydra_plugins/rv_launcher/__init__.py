"""Hydra's launcher that sends the jobs of a sweep through rv: `hydra/launcher=rv`."""
