"""What allreduce.py measures: the collectives, their exact inputs, arrival, and pairs of nodes."""
