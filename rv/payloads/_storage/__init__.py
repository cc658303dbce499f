"""What storage_net.py measures: small files, rates against the file system's floors, and fio."""
