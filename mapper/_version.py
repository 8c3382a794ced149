"""The version, which the build and whoever writes a file read."""

__version__ = "0.1.0"
