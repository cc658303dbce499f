"""Products of matrices: exact, repeatable, plausible at full size, and how fast."""
