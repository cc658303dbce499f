"""What moe.py runs: a small Mixtral of the hub's own classes, with random weights."""
