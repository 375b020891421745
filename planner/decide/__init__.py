"""Decisions from predictions: sizing, explanations, suggestions, comparison with API prices."""
