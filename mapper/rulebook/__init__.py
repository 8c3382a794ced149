"""Reads rule files, and holds what they say."""
