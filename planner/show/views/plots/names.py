"""The pictures of each command, for options and completions: it imports nothing."""

from __future__ import annotations

from collections.abc import Mapping

PICTURES: Mapping[str, tuple[str, ...]] = {
    "search": ("front", "parts", "roofline"),
    "estimate": ("parts", "roofline", "latency"),
    "size": ("cost",),
    "sweep": ("cost", "matrix"),
    "validate": ("predicted",),
}
"""The usual one first."""

USUAL_WIDTH = 1100
"""Pixels."""
