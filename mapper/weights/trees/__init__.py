"""`save_tree` and `load_tree`: any nested structure in records of a stream or file."""
