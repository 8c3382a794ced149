"""A graph as one readable file: modules with trainable parameters, and straight-line code in the order of the graph."""
