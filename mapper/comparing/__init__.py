"""Two models, or two implementations of any kind, on the same inputs: how far apart they are, and where it begins."""
