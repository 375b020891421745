"""Timelines of a step: works of each rank in order, and memory over time."""
