"""Loads, checks and explains rule files."""
