"""What ckpt_cycle.py runs: a training that can be interrupted anywhere, and ways to do so."""
