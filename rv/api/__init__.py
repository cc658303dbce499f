"""rv from Python: `import rv` gives the names that `rv/__init__.py` lists."""
