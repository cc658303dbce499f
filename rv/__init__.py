"""rv: get GPUs on a busy Slurm cluster sooner."""

__version__ = "0.2.0"
