"""Contexts of growing reach around each place of an image (FocalNet, paper 2203.11926)."""

from __future__ import annotations
