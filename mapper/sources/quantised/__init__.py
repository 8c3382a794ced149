"""Weights that are stored in fewer bits: what of them are plain weights, and how these are computed."""
