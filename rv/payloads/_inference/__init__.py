"""What inference.py runs: a network of the shape of ResNet-50, every output of it compared."""
