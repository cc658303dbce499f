"""Tensors sent to another machine to be worked on: the parts of `tensor_service.py`."""
