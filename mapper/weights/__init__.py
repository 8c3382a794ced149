"""Structural loading and saving: what is done with weights once a model exists. README.md tells which call to take."""
