"""Compositions of torch.nn's own layers as data, and back."""
