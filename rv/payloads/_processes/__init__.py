"""Starting processes, identifying them, and leaving none behind."""
