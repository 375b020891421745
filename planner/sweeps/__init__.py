"""Sweeps: one search for every combination of the values that a plan lists."""
