"""Starting processes, knowing them again, and leaving none of them behind."""
