"""What storage_net.py measures: small files, and rates held against the file system's floors."""
