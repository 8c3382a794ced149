"""`load_weights`: any source as a flat table, every check, and only then the writing."""
