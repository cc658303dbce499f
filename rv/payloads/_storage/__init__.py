"""What storage_net.py does besides its own files: fio, where it is installed."""
