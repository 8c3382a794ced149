"""`diff`: two sources as tables, path by path."""
