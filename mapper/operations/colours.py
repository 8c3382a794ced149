"""Images of colours before and after a network. Images are (B, C, Y, X)."""

from __future__ import annotations
